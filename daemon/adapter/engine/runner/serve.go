// Package runner is the process "holdline engine NAME": a stdio MCP server with one
// tool, "run", that runs a consult program once and returns what the program has said.
//
// The process holds all that a run needs while it lasts: the command line, the dialogue
// with the program, the deadline and the steps that follow it, the partial answer.
// Under a worker a run therefore goes on, and ends on time, without a daemon. Any MCP
// client can start this process by hand.
//
// Under a worker the call names a job's directory. Then the process serves that one
// call and exits. It writes there
//
//   - transcript.jsonl, whose first line is on disk before the program starts,
//   - outcome.json, before the result line. It counts as the answer, whichever process
//     dies. A cancelled call gets no result line, as MCP wants it, and has its outcome
//     in the file.
//
// Goroutines: one reads stdin, one writes stdout, and that of [Serve] decides. Each
// call has one that owns its [run], and those of its [program].
package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Options describe an engine process: its engine, its environment and the worker that
// it belongs to.
type Options struct {
	Name    string // of the engine: "claude"
	Version string // of this program
	// Engine makes the engine for an environment. Variables named in extra pass
	// on to the program whatever they are; of the others only what it needs.
	Engine  func(environ, extra []string) engine.Engine
	Environ []string
	Worker  string // id of the worker that this process belongs to; "" by hand
	Log     *slog.Logger
}

// maxCalls bounds the calls of one client at the same time. Under a worker there is
// only one call.
const maxCalls = 8

// parentPoll is the pause between two checks whether the parent still lives, once stdin
// has ended.
const parentPoll = time.Second

// Reasons for which calls are cancelled.
var (
	errCancelled = errors.New("the client cancelled the call")
	errGone      = errors.New("the client is gone")
)

// server is the state of an engine process. It belongs to the goroutine of
// [Serve], but for work and out.
type server struct {
	o      Options
	out    *outbox
	parent int
	calls  map[string]context.CancelCauseFunc // by request id
	ended  chan string                        // request ids of calls that have ended
	job    bool                               // a call named a job's directory; there is no second call
	work   sync.WaitGroup
}

// Serve runs the process. It reads MCP messages from in, one a line, and answers on
// out.
//
// It returns when the job's call has ended, or when in has ended and all calls are
// answered. It cancels the calls if ctx is done, if out cannot be written, or if in has
// ended and the parent has died; then it returns when their programs have ended.
func Serve(ctx context.Context, in io.ReadCloser, out io.Writer, o Options) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &server{
		o: o, out: newOutbox(out, func(error) { cancel(errGone) }), parent: os.Getppid(),
		calls: map[string]context.CancelCauseFunc{}, ended: make(chan string, maxCalls),
	}
	lines := make(chan []byte)
	// Serve does not wait for this goroutine: its read of stdin may block until exit.
	go s.readLines(ctx, in, lines)
	s.serve(ctx, lines)
	s.work.Wait()
	s.out.close()
	faultpoint.At("adapter.answered")
	_ = in.Close()
}

// readLines sends the lines of in to lines, and closes lines at the end of in. Lines
// that are too long are skipped.
func (s *server) readLines(ctx context.Context, in io.Reader, lines chan<- []byte) {
	defer close(lines)
	reader := jsonrpc.NewLines(in, jsonrpc.MaxFrame)
	for {
		line, err := reader.Next()
		switch {
		case errors.Is(err, jsonrpc.ErrTooLong):
			s.o.Log.WarnContext(ctx, "message skipped", "err", err)
			continue
		case err != nil:
			return
		}
		select {
		case lines <- bytes.Clone(line):
		case <-ctx.Done():
			return
		}
	}
}

// serve handles messages and ends of calls. It returns when no call runs and no message
// can come, or when the job's call has ended.
func (s *server) serve(ctx context.Context, lines <-chan []byte) {
	poll := time.NewTicker(parentPoll)
	defer poll.Stop()
	done := ctx.Done()
	for len(s.calls) > 0 || lines != nil && !s.job {
		select {
		case line, ok := <-lines:
			if !ok {
				lines = nil
				s.leaveIfOrphan()
				continue
			}
			s.handle(ctx, line)
		case key := <-s.ended:
			delete(s.calls, key)
		case <-poll.C:
			if lines == nil {
				s.leaveIfOrphan()
			}
		case <-done: // the calls are cancelled with ctx
			lines, done = nil, nil
		}
	}
}

// leaveIfOrphan cancels all calls if the parent has died: then no process can read the
// answers.
func (s *server) leaveIfOrphan() {
	if os.Getppid() == s.parent {
		return
	}
	for _, cancel := range s.calls {
		cancel(errGone)
	}
}

// handle handles one message: a request, or the cancellation of a call. It ignores all
// else.
func (s *server) handle(ctx context.Context, line []byte) {
	m, err := jsonrpc.Parse(line)
	if err != nil {
		s.out.queueAnswer(jsonrpc.AppendError(nil, m.ID, jsonrpc.CodeParse, err.Error(), nil))
		return
	}
	params, err := mcp.ParseParams(m.Params)
	switch {
	case m.Kind == jsonrpc.Request && err != nil:
		s.fail(m.ID, jsonrpc.CodeInvalidParams, "%v", err)
	case m.Kind == jsonrpc.Request:
		s.request(ctx, m, params)
	case m.Method == mcp.CancelledNote && err == nil:
		if cancel := s.calls[jsonrpc.ID(params.RequestID).Key()]; cancel != nil {
			cancel(errCancelled)
		}
	}
}

