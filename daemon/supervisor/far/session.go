package far

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"holdline/daemon/networds"
	"holdline/daemon/telling"
	"holdline/protocol/farwire"
	"holdline/protocol/fault"
	"holdline/protocol/rawio"
	"holdline/protocol/workerwire"
)

// leaveTime is how long the program of a session may take to end by itself once its stdin has
// ended: ssh may carry the sessions of others, too.
const leaveTime = 2 * time.Second

// maxWords bounds what is kept of the last words of a program, in bytes.
const maxWords = 2 << 10

// errSlow is the error of an answer that does not come in time.
var errSlow = errors.New("no answer in time")

// A Session is one run of a program that reaches a host, with its stdin and stdout.
type Session struct {
	farwire.Hello

	Host string
	Conn *net.UnixConn // to the program
	Out  *rawio.Stream // over Conn
	R    *bufio.Reader // from Conn

	read  atomic.Int64  // bytes that were read
	ends  chan struct{} // closed by HangUp
	once  sync.Once     // closes ends
	ended chan struct{} // closed when the program has ended
	cmd   *exec.Cmd
	words tail // of its stderr
}

// start runs a program with a socket as its stdin and stdout. A goroutine waits for its end, and
// calls done then.
func start(cmd *exec.Cmd, done func()) (*Session, error) {
	conn, other, err := pair()
	if err != nil {
		done()
		return nil, err
	}
	defer func() { _ = other.Close() }()
	s := &Session{
		Conn: conn, Out: rawio.New(conn), cmd: cmd, ends: make(chan struct{}), ended: make(chan struct{}),
	}
	s.R = bufio.NewReaderSize(s, 4<<10)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = other, other, &s.words
	if err := cmd.Start(); err != nil {
		_ = conn.Close()
		done()
		return nil, err
	}
	go func() {
		defer done()
		s.await()
	}()
	return s, nil
}

// await reaps the program, which is killed if it does not end soon after [Session.HangUp].
func (s *Session) await() {
	go func() {
		_ = s.cmd.Wait() // its ProcessState says how it ended
		close(s.ended)
	}()
	select {
	case <-s.ended:
		return
	case <-s.ends:
	}
	late := time.NewTimer(leaveTime)
	defer late.Stop()
	select {
	case <-s.ended:
		return
	case <-late.C:
		_ = s.cmd.Process.Kill()
	}
	<-s.ended
}

// pair returns two ends of a socket: one for this process, and one for a child.
func pair() (*net.UnixConn, *os.File, error) {
	syscall.ForkLock.RLock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	mine, other := os.NewFile(uintptr(fds[0]), "host"), os.NewFile(uintptr(fds[1]), "host")
	conn, err := net.FileConn(mine)
	_ = mine.Close()
	unix, ok := conn.(*net.UnixConn)
	if err == nil && !ok {
		err = errors.New("a socket of another kind")
	}
	if err != nil {
		_ = other.Close()
		return nil, nil, err
	}
	return unix, other, nil
}

// Read reads what the program has written. It counts the bytes, for [Session.Heard].
func (s *Session) Read(p []byte) (int, error) {
	n, err := s.Out.Read(p)
	s.read.Add(int64(n))
	return n, err
}

// Heard returns how many bytes have come.
func (s *Session) Heard() int64 { return s.read.Load() }

// HangUp ends the session: the program gets the end of its stdin, and is killed if that does not
// end it. It does not block, and may be called again.
func (s *Session) HangUp() {
	_ = s.Conn.Close()
	s.once.Do(func() { close(s.ends) })
}

// end ends the session, and returns the exit code of the program, -1 for a signal, and its last
// words.
func (s *Session) end() (code int, words string) {
	// A program that has closed its stdout is about to end.
	select {
	case <-s.ended:
	case <-time.After(leaveTime):
	}
	s.HangUp()
	<-s.ended
	return s.cmd.ProcessState.ExitCode(), s.words.last()
}

// within runs do, which reads or writes, and returns errSlow if it takes longer than limit, or
// the cause of ctx.
func (s *Session) within(ctx context.Context, limit time.Duration, do func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errSlow)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = s.Conn.SetDeadline(time.Unix(1, 0)) })
	err := do()
	if !stop() && err == nil {
		err = context.Cause(ctx) // the connection has its deadline
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Ask sends a request, and returns its reply. An error of the other side is a
// [*workerwire.Error]; after any other error the session is of no use.
func (s *Session) Ask(ctx context.Context, q farwire.Request) (farwire.Reply, error) {
	var r farwire.Reply
	err := s.within(ctx, askTimeout, func() error {
		if err := farwire.Write(s.Out, q); err != nil {
			return err
		}
		return farwire.Read(s.R, &r)
	})
	switch {
	case err != nil && ctx.Err() == nil:
		return r, s.lost(err)
	case err != nil:
		return r, err
	case r.Error != "":
		return r, workerwire.Errorf(r.Code, "%s", r.Error)
	}
	return r, nil
}

// lost returns the error of a session that has broken.
func (s *Session) lost(err error) error {
	words := s.words.last()
	if words == "" {
		words = "the connection was lost: " + networds.Of(err)
	}
	return &UnreachableError{Host: s.Host, Words: words}
}

// slowest is the least speed, in bytes a second, that is expected of a connection.
const slowest = 64 << 10

// TimeFor returns how long so many bytes may take.
func TimeFor(bytes int64) time.Duration {
	return askTimeout + time.Duration(bytes)*time.Second/slowest
}

// CopyTo writes the next n bytes from the other side to w.
func (s *Session) CopyTo(ctx context.Context, w io.Writer, n int64) error {
	return s.within(ctx, TimeFor(n), func() error {
		_, err := io.CopyN(w, s.R, n)
		return err
	})
}

// tail keeps the last words of a program.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write never fails.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-maxWords):]
	return len(b), nil
}

// last returns the line that says most about why the program ended, fit to be shown.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSuffix(fault.Quote([]byte(telling.Line(strings.Split(string(t.text), "\n")))), ".")
}
