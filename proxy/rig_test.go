package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdline/protocol"
)

const (
	testSession = "01234567-89ab-cdef-0123-456789abcdef"
	welcomeLine = `{"holdline":1,"session":"` + testSession +
		`","resumed":false,"store":"st1","resume_window_ms":90000,` +
		`"daemon":{"version":"0","pid":9,"epoch":1,"managed":"no"}}`
)

var errNobody = errors.New("nobody listens")

// rig is a proxy in a synctest bubble, with the test as client and daemon.
type rig struct {
	t       *testing.T
	o       Options
	in      *io.PipeWriter
	out     chan string
	errs    lockedBuffer
	code    chan int
	cancel  context.CancelFunc
	accepts chan *fakeDaemon

	mu   sync.Mutex
	down error // what Dial returns, guarded by mu
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// inBubble starts a proxy and runs f with it, in a synctest bubble. change may edit the
// options before.
func inBubble(t *testing.T, change, f func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, out: make(chan string, 10000), code: make(chan int, 1), accepts: make(chan *fakeDaemon, 100)}
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		r.in = inW
		r.o = Options{
			In: inR, Out: outW, Err: &r.errs,
			Greeting: protocol.Greeting{Session: testSession, Identity: "codex", Cwd: "/p"},
			Dial:     r.dial, Drain: 5 * time.Second, ReconnectTimeout: time.Minute,
			Down: func(err error) Down {
				switch {
				case errors.Is(err, errNobody):
					return DownAbsent
				case errors.Is(err, errForbidden):
					return DownRefused
				}
				return DownBusy
			},
			HungUp: func(net.Conn) bool { return false },
			Log:    slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
		}
		if change != nil {
			change(r)
		}
		go func() {
			br := bufio.NewReader(outR)
			for {
				line, err := br.ReadString('\n')
				if err != nil {
					if line != "" {
						r.out <- "PARTIAL " + line
					}
					close(r.out)
					return
				}
				r.out <- strings.TrimSuffix(line, "\n")
			}
		}()
		ctx, cancel := context.WithCancel(t.Context())
		r.cancel = cancel
		defer cancel()
		go func() { r.code <- Run(ctx, r.o) }()
		f(r)
	})
}

var errForbidden = errors.New("forbidden")

// dial is the Dial of the proxy's options.
func (r *rig) dial(context.Context) (net.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down != nil {
		return nil, r.down
	}
	ours, theirs := net.Pipe()
	d := &fakeDaemon{t: r.t, conn: theirs, lines: make(chan string, 10000)}
	go d.read()
	r.accepts <- d
	return ours, nil
}

func (r *rig) setDown(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = err
}

// send writes lines as the client.
func (r *rig) send(lines ...string) {
	r.t.Helper()
	for _, l := range lines {
		if _, err := io.WriteString(r.in, l+"\n"); err != nil {
			r.t.Fatalf("send %s: %v", l, err)
		}
	}
}

// wantOut checks the next lines that the client gets.
func (r *rig) wantOut(want ...string) {
	r.t.Helper()
	for _, w := range want {
		got, ok := <-r.out
		if !ok {
			r.t.Fatalf("output ended, want %s; stderr: %s", w, r.errs.String())
		}
		if got != w {
			r.t.Fatalf("client got %s, want %s", got, w)
		}
	}
}

