package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"holdline/cmd/holdline/cmdenv"
	"holdline/protocol/ownfile"
)

// Tail prints the last lines of a file. With follow it goes on as the file grows, until ctx
// ends, which is no error. If the file is rotated, it prints the rest of the old file and goes
// on with the new one.
func Tail(ctx context.Context, w io.Writer, path string, lines uint, follow bool) error {
	f, err := ownfile.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return cmdenv.WithHint(fmt.Errorf("there is no log at %s", path), "no daemon was started on demand yet")
	} else if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	defer func() { f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("log: %w", err)
	}
	// Read the end of the file, then follow from there. The file may grow meanwhile, so at
	// counts what was read.
	at := max(0, info.Size()-maxTail)
	end := make([]byte, info.Size()-at)
	n, err := f.ReadAt(end, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("log: %w", err)
	}
	if _, err := w.Write(EndOf(end[:n], lines)); err != nil {
		return err
	}
	at += int64(n)
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

// maxTail bounds how much of the end of a log is searched for lines, in bytes.
const maxTail = 1 << 20

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
