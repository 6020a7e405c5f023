// Package notify shows notifications on the user's desktop: that a consult in the background
// has ended, that a server was given up, that tools of a server have changed. It is off unless
// the configuration asks for it.
//
// It follows the events of package events and runs notify-send, or osascript on macOS, as a
// child that is bounded in time. A program that is missing is one line in the log.
package notify

import (
	"context"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdline/daemon/command"
	"holdline/protocol/control"
)

// Bounds of notifications.
const (
	showTimeout = 15 * time.Second // of one run of the program
	quiet       = time.Second      // between two about the same thing
	maxSubjects = 256              // that are remembered for that
)

// Notifier shows notifications. Its fields must not change once it runs.
type Notifier struct {
	Log     *slog.Logger
	Environ func() []string // of the user's session, with the PATH to search
	// Kinds returns which notifications the configuration asks for: consults, servers, tools.
	Kinds func() []string
	// Follow calls show with each event from now on until ctx is done, and returns the cause.
	Follow func(ctx context.Context, show func(control.Event)) error

	last    map[string]time.Time // when something was shown, by kind and subject
	missing bool                 // the log says already that there is no program
}

// Run shows notifications until ctx is done, and returns the cause. Call it once.
func (n *Notifier) Run(ctx context.Context) error {
	n.last = map[string]time.Time{}
	return n.Follow(ctx, func(e control.Event) {
		if kind := kindOf(&e); kind != "" && slices.Contains(n.Kinds(), kind) && n.isDue(kind+" "+e.Subject) {
			n.show(ctx, &e)
		}
	})
}

// kindOf returns the word of the configuration for an event, or "" if it is none to be shown.
func kindOf(e *control.Event) string {
	switch {
	case e.Kind == control.Answered && e.Background:
		return "consults"
	case e.Kind == control.Ejected:
		return "servers"
	case e.Kind == control.Changed:
		return "tools"
	}
	return ""
}

// isDue reports whether nothing was shown about a subject for a while, and notes that something
// is now.
func (n *Notifier) isDue(subject string) bool {
	now := time.Now()
	if now.Sub(n.last[subject]) < quiet {
		return false
	}
	if len(n.last) >= maxSubjects {
		clear(n.last)
	}
	n.last[subject] = now
	return true
}

// show runs the program that shows a notification, and waits for it.
func (n *Notifier) show(ctx context.Context, e *control.Event) {
	title, text := "Holdline: "+e.Subject, e.Text
	if e.Kind == control.Answered {
		title = "Holdline: consult " + e.Subject
		text += "\nTo read it: holdline consult show " + e.Subject
	}
	environ := n.Environ()
	name, args := "notify-send", []string{"--app-name=Holdline", "--", title, text}
	if runtime.GOOS == "darwin" {
		name = "osascript"
		args = []string{"-e", "display notification " + quote(text) + " with title " + quote(title)}
	}
	path, err := command.LookPath(name, command.Variable(environ, "PATH"))
	if err != nil {
		if !n.missing {
			n.missing = true
			n.Log.WarnContext(ctx, "no notification is shown: the program for it is not installed",
				"program", name, "err", err)
		}
		return
	}
	n.missing = false
	ctx, cancel := context.WithTimeout(ctx, showTimeout)
	defer cancel()
	cmd := command.Command{Path: path, Args: args, Name: filepath.Base(path), Env: environ, Dir: "/", Session: true}
	if _, err := cmd.Run(ctx); err != nil {
		n.Log.InfoContext(ctx, "a notification was not shown", "program", path, "err", err)
	}
}

// quote returns a text as a string of AppleScript, which knows these two escapes.
func quote(text string) string {
	return strings.NewReplacer(`\a`, `\\a`).Replace(strconv.Quote(text))
}
