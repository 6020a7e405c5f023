package process

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the test binary run as a process that the tests look for.
func TestMain(m *testing.M) {
	if os.Getenv("HOLDLINE_TEST_CHILD") != "" {
		time.Sleep(time.Hour)
	}
	os.Exit(m.Run())
}

// TestSpecCheck checks which specs of workers are refused.
func TestSpecCheck(t *testing.T) {
	good := func() Spec {
		s := Spec{Version: Version, ID: "w1", Kind: KindConsult, Argv: []string{"/bin/true"}, Socket: "/s"}
		s.SetDefaults()
		return s
	}
	s := good()
	if err := s.Check(); err != nil {
		t.Errorf("good spec: %v", err)
	}
	if s.Orphan.Do != OrphanTerminate {
		t.Errorf("a worker alone does %q", s.Orphan.Do)
	}
	for name, spoil := range map[string]func(*Spec){
		"version": func(s *Spec) { s.Version = Version + 1 },
		"old":     func(s *Spec) { s.Version = Oldest - 1 },
		"id":      func(s *Spec) { s.ID = "../x" },
		"argv":    func(s *Spec) { s.Argv = nil },
		"socket":  func(s *Spec) { s.Socket = "" },
		"orphan":  func(s *Spec) { s.Orphan.Do = "stay" },
		"retain":  func(s *Spec) { s.Limits.Retain = -1 },
	} {
		s := good()
		spoil(&s)
		if s.Check() == nil {
			t.Errorf("spec with bad %s passes", name)
		}
	}
}

// TestProc checks that a child is found by its parent, its group and its worker, and that a
// signal reaches only the process with the right start time.
func TestProc(t *testing.T) {
	self := Self()
	if self.Start == 0 || self.PPID != os.Getppid() {
		t.Errorf("Self = %+v", self)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "HOLDLINE_TEST_CHILD=1", EnvWorker+"=proctest")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	child, err := Lookup(cmd.Process.Pid)
	descendants, derr := Descendants(os.Getpid())
	group, gerr := Group(child.PID)
	carriers, cerr := Carriers()
	if err != nil {
		t.Fatal(err)
	}
	is := func(p Proc) bool { return p.PID == child.PID && p.Start == child.Start }
	if derr != nil || !slices.ContainsFunc(descendants, is) {
		t.Errorf("Descendants = %v, %v, want %v among them", descendants, derr, child)
	}
	if gerr != nil || !slices.ContainsFunc(group, is) {
		t.Errorf("Group = %v, %v, want %v in it", group, gerr, child)
	}
	if Exact {
		if cerr != nil || !slices.ContainsFunc(carriers.Of("proctest"), is) {
			t.Errorf("Carriers = %v, %v, want %v among them", carriers, cerr, child)
		}
		if HasWorker(child, "proctest") {
			t.Error("HasWorker is true without any worker")
		}
	}
	other := child
	other.Start++
	if err := Signal(other, syscall.SIGKILL); !errors.Is(err, ErrGone) {
		t.Errorf("Signal to another start time = %v, want ErrGone", err)
	}
	if err := Signal(child, syscall.SIGKILL); err != nil {
		t.Errorf("Signal: %v", err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("child ended with %v, want killed", err)
	}
	if err := Signal(child, syscall.SIGKILL); !errors.Is(err, ErrGone) {
		t.Errorf("Signal to the dead = %v, want ErrGone", err)
	}
}

// TestUnseenProcess checks that a process does not count as gone while this one lacks the file
// descriptors to look at it.
func TestUnseenProcess(t *testing.T) {
	if !Exact {
		t.Skip("a look takes no descriptor here")
	}
	self := Self()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	none := was
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	_, lookup := Lookup(self.PID)
	signal := Signal(self, 0)
	_, list := List()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"Lookup": lookup, "Signal": signal, "List": list} {
		if !errors.Is(err, syscall.EMFILE) || errors.Is(err, ErrGone) {
			t.Errorf("%s without descriptors = %v, want EMFILE alone", what, err)
		}
	}
}

// TestWorkerDir checks which command lines are taken for a worker's.
func TestWorkerDir(t *testing.T) {
	for args, want := range map[string]string{
		"holdline worker --run /r/w/x": "/r/w/x", "holdline worker /r/w/x": "", "holdline": "", "x daemon --run /r": "",
	} {
		if got := WorkerDir(strings.Fields(args)); got != want {
			t.Errorf("WorkerDir(%s) = %q, want %q", args, got, want)
		}
	}
}

// TestProcArgs parses complete and broken answers of macOS.
func TestProcArgs(t *testing.T) {
	answer := func(n int, rest string) []byte {
		return append(binary.NativeEndian.AppendUint32(nil, uint32(n)), rest...)
	}
	for _, c := range []struct {
		b    []byte
		want []string
	}{
		{
			answer(3, "/bin/holdline\x00\x00\x00holdline\x00worker\x00/d\x00HOME=/h\x00"),
			[]string{"holdline", "worker", "/d"},
		},
		{answer(1, "/x\x00x\x00"), []string{"x"}},
		{answer(5, "/x\x00x\x00"), nil},
		{answer(1<<30, "/x\x00x\x00"), nil},
		{answer(1, "/x"), nil},
		{nil, nil},
		{[]byte{1, 0}, nil},
	} {
		if got := procArgs(c.b); !slices.Equal(got, c.want) {
			t.Errorf("procArgs(%q) = %q, want %q", c.b, got, c.want)
		}
	}
}
