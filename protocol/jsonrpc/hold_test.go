package jsonrpc

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// TestNoRoomForALine_ItIsSkippedAndOthersAreRead checks that a line for which there is no room is skipped
// without being kept, that its ends are known, and that the sizes of the buffer are all told.
func TestNoRoomForALine_ItIsSkippedAndOthersAreRead(t *testing.T) {
	const room = 300 << 10
	big := `{"method":"m","params":{"x":"` + strings.Repeat("x", 3*room) + `"},"jsonrpc":"2.0","id":7}`
	fits := strings.Repeat("y", room/4)
	held, most, refused := 0, 0, 0
	l := NewLines(&slowReader{[]byte("short\n" + big + "\n" + fits + "\n" + big + "\n" + "short\n" + big), 10_000}, MaxFrame)
	l.Hold = func(size int) bool {
		if size > room {
			refused++
			return false
		}
		held, most = size, max(most, size)
		return true
	}
	l.BeforeRead = func() {
		if cap(l.buf) > max(held, 64<<10) {
			t.Fatalf("the buffer has %d bytes, and %d are told", cap(l.buf), held)
		}
		if l.skipping && cap(l.buf) > keepBuffer {
			t.Fatalf("the buffer of a skipped line has %d bytes", cap(l.buf))
		}
	}
	for _, want := range []string{"short", "", fits, "", "short", ""} {
		line, err := l.Next()
		if want == "" {
			if id, kind := Glimpse(l.Ends()); !errors.Is(err, ErrNoRoom) || string(id) != "7" || kind != Request {
				t.Errorf("a line without room: %v, id %s, kind %d", err, id, kind)
			}
		} else if err != nil || string(line) != want {
			t.Errorf("Next = %.20s, %v, want %.20s", line, err, want)
		}
	}
	if _, err := l.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	if l.Close(); held > keepBuffer || refused != 3 {
		t.Errorf("%d bytes are held at the end, %d were refused", held, refused)
	}
}

// TestLongestLine_BufferIsNotTwiceAsLarge checks that the buffer grows for no more than the longest line.
func TestLongestLine_BufferIsNotTwiceAsLarge(t *testing.T) {
	const limit = 5 << 20
	most := 0
	l := NewLines(strings.NewReader(strings.Repeat("x", limit)+"\n"), limit)
	l.Hold = func(size int) bool {
		most = max(most, size)
		return true
	}
	if line, err := l.Next(); err != nil || len(line) != limit || most > limit+keepBuffer {
		t.Errorf("a line of %d bytes took a buffer of %d: %v", len(line), most, err)
	}
}
