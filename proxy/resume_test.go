package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestResume checks that the next daemon learns which answers the client still waits for,
// and that each request gets one answer.
func TestResume(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
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
		r.send(`{"jsonrpc":"2.0","id":9,"method":"ping"}`) // while there is no connection
		time.Sleep(time.Second)
		r.setDown(nil)

		d, g := r.accept()
		if !g.Resume || g.Store != "st1" || g.Next != 14 || !slices.Equal(g.Pending, []int64{8, 10}) ||
			g.Session != testSession || g.AgeMS < 1000 {
			t.Errorf("greeting %+v", g)
		}
		d.send(strings.Replace(welcomeLine, `"resumed":false`, `"resumed":true`, 1))
		for _, n := range []int{1, 2, 4, 6, 8, 10, 12} {
			d.want(fmt.Sprintf(`{"holdline":1,"replay":%d,"answered":%v}`, n, n != 8 && n != 10), lines[n])
		}
		d.want(`{"jsonrpc":"2.0","id":9,"method":"ping"}`)
		pong := `{"jsonrpc":"2.0","id":9,"result":{}}`
		first, second := `{"jsonrpc":"2.0","id":7,"result":{"n":8}}`, `{"jsonrpc":"2.0","id":7,"result":{"n":10}}`
		// The server asks again and is answered again, and one answer arrives twice.
		d.send(ask, init, `{"jsonrpc":"2.0","id":8,"result":{}}`, first, second, first, pong)
		r.wantOut(first, second, pong)
		r.in.Close()
		d.want(byeClient)
		d.wantEnd()
		r.wantEnd(ExitDone)
	})
}

// TestResumeGivesUp checks that if no daemon comes back the proxy answers with faults and
// exits with code 4, after the shorter of its own limit and the daemon's window.
func TestResumeGivesUp(t *testing.T) {
	for window, want := range map[string]time.Duration{"90000": time.Minute, "30000": 30 * time.Second} {
		inBubble(t, nil, func(r *rig) {
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

// TestResumeAfterGarbage checks that the proxy does not wait for an answer to a line that
// cannot be parsed, and does not repeat one.
func TestResumeAfterGarbage(t *testing.T) {
	inBubble(t, func(r *rig) { r.o.Drain = NoDrainLimit }, func(r *rig) {
		d := r.connect()
		r.send("garbage", "more")
		d.want("garbage", "more")
		r.setDown(errors.New("busy"))
		d.conn.Close()
		synctest.Wait()
		r.send("unsent")
		synctest.Wait()
		r.setDown(nil)
		d = r.connect()
		d.want("unsent")
		r.in.Close()
		d.want(byeClient)
		d.wantEnd()
		r.wantEnd(ExitDone)
	})
}

// TestResumeInDrain checks that after a resume the proxy repeats that its client has
// closed, and that the drain time continues.
func TestResumeInDrain(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		d := r.connect()
		call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`
		r.send(call)
		d.want(call)
		begin := time.Now()
		r.in.Close()
		time.Sleep(3 * time.Second)
		d.conn.Close()
		d, g := r.accept()
		if g.Next != 2 {
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

// TestDrainWithoutDaemon checks that the proxy ends within its drain time after the client
// has closed, even without a daemon.
func TestDrainWithoutDaemon(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
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

// TestStopped_ResumeEndsAtOnce checks that a resume does not start a daemon that the user has
// stopped, does not wait for one, and says how to start it.
func TestStopped_ResumeEndsAtOnce(t *testing.T) {
	starts := 0
	inBubble(t, func(r *rig) {
		r.o.Stopped = func() string { return "Holdline was stopped" }
		r.o.Autostart = func(context.Context) (<-chan error, error) {
			starts++
			return make(chan error), nil
		}
	}, func(r *rig) {
		d := r.connect()
		call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`
		r.send(call)
		d.want(call)
		r.setDown(errNobody)
		begin := time.Now()
		d.conn.Close()
		r.wantFault("1", "outcome_unknown")
		r.wantEnd(ExitLost)
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it waited %v for a daemon", took)
		}
		if !strings.Contains(r.errs.String(), "Holdline was stopped; start it again with `holdline start`") {
			t.Errorf("it says %q", r.errs.String())
		}
	})
	if starts > 0 {
		t.Errorf("%d daemons were started", starts)
	}
}

// TestStopped_NewProxyEndsAtOnce checks the same of a proxy that has had no daemon yet.
func TestStopped_NewProxyEndsAtOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.o.Stopped = func() string { return "Holdline was stopped" }
		r.o.Autostart = func(context.Context) (<-chan error, error) {
			r.t.Error("a daemon was started")
			return make(chan error), nil
		}
		r.setDown(errNobody)
	}, func(r *rig) {
		r.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
		r.wantFault("1", "transport_failure")
		r.wantEnd(ExitNoDaemon)
	})
}

