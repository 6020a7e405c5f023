package telemetry

import (
	"encoding/json"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
)

// Call is one call of a tool. Calls that were refused count, too.
type Call struct {
	Session   string // hash of the session's uuid
	Number    int64  // of the session, as people see it
	Identity  string
	Client    string
	Project   string          // key
	Root      string          // the project's directory
	Server    string          // hosted server; "" for an own tool
	RequestID string          // as JSON
	Tool      string          // as the client named it
	Arguments json.RawMessage // searched for a path, never kept
	Cache     string          // "hit" or "miss"; "" if the cache was not asked
	Took      time.Duration
	Replays   int
	Fault     *fault.Record // nil for a success
}

// Bounds of fields of a line, in bytes.
const (
	maxMessage = 1024
	maxPath    = 1024
)

// callLine is the line of a call in the log. Fields that are unknown are empty here and
// null in the log, so that each line has the same members.
type callLine struct {
	TS        int64 // Unix milliseconds
	RepoRoot  string
	RequestID string // as JSON
	Tool      string
	PathHint  string
	Latency   int64 // milliseconds
	Replays   int
	Fault     *fault.Record // nil for a success
	Message   string        // of the fault
	Session   string
	Identity  string
	Project   string
	Server    string
	Cache     string
}

// append appends the line as JSON, without a newline. Each call has one: package json takes
// four times as long.
func (l *callLine) append(b []byte) []byte {
	number := func(key string, n int64) { b = strconv.AppendInt(append(b, key...), n, 10) }
	text := func(key, s string) { b = jsonrpc.AppendString(append(b, key...), s) }
	known := func(key, s string) {
		if s != "" {
			text(key, s)
		} else {
			b = append(append(b, key...), "null"...)
		}
	}
	number(`{"event":"tool_call","ts_unix_ms":`, l.TS)
	known(`,"repo_root":`, l.RepoRoot)
	b = append(append(b, `,"request_id":`...), l.RequestID...)
	text(`,"tool_name":`, l.Tool)
	known(`,"path_hint":`, l.PathHint)
	number(`,"latency_ms":`, l.Latency)
	number(`,"replay_attempts":`, int64(l.Replays))
	if f := l.Fault; f == nil {
		b = append(b, `,"outcome":"ok","error_code":null,"error_kind":null`...)
	} else {
		number(`,"outcome":"error","error_code":`, int64(f.JSONRPCCode))
		text(`,"error_kind":`, string(f.Fault.Code))
	}
	known(`,"error_message":`, l.Message)
	text(`,"session":`, l.Session)
	text(`,"identity":`, l.Identity)
	text(`,"project":`, l.Project)
	known(`,"server":`, l.Server)
	known(`,"cache":`, l.Cache)
	return append(b, '}')
}

// callLog writes a line for each call, and a summary of paths after every hundredth
// call. Without a path for the log it does nothing.
type callLog struct {
	*Records
	paths atomic.Bool // lines name paths

	mu  sync.Mutex // guards hot
	hot hotPaths
}

// newCallLog returns the log of calls. With an empty path in o it writes nothing. The
// caller must close it.
func newCallLog(o Options) *callLog {
	l := &callLog{Records: NewRecords(o), hot: hotPaths{byPath: map[string]*pathLine{}}}
	l.paths.Store(o.Paths)
	return l
}

// showPaths sets whether lines name paths from now on. When that is switched off, the
// log forgets the paths that it has counted: a later summary must not show them.
func (l *callLog) showPaths(show bool) {
	l.paths.Store(show)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !show {
		clear(l.hot.byPath)
	}
}

// logCall writes the line of a call, and a summary after it if one is due. It reads the
// arguments only during the call.
func (l *callLog) logCall(c *Call) {
	if l.file.Path == "" {
		return
	}
	line := callLineOf(c, time.Now().UnixMilli(), l.paths.Load())
	l.add(func(b []byte) ([]byte, error) { return line.append(b), nil })
	l.mu.Lock()
	if !l.paths.Load() { // they were switched off meanwhile
		line.PathHint, line.RepoRoot = "", ""
	}
	summary := l.hot.countCall(&line)
	l.mu.Unlock()
	if summary != nil {
		l.Write(summary)
	}
}

// callLineOf returns the line of a call at now, in Unix milliseconds. With paths it
// names the project's root and a path of the arguments. Without, it names neither, and
// replaces what looks like a path in error messages.
func callLineOf(c *Call, now int64, paths bool) callLine {
	line := callLine{
		TS: now, RequestID: requestID(c.RequestID),
		Tool: bounded(c.Tool, maxField), Latency: c.Took.Milliseconds(), Replays: c.Replays, Fault: c.Fault,
		Session: bounded(c.Session, maxField), Identity: bounded(c.Identity, maxField),
		Project: bounded(c.Project, maxField),
		Server:  bounded(c.Server, maxField), Cache: bounded(c.Cache, maxField),
	}
	if paths {
		line.RepoRoot = bounded(c.Root, maxPath)
		line.PathHint = bounded(pathHint(c.Arguments), maxPath)
	}
	if f := c.Fault; f != nil {
		detail := f.Fault.Detail
		if !paths {
			detail = withoutPaths(detail, pathHint(c.Arguments), c.Root)
		}
		line.Message = bounded(detail, maxMessage)
	}
	return line
}

// requestID returns an id as the client has written it. An id that is too long or is no
// JSON becomes a JSON string, so that the line stays valid.
func requestID(id string) string {
	if len(id) <= maxField && json.Valid([]byte(id)) {
		return id
	}
	return string(jsonrpc.AppendString(nil, bounded(id, maxField)))
}
