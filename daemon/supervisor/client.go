package supervisor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"time"

	"holdline/daemon/supervisor/far"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/lockcheck"
	"holdline/protocol/rawio"
	"holdline/protocol/socket"
	"holdline/protocol/workerwire"
)

// errLost is the error of every request on a connection that broke. The worker may have
// handled the request or not.
var errLost = errors.New("connection to the worker was lost")

// sendTimeout bounds the writing of a frame. A worker always reads, so it is only reached
// if the worker hangs.
const sendTimeout = 30 * time.Second

// client is one connection to a worker. Any goroutine may send requests. Only the goroutine
// of [Worker.receive] reads, and passes the answers on.
type client struct {
	nc  rawio.Socket
	out *rawio.Stream     // to nc
	r   workerwire.Reader // from nc; for the goroutine that receives

	sending sync.Mutex         // held while frames are written
	written []workerwire.Frame // the queue before, to be filled again; guarded by sending

	queueing   sync.Mutex         // guards the next four
	queue      []workerwire.Frame // not yet written
	leads      bool               // a goroutine is about to write the queue
	unrecorded []*write           // in the order of their ids; recorded before their frames are queued
	records    bool               // a goroutine is about to record them
	recorded   []*write           // those before, to be filled again; used with the token of [Worker.writes]

	mu      lockcheck.Mutex                 // guards next to acks, and broken
	next    int64                           // request id
	waiting map[int64]chan workerwire.Frame // for answers, by request id
	acks    map[int64]int64                 // numbers of the acks that are not answered, by request id
	onAck   func(seq int64)                 // called by the goroutine that receives
	broken  bool                            // the connection has ended: no request is taken any more

	session *far.Session  // over which the connection goes, to another machine; else nil
	lost    chan struct{} // closed by fail
}

// dial connects to a worker in the version of its spec, which the worker speaks
// whatever program has started it. Answers to later requests come only while
// [Worker.receive] runs.
func dial(ctx context.Context, path string, version int) (*client, workerwire.InitializeResult, error) {
	var hello workerwire.InitializeResult
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, hello, err
	}
	unix, ok := nc.(*net.UnixConn)
	if !ok {
		_ = nc.Close()
		return nil, hello, fmt.Errorf("dial %s: not a unix socket", path)
	}
	if _, err := socket.CheckPeer(unix); err != nil {
		_ = nc.Close()
		return nil, hello, err
	}
	conn := rawio.Quiet(unix)
	stream := rawio.New(conn)
	in := workerwire.Reader{R: bufio.NewReaderSize(stream, 4<<10)}
	return openClient(ctx, &client{nc: conn, out: stream, r: in}, version)
}

// openClient completes c, which has a connection alone, and begins to speak the protocol.
func openClient(ctx context.Context, c *client, version int) (*client, workerwire.InitializeResult, error) {
	var hello workerwire.InitializeResult
	c.waiting, c.acks = make(map[int64]chan workerwire.Frame), make(map[int64]int64)
	c.lost = make(chan struct{})
	params := workerwire.InitializeParams{Version: version}
	err := c.exchange(ctx, workerwire.Initialize, params, &hello)
	if err == nil && hello.Version != version {
		err = workerwire.Errorf(workerwire.CodeVersion,
			"the worker answers with version %d of its protocol, %d was asked for", hello.Version, version)
	}
	if err != nil {
		c.closeConn()
		return nil, hello, err
	}
	return c, hello, nil
}

