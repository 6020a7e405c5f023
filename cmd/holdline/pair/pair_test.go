package pair

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestProgram checks that a daemon is started from the path by which this program was
// called, if there is one.
func TestProgram(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "holdline")
	if err := os.Symlink(exe, link); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(link))
	for argv0, want := range map[string]string{link: link, "holdline": link, "/bin/sh": exe, "absent": exe, "": exe} {
		if got, err := Program(argv0); err != nil || got != want {
			t.Errorf("program(%q) = %q, %v, want %q", argv0, got, err, want)
		}
	}
}

// TestOfSmall checks where holdline is for each way in which holdline-stdio is started, and
// what its arguments are.
func TestOfSmall(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), Small)
	if err := os.Symlink(exe, link); err != nil {
		t.Fatal(err)
	}
	beside := filepath.Join(filepath.Dir(link), Whole)
	for _, c := range []struct {
		argv []string
		path string
		args []string
	}{
		{[]string{"/opt/name", Command, "--server", "x"}, "/opt/name", []string{"--server", "x"}}, // by BecomeSmall
		{[]string{link, "--server", "x"}, beside, []string{"--server", "x"}},
		{[]string{link, Command, "--server", "x"}, beside, []string{"--server", "x"}},
		{[]string{link}, beside, nil},
		{[]string{"absent"}, filepath.Join(filepath.Dir(exe), Whole), nil},
	} {
		path, args, err := OfSmall(c.argv)
		if err != nil || path != c.path || !slices.Equal(args, c.args) {
			t.Errorf("OfSmall(%q) = %q, %q, %v, want %q, %q", c.argv, path, args, err, c.path, c.args)
		}
	}
}

// TestNeedsWhole checks which arguments are for the whole program.
func TestNeedsWhole(t *testing.T) {
	for args, want := range map[string]bool{
		"": false, "--server x": false, "--identity=help": false, "--drain 5s direct": false, "--no-autostart": false,
		"--help": true, "-h": true, "-help": true, "--direct x": true, "--direct=x": true, "--server x -direct=y": true,
	} {
		if got := needsWhole(strings.Fields(args)); got != want {
			t.Errorf("%q: %v, want %v", args, got, want)
		}
	}
}

// TestBuildID checks that the id is found in the forms of both systems, that every build
// has its own, and that what is no program has none.
func TestBuildID(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if id := BuildID(exe); len(id) < 20 || strings.ContainsAny(id, "\x00\n") {
		t.Errorf("this test has the id %q", id)
	}
	elf := "\x7fELF.....\x04\x00\x00\x00\x05\x00\x00\x00\x04\x00\x00\x00Go\x00\x00v/1/c\x00"
	mach := "\xcf\xfa\xed\xfe....\xff Go build ID: \"v/1/c\"\n \xff...."
	dir := t.TempDir()
	for name, c := range map[string]struct{ text, want string }{
		"Linux": {elf, "v/1/c"}, "macOS": {mach, "v/1/c"}, "cut": {elf[:len(elf)-4], ""}, "no end": {mach[:20], ""},
		"empty": {"", ""}, "script": {"#!/bin/sh\n", ""}, "far": {strings.Repeat("x", headSize) + elf, ""},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := BuildID(path); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if id := BuildID(dir) + BuildID(filepath.Join(dir, "absent")); id != "" {
		t.Errorf("a directory or nothing has the id %q", id)
	}
}

// TestSmallOf checks that a holdline-stdio beside what the links of the program lead to is found
// if it belongs to the program, and that the error says why another is not.
func TestSmallOf(t *testing.T) {
	program := func(id string) string { return "\x06\x00\x00\x00" + string(noteELF) + id } // ids of 6 bytes
	for name, c := range map[string]struct {
		small string // content; "" for no file
		mode  os.FileMode
		want  string // in the error
	}{
		"same build":     {program("v1/abc"), 0o700, ""},
		"another build":  {program("v2/abc"), 0o700, "not of the same build"},
		"no program":     {"#!/bin/sh\n", 0o700, "not of the same build"},
		"missing":        {"", 0, "is missing"},
		"not executable": {program("v1/abc"), 0o600, "cannot be executed"},
	} {
		dir, links := t.TempDir(), t.TempDir()
		whole, small, link := filepath.Join(dir, Whole), filepath.Join(dir, Small), filepath.Join(links, Whole)
		err := errors.Join(os.WriteFile(whole, []byte(program("v1/abc")), 0o600), os.Symlink(whole, link))
		if c.small != "" {
			err = errors.Join(err, os.WriteFile(small, []byte(c.small), c.mode))
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{whole, link} {
			got, err := SmallOf(path)
			if c.want == "" && (err != nil || got != small) ||
				c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: SmallOf(%s) = %q, %v", name, path, got, err)
			}
		}
	}
}
