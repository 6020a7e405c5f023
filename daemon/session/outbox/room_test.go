package outbox

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

const mib = 1 << 20

// guestBox returns the outbox of a guest that reads nothing, and acknowledges what the test says.
func guestBox(t *testing.T, room *Room, socket string, end func()) (*Outbox, *Guest) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	g, o := room.Join(socket, end), New(ours, true, nil)
	o.Bound(g)
	return o, g
}

// TestGuestsTakeNoAnswers_OthersWaitUntilThereIsRoom checks that the answers for the guests of a socket take
// no more memory than its room, those of all sockets no more than all of it, that who finds none waits, and that
// what is acknowledged, dropped, or another session's that ends is there again.
func TestGuestsTakeNoAnswers_OthersWaitUntilThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var room Room
		none := func() { t.Error("a session was ended at once") }
		a, first := guestBox(t, &room, "a", none)
		b, second := guestBox(t, &room, "a", none)
		c, third := guestBox(t, &room, "c", none)
		put := func(o *Outbox, n int64, size int) <-chan error {
			done := make(chan error, 1)
			go func() { done <- o.Put(t.Context(), Answer{N: n, Line: make([]byte, size), Work: true}, nil) }()
			synctest.Wait()
			return done
		}
		want := func(what string, done <-chan error, now bool) {
			t.Helper()
			synctest.Wait()
			select {
			case err := <-done:
				if err != nil || !now {
					t.Errorf("%s: %v; want it to wait: %t", what, err, !now)
				}
			default:
				if now {
					t.Errorf("%s waits", what)
				}
			}
		}
		want("60 MiB", put(a, 1, 60*mib), true)
		b20 := put(b, 1, 20*mib)
		want("20 MiB of the same socket", b20, false)
		want("a short answer of the same socket", put(b, 2, 1000), true)
		c30 := put(c, 1, 30*mib)
		want("30 MiB of another socket", c30, false)
		want("10 MiB of another socket", put(c, 2, 10*mib), true)
		a.Acknowledge(1)
		// What is acknowledged was written, too: nobody reads here.
		a.written(60*mib, nil)
		want("20 MiB, once the first is acknowledged", b20, true)
		want("30 MiB, once the first is acknowledged", c30, true)
		again := put(a, 2, 55*mib)
		want("55 MiB more", again, false)
		b.Abort(nil)
		c.Abort(nil)
		want("55 MiB, once the others are gone", again, true)
		a.Abort(nil)
		var loading int
		if err := second.Await(t.Context(), &loading, 100*mib); err != nil || loading != roomOfSocket {
			t.Errorf("an answer that is larger than the room: %v, %d bytes", err, loading)
		}
		first.Leave()
		second.Leave()
		third.Leave()
		if room.taken != 0 || len(room.sockets) != 0 {
			t.Errorf("%d bytes of %d sockets are taken at the end", room.taken, len(room.sockets))
		}
	})
}

// TestGuestTakesNothing_SessionEndsForAnotherThatWaits checks that a guest may be slow as long as nobody waits
// for its room, that one which takes little in 15 s ends then, wherever its answers wait, and that one
// which goes on does not.
func TestGuestTakesNothing_SessionEndsForAnotherThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var room Room
		ended := map[string]bool{}
		end := func(name string) func() { return func() { ended[name] = true } }
		busy, waits := room.Join("a", end("busy")), room.Join("a", end("waits"))
		quiet := room.Join("a", nil)
		quiet.end = func() { ended["quiet"] = true; quiet.Leave() }
		elsewhere := room.Join("b", end("elsewhere"))
		var ofBusy, ofQuiet, ofElsewhere, wanted int
		busy.Force(&ofBusy, 10*mib)
		quiet.Force(&ofQuiet, 60*mib)
		elsewhere.Force(&ofElsewhere, 1*mib)
		time.Sleep(time.Hour)
		if len(ended) > 0 {
			t.Errorf("%v ended, and nobody waited", ended)
		}
		busy.Took(guestStep)
		begin := time.Now()
		if err := waits.Await(t.Context(), &wanted, 30*mib); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took > guestWait || len(ended) != 1 || !ended["quiet"] {
			t.Errorf("after %v %v ended, want the quiet one", took, ended)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		var more int
		if err := busy.Await(ctx, &more, 50*mib); !errors.Is(err, context.DeadlineExceeded) || more != 0 {
			t.Errorf("without room: %v, %d bytes taken", err, more)
		}
	})
}

