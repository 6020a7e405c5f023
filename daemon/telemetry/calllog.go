package telemetry

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"holdline/protocol/fault"
	"holdline/protocol/ownfile"
)

// Call is one call of a tool, refused ones too.
type Call struct {
	Session   string // hash of the session's uuid
	Number    int64  // of the session, what people see
	Identity  string
	Client    string
	Project   string          // key
	Root      string          // the project's directory
	Server    string          // hosted server; "" for an own tool
	RequestID string          // as JSON
	Tool      string          // as the client named it
	Arguments json.RawMessage // searched for a path, never kept
	Cache     string          // "hit" or "miss"; "" if there was no look
	Took      time.Duration
	Replays   int
	Fault     *fault.Record // nil for a success
}

// Bounds of a line, in bytes.
const (
	maxMessage = 1024
	maxPath    = 1024
)

// callLine is a call in the log.
type callLine struct {
	Event     string          `json:"event"`
	TS        int64           `json:"ts_unix_ms"`
	RepoRoot  *string         `json:"repo_root"`
	RequestID json.RawMessage `json:"request_id"`
	Tool      string          `json:"tool_name"`
	LSPMethod *string         `json:"lsp_method"` // always null
	PathHint  *string         `json:"path_hint"`
	Latency   int64           `json:"latency_ms"`
	Replays   int             `json:"replay_attempts"`
	Outcome   string          `json:"outcome"`
	Code      *int            `json:"error_code"` // JSON-RPC's
	Kind      *fault.Code     `json:"error_kind"`
	Message   *string         `json:"error_message"`
	Session   string          `json:"session"`
	Identity  string          `json:"identity"`
	Project   string          `json:"project"`
	Server    *string         `json:"server"`
	Cache     *string         `json:"cache"`
}

// LogHealth says how the call log fares.
type LogHealth struct {
	Written   int64  `json:"written"` // records
	Failed    int64  `json:"failed"`  // records lost
	LastError string `json:"last_error,omitempty"`
}

// maxPending is how many bytes of records wait to be written.
const maxPending = 32 << 10

// callLog appends records to a file, some at a time with one write, and rotates
// it. Two daemons may share one file: it is opened for appending, and looked up
// anew whenever its path names another file.
type callLog struct {
	o Options

	mu     sync.Mutex // guards the fields that follow
	paths  bool
	closed bool
	atOnce bool     // no record waits for others
	file   *os.File // nil until the first record, and after a failure
	torn   bool     // the file's last line is not whole
	wait   []byte   // records that are not written yet
	waits  int64    // how many they are
	timer  *time.Timer
	hot    hotPaths
	tally  LogHealth
}

func newCallLog(o Options) *callLog {
	return &callLog{o: o, paths: o.Paths, hot: newHotPaths()}
}

func (l *callLog) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flushLocked()
	l.closed = true
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	if err != nil {
		return fmt.Errorf("closing the telemetry log: %w", err)
	}
	return nil
}

func (l *callLog) showPaths(show bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.paths = show
	if !show {
		l.hot = hotPaths{events: l.hot.events, byPath: map[string]*pathLine{}}
	}
}

// through writes what waits, and as long as it is on each record at once.
func (l *callLog) through(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.atOnce = on
	l.flushLocked()
}

// bound takes other bounds; zero ones as [Options] does.
func (l *callLog) bound(maxBytes int64, keep int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.o.MaxBytes, l.o.Keep = maxBytes, keep
	l.o.fill()
}

func (l *callLog) health() LogHealth {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flushLocked()
	return l.tally
}

// toolCall writes the line of a call, and behind every hundredth a summary.
func (l *callLog) toolCall(c *Call) {
	if l.o.Path == "" {
		return
	}
	now := time.Now().UnixMilli()
	l.mu.Lock()
	paths := l.paths
	l.mu.Unlock()
	line := callLineOf(c, now, paths)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write(line)
	path := ""
	if line.PathHint != nil {
		path = *line.PathHint
	}
	if l.hot.add(path, line.Latency, c.Fault != nil) {
		l.write(l.hot.snapshot(now, line.RepoRoot))
	}
}

func callLineOf(c *Call, now int64, paths bool) *callLine {
	line := &callLine{
		Event: "tool_call", TS: now, RequestID: requestID(c.RequestID),
		Tool: bounded(c.Tool, maxField), Latency: c.Took.Milliseconds(), Replays: c.Replays, Outcome: "ok",
		Session: bounded(c.Session, maxField), Identity: bounded(c.Identity, maxField), Project: bounded(c.Project, maxField),
		Server: optional(c.Server, maxField), Cache: optional(c.Cache, maxField),
	}
	if paths {
		line.RepoRoot = optional(c.Root, maxPath)
		line.PathHint = optional(PathHint(c.Arguments), maxPath)
	}
	if f := c.Fault; f != nil {
		code, kind := f.JSONRPCCode, f.Fault.Code
		line.Outcome, line.Code, line.Kind = "error", &code, &kind
		detail := f.Fault.Detail
		if !paths {
			detail = withoutPaths(detail, PathHint(c.Arguments), c.Root)
		}
		line.Message = optional(detail, maxMessage)
	}
	return line
}

