package direct

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"holdline/daemon/dialect"
	"holdline/daemon/hosted/handshake"
	"holdline/daemon/leaf"
	"holdline/daemon/listing"
	"holdline/daemon/redact"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// myself is as what a program is introduced to.
var myself = mcp.Implementation{Name: "holdline", Title: "Holdline", Version: "1"}

// conversation is what is said to a program that is only tried: the [handshake.Peer] of the same handshake
// that the daemon makes. Its goroutine reads what the program writes, until that ends.
type conversation struct {
	stdin   io.Writer // whole lines; several goroutines write
	secrets []string  // that its words may have
	root    string    // of the project that the server gets; "" for none

	changed chan struct{} // has an element if the server has said since then that its tools are others
	mute    chan struct{} // closed when no further message comes; err is known then
	over    chan struct{} // closed when the program's stdout is at its end, and all of the following stays
	err     error         // why no further message comes
	strays  []string      // the first lines of the server that are no messages; of the goroutine, until over

	era   string          // of the program, once it was introduced; the goroutine does not read it
	about json.RawMessage // the result of the handshake

	mu    sync.Mutex
	asked int64                 // id of the last request; guarded by mu
	open  map[int64]chan answer // requests, each with a place for its answer; guarded by mu
}

// answer is that to a request: a message, or why it cannot be read.
type answer struct {
	msg jsonrpc.Message
	err error
}

// converse begins to read what a program writes.
func converse(stdin io.Writer, stdout io.Reader, secrets []string, root string) *conversation {
	c := &conversation{
		stdin: stdin, secrets: redact.Forms(secrets), root: root,
		changed: make(chan struct{}, 1), mute: make(chan struct{}), over: make(chan struct{}), open: map[int64]chan answer{},
	}
	go c.read(stdout) // until the program's stdout is closed; see over
	return c
}

// ask makes the handshake and lists the tools, again and again until the list has all that are wanted. Then
// it makes the calls. With an error it returns what is known, too.
func (c *conversation) ask(ctx context.Context, want wanted) (out heard, err error) {
	versions := want.versions
	if versions == nil {
		versions = mcp.Legacy()
	}
	if out.era, err = handshake.IntroduceIn(ctx, c, myself, want.era, versions); err != nil {
		return out, c.plain(err)
	}
	if out.era == dialect.Modern && len(want.tools) > 0 { // else it does not say that its tools are others
		c.subscribe()
	}
	var late <-chan time.Time
	for {
		select {
		case <-c.changed:
		default:
		}
		lists, err := handshake.ReadLists(ctx, c, slog.New(slog.DiscardHandler), c.about, listing.Lists{})
		if err != nil {
			return out, c.plain(err)
		}
		out.names, out.harmless = []string{}, ""
		out.said, out.unheard = leaf.Said(c.about, lists.Raw[:]), lists.Unheard
		for _, one := range lists.Raw[listing.Tools] {
			name, _ := mcp.String(jsonrpc.Field(one, listing.Tools.MCP().Key))
			out.names = append(out.names, name)
			if out.harmless == "" && isHarmless(one) {
				out.harmless = name
			}
		}
		if len(missing(out.names, want.tools)) == 0 {
			break
		}
		if late == nil {
			late = time.After(want.limit)
		}
		select { // until its list is another one, or time is up
		case <-c.changed:
		case <-c.mute:
			return out, c.plain(c.err)
		case <-late:
			return out, nil
		case <-ctx.Done():
			return out, nil
		}
	}
	for _, name := range want.calls {
		if slices.Contains(out.names, name) {
			out.called = append(out.called, c.call(ctx, name, want.time))
		}
	}
	return out, nil
}

// plain returns an error of the handshake in words for people. A remote server whose answer is 401 has a
// fault that says so.
func (c *conversation) plain(err error) error {
	refusal, ok := errors.AsType[*dialect.RefusalError](err)
	if !ok {
		return err
	}
	var f fault.Record
	if json.Unmarshal(jsonrpc.Field(refusal.Raw, "data"), &f) == nil && f.Fault.Code == fault.Unauthenticated &&
		f.Reason() == fault.NotLoggedIn {
		return fmt.Errorf("%w (401)", ErrNeedsLogin)
	}
	method := refusal.Method
	if method == mcp.Initialize {
		method = "to begin"
	}
	message, _ := mcp.String(jsonrpc.Field(refusal.Raw, "message"))
	return fmt.Errorf("it refused %s: %s", method, redact.Mask(message, c.secrets))
}

// subscribe asks a program of the modern era to say when its tools are others. The answer comes with the end.
func (c *conversation) subscribe() {
	e := c.Envelope()
	params := jsonrpc.Prepend(e.OwnParams(), `"notifications":{"toolsListChanged":true}`)
	c.mu.Lock()
	c.asked++
	id := c.asked
	c.mu.Unlock()
	_ = c.write(jsonrpc.AppendRequest(nil, jsonrpc.ID(fmt.Sprint(id)), mcp.Listen, params)) // the list fails, too
}