// wantFault checks that the next line is a fault with this code for the request id.
func (r *rig) wantFault(id, code string) {
	r.t.Helper()
	got, ok := <-r.out
	if !ok {
		r.t.Fatalf("output ended, want a fault for %s; stderr: %s", id, r.errs.String())
	}
	var v struct {
		ID    json.RawMessage
		Error struct {
			Code    int
			Message string
			Data    struct{ Fault struct{ Code string } }
		}
		Result *struct { // of a tool call
			IsError           bool
			Content           []struct{ Text string }
			StructuredContent struct{ Fault struct{ Code string } }
		}
	}
	if err := json.Unmarshal([]byte(got), &v); err != nil {
		r.t.Fatalf("client got %s: %v", got, err)
	}
	if v.Result != nil {
		if string(v.ID) != id || !v.Result.IsError || v.Result.StructuredContent.Fault.Code != code ||
			len(v.Result.Content) != 1 || v.Result.Content[0].Text == "" {
			r.t.Fatalf("client got %s, want fault %s for id %s", got, code, id)
		}
		return
	}
	if string(v.ID) != id || v.Error.Data.Fault.Code != code || v.Error.Code != -32603 && v.Error.Code != -32700 ||
		v.Error.Message == "" {
		r.t.Fatalf("client got %s, want fault %s for id %s", got, code, id)
	}
}

// wantEnd checks that the proxy ends with code, and writes nothing more.
func (r *rig) wantEnd(code int) {
	r.t.Helper()
	if got := <-r.code; got != code {
		r.t.Fatalf("exit %d, want %d; stderr: %s", got, code, r.errs.String())
	}
	if line, ok := <-r.out; ok {
		r.t.Fatalf("client got %s, want no more", line)
	}
	synctest.Wait() // a goroutine that is left would block the end of the bubble
}

// accept waits for the proxy to dial, and reads its greeting.
func (r *rig) accept() (*fakeDaemon, protocol.Greeting) {
	r.t.Helper()
	d := <-r.accepts
	line := d.next()
	g, err := protocol.ParseGreeting([]byte(line))
	if err != nil {
		r.t.Fatalf("greeting %s: %v", line, err)
	}
	return d, g
}

// connect accepts a connection and welcomes the proxy.
func (r *rig) connect() *fakeDaemon {
	r.t.Helper()
	d, _ := r.accept()
	d.send(welcomeLine)
	return d
}

// fakeDaemon is the daemon's side of one connection.
type fakeDaemon struct {
	t     *testing.T
	conn  net.Conn
	lines chan string   // closed at the end
	age   time.Duration // of the latest replayed line
}

// read passes each line of the proxy to lines.
func (d *fakeDaemon) read() {
	defer close(d.lines)
	br := bufio.NewReader(d.conn)
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			if line != "" {
				d.lines <- "PARTIAL " + line
			}
			return
		}
		d.lines <- strings.TrimSuffix(line, "\n")
	}
}

func (d *fakeDaemon) next() string {
	d.t.Helper()
	line, ok := <-d.lines
	if !ok {
		d.t.Fatal("the proxy closed the connection")
	}
	return line
}

// ages matches the age of a replayed line.
var ages = regexp.MustCompile(`,"age_ms":(\d+)`)

// want checks the next lines from the proxy, and skips acknowledgements. The age of a
// replayed line is not compared; it is kept in d.age.
func (d *fakeDaemon) want(want ...string) {
	d.t.Helper()
	for _, w := range want {
		got := d.next()
		for strings.HasPrefix(got, `{"holdline":1,"ack":`) {
			got = d.next()
		}
		if age := ages.FindStringSubmatch(got); age != nil {
			d.age, _ = time.ParseDuration(age[1] + "ms")
			got = strings.Replace(got, age[0], "", 1)
		}
		if got != w {
			d.t.Fatalf("daemon got %s, want %s", got, w)
		}
	}
}

// wantEnd checks that the proxy closes the connection without another line.
func (d *fakeDaemon) wantEnd() {
	d.t.Helper()
	for line := range d.lines {
		if !strings.HasPrefix(line, `{"holdline":1,"ack":`) {
			d.t.Fatalf("daemon got %s, want the end", line)
		}
	}
	d.conn.Close()
}

func (d *fakeDaemon) send(lines ...string) {
	d.t.Helper()
	for _, l := range lines {
		if _, err := io.WriteString(d.conn, l+"\n"); err != nil {
			d.t.Fatalf("daemon sends %s: %v", l, err)
		}
	}
}

const byeClient = `{"holdline":1,"bye":"client"}`