// requestID is the id as it was spelled, unless that is long or no JSON.
func requestID(id string) json.RawMessage {
	if len(id) <= maxField && json.Valid([]byte(id)) {
		return json.RawMessage(id)
	}
	b, err := json.Marshal(bounded(id, maxField))
	if err != nil {
		return json.RawMessage("null")
	}
	return b
}

func optional(s string, limit int) *string {
	if s == "" {
		return nil
	}
	s = bounded(s, limit)
	return &s
}

// write takes one record, which is written with those that follow it soon; mu
// is held.
func (l *callLog) write(record any) {
	if l.closed {
		return
	}
	b, err := json.Marshal(record)
	if err != nil {
		l.told(fmt.Errorf("encoding a record: %w", err), 1)
		return
	}
	l.wait, l.waits = append(append(l.wait, b...), '\n'), l.waits+1
	switch {
	case l.o.LogDelay == 0 || l.atOnce || len(l.wait) > maxPending:
		l.flushLocked()
	case l.timer == nil:
		l.timer = time.AfterFunc(l.o.LogDelay, l.flush)
	case l.waits == 1:
		l.timer.Reset(l.o.LogDelay)
	}
}

func (l *callLog) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flushLocked()
}

// flushLocked writes what waits. A failure loses it.
func (l *callLog) flushLocked() {
	if l.waits == 0 {
		return
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	l.told(l.append(l.wait), l.waits)
	if cap(l.wait) > maxPending {
		l.wait = nil
	}
	l.wait, l.waits = l.wait[:0], 0
}

// told counts records that were written, or lost with err, which is told to
// the daemon's log when it is the first in a row.
func (l *callLog) told(err error, records int64) {
	if err == nil {
		if l.tally.LastError != "" {
			l.tally.LastError = ""
			l.o.Log.Info("telemetry log works again")
		}
		l.tally.Written += records
		return
	}
	l.tally.Failed += records
	if l.tally.LastError == "" {
		l.o.Log.Warn("telemetry log cannot be written", "err", err)
	}
	l.tally.LastError = err.Error()
}

func (l *callLog) append(b []byte) error {
	if err := l.open(int64(len(b))); err != nil {
		return err
	}
	if l.torn {
		b = slices.Insert(b, 0, '\n')
	}
	n, err := l.file.Write(b)
	if err != nil {
		l.torn = l.torn || n > 0
		return fmt.Errorf("writing a record: %w", err)
	}
	l.torn = false
	return nil
}

// open makes l.file the file at the path, with room for n bytes.
func (l *callLog) open(n int64) error {
	if l.file != nil {
		info, err := l.file.Stat()
		if err == nil {
			var named fs.FileInfo
			if named, err = os.Lstat(l.o.Path); err == nil && os.SameFile(info, named) {
				if info.Size() == 0 || info.Size()+n <= l.o.MaxBytes {
					return nil
				}
				err = l.rotate()
			}
		}
		if err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("rotating: %w", err)
		}
		l.file.Close()
		l.file, l.torn = nil, false
	}
	// The file of an earlier daemon may be full already.
	if info, err := os.Lstat(l.o.Path); err == nil && info.Mode().IsRegular() && info.Size() > 0 && info.Size()+n > l.o.MaxBytes {
		if err := l.rotate(); err != nil {
			return fmt.Errorf("rotating: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(l.o.Path), 0o700); err != nil {
		return err
	}
	f, err := ownfile.OpenFile(l.o.Path, os.O_WRONLY|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return err
	}
	if err := private(f); err != nil {
		f.Close()
		return err
	}
	l.file = f
	l.torn = endsTorn(l.o.Path)
	return nil
}

// private makes sure that nobody else can read f.
func private(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return f.Chmod(0o600)
	}
	return nil
}

// endsTorn tells whether a file has a last line without an end, left by a
// machine that stopped in the middle of a write.
func endsTorn(path string) bool {
	f, err := ownfile.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return false
	}
	last := make([]byte, 1)
	_, err = f.ReadAt(last, info.Size()-1)
	return err == nil && last[0] != '\n'
}

// rotate renames the file to .1, .1 to .2 and so on; the oldest goes, and so do
// those that were kept when more of them were to be.
func (l *callLog) rotate() error {
	numbered := func(n int) string { return fmt.Sprintf("%s.%d", l.o.Path, n) }
	for n := l.o.Keep + 1; os.Remove(numbered(n)) == nil; n++ {
	}
	if l.o.Keep == 0 {
		return os.Remove(l.o.Path)
	}
	for n := l.o.Keep - 1; n >= 1; n-- {
		if err := os.Rename(numbered(n), numbered(n+1)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return os.Rename(l.o.Path, numbered(1))
}
