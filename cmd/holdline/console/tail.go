package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"holdline/cmd/holdline/cmdenv"
	"holdline/protocol/ownfile"
)

// Tail prints the last lines of a log of the daemon, from a time on. With follow it goes on as the file
// grows, until ctx ends, which is no error. If the file is rotated, it prints the rest of the old file and goes
// on with the new one.
func Tail(ctx context.Context, w io.Writer, path string, lines uint, since time.Time, follow bool) error {
	f, err := ownfile.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return cmdenv.WithHint(fmt.Errorf("there is no log at %s", path), "no daemon was started on demand yet")
	} else if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	defer func() { f.Close() }()
	w = logWriter{w}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	// Read the end of the file, then follow from there.
	end, at, err := readEnd(f, info.Size(), lines)
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	if _, err := w.Write(EndOf(linesSince(end, since), lines)); err != nil {
		return err
	}
	for follow {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(LogPoll):
		}
		if now, err := os.Stat(path); err == nil && !os.SameFile(now, info) || err == nil && now.Size() < at {
			// The file was rotated or truncated: print the rest of the old one first.
			next, err := ownfile.Open(path)
			if err != nil {
				continue
			}
			if _, err := io.Copy(w, io.NewSectionReader(f, at, 1<<40)); err != nil {
				next.Close()
				return err
			}
			f.Close()
			f, info, at = next, now, 0
		}
		n, err := io.Copy(w, io.NewSectionReader(f, at, 1<<40))
		if err != nil {
			return err
		}
		at += n
	}
	return nil
}

// logHang is how far the rest of a long line of a log is indented.
const logHang = 4

// WriteLog prints a part of a log. On a terminal it wraps each whole line that is too long, and indents the rest.
// Elsewhere it prints the log as it is.
func WriteLog(w io.Writer, text []byte) error {
	columns := Columns(w)
	for line := range bytes.Lines(text) {
		whole, ended := bytes.CutSuffix(line, []byte("\n"))
		if ended && columns > 0 && Width(string(whole)) > columns {
			Line(w, logHang, "%s", string(whole))
			continue
		}
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return nil
}

// logWriter writes by [WriteLog] to a writer.
type logWriter struct{ io.Writer }

// Write writes a part of a log.
func (l logWriter) Write(text []byte) (int, error) { return len(text), WriteLog(l.Writer, text) }

// logTime is the form of the time at the beginning of a line of the daemon's log.
const logTime = time.DateTime

// linesSince returns the lines of a log from the first one on that was written at a time or later.
func linesSince(b []byte, since time.Time) []byte {
	if since.IsZero() {
		return b
	}
	at := 0
	for line := range bytes.Lines(b) {
		if written, err := time.ParseInLocation(logTime, string(line[:min(len(line), len(logTime))]), time.Local); err == nil &&
			!written.Before(since.Truncate(time.Second)) {
			return b[at:]
		}
		at += len(line)
	}
	return nil
}

// Bounds of how much of the end of a log is searched for lines, in bytes: at first, and if there are
// too few lines in that. Logs that Holdline rotates are shorter.
const (
	firstTail = 256 << 10
	maxTail   = 16 << 20
)

// readEnd returns the last lines of a file that has that size, that many at most, and where it has
// read to. The file may grow meanwhile. Of a file that is longer than maxTail there may be fewer
// lines, but each of them is whole.
func readEnd(f *os.File, size int64, lines uint) (end []byte, to int64, err error) {
	for most := int64(firstTail); ; most *= 8 {
		most = min(most, maxTail)
		at := max(0, size-most)
		end = make([]byte, size-at)
		n, err := f.ReadAt(end, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, 0, err
		}
		end = end[:n]
		found := uint(bytes.Count(end, []byte("\n")))
		if at > 0 && found <= lines && most < maxTail {
			continue
		}
		if at > 0 && found <= lines { // it begins inside a line
			end = end[bytes.IndexByte(end, '\n')+1:]
		}
		return EndOf(end, lines), at + int64(n), nil
	}
}

// EndOf returns the last lines of b, that many at most.
func EndOf(b []byte, lines uint) []byte {
	if lines == 0 {
		return nil
	}
	for i := len(b) - 1; i > 0; i-- {
		if b[i-1] == '\n' {
			if lines--; lines == 0 {
				return b[i:]
			}
		}
	}
	return b
}

// LogPoll is the time between two looks at a log that is followed.
const LogPoll = 200 * time.Millisecond
