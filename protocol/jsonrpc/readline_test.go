package jsonrpc

import (
	"bufio"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// TestReadLine checks the pieces of lines, and that one of exactly the limit is whole.
func TestReadLine(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 40)
	var got []string
	for r := bufio.NewReaderSize(iotest.HalfReader(strings.NewReader("a\n\n"+long[:31]+"\n"+long+"\nlast")), 16); ; {
		line, err := ReadLine(r, 32)
		got = append(got, string(line))
		if errors.Is(err, io.EOF) {
			break
		}
		if over := len(line) > 32; errors.Is(err, ErrTooLong) != over || err != nil != over {
			t.Fatalf("%q: %v", line, err)
		}
	}
	if want := []string{"a\n", "\n", long[:31] + "\n", long + "\n", "last"}; !slices.Equal(got, want) {
		t.Errorf("ReadLine returned %q, want %q", got, want)
	}
}
