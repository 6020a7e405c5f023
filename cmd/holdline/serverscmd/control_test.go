package serverscmd

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"holdline/protocol/control"
)

// TestResultText checks how the result of a tool is shown to people.
func TestResultText(t *testing.T) {
	for _, test := range []struct{ result, want string }{
		{`{"content":[{"type":"text","text":"a"},{"type":"text","text":"b\nc"}]}`, "a\nb\nc"},
		{
			`{"content":[{"type":"image","mimeType":"image/png","data":"AAAA"}]}`,
			"[image image/png, 4 characters of base64; see --json]",
		},
		{`{"content":[{"type":"resource_link","uri":"file:///x"}]}`, "[resource_link file:///x]"},
		{`{"content":[{"type":"resource","resource":{"uri":"file:///y","text":"of it"}}]}`, "of it"},
		{`{"content":[],"structuredContent":{"n":1.50}}`, `{"n":1.50}`},
		{`{"content":[{"type":"text","text":"words"}],"structuredContent":{"n":1}}`, "words"},
		{`"odd"`, `"odd"`},
	} {
		if got := resultText(json.RawMessage(test.result)); got != test.want {
			t.Errorf("%s: %q, want %q", test.result, got, test.want)
		}
	}
}

// TestFirstWords checks that a description is cut between two words.
func TestFirstWords(t *testing.T) {
	for description, want := range map[string]string{
		"Reads a file.":             "Reads a file.",
		"Two\n\nlines":              "Two lines",
		strings.Repeat("word ", 20): strings.TrimSpace(strings.Repeat("word ", 14)) + "…",
		strings.Repeat("ü", 100):    strings.Repeat("ü", 71) + "…",
	} {
		b, err := json.Marshal(map[string]string{"name": "x", "description": description})
		if err != nil {
			t.Fatal(err)
		}
		if got := firstWords(b); got != want {
			t.Errorf("%q: %q, want %q", description, got, want)
		}
	}
	if got := firstWords(json.RawMessage(`{"name":"x","description":7}`)); got != "" {
		t.Errorf("no text: %q", got)
	}
}

// TestStopped checks that the end of processes is told only if there were some.
func TestStopped(t *testing.T) {
	const back = "; to have it back: holdline servers start a"
	for n, want := range map[int]string{
		0: "server a is stopped" + back, 1: "server a is stopped (1 process ended)" + back,
	} {
		if got := stopped("a", n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

// TestInterruptedWhileStdinIsOpen_CallEnds checks that an interrupt ends a call that waits for its
// arguments.
func TestInterruptedWhileStdinIsOpen_CallEnds(t *testing.T) {
	in, typed := io.Pipe()
	defer typed.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	cmd.SetIn(in)
	if got, err := callArguments(cmd, "-"); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("got %s, %v, want an interrupt", got, err)
	}
}

// TestLogHeadings checks that the heading of a process's log is a line of its own, also behind a
// line that has no end.
func TestLogHeadings(t *testing.T) {
	var out bytes.Buffer
	p := &logPrinter{out: &out, lines: 9, after: map[string]int64{}}
	logs := []control.ServerLog{
		{Worker: "a", PID: 1, Root: "/a", Text: "ready> "},
		{Worker: "b", PID: 2, Root: "/b", Text: "up\n"},
		{Worker: "c", PID: 3, Root: "/c", Text: "up\n"},
	}
	const want = "==> process 1 /a\nready> \n==> process 2 /b\nup\n==> process 3 /c\nup\n"
	if err := p.printNew(logs); err != nil || out.String() != want {
		t.Errorf("got %q, %v, want %q", out.String(), err, want)
	}
}

// TestRefusedCall_MessageOfSeveralLines checks that the message of a server is one line of words.
func TestRefusedCall_MessageOfSeveralLines(t *testing.T) {
	answer := &control.ServerCallAnswer{Error: json.RawMessage(`{"code":-32602,"message":"not valid: [\n  {\n\t\"a\"}]"}`)}
	const want = `the server refuses the call: not valid: [ { "a"}] (-32602)`
	if err := printCall(&cobra.Command{}, answer); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestLogsOfAllServers_ByTimeWithTheirNames checks that the lines of all servers come in the order in
// which they were written, each behind the name of its server, and that a process among several
// has its pid there, too.
func TestLogsOfAllServers_ByTimeWithTheirNames(t *testing.T) {
	var out bytes.Buffer
	p := &logPrinter{out: &out, lines: 2, all: true, after: map[string]int64{}}
	at := func(ms ...int64) (times []control.LogTime) {
		for i, one := range ms {
			times = append(times, control.LogTime{Line: i, UnixMS: one})
		}
		return times
	}
	logs := []control.ServerLog{
		{Server: "long-name", Worker: "a", PID: 1, Text: "left out\na one\na two\n", Times: at(1, 10, 30)},
		{Server: "b", Worker: "b", PID: 2, Text: "b one\nb \x1btwo", Times: at(20, 40)},
		{Server: "b", Worker: "c", PID: 3, Text: "c one\n", Times: at(15)},
	}
	const want = "long-name | a one\nb 3       | c one\nb 2       | b one\nlong-name | a two\nb 2       | b ?two\n"
	if err := p.printNew(logs); err != nil || out.String() != want {
		t.Errorf("got\n%s%v, want\n%s", out.String(), err, want)
	}
}