// TestResumeTooLarge checks that a line for which the memory has no room is listed at a
// resume without its bytes.
func TestResumeTooLarge(t *testing.T) {
	inBubble(t, func(r *rig) { r.o.memory = 4000 }, func(r *rig) {
		d := r.connect()
		call := func(id int) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"x","params":{"a":"%s"}}`, id,
				strings.Repeat("x", 3000))
		}
		for id := 1; id <= 3; id++ {
			r.send(call(id))
			d.want(call(id))
			synctest.Wait() // the room is counted after the line is written
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

// gate is an output that blocks while the test has its token. It acts as a mutex, but a
// bubble's clock advances while a goroutine waits for it.
type gate struct {
	io.WriteCloser
	token chan struct{}
}

func (g *gate) Write(b []byte) (int, error) {
	<-g.token
	defer func() { g.token <- struct{}{} }()
	return g.WriteCloser.Write(b)
}

// TestResumeLate checks that with a call pending the time for a resume is counted from the
// loss of the daemon, even if the proxy notices it later: the call's record may have
// expired. Without a pending call it is counted from then on.
func TestResumeLate(t *testing.T) {
	const call, list = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	for _, tt := range []struct {
		name, request string
		late          time.Duration
		left          time.Duration // at least this long to look for a daemon; negative: none
	}{
		{"at once", call, 0, 59 * time.Second},
		{"in time", call, 40 * time.Second, 14 * time.Second},
		{"too late", call, 70 * time.Second, -1},
		{"hours late", call, 5 * time.Hour, -1},
		{"no call", list, 5 * time.Hour, 59 * time.Second},
		{"nothing asked", "", 5 * time.Hour, 59 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var g *gate
			var gone atomic.Bool
			inBubble(t, func(r *rig) {
				g = &gate{r.o.Out, make(chan struct{}, 1)}
				g.token <- struct{}{}
				r.o.Out = g
				r.o.HungUp = func(net.Conn) bool { return gone.Load() }
			}, func(r *rig) {
				d := r.connect()
				if tt.request != "" {
					time.Sleep(3 * time.Hour) // nothing is sent
					r.send(tt.request)
					d.want(tt.request)
				}
				time.Sleep(time.Hour + time.Second) // the daemon is there, and the call takes long
				note := `{"jsonrpc":"2.0","method":"n"}`
				<-g.token
				d.send(note)
				synctest.Wait()
				gone.Store(true)
				d.conn.Close()
				r.setDown(errors.New("busy"))
				time.Sleep(tt.late)
				if tt.left < 0 {
					r.setDown(nil) // a daemon that would welcome the proxy
				}
				g.token <- struct{}{}
				r.wantOut(note)
				begin := time.Now()
				if tt.left < 0 {
					r.wantFault("1", "outcome_unknown")
					r.wantEnd(ExitLost)
					if took := time.Since(begin); took != 0 || len(r.accepts) > 0 ||
						!strings.Contains(r.errs.String(), "stood still") {
						t.Errorf("ended after %v, dialled %d times; stderr %q", took, len(r.accepts), r.errs.String())
					}
					return
				}
				time.Sleep(tt.left)
				r.setDown(nil)
				d, next := r.accept()
				if tt.request != "" && !slices.Equal(next.Pending, []int64{1}) {
					t.Errorf("pending %v", next.Pending)
				}
				d.send(welcomeLine)
				if tt.request != "" {
					d.want(`{"holdline":1,"replay":1,"answered":false}`, tt.request)
				}
				synctest.Wait() // the proxy has the welcome
				r.cancel()
				d.want(byeClient)
				d.wantEnd()
				r.wantEnd(ExitDone)
			})
		})
	}
}

// TestResumeAfterSilence checks that a call after a long silence is not late: only time
// with a pending call counts, for each connection separately.
func TestResumeAfterSilence(t *testing.T) {
	var gone atomic.Bool
	inBubble(t, func(r *rig) {
		r.o.HungUp = func(net.Conn) bool { return gone.Load() }
	}, func(r *rig) {
		d := r.connect()
		call := func(id int) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t"}}`, id)
		}
		for id := 1; id <= 3; id++ {
			time.Sleep(3 * time.Hour)
			r.send(call(id))
			d.want(call(id))
			d.conn.Close()
			d = r.connect()
			d.want(fmt.Sprintf(`{"holdline":1,"replay":%d,"answered":false}`, id), call(id))
			time.Sleep(time.Hour + time.Second)
			d.conn.Close() // while the repeated call is pending
			d = r.connect()
			d.want(fmt.Sprintf(`{"holdline":1,"replay":%d,"answered":false}`, id), call(id))
			answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, id)
			d.send(answer)
			r.wantOut(answer)
		}
		r.cancel()
		d.want(byeClient)
		d.wantEnd()
		r.wantEnd(ExitDone)
	})
}

