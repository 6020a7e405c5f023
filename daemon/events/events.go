// Package events keeps what has lately happened to servers, consults and the daemon, for
// people who watch (`holdline top`).
//
// A part of the daemon reports an event where it logs it: it adds a [Note] to the line of
// the log. The handler that [Ring.Handler] returns finds the notes in what is logged.
package events

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// Bounds of what is kept.
const (
	kept    = 256 // events
	maxText = 300 // characters of a text
)

// Note is an attribute of a line of the log that makes it an event, too. The log shows only
// the kind.
type Note control.Event

// New returns a note. subject is a server or a consult, or "". The text is for people, and
// need not name the subject.
func New(kind control.EventKind, subject, format string, args ...any) Note {
	return Note{Kind: kind, Subject: subject, Text: fmt.Sprintf(format, args...)}
}

// NewBad returns a note about something that a user should look at.
func NewBad(kind control.EventKind, subject, format string, args ...any) Note {
	n := New(kind, subject, format, args...)
	n.Bad = true
	return n
}

// LogValue returns what the log shows of a note.
func (n Note) LogValue() slog.Value { return slog.StringValue(string(n.Kind)) }

// Ring keeps the last events. It is safe for concurrent use, and adding to it never blocks:
// a slow reader loses events. Make it with [NewRing].
type Ring struct {
	mu    sync.Mutex // guards the fields that follow
	last  []control.Event
	n     int64         // number of the last event
	fresh chan struct{} // closed at the next event
}

// NewRing returns an empty ring.
func NewRing() *Ring { return &Ring{fresh: make(chan struct{})} }

// Add adds an event that happens now.
func (r *Ring) Add(n Note) {
	n.Text = fault.Short(n.Text, maxText)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n++
	n.N, n.AtMS = r.n, time.Now().UnixMilli()
	if len(r.last) == kept {
		r.last = append(r.last[:0], r.last[1:]...)
	}
	r.last = append(r.last, control.Event(n))
	close(r.fresh)
	r.fresh = make(chan struct{})
}

// After returns the events with higher numbers than n that are kept, and a channel that is
// closed when there are more.
func (r *Ring) After(n int64) ([]control.Event, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	from := len(r.last) - int(min(max(r.n-n, 0), int64(len(r.last))))
	return append([]control.Event(nil), r.last[from:]...), r.fresh
}

// Follow calls show with each event after number n, until ctx is done, and returns the
// cause. It may skip events if show is slow.
func (r *Ring) Follow(ctx context.Context, n int64, show func(control.Event)) error {
	for {
		events, fresh := r.After(n)
		for _, e := range events {
			show(e)
			n = e.N
		}
		select {
		case <-fresh:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Handler returns a handler of log lines that adds their notes to the ring, and passes the
// lines on to next. A note counts even if next does not show lines of its level.
func (r *Ring) Handler(next slog.Handler) slog.Handler { return &handler{next, r} }

// handler is a [slog.Handler] that finds notes.
type handler struct {
	slog.Handler

	ring *Ring
}

// Enabled reports whether a line of this level may have a note, or is shown.
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.Handler.Enabled(ctx, level)
}

// Handle adds the notes of a line to the ring, and passes on a line that is shown.
func (h *handler) Handle(ctx context.Context, line slog.Record) error {
	line.Attrs(func(a slog.Attr) bool {
		if note, ok := a.Value.Any().(Note); ok {
			h.ring.Add(note)
		}
		return true
	})
	if !h.Handler.Enabled(ctx, line.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, line)
}

// WithAttrs returns a handler that adds attributes to each line.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(attrs), h.ring}
}

// WithGroup returns a handler that puts attributes into a group.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.ring}
}
