// Package program describes a program of another vendor that is installed on this
// machine. It finds the program by path or name, asks it short questions, and builds
// its environment instead of passing on the daemon's.
//
// For each question the package starts a process and waits for it; the process's group
// does not outlive the answer. The package reads no file and no environment of its own,
// and does not know what the programs are for. Its faults say how to fix the problem.
package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdline/daemon/command"
	"holdline/protocol/fault"
)

// Program is what is known of a program before it is found. It must not be changed
// once it is used; then it is safe for concurrent use.
type Program struct {
	Name      string        // for people: "Claude Code"
	Bin       string        // a path, or a name on the PATH of Env
	Env       []string      // of its questions
	Cure      string        // how to get it, behind "; "
	Operation string        // operation that its faults name
	Timeout   time.Duration // of all questions of one look
}

// Find returns the path of the program and the information of its file. The error is a
// spawn_failure fault that says how to install the program.
func (p *Program) Find() (string, os.FileInfo, error) {
	bin, search := p.Bin, command.Variable(p.Env, "PATH")
	named := !strings.Contains(bin, "/")
	if !named {
		var err error
		if bin, err = filepath.Abs(bin); err != nil {
			return "", nil, p.missing("%s: %v", p.Bin, err)
		}
	}
	path, err := command.LookPath(bin, search)
	var info os.FileInfo
	if err == nil {
		info, err = os.Stat(path)
	}
	switch {
	case err == nil:
		return path, info, nil
	case !named:
		return "", nil, p.missing("%s: %v", bin, errors.Unwrap(err))
	case errors.Is(err, os.ErrNotExist):
		return "", nil, p.unfound(command.SearchDirs(search))
	}
	return "", nil, p.missing("%v", err)
}

// unfound returns the fault of a program whose name is in none of the directories. A shell of the
// user's may find it: what that knows, only the command line can say.
func (p *Program) unfound(dirs []string) error {
	where := "The PATH has no absolute directory"
	if len(dirs) > 0 {
		where = "Looked in: " + strings.Join(dirs, ", ")
	}
	return fault.New(fault.SpawnFailure, fault.Engine, p.Operation,
		"Holdline's daemon cannot find `%s`. %s. If your shell finds it, run: `holdline install --path`. If not, %s",
		p.Bin, where, p.Cure).WithCause(fault.Cause{Reason: fault.NotInstalled, Program: p.Bin})
}

// missing returns the fault of a program that cannot be found or run. The text says
// how to get the program.
func (p *Program) missing(format string, args ...any) error {
	return fault.New(fault.SpawnFailure, fault.Engine, p.Operation, "cannot start "+p.Name+": "+format+"; "+p.Cure,
		args...).
		WithReason(fault.NotInstalled)
}

// unfit returns the fault of a version that cannot be used.
func (p *Program) unfit(format string, args ...any) error {
	return fault.New(fault.SpawnFailure, fault.Engine, p.Operation, format, args...).WithReason(fault.Version)
}

// Looks remembers the result of the last look at a program. Callers that come at the
// same time share one look. Make it with [NewLooks].
type Looks[T any] struct {
	turn   chan struct{} // holds a token while a caller looks; guards the fields that follow
	key    string        // of the file looked at
	info   T
	err    error
	until  time.Time // callers that come before then get the result
	unsure bool      // see [Looks.Doubt]
}

// NewLooks returns a memory that holds no result yet.
func NewLooks[T any]() *Looks[T] { return &Looks[T]{turn: make(chan struct{}, 1)} }

// Doubt keeps the result of the present look from being remembered. The callers that
// wait for it still get it. Call it from the look function if a part of the look was
// interrupted.
func (l *Looks[T]) Doubt() { l.unsure = true }

// Look finds p and calls look for it, or returns the result of an earlier look. A
// result holds for ttl, as long as the file does not change. look gets a context that
// ends after the program's timeout.
//
// Callers that wait while another caller looks share its result, even if it is an
// error. An error is not remembered: the next caller looks again. A look that its own
// caller's ctx has interrupted is not shared. The error is that of look, a fault, or
// the cause of ctx.
func (l *Looks[T]) Look(ctx context.Context, p *Program, ttl time.Duration,
	look func(ctx context.Context, path string) (T, error),
) (T, error) {
	var none T
	came := time.Now()
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	path, stat, err := p.Find()
	if err != nil {
		return none, err
	}
	key := fmt.Sprintf("%s|%d|%d", path, stat.Size(), stat.ModTime().UnixNano())
	if l.key == key && came.Before(l.until) {
		return l.info, l.err
	}
	limited, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	l.unsure = false
	info, err := look(limited, path)
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	if err != nil || l.unsure {
		ttl = 0
	}
	l.key, l.info, l.err, l.until = key, info, err, time.Now().Add(ttl)
	return info, err
}
