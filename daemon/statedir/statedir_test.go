package statedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// TestMain lets the test binary run as another process that holds a lock until its stdin
// ends.
func TestMain(m *testing.M) {
	path := os.Getenv("HOLDLINE_TEST_LOCK")
	if path == "" {
		os.Exit(m.Run())
	}
	l, err := TryLock(path)
	if err != nil {
		os.Exit(3)
	}
	_ = l.Write(os.Getpid(), 42)
	_, _ = os.Stdout.Write([]byte("held\n"))
	_, _ = os.Stdin.Read(make([]byte, 1))
	os.Exit(0)
}

// TestOpen checks that the directories are made with mode 0700, and that unsafe ones are
// refused.
func TestOpen(t *testing.T) {
	root := filepath.Join(t.TempDir(), "a", "holdline")
	d, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(root); err != nil {
		t.Errorf("second Open: %v", err)
	}
	for _, dir := range []string{d.Root, d.Logs, d.Consults, d.Catalog} {
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != 0o700 {
			t.Errorf("mode of %s = %#o, want 0700", dir, got)
		}
	}
	if err := os.Chmod(d.Logs, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(root); !errors.Is(err, ErrForeign) {
		t.Errorf("Open with a directory open to others = %v, want ErrForeign", err)
	}
}

func TestMakeDirRefusesLinkAndFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(dir, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "file"} {
		if err := MakeDir(filepath.Join(dir, name)); !errors.Is(err, ErrForeign) {
			t.Errorf("MakeDir(%s) = %v, want ErrForeign", name, err)
		}
	}
}

// TestWriteFile checks that a file is replaced as a whole, with mode 0600, without anything
// left behind.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, want := range []string{"long content", "short", ""} {
		if err := WriteFile(path, []byte(want)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Errorf("read %q, %v, want %q", got, err, want)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v, want 0600", info.Mode(), err)
	}
	if err := WriteFile(filepath.Join(dir, "none", "f"), nil); err == nil {
		t.Error("WriteFile into a missing directory succeeds")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestSyncDir checks that a file system which does not sync directories, as /proc, is no error, and that
// a directory that cannot be opened is one.
func TestSyncDir(t *testing.T) {
	dirs := []string{t.TempDir()}
	if runtime.GOOS == "linux" {
		dirs = append(dirs, "/proc")
	}
	for _, dir := range dirs {
		if err := syncDir(dir); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if err := syncDir(filepath.Join(dirs[0], "nowhere")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
}

// TestSweep checks that Sweep removes what a dead writer left, also if another process has its
// pid by now, and nothing else.
func TestSweep(t *testing.T) {
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	parent, err := process.Lookup(os.Getppid())
	if err != nil {
		t.Fatal(err)
	}
	gone, me := dead.Process.Pid, process.Self()
	for _, own := range []bool{false, true} {
		dir := t.TempDir()
		keep := map[string]bool{
			fmt.Sprintf(".f.%d.7-12345", gone): false, fmt.Sprintf(".f.%d.%d-12345", me.PID, me.Start): !own,
			fmt.Sprintf(".f.%d.%d-12345", parent.PID, parent.Start): true,
			fmt.Sprintf(".f.%d.%d-1", parent.PID, parent.Start+1):   false,
			fmt.Sprintf(".f.%d.0-1", parent.PID):                    true, // its writer did not know its start
			fmt.Sprintf(".f.%d.7", gone):                            true,
			fmt.Sprintf("f.%d.7-1", gone):                           true, ".profile": true,
		}
		for name := range keep {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		Sweep(dir, own)
		for name, want := range keep {
			if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
				t.Errorf("own %v: %s: %v, kept %v is wanted", own, name, err, want)
			}
		}
	}
}

// TestSweepKnowsTemporaryFiles has a write fail once its temporary file is written, and
// checks that Sweep knows that file.
func TestSweepKnowsTemporaryFiles(t *testing.T) {
	dir := t.TempDir()
	me := self()
	pattern := fmt.Sprintf(tempPattern, "f", me.PID, me.Start)
	name, err := ownfile.WriteTemp(dir, pattern, []byte("half"), 0o600, false)
	if err != nil {
		t.Fatal(err)
	}
	if Sweep(dir, false); !exists(name) {
		t.Errorf("%s is swept while its writer lives", name)
	}
	if Sweep(dir, true); exists(name) {
		t.Errorf("%s is not swept", name)
	}
}

// exists reports whether there is a file.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestLockBetweenProcesses checks that a lock held by another process is refused, names its
// holder, and is free after the holder's end.
func TestLockBetweenProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "HOLDLINE_TEST_LOCK="+path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if _, err := TryLock(path); !errors.Is(err, ErrLocked) {
		t.Errorf("TryLock of a held lock = %v, want ErrLocked", err)
	}
	if pid, start, err := Holder(path); pid != cmd.Process.Pid || start != 42 || err != nil {
		t.Errorf("Holder = %d, %d, %v, want %d, 42, nil", pid, start, err, cmd.Process.Pid)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	_ = cmd.Wait()
	l, err := TryLock(path)
	if err != nil {
		t.Fatalf("TryLock after the holder was killed: %v", err)
	}
	if !l.Still(path) {
		t.Error("Still is false for the file just locked")
	}
	if err := l.Write(7, 43, "where it is", "and more"); err != nil {
		t.Fatal(err)
	}
	if pid, start, says, err := HolderOf(path); pid != 7 || start != 43 || says != "where it is" || err != nil {
		t.Errorf("HolderOf = %d, %d, %q, %v", pid, start, says, err)
	}
	if err := l.Clear(); err != nil {
		t.Fatal(err)
	}
	if pid, _, err := Holder(path); err == nil {
		t.Errorf("Holder of a cleared lock = %d", pid)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if l.Still(path) {
		t.Error("Still is true for a removed file")
	}
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
}

// TestUnlockAtOnce checks that an unlocked lock is free at once, even while a child that is
// being started still has a copy of the descriptor.
func TestUnlockAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	child, err := syscall.Dup(int(l.File().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(child) }()
	if held, err := Held(path); !held || err != nil {
		t.Errorf("Held = %v, %v, with the lock held", held, err)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	if held, err := Held(path); held || err != nil {
		t.Errorf("Held = %v, %v, with the lock given up", held, err)
	}
	again, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Unlock()
}

// TestHeldManyLook checks that processes that only check a lock do not appear as its holder
// to each other.
func TestHeldManyLook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if _, err := Held(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Held without a file: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				if held, err := Held(path); held || err != nil {
					t.Errorf("Held = %v, %v", held, err)
				}
			}
		})
	}
	all.Wait()
}

// TestHolderNobody checks that a lock file without a valid holder is an error.
func TestHolderNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	for _, content := range []string{"", "1", "x y", "-4 3", "1 x 3"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Holder(path); err == nil {
			t.Errorf("Holder of %q succeeds", content)
		}
	}
}

