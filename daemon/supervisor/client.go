package supervisor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"holdline/protocol/process"
	"holdline/protocol/rawio"
	"holdline/protocol/socket"
)

// errLost is the answer to every request of a connection that broke.
var errLost = errors.New("connection to the worker was lost")

// sendTimeout bounds the writing of a frame; a worker always reads.
const sendTimeout = 30 * time.Second

// client is one connection to a worker.
type client struct {
	nc  *net.UnixConn
	out *rawio.Stream // to nc
	r   *bufio.Reader

	sending sync.Mutex // one frame at a time

	mu      sync.Mutex
	next    int64 // request id
	waiting map[int64]chan process.Frame
	acks    map[int64]int64 // numbers of the acks that are not answered, by request id
	onAck   func(seq int64) // called by who receives
	broken  bool
}

// dial connects and introduces itself in the version of the worker's spec,
// which a worker of any program that has started it speaks. Answers come only while somebody calls
// receive, except to the requests made here.
func dial(ctx context.Context, path string, version int, program string) (*client, process.InitializeResult, error) {
	var hello process.InitializeResult
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
	stream := rawio.New(unix)
	c := &client{nc: unix, out: stream, r: bufio.NewReaderSize(stream, 4<<10), waiting: make(map[int64]chan process.Frame), acks: make(map[int64]int64)}
	err = c.ask(ctx, process.MethodInitialize, process.InitializeParams{Version: version, Program: program}, &hello)
	if err == nil && hello.Version != version {
		err = process.Errorf(process.CodeVersion, "the worker answers with version %d of its protocol, %d was asked for", hello.Version, version)
	}
	if err != nil {
		c.close()
		return nil, hello, err
	}
	return c, hello, nil
}

// ask makes a request before anybody receives.
func (c *client) ask(ctx context.Context, method string, params, result any) error {
	stop := context.AfterFunc(ctx, func() { _ = c.nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c.next++
	if err := c.send(&process.Frame{ID: c.next, Method: method, Params: process.Encode(params)}); err != nil {
		return err
	}
	f, err := process.ReadFrame(c.r)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	if f.ID != c.next {
		return fmt.Errorf("%s: answer to request %d, want %d", method, f.ID, c.next)
	}
	return decode(&f, result)
}

func decode(f *process.Frame, result any) error {
	if f.Error != nil {
		return f.Error
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(f.Result, result)
}

func (c *client) send(f *process.Frame) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	if err := c.nc.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	if err := process.WriteFrame(c.out, f); err != nil {
		c.close() // a frame that is cut must be the last one
		return err
	}
	return nil
}

// request sends a request and returns where its answer will come. The channel
// is closed if the connection breaks.
func (c *client) request(method string, params json.RawMessage, payload []byte) (<-chan process.Frame, error) {
	ch := make(chan process.Frame, 1)
	c.mu.Lock()
	if c.broken {
		c.mu.Unlock()
		return nil, errLost
	}
	c.next++
	id := c.next
	c.waiting[id] = ch
	c.mu.Unlock()
	// On an error receive ends, and closes the channel.
	err := c.send(&process.Frame{ID: id, Method: method, Params: params, Payload: payload})
	return ch, err
}

// ack acknowledges events and does not wait. Once the worker has taken it,
// onAck is called.
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
	_ = c.send(&process.Frame{ID: id, Method: process.MethodAck, Params: process.Encode(process.AckParams{Seq: seq})})
}

// answered hands an answer to who waits for it.
func (c *client) answered(f process.Frame) {
	c.mu.Lock()
	seq, isAck := c.acks[f.ID]
	delete(c.acks, f.ID)
	if ch := c.waiting[f.ID]; ch != nil {
		delete(c.waiting, f.ID)
		ch <- f
	}
	c.mu.Unlock()
	if isAck && f.Error == nil {
		c.onAck(seq)
	}
}

// busy tells whether somebody waits for an answer.
func (c *client) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting) > 0
}

// fail ends all waiting.
func (c *client) fail() {
	c.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = true
	for id, ch := range c.waiting {
		delete(c.waiting, id)
		close(ch)
	}
}

func (c *client) close() { _ = c.nc.Close() }
