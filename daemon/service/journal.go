package service

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
)

// InJournal tells whether the standard error is the journal's, given the
// value of JOURNAL_STREAM: "device:inode" of it (systemd.exec(5)).
func InJournal(variable string, stderr *os.File) bool {
	var dev, ino uint64
	if _, err := fmt.Sscanf(variable, "%d:%d", &dev, &ino); err != nil || stderr == nil {
		return false
	}
	info, err := stderr.Stat()
	if err != nil {
		return false
	}
	gotDev, gotIno, ok := inode(info)
	return ok && gotDev == dev && gotIno == ino
}

// priorities are how lines begin in which the journal is told of what level
// they are (sd-daemon(3)), the lowest level first.
var priorities = []struct {
	below  slog.Level
	prefix string
}{{slog.LevelInfo, "<7>"}, {slog.LevelWarn, "<6>"}, {slog.LevelError, "<4>"}}

const highest = "<3>"

// NewJournalHandler writes records to w, which the journal reads, as plain
// lines: their level is the journal's priority, their time is its own.
func NewJournalHandler(w io.Writer, level slog.Leveler) slog.Handler {
	h := journalHandler{level: level}
	for _, p := range priorities {
		h.byPriority = append(h.byPriority, plain(w, p.prefix))
	}
	h.byPriority = append(h.byPriority, plain(w, highest))
	return h
}

// plain writes lines that begin with prefix. Each is one write, and so whole.
func plain(w io.Writer, prefix string) slog.Handler {
	return slog.NewTextHandler(prefixed{w, prefix}, &slog.HandlerOptions{
		Level: slog.Level(-1 << 10), // the level is looked at before
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
				return slog.Attr{}
			}
			return a
		},
	})
}

type prefixed struct {
	w      io.Writer
	prefix string
}

func (p prefixed) Write(line []byte) (int, error) {
	n, err := p.w.Write(append([]byte(p.prefix), line...))
	return max(0, n-len(p.prefix)), err
}

type journalHandler struct {
	level      slog.Leveler
	byPriority []slog.Handler // as priorities, and the highest
}

func (h journalHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level.Level()
}

func (h journalHandler) Handle(ctx context.Context, r slog.Record) error {
	for i, p := range priorities {
		if r.Level < p.below {
			return h.byPriority[i].Handle(ctx, r)
		}
	}
	return h.byPriority[len(priorities)].Handle(ctx, r)
}

func (h journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.each(func(one slog.Handler) slog.Handler { return one.WithAttrs(attrs) })
}

func (h journalHandler) WithGroup(name string) slog.Handler {
	return h.each(func(one slog.Handler) slog.Handler { return one.WithGroup(name) })
}

// each is a copy with every handler replaced.
func (h journalHandler) each(f func(slog.Handler) slog.Handler) slog.Handler {
	out := journalHandler{level: h.level}
	for _, one := range h.byPriority {
		out.byPriority = append(out.byPriority, f(one))
	}
	return out
}
