package session_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"holdline/protocol"
)

// heap returns how many bytes of memory are in use.
func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestAnswersWait_RequestsOfThemTakeNoMemory checks that a short answer which waits, because its client does
// not acknowledge it, or is not connected, does not keep the long request to which it belongs in memory.
func TestAnswersWait_RequestsOfThemTakeNoMemory(t *testing.T) {
	const calls, size = 16, 4 << 20
	call := func(id int, name string) string {
		more := fmt.Sprintf(`{},"_meta":{"more":"%s"}`, strings.Repeat("x", size))
		return strings.Replace(callLine(id, name), "{}", more, 1)
	}
	// small fails the test unless little more memory is in use, in a while, than was before.
	small := func(t *testing.T, before int) {
		t.Helper()
		now := heap() - before
		for limit := time.Now().Add(waitLimit / 2); now > calls*size/4 && time.Now().Before(limit); now = heap() - before {
			time.Sleep(time.Millisecond)
		}
		if now > calls*size/4 {
			t.Errorf("%d MiB are in use more than before %d requests of %d MiB", now>>20, calls, size>>20)
		}
	}
	for name, guests := range map[string]bool{"guest": true, "client": false} {
		t.Run(name+" does not acknowledge", func(t *testing.T) {
			h := start(t)
			h.guests.Store(guests)
			c := h.open(t, protocol.Greeting{Identity: "a"})
			before := heap()
			for id := range calls {
				c.send(call(id, "steps"))
				want(t, c.next(), fmt.Sprint(id), "done")
			}
			small(t, before)
			c.conn.Close()
			h.detached(t)
			small(t, before)
			answered(h.again(t, protocol.Greeting{Identity: "a", Next: 3 + calls, Pending: lines(calls)}), "done")
		})
		t.Run(name+" is not connected", func(t *testing.T) {
			h := startWith(t, calls)
			h.guests.Store(guests)
			c := h.open(t, protocol.Greeting{Identity: "a"})
			before := heap()
			for id := range calls {
				c.send(call(id, "hold"))
				<-h.began
			}
			c.conn.Close()
			h.detached(t)
			close(h.hold)
			small(t, before)
			answered(h.again(t, protocol.Greeting{Identity: "a", Next: 3 + calls, Pending: lines(calls)}), "held")
		})
	}
}

// lines returns the numbers of so many lines after the handshake.
func lines(n int) (numbers []int64) {
	for i := range n {
		numbers = append(numbers, int64(3+i))
	}
	return numbers
}

// answered reads the welcome and the answers to those lines, which the client had not got before.
func answered(c *client, text string) {
	c.t.Helper()
	c.next()
	for id := range 16 {
		if line := c.next(); !strings.Contains(line, text) {
			c.t.Errorf("answer %d: %s", id, line)
		}
	}
}
