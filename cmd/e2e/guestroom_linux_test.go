package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// unfinished connects so many guests, each of which begins a line of size bytes and does not end it.
// It returns their connections once all is written.
func (p *place) unfinished(t *testing.T, guests, size int) (conns []net.Conn) {
	t.Helper()
	block := []byte(strings.Repeat("x", 1<<20))
	var writing sync.WaitGroup
	for i := range guests {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: p.guestPath(), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		conns = append(conns, c)
		writing.Go(func() {
			fmt.Fprintf(c, `{"holdline":1,"role":"mcp","session":"01234567-89ab-cdef-0123-%012d"}`+"\n", i)
			fmt.Fprint(c, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"x":"`)
			for sent := 0; sent < size; sent += len(block) {
				if _, err := c.Write(block); err != nil {
					t.Errorf("a guest cannot write: %v", err)
					return
				}
			}
		})
	}
	writing.Wait()
	return conns
}

// TestGuestsLinesDoNotEnd_DaemonStaysSmallAndOwnerGoesOn checks that lines of guests which do not end
// take little memory, for a short time, and cost neither the daemon's user nor an honest guest a call.
func TestGuestsLinesDoNotEnd_DaemonStaysSmallAndOwnerGoesOn(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(p.guestServers(), "sockets", map[string]any{"box": p.guestSocket()}).daemon()
	owner, guest := p.agent().shake(), p.guest(filepath.Join(p.dir, "there")).shake()
	look := map[string]any{"token": "x"}
	owner.wait(owner.call("docs__look", look))
	daemon := p.status().Daemon.PID
	conns := p.unfinished(t, 20, 60<<20)
	for range 20 {
		for who, a := range map[string]*agent{"the owner": owner, "a guest": guest} {
			if x := a.wait(a.call("docs__look", look)); x.code() != "" {
				t.Errorf("a call of %s: %s", who, x.raw)
			}
		}
	}
	const mib = 1 << 20
	long := map[string]any{"token": "long", "more": strings.Repeat("y", 20*mib)}
	if x := owner.wait(owner.call("docs__look", long)); x.code() != "" {
		t.Errorf("a long call of the owner: %s", x.raw)
	}
	if peak := memoryOf(t, daemon, "VmHWM"); peak > 500 && !raceEnabled {
		t.Errorf("the daemon took %d MiB", peak)
	}
	for _, c := range conns {
		if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("the connection of a guest whose line does not end: %v", err)
		}
	}
	if !raceEnabled {
		waitFor(t, "memory to be given back", func() bool { return memoryOf(t, daemon, "VmRSS") < 100 })
		t.Logf("at most %d MiB, %d MiB at the end", memoryOf(t, daemon, "VmHWM"), memoryOf(t, daemon, "VmRSS"))
	}
	if x := guest.wait(guest.call("docs__look", long)); x.code() != "" {
		t.Errorf("a long call of a guest, once there is room: %s", x.raw)
	}
	owner.rest()
	guest.rest()
}

// TestGuestsLongCallsHang_NextOneIsRefusedAndOwnersIsNot checks that the arguments of guests' calls in flight
// take no more memory together than there is for all of them, and that a call which ends gives it back.
func TestGuestsLongCallsHang_NextOneIsRefusedAndOwnersIsNot(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(p.guestServers(), "sockets", map[string]any{"box": p.guestSocket()}).daemon()
	a, b, owner := p.guest(p.dir).shake(), p.guest(p.dir).shake(), p.agent().shake()
	long := map[string]any{"token": "held", "more": strings.Repeat("y", 40<<20)}
	held := a.call("docs__hang", long)
	p.untilEffect("begin held")
	if x := b.wait(b.call("docs__hang", long)); !strings.Contains(x.raw, `"code":"resource_exhausted"`) {
		t.Errorf("the second long call of guests: %.500s", x.raw)
	}
	look := map[string]any{"token": "x", "more": long["more"]}
	if x := owner.wait(owner.call("docs__look", look)); x.code() != "" {
		t.Errorf("a long call of the owner: %.500s", x.raw)
	}
	a.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, held))
	p.untilEffect("cancelled held")
	var x answer
	waitFor(t, "room for a long call of a guest", func() bool {
		x = b.wait(b.call("docs__look", look))
		return !strings.Contains(x.raw, `"code":"resource_exhausted"`)
	})
	if x.code() != "" {
		t.Errorf("a long call of a guest, once there is room: %.500s", x.raw)
	}
	a.rest()
	b.rest()
	owner.rest()
}

