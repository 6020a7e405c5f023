package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The next daemon is told what the client still waits for, and each request
// gets one answer.
func TestResume(t *testing.T) {
	inBubble(t, func(r *rig) { r.o.Resume = true }, func(r *rig) {
		d := r.connect()
		lines := []string{
			1:  `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`,
			2:  `{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			3:  `{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"info"}}`,
			4:  `{"jsonrpc":"2.0","id":3,"method":"logging/setLevel","params":{"level":"debug"}}`,
			5:  `{"jsonrpc":"2.0","id":4,"method":"resources/subscribe","params":{"uri":"a"}}`,
			6:  `{"jsonrpc":"2.0","id":5,"method":"resources/subscribe","params":{"uri":"b"}}`,
			7:  `{"jsonrpc":"2.0","id":6,"method":"resources/unsubscribe","params":{"uri":"a"}}`,
			8:  `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t"}}`,
			9:  `{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"cancelled"}}`,
			10: `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"same id"}}`,
			11: `{"jsonrpc":"2.0","id":"w:1","result":{"seen":true}}`,
			12: `{"jsonrpc":"2.0","id":"w:2","result":{"seen":false}}`,
			13: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}`,
		}
		init := `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25"}}`
		r.send(lines[1:]...)
		d.want(lines[1:]...)
		ask := `{"jsonrpc":"2.0","id":"w:2","method":"roots/list"}`
		d.send(init, ask, `{"holdline":1,"seen":11}`)
		r.wantOut(init, ask)
		for _, id := range []int{2, 3, 4, 5, 6} {
			answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, id)
			d.send(answer)
			r.wantOut(answer)
		}
		io.WriteString(d.conn, `{"jsonrpc":"2.0","id":7,"result":{"torn":`)
		r.setDown(errors.New("busy"))
		d.conn.Close()
		synctest.Wait()
		r.send(`{"jsonrpc":"2.0","id":9,"method":"ping"}`) // while the line is down
		time.Sleep(time.Second)
		r.setDown(nil)

		d, g := r.accept()
		if !g.Resume || g.Store != "st1" || g.Next != 14 || !slices.Equal(g.Pending, []int64{8, 10}) || g.EOF || g.Session != testSession {
			t.Errorf("greeting %+v", g)
		}
		d.send(strings.Replace(welcomeLine, `"resumed":false`, `"resumed":true`, 1))
		for _, n := range []int{1, 2, 4, 6, 8, 10, 12} {
			head := fmt.Sprintf(`{"holdline":1,"replay":%d,"answered":%v}`, n, n != 8 && n != 10)
			if n == 1 {
				head = strings.TrimSuffix(head, "}") + `,"was":` + init + "}"
			}
			d.want(head, lines[n])
		}
		d.want(`{"jsonrpc":"2.0","id":9,"method":"ping"}`)
		pong := `{"jsonrpc":"2.0","id":9,"result":{}}`
		first, second := `{"jsonrpc":"2.0","id":7,"result":{"n":8}}`, `{"jsonrpc":"2.0","id":7,"result":{"n":10}}`
		// Asked for again, answered again, and one answer too many.
		d.send(ask, init, `{"jsonrpc":"2.0","id":8,"result":{}}`, first, second, first, pong)
		r.wantOut(first, second, pong)
		r.in.Close()
		d.want(byeClient)
		d.wantEnd()
		r.wantEnd(ExitDone)
	})
}

// A daemon that stays away: faults, exit 4, after the shorter of both limits.
func TestResumeGivesUp(t *testing.T) {
	for window, want := range map[string]time.Duration{"90000": time.Minute, "30000": 30 * time.Second} {
		inBubble(t, func(r *rig) { r.o.Resume = true }, func(r *rig) {
			d, _ := r.accept()
			d.send(strings.Replace(welcomeLine, "90000", window, 1))
			r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`)
			d.next()
			r.setDown(errNobody)
			begin := time.Now()
			d.conn.Close()
			synctest.Wait()
			r.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t"}}`)
			r.wantFault("1", "outcome_unknown")
			r.wantFault("2", "transport_failure")
			r.wantEnd(ExitLost)
			if took := time.Since(begin); took != want {
				t.Errorf("window %s ms: gave up after %v, want %v", window, took, want)
			}
		})
	}
}

// The client's end is repeated, and its drain goes on where it was.
func TestResumeInDrain(t *testing.T) {
	inBubble(t, func(r *rig) { r.o.Resume = true }, func(r *rig) {
		d := r.connect()
		call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`
		r.send(call)
		d.want(call)
		begin := time.Now()
		r.in.Close()
		time.Sleep(3 * time.Second)
		d.conn.Close()
		d, g := r.accept()
		if !g.EOF || g.Next != 2 {
			t.Errorf("greeting %+v", g)
		}
		d.send(welcomeLine)
		d.want(`{"holdline":1,"replay":1,"answered":false}`, call, byeClient)
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("drained for %v, want 5s", took)
		}
		d.wantEnd()
		r.wantEnd(ExitDone)
	})
}

// A client that has left does not hold the proxy for longer than its drain,
// whether or not there is a daemon.
func TestDrainWithoutDaemon(t *testing.T) {
	inBubble(t, func(r *rig) { r.o.Resume = true }, func(r *rig) {
		d := r.connect()
		call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`
		r.send(call)
		d.want(call)
		r.setDown(errNobody)
		d.conn.Close()
		time.Sleep(10 * time.Second)
		begin := time.Now()
		r.in.Close()
		r.wantFault("1", "outcome_unknown")
		r.wantEnd(ExitLost)
		if took := time.Since(begin); took < 5*time.Second || took > 7*time.Second {
			t.Errorf("drained for %v, want 5s", took)
		}
	})
}

// The user's word that the daemon is stopped keeps a resume from starting one.
func TestResumeOfStopped(t *testing.T) {
	starts := 0
	inBubble(t, func(r *rig) {
		r.o.Resume = true
		r.o.Stopped = func() bool { return true }
		r.o.Autostart = func(context.Context) (<-chan error, error) {
			starts++
			return make(chan error), nil
		}
	}, func(r *rig) {
		d := r.connect()
		r.setDown(errNobody)
		d.conn.Close()
		r.wantEnd(ExitLost)
	})
	if starts > 0 {
		t.Errorf("%d daemons were started", starts)
	}
}

// A line that the memory has no room for is listed without its bytes.
func TestResumeTooLarge(t *testing.T) {
	inBubble(t, func(r *rig) { r.o.Resume = true; r.o.Memory = 4000 }, func(r *rig) {
		d := r.connect()
		call := func(id int) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"x","params":{"a":"%s"}}`, id, strings.Repeat("x", 3000))
		}
		for id := 1; id <= 3; id++ {
			r.send(call(id))
			d.want(call(id))
			synctest.Wait() // the room is reckoned once the line is written
		}
		d.conn.Close()
		d, g := r.accept()
		if !slices.Equal(g.Pending, []int64{1, 2, 3}) {
			t.Errorf("pending %v", g.Pending)
		}
		d.send(welcomeLine)
		d.want(`{"holdline":1,"replay":1,"answered":false}`, call(1),
			`{"holdline":1,"replay":2,"answered":false,"bytes":false,"id":2}`,
			`{"holdline":1,"replay":3,"answered":false,"bytes":false,"id":3}`)
		r.cancel()
		d.want(byeClient)
		d.wantEnd()
		r.wantEnd(ExitDone)
	})
}