// TestSeize_AnotherProgramHoldsTheLock checks that a lock which a program holds whose name is not in the
// file is taken if the process in the file has ended or if there is none, never from one that lives, and
// that whoever held it learns that its file was replaced. The message names the true holder.
func TestSeize_AnotherProgramHoldsTheLock(t *testing.T) {
	t.Parallel()
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	me := process.Self()
	for name, tt := range map[string]struct {
		text    string
		seized  bool // by Seize
		unnamed bool // by SeizeUnnamed
		held    bool
	}{
		"ended":           {fmt.Sprintf("%d 7 %s\n", dead.Process.Pid, process.Space()), true, true, false},
		"pid used again":  {fmt.Sprintf("%d %d %s\n", me.PID, me.Start+1, process.Space()), true, true, false},
		"alive":           {fmt.Sprintf("%d %d %s\n", me.PID, me.Start, process.Space()), false, false, true},
		"start unknown":   {fmt.Sprintf("%d 0 %s\n", me.PID, process.Space()), false, false, true},
		"another machine": {fmt.Sprintf("%d 7 elsewhere pid:[1]\n", dead.Process.Pid), false, false, true},
		"no space":        {fmt.Sprintf("%d 7\n", dead.Process.Pid), false, false, true},
		"nobody":          {"", false, true, true},
		"other text":      {"x\n", false, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "lock")
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			squatter, err := TryLock(path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = squatter.Unlock() }()
			if held, err := Held(path); held != tt.held || err != nil {
				t.Errorf("Held = %v, %v, want %v", held, err, tt.held)
			}
			if who := WhoHolds(path); runtime.GOOS == "linux" && !strings.Contains(who, fmt.Sprintf("process %d (", me.PID)) {
				t.Errorf("WhoHolds = %q, want this process", who)
			}
			for _, try := range []struct {
				take func(string) (*Lock, error)
				want bool
			}{{Seize, tt.seized}, {SeizeUnnamed, tt.unnamed}} {
				l, err := try.take(path)
				if (err == nil) != try.want || err != nil && !errors.Is(err, ErrLocked) {
					t.Fatalf("%v, want it taken: %v", err, try.want)
				}
				if err != nil {
					continue
				}
				if squatter.Still(path) || !l.Still(path) {
					t.Error("the path does not name the new file")
				}
				if _, err := TryLock(path); !errors.Is(err, ErrLocked) {
					t.Errorf("the lock is had twice: %v", err)
				}
				_ = l.Unlock()
				return
			}
			if !squatter.Still(path) {
				t.Error("the file was replaced")
			}
		})
	}
}