// TestGuestTakesLongAnswerSlowly_SessionGoesOnWhileAnotherWaits checks that a guest which takes a long answer
// at a steady pace keeps its session, although it acknowledges nothing before it has all, and that one
// which stops, or takes only short answers afterwards, does not.
func TestGuestTakesLongAnswerSlowly_SessionGoesOnWhileAnotherWaits(t *testing.T) {
	const size, perSecond = 40 * mib, guestStep / 10
	for name, test := range map[string]struct {
		fast, slow int // bytes that the guest takes at 1 MiB/s, then perSecond
		short      bool
		stays      bool
	}{
		"fast":                       {fast: size, stays: true},
		"slow":                       {slow: 2 * mib, fast: size - 2*mib, stays: true},
		"stops":                      {fast: size / 2},
		"takes only short ones then": {fast: size, short: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var room Room
				ours, theirs := net.Pipe()
				ended := make(chan struct{}, 10)
				g := room.Join("a", func() { ended <- struct{}{} })
				o := New(ours, true, nil)
				o.Bound(g)
				ran := make(chan error, 1)
				ctx, cancel := context.WithCancel(t.Context())
				go func() { ran <- o.Run() }()
				defer func() {
					cancel()
					o.Abort(nil)
					theirs.Close()
					<-ran
				}()
				if err := o.Put(t.Context(), Answer{N: 1, Line: make([]byte, size), Work: true}, nil); err != nil {
					t.Fatal(err)
				}
				var wanted int
				waited := make(chan error, 1)
				go func() { waited <- room.Join("a", nil).Await(ctx, &wanted, 60*mib) }()
				take := func(bytes, perSecond int) {
					for ; bytes > 0; bytes -= perSecond {
						if _, err := io.ReadFull(theirs, make([]byte, min(bytes, perSecond))); err != nil {
							t.Fatal(err)
						}
						time.Sleep(time.Second)
					}
				}
				take(test.slow, perSecond)
				take(test.fast, mib)
				synctest.Wait()
				if n := len(ended); n > 0 {
					t.Fatal("the session ended while the guest took its answer")
				}
				if test.stays {
					o.Acknowledge(1)
					if err := <-waited; err != nil {
						t.Error(err)
					}
				}
				for seconds := 0; !test.stays && len(ended) == 0; seconds++ {
					if seconds > int((guestWait+lookAgain)/time.Second) {
						t.Fatal("the session goes on")
					}
					if test.short {
						o.Requeue([]Answer{{N: 2, Line: make([]byte, perSecond)}})
						take(perSecond, perSecond)
					} else {
						time.Sleep(time.Second)
					}
				}
			})
		})
	}
}

// TestGuestLosesConnection_ItsAnswersKeepTheirRoom checks that the room of unacknowledged answers is never free
// while they go over from an outbox to what keeps them.
func TestGuestLosesConnection_ItsAnswersKeepTheirRoom(t *testing.T) {
	var room Room
	o, g := guestBox(t, &room, "a", nil)
	kept := 5 * mib
	g.Force(new(int), kept)
	o.Requeue([]Answer{{N: 1, Line: make([]byte, 10*mib)}, {N: 2, Line: make([]byte, 20*mib)}})
	if left := o.Abort(&kept); len(left) != 2 || kept != 35*mib || room.taken != kept {
		t.Errorf("%d answers, %d bytes for them, %d taken", len(left), kept, room.taken)
	}
}
