package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"holdline/protocol"
	"holdline/protocol/jsonrpc"
)

// TestBothWays checks that lines pass unchanged in both directions.
func TestBothWays(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		d, g := r.accept()
		if g.Role != "mcp" || g.Session != testSession || g.Identity != "codex" || g.Cwd != "/p" || g.Resume {
			t.Errorf("greeting %+v", g)
		}
		d.send(welcomeLine)
		// Unusual spelling, spaces and large numbers pass unchanged.
		odd := `  { "jsonrpc":"2.0", "id" : 12345678901234567890, "method":"x\u0079", "params":{"a":1.0}}  `
		lines := []string{
			`{"jsonrpc":"2.0","id":"\u0061","method":"initialize","params":{}}`,
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`, odd,
			`{"jsonrpc":"2.0","id":"s:1","result":{}}`,
		}
		r.send(lines...)
		d.want(lines...)
		answers := []string{
			`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`,
			`{"jsonrpc":"2.0","id":"s:1","method":"roots/list"}`,
			`{"jsonrpc":"2.0","id":"a","result":{"é":1.0}}`,
			`{"result":{"holdline":1}, "id":12345678901234567890 ,"jsonrpc":"2.0"}`,
		}
		d.send(answers...)
		r.wantOut(answers...)
		r.in.Close()
		d.want(byeClient)
		d.wantEnd()
		r.wantEnd(ExitDone)
	})
}

// TestOnlyWhatIsExpected checks that unexpected answers, control lines and noise are not
// copied to the client, nor is an answer without id, which ends some clients.
func TestOnlyWhatIsExpected(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		d := r.connect()
		r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
			`[]`, `{"jsonrpc":"2.0","id":2,"method":"ping"}`)
		d.want(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
			`[]`, `{"jsonrpc":"2.0","id":2,"method":"ping"}`)
		d.send(`{"jsonrpc":"2.0","id":1,"result":{"late":true}}`, `{"jsonrpc":"2.0","id":9,"result":{}}`,
			`{"holdline":1,"seen":4}`, `{"holdline":1,"unknown":4}`, `garbage`, `[1]`, `{"jsonrpc":"2.0"}`,
			`{"jsonrpc":"2.0","id":"2","result":{}}`)
		null := `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"batch"}}`
		d.send(null, `{"jsonrpc":"2.0","id":2,"result":{}}`, `{"jsonrpc":"2.0","id":2,"result":{"again":true}}`)
		r.wantOut(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		r.cancel()
		d.want(byeClient)
		d.wantEnd()
		r.wantEnd(ExitDone)
	})
}

// TestDrain checks that a client that pipes its requests in and closes its side gets every
// answer.
func TestDrain(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		d := r.connect()
		r.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `junk`)
		io.WriteString(r.in, `{"jsonrpc":"2.0","id":1,"method":"ping"}`) // same id again, no newline
		r.in.Close()
		d.want(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `junk`, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		time.Sleep(4 * time.Second)
		d.send(`{"jsonrpc":"2.0","id":1,"error":{}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		r.wantOut(`{"jsonrpc":"2.0","id":1,"error":{}}`, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		d.want(byeClient)
		d.wantEnd()
		r.wantEnd(ExitDone)
	})
}

// TestDrainLimit checks how long the proxy waits for answers after its client has closed.
func TestDrainLimit(t *testing.T) {
	for _, tt := range []struct {
		drain, wait time.Duration
	}{{5 * time.Second, 5 * time.Second}, {0, 0}, {NoDrainLimit, 30 * time.Hour}} {
		inBubble(t, func(r *rig) { r.o.Drain = tt.drain }, func(r *rig) {
			d := r.connect()
			// A subscription is answered when it ends, so the drain does not wait for it.
			r.send(`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}`,
				`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
			d.want(`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}`,
				`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
			begin := time.Now()
			r.in.Close()
			if tt.drain < 0 {
				time.Sleep(tt.wait)
				d.send(`{"jsonrpc":"2.0","id":2,"result":{}}`)
				r.wantOut(`{"jsonrpc":"2.0","id":2,"result":{}}`)
			}
			d.want(byeClient)
			if got := time.Since(begin); got != tt.wait {
				t.Errorf("drain %v: left after %v, want %v", tt.drain, got, tt.wait)
			}
			d.wantEnd()
			r.wantEnd(ExitDone)
		})
	}
}