// TestResumeAfterSleep checks that the machine's sleep, which Go's clock does not count,
// counts while a call is pending. Without one a resume does no harm.
func TestResumeAfterSleep(t *testing.T) {
	for _, method := range []string{"tools/call", "tools/list"} {
		t.Run(method, func(t *testing.T) {
			var slept atomic.Int64
			inBubble(t, func(r *rig) {
				begin := time.Now()
				r.o.sinceBoot = func() time.Duration {
					return time.Minute + time.Since(begin) + time.Duration(slept.Load())
				}
			}, func(r *rig) {
				d := r.connect()
				request := `{"jsonrpc":"2.0","id":1,"method":"` + method + `"}`
				r.send(request)
				d.want(request)
				slept.Store(int64(time.Hour)) // with a daemon
				time.Sleep(time.Second)
				r.setDown(errNobody)
				d.conn.Close()
				time.Sleep(10 * time.Second)
				slept.Store(int64(time.Hour + 55*time.Second))
				r.setDown(nil)
				if method == "tools/call" {
					r.wantFault("1", "outcome_unknown")
					r.wantEnd(ExitLost)
					if len(r.accepts) > 0 {
						t.Error("dialled")
					}
					return
				}
				d = r.connect()
				d.want(`{"holdline":1,"replay":1,"answered":false}`, request)
				if least := time.Hour + 55*time.Second + 11*time.Second; d.age < least || d.age > least+time.Minute {
					t.Errorf("the daemon is told that the request is %v old, want %v and little more", d.age, least)
				}
				r.cancel()
				d.want(byeClient)
				d.wantEnd()
				r.wantEnd(ExitDone)
			})
		})
	}
}

