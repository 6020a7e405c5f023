package sandbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/sandbox"
	"holdline/daemon/sandbox/writetest"
	"holdline/protocol/process"
	"holdline/protocol/programtest"
)

// confined is the variable that makes the test binary confine itself to the directory and
// the file in its first two arguments, and then try to write to each of the others.
const confined = "SANDBOX_TEST_CONFINED"

func TestMain(m *testing.M) {
	if os.Getenv(confined) == "" {
		os.Exit(m.Run())
	}
	args := os.Args[1:]
	err := sandbox.Confine(&process.Confine{Dirs: args[:1], Files: args[1:2], NoLinks: os.Getenv(confined) == "no links"})
	found := map[string][]string{}
	for _, dir := range args[2:] {
		found["attributes of "+dir] = writetest.AttemptAttributes(dir)
		found[dir] = writetest.Attempt(dir, args[0])
	}
	if b, werr := os.ReadFile(args[1]); werr == nil && len(b) > 0 {
		if f, err := os.OpenFile(args[1], os.O_WRONLY|os.O_TRUNC, 0o600); err == nil { // the one file that it may write
			found[args[1]] = []string{"truncate it"}
			_ = f.Close()
		}
	}
	if f, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0); err == nil {
		_, err = f.WriteString("x")
		found[os.DevNull] = []string{fmt.Sprint(err)}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		syscall.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(found)
	syscall.Exit(0) // os.Exit would wait under the race detector
}

// needLandlock skips the test if the kernel has no Landlock.
func needLandlock(t *testing.T) {
	t.Helper()
	if sandbox.Landlock() < sandbox.Complete {
		t.Skip("needs Landlock of ABI 3 or newer")
	}
}

// TestConfine checks that a confined process, and what it starts, can change only what it
// kept for itself, whichever way it tries.
func TestConfine(t *testing.T) {
	needLandlock(t)
	dir := t.TempDir()
	own, file := filepath.Join(dir, "own"), filepath.Join(dir, "file")
	below, beside := filepath.Join(own, "below"), filepath.Join(dir, "beside")
	for _, d := range []string{own, below, beside} {
		if err := writetest.Prepare(d); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := writetest.Listing(beside)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, own, file, beside, below)
	cmd.Env = []string{confined + "=1", "PATH=" + os.Getenv("PATH")}
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var could map[string][]string
	if err := json.Unmarshal(out, &could); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := could[beside]; len(got) != 0 {
		t.Errorf("outside it could %s", strings.Join(got, ", "))
	}
	if after, err := writetest.Listing(beside); err != nil || after != before {
		t.Errorf("err %v; outside there was\n%sand is\n%s", err, before, after)
	}
	// All ways must work where they are allowed: otherwise the test would prove nothing.
	if got := could[below]; len(got) < 20 {
		t.Errorf("inside it could only %s", strings.Join(got, ", "))
	}
	if got := could[file]; !slices.Equal(got, []string{"truncate it"}) {
		t.Errorf("of the file it could %q", got)
	}
	if got := could[os.DevNull]; !slices.Equal(got, []string{"<nil>"}) {
		t.Errorf("writing to %s: %q", os.DevNull, got)
	}
}

// TestConfineMissing checks that a missing directory is an error: less would be writable
// than was asked for.
func TestConfineMissing(t *testing.T) {
	needLandlock(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, filepath.Join(t.TempDir(), "nowhere"), "/nowhere")
	cmd.Env = []string{confined + "=1"}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "nowhere") {
		t.Errorf("err %v: %s", err, out)
	}
}

// TestConfineNoLinks checks that a directory which has become a link since it was looked at is an
// error, at whichever place of its path, and that one which has not is writable.
func TestConfineNoLinks(t *testing.T) {
	needLandlock(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	own, private, link := filepath.Join(dir, "own"), filepath.Join(dir, "private"), filepath.Join(dir, "link")
	for _, d := range []string{own, filepath.Join(private, "sub")} {
		if err := writetest.Prepare(d); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(private, link); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run := func(at string) (string, error) {
		cmd := exec.CommandContext(t.Context(), exe, at, "/nowhere", at)
		cmd.Env = []string{confined + "=no links", "PATH=" + os.Getenv("PATH")}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, at := range []string{link, filepath.Join(link, "sub")} {
		if out, err := run(at); err == nil || !strings.Contains(out, "symbolic links") {
			t.Errorf("%s: err %v: %s", at, err, out)
		}
	}
	out, err := run(own)
	var could map[string][]string
	if err != nil || json.Unmarshal([]byte(out), &could) != nil || len(could[own]) < 19 { // it has no other directory to rename from
		t.Errorf("err %v: in its own directory it could only %s", err, out)
	}
}

// TestGaps checks for which versions of Landlock the gaps are described.
func TestGaps(t *testing.T) {
	for version, want := range map[int]bool{0: false, 1: true, 2: true, 3: false, 7: false} {
		if got := sandbox.Gaps(version); (got != "") != want {
			t.Errorf("ABI %d: %q", version, got)
		}
	}
}

// TestBubblewrap checks that the first missing program is named, in the order in which a
// user would install them, and that bubblewrap is tried if none is missing.
func TestBubblewrap(t *testing.T) {
	put := func(dir, name, script string) {
		t.Helper()
		programtest.Write(t, filepath.Join(dir, name), "#!/bin/sh\n"+script+"\n")
	}
	dir := t.TempDir()
	env := []string{"PATH=relative:" + dir}
	check := func(want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := sandbox.Bubblewrap(ctx, env)
		if got := fmt.Sprint(err); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
	check("bubblewrap is not installed")
	put(dir, "bwrap", "echo 'bwrap: No permissions to create a new namespace' >&2; exit 1")
	check("socat is not installed")
	put(dir, "socat", "")
	check("No permissions to create a new namespace")
	put(dir, "bwrap", "")
	check("<nil>")
}