// TestLeave checks that a cancelled proxy ends within 100 ms, even if client or daemon do
// not read.
func TestLeave(t *testing.T) {
	for _, name := range []string{"idle", "daemon deaf", "client deaf", "no daemon"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				switch name {
				case "client deaf":
					out, w := io.Pipe()
					t.Cleanup(func() { out.Close() })
					r.o.Out.Close()
					r.o.Out = w
				case "no daemon":
					r.down = errors.New("busy")
				}
			}, func(r *rig) {
				switch name {
				case "idle":
					d := r.connect()
					defer d.wantEnd()
					defer d.want(byeClient)
				case "daemon deaf":
					// This daemon reads nothing after its welcome.
					d := <-r.accepts
					d.next()
					d.send(welcomeLine)
					for range cap(d.lines) + 10 {
						r.send(`{"jsonrpc":"2.0","method":"x"}`)
					}
					defer func() {
						for range d.lines { // lines that were sent before
						}
					}()
				case "client deaf":
					d := r.connect()
					go io.WriteString(d.conn,
						`{"jsonrpc":"2.0","method":"x"}`+"\n"+`{"jsonrpc":"2.0","method":"x"}`+"\n")
				}
				synctest.Wait()
				begin := time.Now()
				r.cancel()
				if code := <-r.code; code != ExitDone {
					t.Errorf("exit %d, want %d", code, ExitDone)
				}
				if took := time.Since(begin); took > 100*time.Millisecond {
					t.Errorf("left after %v", took)
				}
			})
		})
	}
}

// TestLost checks that after the loss of the daemon each pending request gets a fault that
// says whether it may have had an effect.
func TestLost(t *testing.T) {
	for _, bye := range []string{
		"", `{"holdline":1,"bye":"stopped","message":"told to stop"}`, `{"holdline":1,"bye":"slow"}`,
	} {
		inBubble(t, nil, func(r *rig) {
			d := r.connect()
			r.send(`{"jsonrpc":"2.0","id":"a\"b","method":"tools/call","params":{"name":"consult"}}`,
				`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, `{"jsonrpc":"2.0","id":3,"method":"ping"}`,
				`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
			for range 4 {
				d.next()
			}
			d.send(`{"jsonrpc":"2.0","id":2,"result":{}}`)
			if bye != "" {
				d.send(bye)
			} else { // the daemon died in the middle of a line
				io.WriteString(d.conn, `{"jsonrpc":"2.0","id":3,"res`)
			}
			d.conn.Close()
			r.wantOut(`{"jsonrpc":"2.0","id":2,"result":{}}`)
			r.wantFault(`"a\"b"`, "outcome_unknown")
			r.wantFault(`3`, "transport_failure")
			r.wantFault(`3`, "transport_failure")
			r.wantEnd(ExitLost)
			if s := r.errs.String(); !strings.HasPrefix(s, "holdline: ") || !strings.Contains(s, "\nhint: ") {
				t.Errorf("stderr %q", s)
			}
			if strings.Contains(bye, "told") && !strings.Contains(r.errs.String(), "told to stop") {
				t.Errorf("stderr %q, want the daemon's words", r.errs.String())
			}
		})
	}
}

// TestLostAfterDrain checks that the proxy ends with success if the daemon is lost after
// the client has closed and every request is answered.
func TestLostAfterDrain(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		d := r.connect()
		r.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		d.next()
		r.in.Close()
		synctest.Wait() // the proxy has read the end of its input
		io.WriteString(d.conn, `{"jsonrpc":"2.0","id":1,"result":{}}`+"\n")
		d.conn.Close()
		r.wantOut(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		r.wantEnd(ExitDone)
	})
}

// TestRefused checks that a refusal ends the proxy with its text and a hint, and answers
// the request with a fault.
func TestRefused(t *testing.T) {
	for _, tt := range []struct{ code, want, fault string }{
		{"identity_refused", "HOLDLINE_TOKEN", "identity_refused"},
		{"version", "holdline stop", "transport_failure"},
		{"too_many_connections", "holdline sessions", "transport_failure"},
	} {
		inBubble(t, nil, func(r *rig) {
			d, _ := r.accept()
			r.send(`{"jsonrpc":"2.0","id":0,"method":"initialize"}`)
			synctest.Wait()
			d.send(`{"holdline":1,"error":{"code":"` + tt.code + `","message":"no, not you"}}`)
			r.wantFault("0", tt.fault)
			r.wantEnd(ExitFailed)
			if s := r.errs.String(); !strings.HasPrefix(s, "holdline: no, not you\nhint: ") ||
				!strings.Contains(s, tt.want) {
				t.Errorf("%s: stderr %q, want the hint %q", tt.code, s, tt.want)
			}
			d.wantEnd()
		})
	}
}