// exchange makes a request and reads its answer. Call it only before the goroutine that
// receives is started: else both would read. result may be nil. After an error the
// connection is of no use: the caller must close it.
func (c *client) exchange(ctx context.Context, kind workerwire.Kind, params, result any) error {
	stop := context.AfterFunc(ctx, func() { _ = c.nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c.next++
	if err := c.sendFrame(workerwire.Frame{Kind: kind, ID: c.next, Body: jsonrpc.Encode(params)}); err != nil {
		return err
	}
	f, err := c.r.Next()
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	if f.ID != c.next {
		return fmt.Errorf("request %d: answer to request %d", c.next, f.ID)
	}
	return f.Decode(result)
}

// sendFrame sends a frame, behind those that were queued before. See [client.flush].
func (c *client) sendFrame(f workerwire.Frame) error {
	if c.enqueue(f) {
		runtime.Gosched() // see [Worker.commit]
		return c.flush()
	}
	return nil
}

// enqueue queues a frame. If it returns true, the caller must call [client.flush]. Else the
// goroutine that must do so for an earlier frame sends this one, too.
func (c *client) enqueue(f workerwire.Frame) (leads bool) {
	c.queueing.Lock()
	defer c.queueing.Unlock()
	c.queue = append(c.queue, f)
	leads = !c.leads
	c.leads = true
	return leads
}

// flush writes the frames that are queued, as one. It closes the connection on an error: a cut
// frame must be the last one that the worker reads.
func (c *client) flush() error {
	c.sending.Lock()
	defer c.sending.Unlock()
	c.queueing.Lock()
	frames := c.queue
	c.queue, c.leads = c.written[:0], false
	c.queueing.Unlock()
	defer func() {
		clear(frames) // their bytes are not needed any more
		c.written = frames
	}()
	limit := sendTimeout
	if c.session != nil {
		for i := range frames {
			limit += far.TimeFor(int64(len(frames[i].Payload)))
		}
	}
	if err := c.nc.SetWriteDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if err := workerwire.WriteFrames(c.out, frames...); err != nil {
		c.closeConn()
		return err
	}
	return nil
}

// refuse ends writes with err.
func (c *client) refuse(writes []*write, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, wr := range writes {
		if ch := c.waiting[wr.frame.ID]; ch != nil {
			wr.err = err
			delete(c.waiting, wr.frame.ID)
			close(ch)
		}
	}
}

// request gives a request an id and sends it. It returns the channel of its answer, which is
// closed if the connection breaks. If the channel is nil nothing was sent. With a channel and
// an error the worker may have got the request.
func (c *client) request(f workerwire.Frame) (<-chan workerwire.Frame, error) {
	ch := c.expect(&f)
	if ch == nil {
		return nil, errLost
	}
	return ch, c.sendFrame(f) // on an error the goroutine that receives ends, and closes the channel
}

// queueWrite gives a write's request an id, and queues it to be recorded and sent. If leads is true,
// the caller must call [Worker.commit]. Else the goroutine that must do so for an earlier write
// does it for this one, too. The channel of the answer is that of [client.expect].
func (c *client) queueWrite(wr *write) (answer <-chan workerwire.Frame, leads bool) {
	if answer = c.expect(&wr.frame); answer == nil {
		return nil, false
	}
	c.queueing.Lock()
	defer c.queueing.Unlock()
	c.unrecorded = append(c.unrecorded, wr)
	leads = !c.records
	c.records = true
	return answer, leads
}

// expect gives a request an id. It returns the channel of its answer, which is closed if the
// connection breaks; nil if it has broken already: then the request must not be sent.
func (c *client) expect(f *workerwire.Frame) (answer <-chan workerwire.Frame) {
	ch := make(chan workerwire.Frame, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken {
		return nil
	}
	c.next++
	f.ID = c.next
	c.waiting[f.ID] = ch
	return ch
}

// ack acknowledges events up to seq. It does not wait for the answer; onAck is called
// when that has come.
func (c *client) ack(seq int64) {
	c.mu.Lock()
	if c.broken {
		c.mu.Unlock()
		return
	}
	c.next++
	id := c.next
	c.acks[id] = seq
	c.mu.Unlock()
	_ = c.sendFrame(workerwire.Frame{Kind: workerwire.Ack, ID: id, N: seq})
}

// answered passes an answer to the goroutine that waits for it.
func (c *client) answered(f workerwire.Frame) {
	c.mu.Lock()
	seq, isAck := c.acks[f.ID]
	delete(c.acks, f.ID)
	if ch := c.waiting[f.ID]; ch != nil {
		delete(c.waiting, f.ID)
		ch <- f
	}
	c.mu.Unlock()
	if isAck && f.Kind == workerwire.Result {
		c.onAck(seq)
	}
}

// busy reports whether a request waits for its answer.
func (c *client) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting) > 0
}

// fail closes the connection and the channels of all requests that wait. Later requests get
// errLost.
func (c *client) fail() {
	c.closeConn()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.broken {
		close(c.lost)
	}
	c.broken = true
	for id, ch := range c.waiting {
		delete(c.waiting, id)
		close(ch)
	}
}

// closeConn closes the connection, which ends the goroutine that receives.
func (c *client) closeConn() {
	if c.session != nil {
		c.session.HangUp()
	}
	_ = c.nc.Close()
}
