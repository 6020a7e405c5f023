// Package asklogin asks people to log in when a call of their agent needs that: a client that
// can show addresses to its person (elicitation in URL mode) gets the start address of a
// login, in place of the fault that all others get.
//
// The login itself is made by a process, `holdline login NAME`, which prints the address and
// ends when the person has logged in. Goroutines: one for each such process; [Asker.Close]
// waits for them.
package asklogin

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"holdline/protocol/lockcheck"
)

// Times of a login.
const (
	openTime   = 20 * time.Second // for the process to say the address; then the call fails
	loginTime  = 11 * time.Minute // for all of it; the process ends by itself a minute before
	waitTime   = 60 * time.Second // that a call waits whose person has agreed to log in
	retryAfter = 30 * time.Second // until a login is tried again that had no address
	endTime    = 2 * time.Second  // for the process to end when it is asked to
)

// maxLine bounds what the process says, in bytes.
const maxLine = 4 << 10

// Options of an [Asker].
type Options struct {
	Log *slog.Logger
	// Command returns the process that logs in to a server, and the id of what it logs in to,
	// which several servers may share; "" if no person can log in there.
	Command func(server string) (target string, argv, env []string)
	// Changed is called after a login, before calls go on.
	Changed func()
}

// An Asker has at most one login under way for each target. It is safe for concurrent use.
// A nil Asker asks no client.
type Asker struct {
	o       Options
	running sync.WaitGroup

	mu     lockcheck.Mutex
	logins map[string]*login // the latest of each target, by its id; guarded by mu
	closed bool              // guarded by mu
}

// New returns an asker. The caller must call [Asker.Close].
func New(o Options) *Asker { return &Asker{o: o, logins: map[string]*login{}} }

// A login is one process. ready is closed when its address is known, or when there will be
// none; over is closed when it has ended.
type login struct {
	id    string             // by which clients name it; nobody can guess it
	end   context.CancelFunc // ends the process
	ready chan struct{}
	over  chan struct{}
	url   string // "" if there is none; read it after ready

	done  bool              // somebody has logged in; guarded by Asker.mu
	again time.Time         // before that no other login is tried; guarded by Asker.mu
	tell  map[string]func() // called if somebody logs in, one for each session; guarded by Asker.mu
}

// isOver reports whether the login has ended.
func (l *login) isOver() bool {
	select {
	case <-l.over:
		return true
	default:
		return false
	}
}

// open returns the login to a server that is under way, and begins one if there is none. It
// blocks until the address is known, and returns nil if there is no address.
func (a *Asker) open(ctx context.Context, server string) *login {
	l := a.join(server)
	if l == nil {
		return nil
	}
	limit := time.NewTimer(openTime)
	defer limit.Stop()
	select {
	case <-l.ready:
		if l.url != "" {
			return l
		}
	case <-ctx.Done():
	case <-limit.C:
	}
	return nil
}

// join returns the login to a server that is under way, or the last one if it is too early
// for another. Else it begins one. It returns nil if no person can log in, and after
// [Asker.Close].
func (a *Asker) join(server string) *login {
	target, argv, env := a.o.Command(server)
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.logins[target]
	switch {
	case a.closed, target == "":
		return nil
	case l != nil && (!l.isOver() || time.Now().Before(l.again)):
		return l
	}
	ctx, end := context.WithTimeout(context.Background(), loginTime)
	l = &login{
		id: rand.Text(), end: end, ready: make(chan struct{}), over: make(chan struct{}), tell: map[string]func(){},
	}
	a.logins[target] = l
	a.running.Go(func() {
		defer end()
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Env = env
		a.run(cmd, l, server)
	})
	return l
}

// find returns the latest login of its target that has this id, or nil.
func (a *Asker) find(id string) *login {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.logins {
		if l.id == id {
			return l
		}
	}
	return nil
}

// run runs the process of a login, and reports a login. The process ends
// with its context, and with this daemon, whose end closes its stdin. What it writes to stderr
// is not read: it is for people, and may have words of strangers.
func (a *Asker) run(cmd *exec.Cmd, l *login, server string) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = endTime
	_, err := cmd.StdinPipe() // it is open until the process has ended
	stdout, failed := cmd.StdoutPipe()
	lockcheck.Blocking("start a login")
	if err = errors.Join(err, failed); err == nil {
		err = cmd.Start()
	}
	if err == nil {
		var said struct {
			URL string `json:"url"`
		}
		line, _ := bufio.NewReader(io.LimitReader(stdout, maxLine)).ReadBytes('\n')
		_ = json.Unmarshal(line, &said) // without an address there is nothing to say
		l.url = said.URL
		close(l.ready)
		err = cmd.Wait()
	} else {
		close(l.ready)
	}
	a.mu.Lock()
	l.done = l.done || err == nil
	if l.url == "" {
		l.again = time.Now().Add(retryAfter)
	}
	done := l.done
	a.mu.Unlock()
	a.o.Log.Info("a login that an agent's call needed has ended", "server", server, "offered", l.url != "",
		"logged_in", done)
	if done {
		a.o.Changed()
	}
	a.mu.Lock()
	done = l.done
	tell := l.tell
	l.tell = nil
	close(l.over) // with the lock: a client that joins after this begins another login
	a.mu.Unlock()
	for _, f := range tell {
		if done {
			f()
		}
	}
}

// Changed ends the login to a target, since a user has logged in to it otherwise or, if out
// is true, has logged out.
func (a *Asker) Changed(target string, out bool) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.logins[target]; l != nil && !l.isOver() {
		l.done = l.done || !out
		l.end()
	}
}

// Close ends all logins, and blocks until their processes have ended.
func (a *Asker) Close() {
	a.mu.Lock()
	a.closed = true
	for _, l := range a.logins {
		l.end()
	}
	a.mu.Unlock()
	a.running.Wait()
}
