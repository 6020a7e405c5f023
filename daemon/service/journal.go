package service

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
)

// InJournal reports whether the standard error is the journal's, given the value of
// JOURNAL_STREAM: "device:inode" of it (systemd.exec(5)).
func InJournal(variable string, stderr *os.File) bool {
	var dev, ino uint64
	if _, err := fmt.Sscanf(variable, "%d:%d", &dev, &ino); err != nil || stderr == nil {
		return false
	}
	info, err := stderr.Stat()
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && uint64(st.Dev) == dev && st.Ino == ino //nolint:unconvert // the width of Dev depends on the system
}

// NewJournalHandler writes records to w, which the journal reads, as plain lines. Each
// begins with the priority that the journal is to give it (sd-daemon(3)) instead of the
// level, and has no time, since the journal adds its own.
func NewJournalHandler(w io.Writer, level slog.Leveler) slog.Handler {
	return slog.NewTextHandler(priorityWriter{w}, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			switch {
			case len(groups) > 0:
			case a.Key == slog.TimeKey:
				return slog.Attr{}
			case a.Key == slog.LevelKey:
				if level, ok := a.Value.Any().(slog.Level); ok {
					return slog.Int(slog.LevelKey, priority(level))
				}
			}
			return a
		},
	})
}

// priority returns the journal's priority for a level: debug, info, warning or error.
func priority(level slog.Level) int {
	switch {
	case level < slog.LevelInfo:
		return 7
	case level < slog.LevelWarn:
		return 6
	case level < slog.LevelError:
		return 4
	}
	return 3
}

// priorityWriter turns the first attribute of a line, "level=N ", into "<N>". A record
// is one write, and so each line stays whole.
type priorityWriter struct{ w io.Writer }

// Write writes one line with its priority.
func (p priorityWriter) Write(line []byte) (int, error) {
	const levelAttr = len("level=N ")
	out := append([]byte{'<', line[len("level=")], '>'}, line[levelAttr:]...)
	if _, err := p.w.Write(out); err != nil {
		return 0, err
	}
	return len(line), nil
}
