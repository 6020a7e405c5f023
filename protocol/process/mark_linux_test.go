package process

import (
	"bufio"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMark checks that a mark is that of its directory alone, also below another worker, and that it stays
// with what a process starts, whose environment is empty.
func TestMark(t *testing.T) {
	const dir = "/run/user/1/holdline/w/one"
	if at := os.Getenv("HOLDLINE_TEST_MARK"); at != "" { // this is the process with the mark
		for one := range strings.SplitSeq(at, " ") {
			SetMark(one)
		}
		err := unix.Exec("/bin/sh", []string{"sh", "-c", "echo $$; cat; exit 0"}, []string{})
		t.Fatal(err)
	}
	for at, want := range map[string]string{dir: dir, "/w/a " + dir: dir, "/w/a /w/b " + dir: dir, dir + " /w/b": "/w/b"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMark$")
		cmd.Env = []string{"HOLDLINE_TEST_MARK=" + at}
		in, err := cmd.StdinPipe()
		out, oerr := cmd.StdoutPipe()
		if err == nil && oerr == nil {
			err = cmd.Start()
		}
		if err != nil || oerr != nil {
			t.Fatal(err, oerr)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatalf("%q, %v", line, err)
		}
		m := MarkOf(cmd.Process.Pid)
		if !m.Is(want) || m.Is(dir+"x") || m.Is("/elsewhere/one") || want != dir && m.Is(dir) {
			t.Errorf("%s: the mark %#x", at, m)
		}
		if want == dir && (!m.Under("/run/user/1/holdline/w") || m.Under("/run/user/2/holdline/w")) {
			t.Errorf("%s: the mark %#x is under another directory", at, m)
		}
		all, err := Carriers()
		if err != nil {
			t.Fatal(err)
		}
		// It runs below this process, which has not died.
		if slices.ContainsFunc(all.Marked(), func(p Marked) bool { return p.PID == cmd.Process.Pid }) {
			t.Errorf("%s: a process of this one counts as a stray", at)
		}
		if self, err := Lookup(cmd.Process.Pid); err != nil || isStray(self) {
			t.Errorf("%s: %+v counts as a stray, %v", at, self, err)
		}
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	if m := MarkOf(os.Getpid()); m.Is("") || m.Is(dir) || m.Under("/") {
		t.Errorf("this process has the mark %#x", m)
	}
}
