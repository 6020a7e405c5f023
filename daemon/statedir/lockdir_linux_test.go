package statedir

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/protocol/process"
)

// lockerDir makes the test binary lock a directory, and hold it until its stdin ends; lockerMark gives
// that process the mark of a worker first.
const lockerDir, lockerMark = "HOLDLINE_TEST_LOCKER_DIR", "HOLDLINE_TEST_LOCKER_MARK"

// TestLockerOfDir is no test: it is the process that holds the lock.
func TestLockerOfDir(t *testing.T) {
	dir := os.Getenv(lockerDir)
	if dir == "" {
		t.Skip("it is started by another test")
	}
	if worker := os.Getenv(lockerMark); worker != "" {
		process.SetMark(worker)
	}
	unlock, err := LockDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout.WriteString("held\n")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	unlock()
}

// TestDirLockedByAServer_IsNotWaitedFor checks that a lock which a server holds, or what it has started,
// keeps nobody from the directory, and that the lock of another process does, and that the error names it.
func TestDirLockedByAServer_IsNotWaitedFor(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, marked := range []bool{true, false} {
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), exe, "-test.run", "^TestLockerOfDir$")
		cmd.Env = append(os.Environ(), lockerDir+"="+dir)
		if marked {
			cmd.Env = append(cmd.Env, lockerMark+"="+filepath.Join(dir, "w/s-1"))
		}
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
		limit := time.Minute
		if !marked {
			limit = 4 * time.Second
		}
		late := errors.New("it takes too long")
		ctx, cancel := context.WithTimeoutCause(t.Context(), limit, late)
		unlock, err := LockDir(ctx, dir)
		cancel()
		switch {
		case marked && err != nil:
			t.Errorf("a server's lock: %v", err)
		case marked:
			unlock()
		case !errors.Is(err, late) || !strings.Contains(err.Error(), filepath.Base(exe)[:8]):
			t.Errorf("the lock of %s: %v", exe, err)
		}
		_ = stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}