// TestResumeStartsFail checks that a daemon that cannot be started is started again, with
// pauses, until the time for a resume is over: the cause may be fixed meanwhile.
func TestResumeStartsFail(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(*rig) (<-chan error, error)
		most int // starts in a minute
		want string
	}{
		{
			"cannot",
			func(*rig) (<-chan error, error) { return nil, errors.New("exec format error") },
			16,
			"start the daemon: exec format error",
		},
		{"fails", func(*rig) (<-chan error, error) {
			return endedWith(errors.New("exit status 1\nbad configuration")), nil
		}, 16, "the daemon did not start: exit status 1\nbad configuration"},
		{
			"is killed",
			func(*rig) (<-chan error, error) { return endedWith(fmt.Errorf("%w by signal 11", ErrKilled)), nil },
			16 + maxStarts,
			"the daemon did not start: killed by signal 11",
		},
		{"leaves", func(*rig) (<-chan error, error) { return endedWith(nil), nil }, 16 + maxStarts, ""},
	} {
		for _, fixed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, fixed %v", tt.name, fixed), func(t *testing.T) {
				var at []time.Time
				inBubble(t, func(r *rig) {
					r.o.Autostart = func(context.Context) (<-chan error, error) {
						at = append(at, time.Now())
						if fixed && time.Since(at[0]) > 30*time.Second {
							r.setDown(nil)
							return make(chan error), nil
						}
						return tt.end(r)
					}
				}, func(r *rig) {
					d := r.connect()
					call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`
					r.send(call)
					d.want(call)
					r.setDown(errNobody)
					begin := time.Now()
					d.conn.Close()
					if fixed {
						d = r.connect()
						d.want(`{"holdline":1,"replay":1,"answered":false}`, call)
						if took := time.Since(begin); took > 37*time.Second {
							t.Errorf("resumed after %v, want 30s and a pause", took)
						}
						r.cancel()
						d.want(byeClient)
						d.wantEnd()
						r.wantEnd(ExitDone)
						return
					}
					r.wantFault("1", "outcome_unknown")
					r.wantEnd(ExitLost)
					if took := time.Since(begin); took != time.Minute || len(at) > tt.most || len(at) < 10 {
						t.Errorf("gave up after %v and %d starts, want 1m and at most %d", took, len(at), tt.most)
					}
					if s := r.errs.String(); !strings.Contains(s, errNobody.Error()) || !strings.Contains(s, tt.want) {
						t.Errorf("stderr %q, want %q", s, tt.want)
					}
				})
				for i := len(at) - 1; i > len(at)-5; i-- {
					if pause := at[i].Sub(at[i-1]); pause < lastStartWait || pause > lastStartWait+2*lastWait {
						t.Errorf("%v between starts %d and %d, want %v", pause, i-1, i, lastStartWait)
					}
				}
			})
		}
	}
}

// TestResumeStuck checks that a resume whose daemon waits for a person ends after some seconds, with
// what to do, and that one goes on whose daemon only fails.
func TestResumeStuck(t *testing.T) {
	for _, passes := range []bool{false, true} {
		starts := 0
		inBubble(t, func(r *rig) {
			r.o.Autostart = func(context.Context) (<-chan error, error) {
				if starts++; passes && starts%2 == 0 {
					return endedWith(errors.New("something else")), nil
				}
				return endedWith(&StuckError{"cannot open f. Run: rm f"}), nil
			}
		}, func(r *rig) {
			d := r.connect()
			call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`
			r.send(call)
			d.want(call)
			r.setDown(errNobody)
			begin := time.Now()
			d.conn.Close()
			r.wantFault("1", "outcome_unknown")
			r.wantEnd(ExitLost)
			if took := time.Since(begin); took > 10*time.Second != passes {
				t.Errorf("passes %v: gave up after %v and %d starts", passes, took, starts)
			}
			if s := r.errs.String(); !strings.Contains(s, "waiting for the daemon for some seconds: the daemon did not start: "+
				"cannot open f. Run: rm f") {
				t.Errorf("stderr %q", s)
			}
		})
	}
}

// endedWith returns the channel of a started process that has ended with err.
func endedWith(err error) <-chan error {
	exited := make(chan error, 1)
	exited <- err
	return exited
}

