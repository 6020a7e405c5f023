package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"holdline/cmd/holdline/pair"
)

// TestPack checks that an archive's bytes depend only on names, contents and the owner's
// permissions.
func TestPack(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	files := func(more fs.FileMode, changed time.Time) fstest.MapFS {
		return fstest.MapFS{
			"holdline":                   {Mode: 0o700 | more, Data: []byte("program"), ModTime: changed},
			"man/man1/holdline.1":        {Mode: 0o600 | more, Data: []byte("page")},
			"README.md":                  {Mode: 0o600 | more, Data: []byte("read me")},
			"man/man1/holdline-status.1": {Mode: 0o600 | more, Data: []byte("another")},
		}
	}
	one, err := pack(files(0, at), "holdline-1", at)
	if err != nil {
		t.Fatal(err)
	}
	two, err := pack(files(0o044, time.Now()), "holdline-1", at.In(time.FixedZone("elsewhere", 3600)))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one, two) {
		t.Error("a file's time or the permissions of others, or the zone, change the archive")
	}
	zip, err := gzip.NewReader(bytes.NewReader(one))
	if err != nil {
		t.Fatal(err)
	}
	if zip.Name != "" || !zip.ModTime.IsZero() {
		t.Errorf("gzip's header has name %q and time %v", zip.Name, zip.ModTime)
	}
	var names []string
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if !h.ModTime.Equal(at) || h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.Gname != "" {
			t.Errorf("%s: %v, %d, %d, %q, %q", h.Name, h.ModTime, h.Uid, h.Gid, h.Uname, h.Gname)
		}
		want := int64(0o755)
		if strings.HasSuffix(h.Name, ".1") || strings.HasSuffix(h.Name, ".md") {
			want = 0o644
		}
		if h.Mode != want {
			t.Errorf("%s has mode %o, want %o", h.Name, h.Mode, want)
		}
	}
	want := []string{
		"holdline-1/", "holdline-1/README.md", "holdline-1/holdline", "holdline-1/man/",
		"holdline-1/man/man1/", "holdline-1/man/man1/holdline-status.1", "holdline-1/man/man1/holdline.1",
	}
	if !slices.Equal(names, want) {
		t.Errorf("names %q, want %q", names, want)
	}
}

// TestEpoch checks that SOURCE_DATE_EPOCH must be a number of seconds.
func TestEpoch(t *testing.T) {
	var r release
	if err := r.epoch("1700000000"); err != nil || r.time.Unix() != 1_700_000_000 {
		t.Errorf("epoch = %v, %v", r.time, err)
	}
	for _, s := range []string{"", "now", "-1"} {
		if err := r.epoch(s); err == nil {
			t.Errorf("epoch(%q) succeeds", s)
		}
	}
}

// TestArchive makes the archive of this system. The program in it runs, there is a man page
// for each command and a completion for each shell, and a second archive, made from another
// directory, is the same.
func TestArchive(t *testing.T) {
	if os.Getenv("HOLDLINE_DIST") == "" {
		t.Skip("builds the program four times, once from nothing; make reproduce runs it")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	archive := func(dir string) []byte {
		t.Chdir(dir)
		r := release{
			out: filepath.Join(t.TempDir(), "out"), version: "1.2.3", commit: "abc", time: time.Unix(1_700_000_000, 0),
		}
		if err := r.make(t.Context(), []string{runtime.GOOS + "/" + runtime.GOARCH}); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(r.out, r.name(runtime.GOOS, runtime.GOARCH)+".tar.gz"))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	one := archive(root)
	other := filepath.Join(t.TempDir(), "elsewhere")
	if out, err := exec.CommandContext(t.Context(), "cp", "-r", root, other).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v\n%s", err, out)
	}
	// The second build must not use the cache of the first.
	t.Setenv("GOCACHE", t.TempDir())
	if two := archive(other); !bytes.Equal(one, two) {
		t.Error("two builds of one source differ")
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "tar", "-xzf", "-", "-C", dir)
	cmd.Stdin = bytes.NewReader(one)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	in := filepath.Join(dir, "holdline-1.2.3-"+runtime.GOOS+"-"+runtime.GOARCH)
	out, err := exec.CommandContext(t.Context(), filepath.Join(in, "holdline"), "version").Output()
	if err != nil || string(out) != "holdline 1.2.3\n" {
		t.Errorf("version says %q, %v", out, err)
	}
	if out, err := exec.CommandContext(t.Context(), filepath.Join(in, "holdline"), "man",
		dir).CombinedOutput(); err == nil {
		t.Errorf("the program that is shipped makes man pages: %s", out)
	}
	if small, err := pair.SmallOf(filepath.Join(in, pair.Whole)); err != nil {
		t.Errorf("the small program: %s, %v", small, err)
	}
	for _, name := range []string{
		"README.md", "LICENSE", "CHANGELOG.md", "man/man1/holdline.1", "man/man1/holdline-install.1",
		"completions/holdline.bash", "completions/_holdline", "completions/holdline.fish",
		"contrib/systemd/holdline.service", "contrib/systemd/holdline.socket", "contrib/launchd/holdline.daemon.plist",
	} {
		if info, err := os.Stat(filepath.Join(in, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