// fail answers a request with a JSON-RPC error. It is for requests that make no sense;
// a run that fails has a result with a fault.
func (s *server) fail(id jsonrpc.ID, code int, format string, args ...any) {
	s.out.queueAnswer(jsonrpc.AppendError(nil, id, code, fmt.Sprintf(format, args...), nil))
}

// request answers a request, or starts the call that will answer it. It speaks both the
// older versions of MCP, with a handshake, and the modern one, in which each request
// names its version.
func (s *server) request(ctx context.Context, m jsonrpc.Message, p mcp.Params) {
	version, modern := mcp.String(p.Meta.Version)
	if modern && version != mcp.Modern {
		s.out.queueAnswer(jsonrpc.AppendError(nil, m.ID, mcp.CodeVersion, "unsupported protocol version "+version,
			jsonrpc.Encode(map[string]any{"supported": mcp.Supported(), "requested": version})))
		return
	}
	me := mcp.Implementation{Name: "holdline-engine-" + s.o.Name, Version: s.o.Version}
	about := map[string]any{"serverInfo": me, "capabilities": map[string]any{"tools": map[string]any{}}}
	switch m.Method {
	case mcp.Initialize:
		asked, _ := mcp.String(p.Version)
		about["protocolVersion"] = mcp.Negotiate(asked)
		s.answer(m.ID, about, false)
	case mcp.Discover:
		about["supportedVersions"], about["ttlMs"], about["cacheScope"] = mcp.Supported(), 0, "private"
		s.answer(m.ID, about, true)
	case mcp.Ping:
		s.answer(m.ID, map[string]any{}, modern)
	case mcp.ToolsList:
		list := map[string]any{"tools": []any{describeTool(s.o.Name)}}
		if modern {
			list["ttlMs"], list["cacheScope"] = 0, "private"
		}
		s.answer(m.ID, list, modern)
	case mcp.ToolsCall:
		s.call(ctx, m, p, modern)
	default:
		s.fail(m.ID, jsonrpc.CodeUnknownMethod, "unknown method %q", m.Method)
	}
}

// answer queues the result of a request.
func (s *server) answer(id jsonrpc.ID, result map[string]any, modern bool) {
	if modern {
		result["resultType"] = "complete"
	}
	s.out.queueAnswer(jsonrpc.AppendResult(nil, id, jsonrpc.Encode(result)))
}

// call starts a call of the tool, in a goroutine of its own. It refuses a second call
// under a worker: a run must never happen twice.
func (s *server) call(ctx context.Context, m jsonrpc.Message, p mcp.Params, modern bool) {
	key := m.ID.Key()
	if name, _ := mcp.String(p.Name); name != engine.Tool {
		s.fail(m.ID, jsonrpc.CodeInvalidParams, "unknown tool %q", name)
		return
	}
	switch {
	case s.job || s.calls[key] != nil:
		s.fail(m.ID, jsonrpc.CodeInvalidRequest, "the call was made already")
		return
	case len(s.calls) >= maxCalls:
		s.fail(m.ID, jsonrpc.CodeInvalidRequest, "%d calls are under way", maxCalls)
		return
	}
	params, err := parseParams(p.Arguments, s.o.Worker)
	if err != nil {
		s.job = s.o.Worker != "" // the daemon waits for the end of a process that it started for one call
		s.answer(m.ID, failure(fault.From(err, fault.Engine, engine.Operation)), modern)
		return
	}
	s.job = params.Dir != ""
	callCtx, cancel := context.WithCancelCause(ctx)
	s.calls[key] = cancel
	faultpoint.At("adapter.begun")
	report := s.reporter(bytes.Clone(p.Meta.Progress))
	s.work.Go(func() {
		defer func() { s.ended <- key }()
		defer cancel(nil)
		out := runOnce(callCtx, &s.o, params, report)
		// MCP wants no answer to a cancelled request; under a worker the file has the outcome.
		if out.State != engine.Aborted && callCtx.Err() == nil {
			s.answer(m.ID, result(&out), modern)
		}
	})
}

// reporter returns the function that reports a call's progress, and nil if the client
// gave no token. The progress value is in milliseconds, and always increases.
func (s *server) reporter(token json.RawMessage) reporter {
	if token == nil {
		return nil
	}
	last := int64(-1)
	return func(elapsed time.Duration, message string, p engine.Progress) {
		last = max(last+1, elapsed.Milliseconds())
		s.out.queueProgress(jsonrpc.AppendRequest(nil, nil, mcp.ProgressNote, jsonrpc.Encode(map[string]any{
			"progressToken": token, "progress": last, "message": message,
			"_meta": map[string]any{engine.MetaProgress: p},
		})))
	}
}

// result returns the result of a call as MCP has it: the text for people, and the
// outcome for the daemon.
func result(out *engine.Outcome) map[string]any {
	text := out.Answer
	if out.Fault != nil {
		text = mcp.FaultText(out.Fault, out.Answer)
	}
	return map[string]any{
		"content":           []any{map[string]any{"type": "text", "text": text}},
		"structuredContent": out,
		"isError":           out.Fault != nil,
	}
}

// failure returns the result of a call that was refused before a run began.
func failure(f *fault.Record) map[string]any {
	return result(&engine.Outcome{Version: engine.Version, State: engine.Failed, Fault: f})
}