// TestRefusedAtResume_SentCallIsUnknown has the next daemon refuse the identity of a client whose
// calls are pending. A call that was sent may have had its effect; the others say why they fail.
func TestRefusedAtResume_SentCallIsUnknown(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		d := r.connect()
		r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__effect"}}`)
		d.next()
		r.send(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
		d.next()
		d.conn.Close()
		d, _ = r.accept()
		d.send(`{"holdline":1,"error":{"code":"identity_refused","message":"it needs a token now"}}`)
		r.wantFault("1", "outcome_unknown")
		r.wantFault("2", "identity_refused")
		r.wantEnd(ExitLost)
	})
}

// TestRefusedUngreeted checks that a refusal for lack of room is read, even if the daemon
// has hung up before the greeting is sent.
func TestRefusedUngreeted(t *testing.T) {
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	conn, err := net.Dial("unix", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	daemon, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(daemon,
		`{"holdline":1,"error":{"code":"too_many_connections","message":"no room"}}`+"\n"); err != nil {
		t.Fatal(err)
	}
	daemon.Close()
	_, err = (&proxy{store: newStore(1, nil)}).greet(conn, nil)
	if r, ok := errors.AsType[*protocol.Refusal](err); !ok || r.Message != "no room" {
		t.Errorf("greet = %v, want what the daemon said", err)
	}
}

// TestRetries checks that temporary refusals, hang-ups and silence before the welcome are
// tried again.
func TestRetries(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		begin := time.Now()
		for _, code := range []string{"session_busy", "stopping"} {
			d, _ := r.accept()
			d.send(`{"holdline":1,"error":{"code":"` + code + `","message":"later"}}`)
			d.wantEnd()
		}
		d, _ := r.accept()
		d.conn.Close()
		d, _ = r.accept() // sends nothing
		d.wantEnd()
		if took := time.Since(begin); took < 5*time.Second || took > 7*time.Second {
			t.Errorf("a silent daemon took %v, want about 5s", took)
		}
		d = r.connect()
		r.in.Close()
		d.want(byeClient)
		d.wantEnd()
		r.wantEnd(ExitDone)
	})
	// Too many connections end a new proxy, so that its user learns of them, but not a
	// resume.
	const full = `{"holdline":1,"error":{"code":"too_many_connections","message":"no room"}}`
	inBubble(t, nil, func(r *rig) {
		r.connect().conn.Close()
		for range 3 {
			d, _ := r.accept()
			d.send(full)
			d.wantEnd()
		}
		d := r.connect()
		r.in.Close()
		d.want(byeClient)
		d.wantEnd()
		r.wantEnd(ExitDone)
	})
	inBubble(t, nil, func(r *rig) {
		d, _ := r.accept()
		d.send(full)
		d.wantEnd()
		r.wantEnd(ExitFailed)
	})
	inBubble(t, nil, func(r *rig) {
		go func() {
			for d := range r.accepts {
				go func() {
					d.next()
					d.send(`{"holdline":1,"error":{"code":"stopping","message":"on my way out"}}`)
					d.conn.Close()
				}()
			}
		}()
		begin := time.Now()
		r.wantEnd(ExitFailed)
		close(r.accepts)
		if took := time.Since(begin); took != time.Minute+firstLineWait {
			t.Errorf("tried for %v, want 1m and the wait for a first line", took)
		}
	})
}

// TestNoDaemon checks that a proxy without a daemon waits for a first line, then says why
// and exits.
func TestNoDaemon(t *testing.T) {
	for _, tt := range []struct {
		name string
		down error
		code int
	}{{"nobody", errNobody, ExitNoDaemon}, {"forbidden", errForbidden, ExitFailed}} {
		inBubble(t, func(r *rig) { r.down = tt.down }, func(r *rig) {
			begin := time.Now()
			r.wantEnd(tt.code)
			if took := time.Since(begin); took != firstLineWait {
				t.Errorf("%s: took %v, want the wait for a first line", tt.name, took)
			}
			if !strings.Contains(r.errs.String(), tt.down.Error()) {
				t.Errorf("%s: stderr %q", tt.name, r.errs.String())
			}
		})
	}
	inBubble(t, nil, func(r *rig) {
		d, _ := r.accept()
		d.send("220 mail.example ESMTP")
		r.wantEnd(ExitFailed)
		d.wantEnd()
	})
}

