package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"holdline/protocol/fault"
)

// maxProbe bounds what is kept of one answer.
const maxProbe = 256 << 10

// Probe runs the program at path for a short question, with nothing on its
// standard input, in a process group that does not outlive the answer. An exit
// code other than 0 is no error.
func (p *Program) Probe(ctx context.Context, path string, args ...string) (stdout []byte, code int, err error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = p.Env
	cmd.Dir = "/"
	out, errOut := &Capped{Limit: maxProbe}, &Capped{Limit: 4 << 10}
	cmd.Stdout, cmd.Stderr = out, errOut
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// A child left behind may hold the pipe: it is not waited for.
	cmd.WaitDelay = 500 * time.Millisecond
	err = cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	failed := func(format string, args ...any) *fault.Record {
		return fault.New(fault.SpawnFailure, fault.Engine, p.Operation, format, args...)
	}
	name := strings.Join(args, " ")
	if ctx.Err() != nil {
		return nil, 0, failed("%s %s did not answer within %s", p.Bin, name, p.Timeout).WithReason(fault.BadOutput)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if exit.Exited() {
			return out.Bytes(), exit.ExitCode(), nil
		}
		signal := "killed"
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok {
			signal = ws.Signal().String()
		}
		return nil, 0, failed("%s %s was ended by a signal (%s)", p.Bin, name, signal).
			WithCause(fault.Cause{Reason: fault.Killed, Signal: &signal, StderrTail: tail(errOut.String())})
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		cause := fault.Cause{Reason: fault.NotInstalled}
		if errno, ok := errors.AsType[syscall.Errno](err); ok {
			text := errno.Error()
			cause.Errno = &text
		}
		return nil, 0, failed("cannot start %s: %v", path, err).WithCause(cause)
	}
	return out.Bytes(), 0, nil
}

// Capped keeps the first bytes that are written to it and swallows the rest.
type Capped struct {
	Limit int
	Over  bool // something was swallowed
	buf   bytes.Buffer
}

// Write never fails.
func (w *Capped) Write(p []byte) (int, error) {
	room := max(w.Limit-w.buf.Len(), 0)
	w.Over = w.Over || len(p) > room
	w.buf.Write(p[:min(room, len(p))])
	return len(p), nil
}

// Bytes is what was kept.
func (w *Capped) Bytes() []byte { return w.buf.Bytes() }

func (w *Capped) String() string { return w.buf.String() }

// tail is the last lines of a text.
func tail(s string) []string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	if len(lines) == 1 && lines[0] == "" {
		return nil
	}
	return lines[max(len(lines)-5, 0):]
}

// Version is three numbers, most significant first.
type Version [3]int

// ParseVersion reads a word such as "2.1.329"; what follows a dash in it does
// not count.
func ParseVersion(word string) (v Version, ok bool) {
	word, _, _ = strings.Cut(word, "-")
	parts := strings.Split(word, ".")
	if len(parts) != len(v) {
		return v, false
	}
	for i, part := range parts {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 {
			return v, false
		}
		v[i] = n
	}
	return v, true
}

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

// Options are the long options that a help text lists: words that begin with
// two dashes, cut at the first byte that no option has. What a version number
// implies is a guess; this is not.
func Options(help []byte) map[string]bool {
	out := map[string]bool{}
	for word := range strings.FieldsSeq(string(help)) {
		if !strings.HasPrefix(word, "--") {
			continue
		}
		end := len(word)
		for i, r := range word {
			if r != '-' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
				end = i
				break
			}
		}
		out[word[:end]] = true
	}
	return out
}
