package service

import (
	"fmt"
	"io"
	"log/slog"
	"net"
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

// journalSocket is where systemd's journal takes the output of programs.
const journalSocket = "/run/systemd/journal/stdout"

// OpenJournal returns a file to which lines for systemd's journal can be written; they get the
// name identifier there. It returns an error on a machine without a journal. The caller must close the file.
func OpenJournal(identifier string) (*os.File, error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: journalSocket, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	defer conn.Close()
	// As sd_journal_stream_fd(3) does: the name, no unit, priority "info", prefixes with another
	// priority, and no copy for syslog, the kernel's log or the console.
	if _, err := io.WriteString(conn, identifier+"\n\n6\n1\n0\n0\n0\n"); err != nil {
		return nil, fmt.Errorf("open the journal: %w", err)
	}
	return conn.File()
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
