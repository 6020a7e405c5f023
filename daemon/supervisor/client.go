package supervisor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"holdline/daemon/supervisor/far"
	"holdline/daemon/waiting"
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

	sending sync.Mutex // held while frames are written
	spare   batch      // the queue before, to be filled again; guarded by sending

	queueing sync.Mutex // guards queue and leads
	queue    batch
	leads    bool // a goroutine is about to write the queue

	// Set by [Worker.attached]: before that there is nothing to record, and a goroutine may wait for
	// the connection with the turn. record is called with a token in turn, [Worker.writes].
	turn   chan struct{}
	record func([]*write) error

	mu      lockcheck.Mutex                 // guards next to acks, and broken
	next    int64                           // request id
	waiting map[int64]chan workerwire.Frame // for answers, by request id
	acks    map[int64]int64                 // numbers of the acks that are not answered, by request id
	onAck   func(seq int64)                 // called by the goroutine that receives
	broken  bool                            // the connection has ended: no request is taken any more

	session *far.Session  // over which the connection goes, to another machine; else nil
	lost    chan struct{} // closed by fail
}

// batch is what is queued and not yet written.
type batch struct {
	frames []workerwire.Frame
	writes []*write // of these frames, in the order of their ids, to be recorded before
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
	return openClient(ctx, &client{nc: conn, out: stream, r: workerwire.Reader{R: bufio.NewReaderSize(stream, 4<<10)}}, version)
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
	if c.enqueue(f, nil) {
		return c.flush()
	}
	return nil
}

// enqueue queues a frame, which is that of wr if that is not nil. If it returns true, the caller
// must call [client.flush]. Else the goroutine that must do so for an earlier frame sends this one,
// too.
func (c *client) enqueue(f workerwire.Frame, wr *write) (leads bool) {
	c.queueing.Lock()
	defer c.queueing.Unlock()
	c.queue.frames = append(c.queue.frames, f)
	if wr != nil {
		c.queue.writes = append(c.queue.writes, wr)
	}
	leads = !c.leads
	c.leads = true
	return leads
}

// flush records the writes that are queued, and writes all frames that are queued, as one.
// Goroutines that are about to queue a frame get their turn before that. flush closes the
// connection on an error: a cut frame must be the last one that the worker reads.
func (c *client) flush() error {
	runtime.Gosched()
	c.sending.Lock()
	defer c.sending.Unlock()
	b, err := c.take()
	if err != nil {
		return err
	}
	defer func() {
		clear(b.frames) // their bytes are not needed any more
		clear(b.writes)
		c.spare = b
	}()
	limit := sendTimeout
	if c.session != nil {
		for i := range b.frames {
			limit += far.TimeFor(int64(len(b.frames[i].Payload)))
		}
	}
	if err := c.nc.SetWriteDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if err := workerwire.WriteFrames(c.out, b.frames...); err != nil {
		c.closeConn()
		return err
	}
	return nil
}

// take returns what is queued, with its writes recorded; without those that could not be, whose
// goroutines get the error. It returns errLost if the connection has broken: a record would void
// those of writes on the next one. The caller must hold c.sending.
func (c *client) take() (batch, error) {
	if c.record != nil {
		select {
		case c.turn <- struct{}{}:
			defer func() { <-c.turn }()
		case <-c.lost:
		}
		if waiting.IsClosed(c.lost) {
			return batch{}, errLost
		}
	}
	c.queueing.Lock()
	b := c.queue
	c.queue, c.leads = batch{c.spare.frames[:0], c.spare.writes[:0]}, false
	c.queueing.Unlock()
	if len(b.writes) == 0 {
		return b, nil
	}
	if err := c.record(b.writes); err != nil {
		first := b.writes[0].id
		b.frames = slices.DeleteFunc(b.frames, func(f workerwire.Frame) bool {
			return f.Kind == workerwire.Write && f.N >= first
		})
		c.refuse(b.writes, err)
	}
	return b, nil
}

// refuse ends writes with err.
func (c *client) refuse(writes []*write, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, wr := range writes {
		if ch := c.waiting[wr.request]; ch != nil {
			wr.err = err
			delete(c.waiting, wr.request)
			close(ch)
		}
	}
}

// request gives a request an id and sends it. It returns the channel of its answer, which is
// closed if the connection breaks. If the channel is nil nothing was sent. With a channel and
// an error the worker may have got the request.
func (c *client) request(f workerwire.Frame) (<-chan workerwire.Frame, error) {
	ch, leads := c.enqueueRequest(f, nil)
	if ch == nil {
		return nil, errLost
	}
	if leads {
		return ch, c.flush() // on an error the goroutine that receives ends, and closes the channel
	}
	return ch, nil
}

// enqueueRequest gives a request an id and queues it, as [client.enqueue] says. It returns the
// channel of its answer, which is closed if the connection breaks; nil if it has broken already:
// then nothing is queued.
func (c *client) enqueueRequest(f workerwire.Frame, wr *write) (answer <-chan workerwire.Frame, leads bool) {
	ch := make(chan workerwire.Frame, 1)
	c.mu.Lock()
	if c.broken {
		c.mu.Unlock()
		return nil, false
	}
	c.next++
	f.ID = c.next
	c.waiting[f.ID] = ch
	c.mu.Unlock()
	if wr != nil {
		wr.request = f.ID
	}
	return ch, c.enqueue(f, wr)
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
