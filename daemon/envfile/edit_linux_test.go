package envfile

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// lockerDir makes the test binary lock a directory as a server could, and hold it until its stdin ends.
const lockerDir = "HOLDLINE_TEST_LOCKER_DIR"

// TestLockerOfDir is no test: it is the process that holds the lock.
func TestLockerOfDir(t *testing.T) {
	dir := os.Getenv(lockerDir)
	if dir == "" {
		t.Skip("it is started by another test")
	}
	process.SetMark(filepath.Join(dir, "w/s-1"))
	unlock, err := ownfile.LockDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout.WriteString("held\n")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	unlock()
}

// TestDirLockedByAServer_VariablesAreKept checks that a server which locks the directory of the file keeps nobody
// from setting or removing a variable.
func TestDirLockedByAServer_VariablesAreKept(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "env")
	cmd := exec.CommandContext(t.Context(), exe, "-test.run", "^TestLockerOfDir$")
	cmd.Env = append(os.Environ(), lockerDir+"="+dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "held\n" {
		t.Fatalf("the locker said %q, %v", line, err)
	}
	if err := Set(t.Context(), path, "A", "1"); err != nil {
		t.Errorf("Set: %v", err)
	}
	if got, err := Read(path); err != nil || !slices.Equal(got, []string{"A=1"}) {
		t.Errorf("the file has %q, %v", got, err)
	}
	if had, err := Unset(t.Context(), path, "A"); !had || err != nil {
		t.Errorf("Unset = %v, %v", had, err)
	}
	_ = stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
