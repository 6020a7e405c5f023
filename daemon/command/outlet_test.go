package command

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestTimePassesBeforeOutputIsRead_AllOfItIsThere has this process come to read the output of a program only when
// the time for that is over, as on a busy machine. All that the program has written is there; whether something
// holds the output open is known, too.
func TestTimePassesBeforeOutputIsRead_AllOfItIsThere(t *testing.T) {
	for _, held := range []bool{false, true} {
		o := outlet{text: capped{left: 1 << 20}}
		if err := o.open(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(o.close)
		words := strings.Repeat("word ", 10_000) // less than a pipe holds
		if _, err := o.w.WriteString(words); err != nil {
			t.Fatal(err)
		}
		if held {
			fd, err := syscall.Dup(int(o.w.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = syscall.Close(fd) })
		}
		if err := o.r.SetReadDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		o.read()
		if n := o.text.buf.Len(); n != 0 || o.over {
			t.Fatalf("%d bytes were read in no time, over %t", n, o.over)
		}
		o.drain()
		if got := o.text.buf.String(); got != words || o.over == held {
			t.Errorf("held %t: %d of %d bytes, over %t", held, len(got), len(words), o.over)
		}
	}
}