// TestAutostart checks what the proxy does when a daemon that it starts yields, fails, is
// killed or never comes up.
func TestAutostart(t *testing.T) {
	var starts int
	start := func(r *rig, after time.Duration, end error) func(context.Context) (<-chan error, error) {
		return func(context.Context) (<-chan error, error) {
			starts++
			exited := make(chan error, 1)
			go func() {
				time.Sleep(after)
				if end == nil {
					r.setDown(nil)
				}
				exited <- end
			}()
			return exited, nil
		}
	}
	// The daemon that was started exits, because another one serves.
	inBubble(t, func(r *rig) { r.down = errNobody; r.o.Autostart = start(r, 300*time.Millisecond, nil) }, func(r *rig) {
		r.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		d := r.connect()
		d.want(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		d.send(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		r.wantOut(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		r.in.Close()
		d.want(byeClient)
		d.wantEnd()
		r.wantEnd(ExitDone)
	})
	if starts != 1 {
		t.Errorf("%d starts, want 1", starts)
	}
	// The daemon that was started fails.
	inBubble(t, func(r *rig) {
		r.down = errNobody
		r.o.Autostart = start(r, time.Second, errors.New("exit status 1\nbad configuration"))
	}, func(r *rig) {
		r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`)
		r.wantFault("1", "transport_failure") // it was certainly not sent
		r.wantEnd(ExitNoDaemon)
		if !strings.Contains(r.errs.String(), "bad configuration") {
			t.Errorf("stderr %q", r.errs.String())
		}
	})
	// The first daemons are killed while they start, and the next one comes up.
	starts = 0
	inBubble(t, func(r *rig) {
		r.down = errNobody
		first, second := start(r, time.Second, fmt.Errorf("%w by signal 9", ErrKilled)), start(r, time.Second, nil)
		r.o.Autostart = func(ctx context.Context) (<-chan error, error) {
			if starts < maxStarts-1 {
				return first(ctx)
			}
			return second(ctx)
		}
	}, func(r *rig) {
		d := r.connect()
		r.in.Close()
		d.want(byeClient)
		d.wantEnd()
		r.wantEnd(ExitDone)
	})
	if starts != maxStarts {
		t.Errorf("%d starts, want %d", starts, maxStarts)
	}
	// Every daemon is killed while it starts.
	starts = 0
	inBubble(t, func(r *rig) {
		r.down = errNobody
		r.o.Autostart = start(r, time.Second, fmt.Errorf("%w by signal 9", ErrKilled))
	}, func(r *rig) {
		r.wantEnd(ExitNoDaemon)
		if starts != maxStarts || !strings.Contains(r.errs.String(), "killed by signal 9") {
			t.Errorf("%d starts, want %d; stderr %q", starts, maxStarts, r.errs.String())
		}
	})
	// The daemon cannot be started.
	inBubble(t, func(r *rig) {
		r.down = errNobody
		r.o.Autostart = func(context.Context) (<-chan error, error) { return nil, errors.New("no such file") }
	}, func(r *rig) { r.wantEnd(ExitNoDaemon) })
	// The program is being installed: it is missing, then incomplete, then open for writing.
	starts = 0
	inBubble(t, func(r *rig) {
		r.down = errNobody
		second := start(r, time.Second, nil)
		r.o.Autostart = func(ctx context.Context) (<-chan error, error) {
			wrong := []error{os.ErrNotExist, syscall.ENOEXEC, syscall.ETXTBSY, os.ErrPermission}
			if starts < len(wrong) {
				starts++
				return nil, wrong[starts-1]
			}
			return second(ctx)
		}
	}, func(r *rig) {
		d := r.connect()
		r.in.Close()
		d.want(byeClient)
		d.wantEnd()
		r.wantEnd(ExitDone)
	})
	// It stays missing.
	starts = 0
	inBubble(t, func(r *rig) {
		r.down = errNobody
		r.o.Autostart = func(context.Context) (<-chan error, error) { starts++; return nil, os.ErrNotExist }
	}, func(r *rig) {
		begin := time.Now()
		r.wantEnd(ExitNoDaemon)
		// The pauses take 7.5 s, and each may last until the next dial.
		if took := time.Since(begin); starts != maxStarts || took > 7500*time.Millisecond+(maxStarts-1)*lastWait {
			t.Errorf("%d starts in %v, want %d within 11.5s", starts, took, maxStarts)
		}
	})
	// The daemon never comes up.
	starts = 0
	inBubble(t, func(r *rig) {
		r.down = errNobody
		r.o.Autostart = func(context.Context) (<-chan error, error) { starts++; return make(chan error), nil }
	}, func(r *rig) {
		begin := time.Now()
		r.wantEnd(ExitNoDaemon)
		if took := time.Since(begin); took != time.Minute+firstLineWait || starts != 1 {
			t.Errorf("%d starts in %v, want 1 in 1m and the wait for a first line", starts, took)
		}
	})
}

// TestAutostart_OfAnother checks that a proxy whose daemon is being started by another process waits
// for that start, without dialling again and again, and starts one itself if that start fails.
func TestAutostart_OfAnother(t *testing.T) {
	for _, fails := range []bool{false, true} {
		var asked int
		var begin time.Time
		inBubble(t, func(r *rig) {
			settled := make(chan struct{})
			r.down, begin = errNobody, time.Now()
			r.o.Settled = func() <-chan struct{} { return settled }
			r.o.Autostart = func(context.Context) (<-chan error, error) {
				if asked++; asked == 1 {
					go func() {
						time.Sleep(30 * time.Millisecond)
						if !fails {
							r.setDown(nil)
						}
						close(settled)
					}()
					return nil, ErrStarting
				}
				r.setDown(nil)
				return make(chan error), nil
			}
		}, func(r *rig) {
			d := r.connect()
			want, most := 1, 30*time.Millisecond
			if fails {
				want, most = 2, 50*time.Millisecond // and a dial later
			}
			if took := time.Since(begin); asked != want || took > most {
				t.Errorf("start of the other fails %v: asked for %d starts and connected after %v, want %d and at most %v",
					fails, asked, took, want, most)
			}
			r.in.Close()
			d.want(byeClient)
			d.wantEnd()
			r.wantEnd(ExitDone)
		})
	}
}

// TestNothingAsked checks that a proxy ends at once if its client closes without a request.
func TestNothingAsked(t *testing.T) {
	inBubble(t, func(r *rig) { r.down = errors.New("busy") }, func(r *rig) {
		time.Sleep(20 * time.Second)
		begin := time.Now()
		r.in.Close()
		r.wantEnd(ExitDone)
		if took := time.Since(begin); took != 0 {
			t.Errorf("took %v", took)
		}
	})
}

// TestGot checks when the proxy acknowledges lines of the daemon: at once after many or
// large ones, else after a pause.
func TestGot(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		d := r.connect()
		wantGot := func(k int, after time.Duration, f func()) {
			t.Helper()
			begin := time.Now()
			f()
			if got, want := d.next(), fmt.Sprintf(`{"holdline":1,"ack":%d}`, k); got != want {
				t.Fatalf("daemon got %s, want %s", got, want)
			}
			if took := time.Since(begin); took != after {
				t.Errorf("got %d came after %v, want %v", k, took, after)
			}
		}
		note := `{"jsonrpc":"2.0","method":"n"}`
		wantGot(1, 50*time.Millisecond, func() { d.send(note) })
		wantGot(33, 0, func() {
			for range 32 {
				d.send(note)
			}
		})
		wantGot(36, 50*time.Millisecond,
			func() { d.send(note, `{"holdline":1,"seen":1}`, `{"jsonrpc":"2.0","id":7,"result":{}}`, note) })
		wantGot(37, 0,
			func() { d.send(`{"jsonrpc":"2.0","method":"n","params":{"a":"` + strings.Repeat("x", 256<<10) + `"}}`) })
		time.Sleep(time.Hour)
		for range 37 - 1 {
			<-r.out // the answer was dropped
		}
		r.in.Close()
		d.want(byeClient)
		d.wantEnd()
		r.wantEnd(ExitDone)
	})
}

// TestTooLong checks that the proxy answers a request over the limit itself, under its own id, and does
// not count it. Of another line over the limit nobody hears; a server that waits for it gets an error.
func TestTooLong(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		d := r.connect()
		go func() {
			b := make([]byte, 1<<20)
			for i := range b {
				b[i] = 'x'
			}
			for _, ends := range [][2]string{
				{"", ""},
				{`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"x":"`, `"}}`},
				{`{"result":{"x":"`, `"},"jsonrpc":"2.0","id":"s:1:2"}`},
			} {
				io.WriteString(r.in, ends[0])
				for range jsonrpc.MaxFrame>>20 + 1 {
					r.in.Write(b)
				}
				io.WriteString(r.in, ends[1]+"\n")
			}
			io.WriteString(r.in, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\r\n")
		}()
		r.wantFault("7", "parse_error")
		d.want(`{"jsonrpc":"2.0","id":"s:1:2","error":{"code":-32603,"message":"the client's answer is left out: ` +
			`the message has more than 64 MiB, the most that one may have"}}`)
		d.want(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		d.send(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		r.wantOut(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		r.in.Close()
		d.want(byeClient)
		d.wantEnd()
		r.wantEnd(ExitDone)
	})
}

// TestClientSaysControl checks that a control line from the client is not sent to the
// daemon, and is not counted.
func TestClientSaysControl(t *testing.T) {
	inBubble(t, nil, func(r *rig) {
		d := r.connect()
		ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
		r.send(byeClient, `{"holdline":1,"replay":1,"answered":false}`, `{"holdline":1,"id":"a","method":"ping"}`, ping)
		for _, id := range []string{`"a"`} {
			r.wantOut(`{"jsonrpc":"2.0","id":` + id +
				`,"error":{"code":-32600,"message":"not a JSON-RPC 2.0 message: \"jsonrpc\":\"2.0\" is missing",` +
				`"data":{"fault":{"generation":0,"class":"protocol","code":"invalid_request","directive":"abort_request",` +
				`"detail":"not a JSON-RPC 2.0 message: \"jsonrpc\":\"2.0\" is missing"},"stage":"Protocol","operation":"jsonrpc.message",` +
				`"jsonrpc_code":-32600,"retryable":false,"retried":false}}}`)
		}
		d.want(ping)
		d.send(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		r.wantOut(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		r.in.Close()
		d.want(byeClient)
		d.wantEnd()
		r.wantEnd(ExitDone)
	})
}

// TestOutputClosed checks that the proxy ends at once when its client closes its output.
func TestOutputClosed(t *testing.T) {
	var out *io.PipeReader
	inBubble(t, func(r *rig) {
		r.o.Out.Close()
		out, r.o.Out = io.Pipe()
	}, func(r *rig) {
		d := r.connect()
		out.CloseWithError(errors.New("broken pipe"))
		d.send(`{"jsonrpc":"2.0","method":"n"}`)
		d.want(byeClient)
		d.wantEnd()
		if code := <-r.code; code != ExitFailed {
			t.Errorf("exit %d, want %d", code, ExitFailed)
		}
		if !strings.Contains(r.errs.String(), "broken pipe") {
			t.Errorf("stderr %q", r.errs.String())
		}
	})
}

// TestReadAhead checks that the proxy reads only a limited amount ahead of a daemon that
// does not read.
func TestReadAhead(t *testing.T) {
	inBubble(t, func(r *rig) { r.o.memory = 4 << 20 }, func(r *rig) {
		d := <-r.accepts // its reader takes the greeting and all that follows
		d.next()
		line := `{"jsonrpc":"2.0","method":"n","params":{"a":"` + strings.Repeat("x", 64<<10) + `"}}`
		sent := make(chan int, 1)
		go func() {
			n := 0
			for range 200 {
				if _, err := io.WriteString(r.in, line+"\n"); err != nil {
					break
				}
				n++
			}
			sent <- n
		}()
		// Before the welcome no line is sent: lines are read until the memory is full.
		time.Sleep(4 * time.Second)
		select {
		case n := <-sent:
			t.Errorf("all %d lines were read while the line is down", n)
		default:
		}
		d.send(welcomeLine)
		for range 200 {
			d.want(line)
		}
		if n := <-sent; n != 200 {
			t.Errorf("%d lines were taken, want 200", n)
		}
		r.cancel()
		d.want(byeClient)
		d.wantEnd()
		r.wantEnd(ExitDone)
	})
}
