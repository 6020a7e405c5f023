package hostscmd

import (
	"archive/tar"
	"compress/gzip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/doctor"
	"holdline/daemon/supervisor/far"
	"holdline/protocol/programtest"
)

// TestSystemOf checks which systems are known by the words of uname.
func TestSystemOf(t *testing.T) {
	for uname, want := range map[string]string{
		"Linux x86_64\n": "linux/amd64", "Linux aarch64": "linux/arm64", "Darwin arm64": "darwin/arm64",
		"Welcome to box\nLinux x86_64\n": "linux/amd64", // from a profile
		"Linux riscv64":                  "", "FreeBSD amd64": "", "": "",
	} {
		if got, err := systemOf(uname); got != want || (err == nil) != (want != "") {
			t.Errorf("systemOf(%q) = %q, %v, want %q", uname, got, err, want)
		}
	}
}

// TestProgramFor checks that a host of this system gets this program, and another one that of an
// archive as make dist names it.
func TestProgramFor(t *testing.T) {
	own, err := programFor(runtime.GOOS+"/"+runtime.GOARCH, "/nonexistent")
	if err != nil || len(own) < 1000 {
		t.Errorf("this program has %d bytes, %v", len(own), err)
	}
	dir := t.TempDir()
	if _, err := programFor("plan9/mips", dir); err == nil || !strings.Contains(err.Error(), "no archive for plan9/mips") {
		t.Errorf("without an archive: %v", err)
	}
	writeArchive(t, filepath.Join(dir, "holdline_1.2.3_plan9_mips.tar.gz"), "the program")
	if got, err := programFor("plan9/mips", dir); err != nil || string(got) != "the program" {
		t.Errorf("programFor = %q, %v", got, err)
	}
	writeArchive(t, filepath.Join(dir, "holdline-"+cmdenv.Version+"-plan9-mips.tar.gz"), "that of this version")
	if got, err := programFor("plan9/mips", dir); err != nil || string(got) != "that of this version" {
		t.Errorf("with an archive of this version: %q, %v", got, err)
	}
}

// writeArchive writes an archive with this program.
func writeArchive(t *testing.T, path, program string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	zip := gzip.NewWriter(f)
	out := tar.NewWriter(zip)
	for name, text := range map[string]string{"holdline-1.2.3/README.md": "no", "holdline-1.2.3/holdline": program} {
		if err := out.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []interface{ Close() error }{out, zip, f} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReadFindings checks that what a profile prints before holdline doctor does no harm.
func TestReadFindings(t *testing.T) {
	var out strings.Builder
	if err := console.PrintJSON(&out, []doctor.Finding{{Check: "one"}, {Check: "two"}}); err != nil {
		t.Fatal(err)
	}
	for _, before := range []string{"", "Welcome to box\n", "[box] is yours\n"} {
		if found, err := readFindings(before + out.String()); err != nil || len(found) != 2 || found[1].Check != "two" {
			t.Errorf("after %q: %v, %v", before, found, err)
		}
	}
	for _, none := range []string{"", "Welcome to box\n", "[box] is yours\n"} {
		if found, err := readFindings(none); err == nil {
			t.Errorf("of %q: %v", none, found)
		}
	}
}

// TestCopyScript checks that a program takes its place on a host only if it came whole, and that nothing
// else stays there.
func TestCopyScript(t *testing.T) {
	home := t.TempDir()
	dir := filepath.Join(home, far.Dir)
	for _, c := range []struct {
		sent string
		ok   bool
	}{{"the program", true}, {"the pro", false}, {"", false}, {"the program", true}} {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", copyScript(len("the program")))
		cmd.Env, cmd.Stdin = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}, strings.NewReader(c.sent)
		if out, err := cmd.CombinedOutput(); (err == nil) != c.ok {
			t.Errorf("of %q: %v, %s", c.sent, err, out)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 {
			t.Fatalf("of %q there is %v, %v", c.sent, entries, err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, far.Program())); err != nil || string(got) != "the program" {
			t.Errorf("of %q there is %q, %v", c.sent, got, err)
		}
	}
}

// TestAsk checks that a host which does not answer is not waited for without end.
func TestAsk(t *testing.T) {
	dir := t.TempDir()
	for patience, c := range map[time.Duration]struct{ script, want string }{
		time.Minute: {"echo there", "there\n"},
		time.Second: {"exec sleep 600", "box cannot be reached: no answer within 1s"},
	} {
		programtest.Write(t, filepath.Join(dir, "ssh"), "#!/bin/sh\n"+c.script+"\n")
		env := []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
		h := &hosts{&cmdenv.Process{Environ: func() []string { return env }}, patience}
		if got, err := h.ask(t.Context(), "box", "true"); got != c.want && (err == nil || err.Error() != c.want) {
			t.Errorf("%s: %q, %v, want %q", c.script, got, err, c.want)
		}
	}
}
