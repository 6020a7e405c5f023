// Package program describes a program of another vendor as it is installed on this
// machine: found by path or name, asked short questions, and given an
// environment that is built and not inherited.
//
// A question is a process that is waited for; its group does not outlive the
// answer. The package reads no file and no environment of its own, and knows
// nothing of what the programs are for. Its faults say how to fix them.
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

// Program is what is known of a program before it was looked for. It
// is read-only once used, and safe for concurrent use.
type Program struct {
	Name      string        // for people: "Claude Code"
	Bin       string        // a path, or a name on the PATH of Env
	Env       []string      // of its questions
	Cure      string        // how to get it, behind "; "
	Operation string        // what faults are filed under
	Timeout   time.Duration // of all questions of one look
}

// Find returns the path of the program and what is known of its file. The error is
// a fault, a spawn_failure that says how to install the program.
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
	case !errors.Is(err, os.ErrNotExist):
		return "", nil, p.missing("%v", err)
	}
	return "", nil, p.missing("%s is in none of %s", p.Bin, strings.Join(command.SearchDirs(search), ", "))
}

// missing returns the fault of a program that cannot be found or run.
func (p *Program) missing(format string, args ...any) error {
	return fault.New(fault.SpawnFailure, fault.Engine, p.Operation, "cannot start "+p.Name+": "+format+"; "+p.Cure,
		args...).
		WithReason(fault.NotInstalled)
}

// unfit is the fault of a version that cannot be used.
func (p *Program) unfit(format string, args ...any) error {
	return fault.New(fault.SpawnFailure, fault.Engine, p.Operation, format, args...).WithReason(fault.Version)
}

// Looks remembers what the last look at a program has found. Several callers
// at once share one look. The zero value is of no use; see [NewLooks].
type Looks[T any] struct {
	turn   chan struct{} // held by the caller that looks; what follows is guarded by it
	key    string        // of the file looked at
	info   T
	err    error
	until  time.Time // callers that came before then are given what was found
	unsure bool      // see [Looks.Doubt]
}

// NewLooks makes a memory without a look in it.
func NewLooks[T any]() *Looks[T] { return &Looks[T]{turn: make(chan struct{}, 1)} }

// Doubt makes the present look hold for the callers that wait for it, and for
// no later ones: a part of it was interrupted. Only look itself may call it.
func (l *Looks[T]) Doubt() { l.unsure = true }

// Look finds p and asks look about it, or returns what was found last. That
// holds for ttl, as long as the file does not change. A look that failed is
// shared by the callers that were waiting for it, and is not remembered: the
// next caller looks again. One that was interrupted by its ctx is not shared
// either. The error is that of look, a fault, or the cause of ctx.
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
