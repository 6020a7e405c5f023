package e2e

import (
	"bytes"
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
	"time"

	"holdline/cmd/holdline/pair"
	"holdline/protocol/faultpoint"
)

// faultDir is the directory of a place that has a file for each point at which a process
// must die. The first process that reaches the point as the file says dies. Processes look
// there only if the directory existed when they started. An environment variable would not
// work: workers do not get it, and a daemon that a proxy starts has the environment of the
// login shell.
const faultDir = "faultpoints"

// Suffixes of the file after its process has died or is held, and of the file that releases
// a held process.
const (
	faultReached = ".reached"
	faultLetGo   = ".go"
)

// faultRecord is the file of [faultDir] in which processes note each point that they pass
// while it is there, with their pid and the number of the goroutine.
const faultRecord = "record"

// recordPoint notes a point in the record of the directory, if there is one.
func recordPoint(dir, name string) {
	record, err := os.OpenFile(filepath.Join(dir, faultRecord), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer record.Close()
	var stack [64]byte // it begins with: goroutine 7 [running]
	if f := strings.Fields(string(stack[:runtime.Stack(stack[:], false)])); len(f) > 1 {
		_, _ = fmt.Fprintf(record, "%d %s %s\n", os.Getpid(), f[1], name)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// installFaults makes this process, which was started as holdline with args, die where the
// files of its place say so.
func installFaults(args []string) {
	if dir, ok := faultsOf(args); ok {
		faultpoint.Install(dieIn(dir))
		faultpoint.InstallOpening(openIn(dir))
	}
}

// faultsOf returns the [faultDir] of the place of a process that was started as holdline
// with args, if there is one.
func faultsOf(args []string) (dir string, ok bool) {
	home := os.Getenv("HOME")
	for _, arg := range args {
		if filepath.IsAbs(arg) && home == "" { // a worker has only its directory
			home = arg
		}
	}
	for at := home; len(at) > 1; at = filepath.Dir(at) {
		dir := filepath.Join(at, faultDir)
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir, true
		}
	}
	return "", false
}

// role returns the command that holdline runs with args. [pair.Small] without one is the proxy.
func role(args []string) string {
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		return args[0]
	}
	return pair.Command
}

// dieIn returns what processes of the place with that directory do at a point. The process
// that dies renames the file, so that it happens once over all processes. If several are to
// die, the last one renames it, and each before that leaves a file of its own.
func dieIn(dir string) func(name string) {
	var mu sync.Mutex
	passed := map[string]int{}
	return func(name string) {
		recordPoint(dir, name)
		path := filepath.Join(dir, name)
		b, err := os.ReadFile(path)
		if err != nil {
			return
		}
		var d death
		_, _ = fmt.Sscanf(string(b), "%d %q %q %t %t %t %d",
			&d.times, &d.after, &d.who, &d.held, &d.panics, &d.crashes, &d.deaths)
		if d.who != "" && d.who != role(os.Args[1:]) {
			return
		}
		if _, err := os.Stat(filepath.Join(dir, d.after+faultReached)); d.after != "" && err != nil {
			return
		}
		mu.Lock()
		passed[name]++
		due := passed[name] >= d.times
		mu.Unlock()
		if !due {
			return
		}
		if d.deaths > 1 {
			mu.Lock() // for ever: another goroutine must not count as a second process
		}
		for n := 1; n < d.deaths; n++ {
			if os.Mkdir(fmt.Sprintf("%s.%d", path, n), 0o700) == nil {
				d.kill()
			}
		}
		if os.Rename(path, path+faultReached) != nil {
			return
		}
		if d.held {
			for !exists(path + faultLetGo) {
				time.Sleep(2 * time.Millisecond)
			}
			return
		}
		if d.crashes {
			go panic("on purpose, beside " + name)
			time.Sleep(time.Hour)
		}
		if d.panics {
			panic("on purpose, at " + name)
		}
		d.kill()
	}
}

// Files of [faultDir] about the files that processes open: one in which they note each path while it
// is there, and two with a path that they cannot open, the next time or ever.
const (
	faultOpened     = "opened"
	faultUnreadOnce = "unreadable.once"
	faultUnread     = "unreadable"
)

// openIn returns what processes of the place with that directory do when they open a file.
func openIn(dir string) func(path string) error {
	return func(path string) error {
		if opened, err := os.OpenFile(filepath.Join(dir, faultOpened), os.O_APPEND|os.O_WRONLY, 0); err == nil {
			_, _ = fmt.Fprintf(opened, "%s %s\n", role(os.Args[1:]), path)
			_ = opened.Close()
		}
		once := filepath.Join(dir, faultUnreadOnce)
		if b, err := os.ReadFile(once); err == nil && string(b) == path && os.Remove(once) == nil {
			return &os.PathError{Op: "open", Path: path, Err: syscall.EIO}
		}
		if b, err := os.ReadFile(filepath.Join(dir, faultUnread)); err == nil && string(b) == path {
			return &os.PathError{Op: "open", Path: path, Err: syscall.EIO}
		}
		return nil
	}
}

// kill kills this process. It never returns.
func (death) kill() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// faults makes the place's processes look for points. Processes that already run do not.
func (p *place) faults() *place {
	p.t.Helper()
	if err := os.MkdirAll(filepath.Join(p.dir, faultDir), 0o700); err != nil {
		p.t.Fatal(err)
	}
	return p
}

// death says which process dies at a point: the first that reaches it this often.
type death struct {
	times int    // 0 means once; counted from the death at after
	after string // another point; "" for none
	who   string // the command, as in "holdline worker"; "" for any
	held  bool   // it does not die, but stops there until it is released

	deaths  int  // how many processes die there, one after the other; 0 means one
	panics  bool // it does not die, but panics there
	crashes bool // a goroutine of its own panics, which crashes the process
}

// dieAt makes the first process die that reaches a point for the times-th time, from 1.
func (p *place) dieAt(name string, times int) {
	p.t.Helper()
	p.dieAs(name, death{times: times})
}

// dieAs makes a process die that reaches a point.
func (p *place) dieAs(name string, d death) {
	p.t.Helper()
	tmp := filepath.Join(p.dir, "times")
	err := os.WriteFile(tmp,
		fmt.Appendf(nil, "%d %q %q %t %t %t %d",
			d.times, d.after, d.who, d.held, d.panics, d.crashes, d.deaths), 0o600)
	if err == nil {
		err = os.Rename(tmp, filepath.Join(p.dir, faultDir, name))
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// died reports whether a process has died at a point.
func (p *place) died(name string) bool {
	p.t.Helper()
	_, err := os.Stat(filepath.Join(p.dir, faultDir, name+faultReached))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.t.Fatal(err)
	}
	return err == nil
}

// letGo releases the process that is held at a point.
func (p *place) letGo(name string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, faultDir, name+faultLetGo), nil, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// TestFaultOnce checks that of all processes that reach a point one dies, and only in a
// place with faults.
func TestFaultOnce(t *testing.T) {
	t.Parallel()
	const point = "start.locked"
	p := newPlace(t).faults()
	p.dieAt(point, 1)
	err := p.command("daemon").Run()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || !p.died(point) {
		t.Fatalf("the daemon ended with %v, died at the point: %v", err, p.died(point))
	}
	p.daemon()
	p.agent("--no-autostart").shake().rest()
}

// TestFaultsInTestsOnly checks that the code that kills a process at a point is only in
// test binaries.
func TestFaultsInTestsOnly(t *testing.T) {
	sources(t, func(path string, text []byte) {
		if bytes.Contains(text, []byte("faultpoint.Install")) {
			t.Errorf("%s makes the program die on purpose", path)
		}
	})
}