// greedy connects so many guests, each of which asks for so many answers of size bytes and reads nothing.
// Their ids and the numbers of their lines are 2 and greater ones.
func (p *place) greedy(t *testing.T, guests, calls, size int) (conns []net.Conn) {
	t.Helper()
	for i := range guests {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: p.guestPath(), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		conns = append(conns, c)
		var lines strings.Builder
		fmt.Fprintf(&lines, `{"holdline":1,"role":"mcp","session":"01234567-89ab-cdef-0123-%012d"}`+"\n"+
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},`+
			`"clientInfo":{"name":"greedy","version":"1"}}}`+"\n"+
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n", i)
		for n := range calls {
			fmt.Fprintf(&lines, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"docs__big",`+
				`"arguments":{"token":"greedy","bytes":%d}}}`+"\n", n+2, size)
		}
		if _, err := io.WriteString(c, lines.String()); err != nil {
			t.Fatal(err)
		}
	}
	return conns
}

// TestGuestsReadNoAnswers_DaemonStaysSmallAndOwnerGoesOn checks that long answers for guests which do not read
// take little memory, and cost neither the daemon's user nor an honest guest a call.
func TestGuestsReadNoAnswers_DaemonStaysSmallAndOwnerGoesOn(t *testing.T) {
	t.Parallel()
	const guests, calls, size, room = 32, 2, 8 << 20, 72 << 20
	p := newPlace(t)
	socket := p.guestSocket()
	socket["allow"], socket["in_flight"] = []string{"docs__look", "docs__big"}, 2*guests*calls
	p.configure(p.guestServers(), "sockets", map[string]any{"box": socket}).daemon()
	owner, guest := p.agent().shake(), p.guest(p.dir).shake()
	daemon := p.status().Daemon.PID
	big, look := map[string]any{"token": "big", "bytes": size}, map[string]any{"token": "x"}
	conns := p.greedy(t, guests, calls, size)
	// Nobody is disconnected before one waits for whom there is no room.
	waitFor(t, "more answers than have room", func() bool { return len(p.spooledAnswers()) > room/size })
	for range 5 {
		for who, a := range map[string]*agent{"the owner": owner, "a guest": guest} {
			if x := a.wait(a.call("docs__look", look)); x.code() != "" {
				t.Errorf("a call of %s: %s", who, x.raw)
			}
		}
		if x := owner.wait(owner.call("docs__big", big)); len(x.text()) < size {
			t.Errorf("a long answer of the owner: %.300s", x.raw)
		}
	}
	waiting := guest.call("docs__big", big)
	if peak := memoryOf(t, daemon, "VmHWM"); peak > 400 && !raceEnabled {
		t.Errorf("the daemon took %d MiB", peak)
	}
	for _, c := range conns {
		c.Close()
	}
	if x := guest.wait(waiting); len(x.text()) < size {
		t.Errorf("a long answer of a guest: %.300s", x.raw)
	}
	if !raceEnabled {
		waitFor(t, "memory to be given back", func() bool { return memoryOf(t, daemon, "VmRSS") < 100 })
		t.Logf("at most %d MiB, %d MiB at the end", memoryOf(t, daemon, "VmHWM"), memoryOf(t, daemon, "VmRSS"))
	}
	owner.rest()
	guest.rest()
}

// TestGuestReplaysWhatItNeverSent_LimitOfItsSocketHolds checks that a guest which says of each call that an
// earlier daemon had it has no more of them in flight than its socket may have.
func TestGuestReplaysWhatItNeverSent_LimitOfItsSocketHolds(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	socket := p.guestSocket()
	socket["in_flight"] = 2
	p.configure(p.guestServers(), "sockets", map[string]any{"box": socket}).daemon()
	owner := p.agent().shake()
	owner.wait(owner.call("docs__look", map[string]any{"token": "x"})) // the records are read
	c := p.greedy(t, 1, 0, 0)[0]
	lines := bufio.NewScanner(c)
	for n := 3; n < 9; n++ {
		fmt.Fprintf(c, `{"holdline":1,"replay":%d,"age_ms":0}`+"\n"+`{"jsonrpc":"2.0","id":%d,"method":"tools/call",`+
			`"params":{"name":"docs__hang","arguments":{"token":"held%d"}}}`+"\n", n, n, n)
	}
	refused := 0
	_ = c.SetReadDeadline(time.Now().Add(waitLimit))
	for refused < 4 && lines.Scan() {
		if strings.Contains(lines.Text(), `"code":"resource_exhausted"`) {
			refused++
		}
	}
	if refused != 4 {
		t.Errorf("%d of 6 calls were refused, want 4: %v", refused, lines.Err())
	}
	owner.rest()
}