// Request sends a request and returns the result. The error is [io.EOF] if the program ends without an
// answer.
func (c *conversation) Request(
	ctx context.Context, _, method string, params json.RawMessage,
) (json.RawMessage, error) {
	place := make(chan answer, 1)
	c.mu.Lock()
	c.asked++
	id := c.asked
	c.open[id] = place
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open, id)
	}()
	if err := c.write(jsonrpc.AppendRequest(nil, jsonrpc.ID(fmt.Sprint(id)), method, params)); err != nil {
		// It reads no more, and says why, or that it has ended.
		select {
		case <-c.mute:
			return nil, c.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	select {
	case a := <-place:
		return a.result(method)
	case <-c.mute:
	case <-ctx.Done():
		if method == mcp.ToolsCall {
			_ = c.write(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q,"params":{"requestId":%d}}`, mcp.CancelledNote, id))
		}
		return nil, ctx.Err()
	}
	select { // the answer may be its last line
	case a := <-place:
		return a.result(method)
	default:
		return nil, c.err
	}
}

// result returns the result in an answer.
func (a *answer) result(method string) (json.RawMessage, error) {
	if a.err != nil {
		return nil, a.err
	}
	return dialect.ResultOf(method, a.msg)
}

// Initialized tells a legacy program that the handshake is over.
func (c *conversation) Initialized(context.Context) error {
	return c.write([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
}

// Capabilities returns what the daemon would declare to the program.
func (c *conversation) Capabilities() json.RawMessage { return dialect.OwnCapabilities(c.root != "") }

// Envelope returns how to write requests for the program.
func (c *conversation) Envelope() dialect.Envelope {
	return dialect.Envelope{Era: c.era, Meta: dialect.Meta(myself, c.Capabilities())}
}

// Introduced keeps the result of the handshake.
func (c *conversation) Introduced(era string, result json.RawMessage) error {
	c.era, c.about = era, result
	return nil
}

// Ended reports whether the program has ended. Nobody ends it as long as it is asked: time that runs out is
// seen before this is.
func (c *conversation) Ended() (exited, byItself bool) {
	select {
	case <-c.mute:
		exited = errors.Is(c.err, io.EOF)
	default:
	}
	return exited, exited
}

// read takes all messages of the program.
func (c *conversation) read(stdout io.Reader) {
	defer close(c.over)
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, tryLine)
	for lines.Scan() {
		c.line(lines.Bytes())
	}
	c.err = io.EOF
	if err := lines.Err(); err != nil && !errors.Is(err, os.ErrClosed) {
		c.err = fmt.Errorf("reading its answer: %w", err)
	}
	close(c.mute)
	_, _ = io.Copy(io.Discard, stdout) // until it has ended
}

// line takes a line of the program: a message, a list of messages as servers of 2025-03-26 send it, or
// something else, such as a line of a log.
func (c *conversation) line(line []byte) {
	text := bytes.TrimSpace(line)
	if len(text) == 0 {
		return
	}
	if parts := dialect.Batch(text); parts != nil {
		for _, part := range parts {
			c.line(part)
		}
		return
	}
	m, err := jsonrpc.Parse(text)
	if err != nil {
		if id := dialect.BrokenAnswerID(text, err); id != nil {
			mask := func(text string) string { return redact.Mask(text, c.secrets) }
			c.answered(id, answer{err: errors.New("it " + dialect.Unreadable(text, err, mask))})
		} else if len(c.strays) < maxStrays {
			c.strays = append(c.strays, tool.Cut(redact.Mask(string(text), c.secrets), maxLastLine))
		}
		return
	}
	switch m.Kind {
	case jsonrpc.Response:
		m.Result, m.Error = bytes.Clone(m.Result), bytes.Clone(m.Error) // of the scanner
		c.answered(m.ID, answer{msg: m})
	case jsonrpc.Request:
		own, _ := dialect.OwnAnswer(m.Method, m.ID, "", c.root)
		_ = c.write(bytes.TrimSpace(own)) // if it reads no more, it has ended, or will not list its tools
	case jsonrpc.Notification:
		if m.Method == mcp.ToolsChanged {
			select {
			case c.changed <- struct{}{}:
			default:
			}
		}
	}
}

// answered hands an answer to who has asked. One that nobody waits for is dropped.
func (c *conversation) answered(id jsonrpc.ID, a answer) {
	c.mu.Lock()
	place := c.open[dialect.Number(id)]
	delete(c.open, dialect.Number(id))
	c.mu.Unlock()
	if place != nil {
		place <- a // it has room for one, and gets one
	}
}

// printed says which lines the server has written that are no messages, to be added to an error; "" if
// there are none. It may be called once the program's stdout is at its end.
func (c *conversation) printed() string {
	if len(c.strays) == 0 {
		return ""
	}
	return "; it printed to stdout, where only MCP may be: " + fault.Quote([]byte(strings.Join(c.strays, " / ")))
}

// write sends a line. It fails with [io.EOF] if the server has ended.
func (c *conversation) write(line []byte) error {
	if _, err := c.stdin.Write(append(line, '\n')); err != nil {
		return io.EOF
	}
	return nil
}
