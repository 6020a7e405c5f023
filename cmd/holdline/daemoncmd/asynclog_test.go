package daemoncmd

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"
)

// plainLog returns a log of plain lines that is written to w.
func plainLog(w io.Writer) slog.Handler { return slog.NewTextHandler(w, nil) }

// TestLogOfBlockedStderr checks that the daemon can log, flush its log and close it while
// nothing reads its standard error, and that each line is either written later or counted.
func TestLogOfBlockedStderr(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	l := newAsyncLog(w, plainLog)
	log := slog.New(plainLog(l))
	const lines = 30000
	for i := range lines {
		log.Info("a line that is long enough to fill the pipe and then the queue soon", "i", i)
	}
	l.Flush()
	read := make(chan string, 1)
	go func() {
		var last string
		got, dropped := 0, 0
		for s := bufio.NewScanner(r); s.Scan(); last = s.Text() {
			n := 0
			if _, rest, ok := strings.Cut(s.Text(), `msg="`); !ok {
				read <- "a torn line: " + s.Text()
			} else if _, err := fmt.Sscanf(rest, "%d log lines were dropped", &n); err == nil {
				dropped += n
			} else {
				got++
			}
		}
		read <- fmt.Sprint(got+dropped, got > 0, dropped > 0, strings.Contains(last, "the last line"))
	}()
	deadline := time.Now().Add(time.Minute)
	for len(l.backlog()) > 0 && time.Now().Before(deadline) {
		l.Flush()
	}
	log.Info("the last line")
	l.Close()
	w.Close()
	if got, want := <-read, fmt.Sprint(lines+1, true, true, true); got != want {
		t.Errorf("lines, some written, some dropped, the last one is there: got %s, want %s", got, want)
	}
}

// backlog returns what waits to be written.
func (l *asyncLog) backlog() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queued
}

// TestLogFlushed checks that a flush, and the end of the log, write all lines in order.
func TestLogFlushed(t *testing.T) {
	var out, want bytes.Buffer
	l := newAsyncLog(&out, plainLog)
	add := func(i int) {
		fmt.Fprintf(io.MultiWriter(l, &want), "line %d\n", i)
	}
	for i := range 1000 {
		add(i)
	}
	l.Flush()
	if out.String() != want.String() {
		t.Errorf("after a flush: got %d bytes, want %d", out.Len(), want.Len())
	}
	add(1000)
	l.Close()
	if out.String() != want.String() {
		t.Errorf("after the end: got %d bytes, want %d", out.Len(), want.Len())
	}
}
