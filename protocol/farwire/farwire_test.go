package farwire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestHello checks that a hello is found behind what a login prints, within bounds.
func TestHello(t *testing.T) {
	var b bytes.Buffer
	want := Hello{Version: 1, Workers: 4, Node: "box", Program: "1.2.3"}
	if err := WriteHello(&b, want); err != nil {
		t.Fatal(err)
	}
	hello := b.String()
	for _, before := range []string{"Welcome\n\n", "Welcome\n\x1b]0;box\a"} { // the title of a window has no line end
		if got, err := ReadHello(bufio.NewReader(strings.NewReader(before + hello + "more"))); err != nil || got != want {
			t.Errorf("behind %q: ReadHello = %+v, %v", before, got, err)
		}
	}
	for name, c := range map[string]struct {
		text string
		want error
	}{
		"nothing":       {"", io.EOF},
		"half of it":    {hello[:20], io.EOF},
		"no JSON":       {"holdline-far x\n", ErrNoise},
		"a long line":   {strings.Repeat("x", maxNoise+1) + "\n" + hello, ErrNoise},
		"a long banner": {strings.Repeat("line\n", maxNoise) + hello, ErrNoise},
	} {
		if _, err := ReadHello(bufio.NewReader(strings.NewReader(c.text))); !errors.Is(err, c.want) {
			t.Errorf("%s: ReadHello = %v, want %v", name, err, c.want)
		}
	}
}

// TestRead checks that requests come as they were sent, and that none may be too long.
func TestRead(t *testing.T) {
	var b bytes.Buffer
	for _, op := range []string{Look, End} {
		if err := Write(&b, Request{Op: op, ID: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	in := bufio.NewReader(&b)
	for _, want := range []string{Look, End} {
		var q Request
		if err := Read(in, &q); err != nil || q.Op != want || q.ID != "x" {
			t.Errorf("Read = %+v, %v, want %s", q, err, want)
		}
	}
	if err := Read(in, &Request{}); !errors.Is(err, io.EOF) {
		t.Errorf("Read at the end = %v", err)
	}
	if err := Read(bufio.NewReader(strings.NewReader(strings.Repeat(" ", maxLine+1))), &Request{}); !errors.Is(err, ErrNoise) {
		t.Errorf("Read of a long line = %v", err)
	}
}