// TestManagerAbsent checks that a proxy whose service manager starts no daemon says why
// once while it waits, and again when it gives up. A proxy that never had a daemon says so
// at once.
func TestManagerAbsent(t *testing.T) {
	absent := func(context.Context) *ManagedError {
		return &ManagedError{Why: "the unit is stopped", Hint: "start the unit"}
	}
	inBubble(t, func(r *rig) { r.o.Absent = absent }, func(r *rig) {
		d, _ := r.accept()
		d.send(strings.Replace(welcomeLine, `"managed":"no"`, `"managed":"systemd"`, 1))
		r.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		d.want(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		r.setDown(errNobody)
		d.conn.Close()
		time.Sleep(30 * time.Second)
		said := r.errs.String()
		if strings.Count(said, "waiting for the daemon, up to 1m0s: the unit is stopped\nhint: start the unit\n") != 1 {
			t.Errorf("after half the time the proxy has said %q", said)
		}
		if line := <-r.out; !strings.Contains(line, "the unit is stopped") {
			t.Errorf("the answer is %s", line)
		}
		r.wantEnd(ExitLost)
		if rest := strings.TrimPrefix(r.errs.String(), said); !strings.Contains(rest,
			"the unit is stopped\nhint: start the unit\n") {
			t.Errorf("at the end it said %q", rest)
		}
	})
	for _, how := range []string{"told not to start one", "not the one to start one"} {
		inBubble(t, func(r *rig) {
			r.down = errNobody
			if how == "told not to start one" {
				r.o.Absent = absent
				return
			}
			r.o.Autostart = func(ctx context.Context) (<-chan error, error) { return nil, absent(ctx) }
		}, func(r *rig) {
			r.wantEnd(ExitNoDaemon)
			if !strings.Contains(r.errs.String(), "the unit is stopped\nhint: start the unit\n") {
				t.Errorf("%s: %q", how, r.errs.String())
			}
		})
	}
}

// TestManagerAnswersLate_UserIsToldWhatItSays checks that a proxy goes on searching while it asks why its service
// manager starts no daemon, and that the user also sees the reason of a manager that did not answer at first.
func TestManagerAnswersLate_UserIsToldWhatItSays(t *testing.T) {
	var asked atomic.Int32
	absent := func(ctx context.Context) *ManagedError {
		if asked.Add(1) > 2 {
			return &ManagedError{Why: "the unit is stopped", Hint: "start the unit"}
		}
		select { // a busy machine
		case <-time.After(12 * time.Second):
		case <-ctx.Done():
		}
		return &ManagedError{Why: "the manager does not answer", Hint: "ask it"}
	}
	inBubble(t, func(r *rig) { r.o.Absent = absent }, func(r *rig) {
		d, _ := r.accept()
		d.send(strings.Replace(welcomeLine, `"managed":"no"`, `"managed":"systemd"`, 1))
		r.setDown(errNobody)
		d.conn.Close()
		time.Sleep(45 * time.Second)
		for _, why := range []string{
			"the manager does not answer\nhint: ask it\n", "the unit is stopped\nhint: start the unit\n",
		} {
			if n := strings.Count(r.errs.String(), "waiting for the daemon, up to 1m0s: "+why); n != 1 {
				t.Errorf("the proxy has said %q %d times, want once: %q", why, n, r.errs.String())
			}
		}
		r.wantEnd(ExitLost)
	})
	asked.Store(0)
	inBubble(t, func(r *rig) { r.o.Absent = absent }, func(r *rig) {
		d, _ := r.accept()
		d.send(strings.Replace(welcomeLine, `"managed":"no"`, `"managed":"systemd"`, 1))
		r.setDown(errNobody)
		d.conn.Close()
		time.Sleep(5 * time.Second)
		if n := asked.Load(); n != 1 {
			t.Fatalf("the manager was asked %d times", n)
		}
		lost := time.Now()
		r.setDown(nil)
		r.accept()
		if waited := time.Since(lost); waited > 2*lastWait {
			t.Errorf("the proxy has found the next daemon %v late, since it waited for an answer", waited)
		}
	})
}

// TestDaemonKilled_FactsOfDaemonKept checks that the next daemon gets what earlier ones have told the
// proxy to keep, that the client sees nothing of it, and that it is bounded.
func TestDaemonKilled_FactsOfDaemonKept(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		d, g := r.accept()
		if g.Kept == nil || len(g.Kept) > 0 {
			t.Errorf("the first greeting has %v, want an empty object", g.Kept)
		}
		d.send(welcomeLine)
		note := `{"jsonrpc":"2.0","method":"notifications/x"}`
		d.send(`{"holdline":1,"keep":{"a":"1","b":"2","long":"`+strings.Repeat("x", maxFact)+`"}}`, note)
		r.wantOut(note)
		d.send(`{"holdline":1,"keep":{"a":"3","b":""}}`)
		for i := range 2 * maxFacts {
			d.send(fmt.Sprintf(`{"holdline":1,"keep":{"more%d":"x"}}`, i))
		}
		d.send(`{"holdline":1,"keep":{"a":"4"}}`, note) // known, so there is room for it
		r.wantOut(note)
		d.conn.Close()
		d, g = r.accept()
		if g.Kept["a"] != "4" || g.Kept["more0"] != "x" || g.Kept["b"]+g.Kept["long"] != "" || len(g.Kept) != maxFacts {
			t.Errorf("the next greeting has %v", g.Kept)
		}
		d.send(welcomeLine)
		r.in.Close()
		d.want(byeClient)
		d.wantEnd()
		r.wantEnd(ExitDone)
	})
}
