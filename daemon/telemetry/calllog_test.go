package telemetry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/protocol/fault"
)

// readLines returns the lines of a file.
func readLines(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > 0 && b[len(b)-1] != '\n' {
		t.Errorf("%s does not end with a newline", path)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// TestCallLine checks the line of a call, without a word of its arguments.
func TestCallLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "telemetry.jsonl")
	r := New(Options{Path: path})
	begin := time.Now().UnixMilli()
	r.ToolCall(Call{
		Session: "abc", Number: 1, Identity: "codex", Project: "p1", Root: "/home/u/p", RequestID: `"r-1"`,
		Tool: "consult", Arguments: json.RawMessage(`{"prompt":"secret prompt","path":"/home/u/p/x.go"}`),
		Took: 1234 * msec, Replays: 1,
	})
	r.ToolCall(Call{
		RequestID: "9007199254740993", Tool: "nope",
		Fault: fault.New(fault.UnknownTool, fault.Host, "tools/call", "unknown tool"),
	})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r.ToolCall(Call{Tool: "late"}) // counted, not logged

	lines := readLines(t, path)
	var ts struct {
		TS int64 `json:"ts_unix_ms"`
	}
	if err := json.Unmarshal([]byte(lines[0]), &ts); err != nil || ts.TS < begin {
		t.Fatalf("line %s: %v", lines[0], err)
	}
	for i, want := range []string{
		`,"repo_root":null,"request_id":"r-1","tool_name":"consult","path_hint":null,"latency_ms":1234,"replay_attempts":1,` +
			`"outcome":"ok","error_code":null,"error_kind":null,"error_message":null,"session":"abc","identity":"codex","project":"p1","server":null,"cache":null}`,
		`,"repo_root":null,"request_id":9007199254740993,"tool_name":"nope","path_hint":null,"latency_ms":0,"replay_attempts":0,` +
			`"outcome":"error","error_code":-32602,"error_kind":"unknown_tool","error_message":"unknown tool","session":"","identity":"","project":"","server":null,"cache":null}`,
	} {
		if !strings.HasPrefix(lines[i], `{"event":"tool_call","ts_unix_ms":`) || !strings.HasSuffix(lines[i], want) {
			t.Errorf("line %d:\n got %s\nwant …%s", i, lines[i], want)
		}
	}
	if len(lines) != 2 {
		t.Errorf("%d lines, want 2", len(lines))
	}
	for p, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(p); err != nil || info.Mode().Perm() != want {
			t.Errorf("mode of %s = %v, %v, want %o", p, info.Mode().Perm(), err, want)
		}
	}
}

// TestCallLineIsBounded checks that names given by a client neither make a line long nor
// break it.
func TestCallLineIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "telemetry.jsonl")
	long := strings.Repeat("\"\n\xff ü", 100_000)
	r := New(Options{Path: path, Paths: true})
	args := json.RawMessage(`{"path":"` + strings.Repeat("x", 100_000) + `"}`)
	r.ToolCall(Call{
		Session: long, Identity: long, Client: long, Project: long, Root: long, Server: long, RequestID: long,
		Tool: long, Cache: long, Arguments: args, Fault: fault.New(fault.InvalidInput, fault.Host, "x", "%s", long),
	})
	lines := readLines(t, path)
	if len(lines) != 1 || len(lines[0]) > 12_000 || !json.Valid([]byte(lines[0])) {
		t.Errorf("%d lines, the first of %d bytes", len(lines), len(lines[0]))
	}
}

// TestHotPaths checks the summary of the most used and slowest paths.
func TestHotPaths(t *testing.T) {
	path := filepath.Join(t.TempDir(), "telemetry.jsonl")
	r := New(Options{Path: path, Paths: true})
	call := func(p string, took time.Duration, f *fault.Record) {
		args, err := json.Marshal(map[string]string{"file_path": p})
		if err != nil {
			t.Fatal(err)
		}
		r.ToolCall(Call{Tool: "read", Root: "/r", RequestID: "1", Arguments: args, Took: took, Fault: f})
	}
	call("/slow", 900*msec, fault.New(fault.Timeout, fault.Host, "x", "late"))
	for range 50 {
		call("/hot", 2*msec, nil)
	}
	for i := range 49 {
		call(fmt.Sprintf("/p%02d", i), msec, nil)
	}
	lines := readLines(t, path)
	if len(lines) != 101 {
		t.Fatalf("%d lines, want 100 calls and a summary", len(lines))
	}
	var hot struct {
		Event    string     `json:"event"`
		RepoRoot string     `json:"repo_root"`
		Total    int64      `json:"total_tool_events"`
		Hottest  []pathLine `json:"hottest_paths"`
		Slowest  []pathLine `json:"slowest_paths"`
	}
	if err := json.Unmarshal([]byte(lines[100]), &hot); err != nil {
		t.Fatal(err)
	}
	if hot.Event != "hot_paths_snapshot" || hot.Total != 100 || hot.RepoRoot != "/r" || len(hot.Hottest) != 12 ||
		len(hot.Slowest) != 12 {
		t.Errorf("summary = %s", lines[100])
	}
	if got, want := hot.Hottest[0], (pathLine{Path: "/hot", Requests: 50, Average: 2, Max: 2}); got != want {
		t.Errorf("hottest = %+v, want %+v", got, want)
	}
	if got, want := hot.Slowest[0],
		(pathLine{Path: "/slow", Requests: 1, Errors: 1, Average: 900, Max: 900}); got != want {
		t.Errorf("slowest = %+v, want %+v", got, want)
	}
	for i := range 5000 {
		call(fmt.Sprintf("/many%d", i), msec, nil)
	}
	if n := len(r.log.hot.byPath); n > maxHotPaths {
		t.Errorf("%d paths are kept", n)
	}
	if r.log.hot.byPath["/hot"] == nil {
		t.Error("the hottest path was forgotten")
	}
}

// TestHotPathsOff checks that without paths the summary is still written, and names no
// path.
func TestHotPathsOff(t *testing.T) {
	path := filepath.Join(t.TempDir(), "telemetry.jsonl")
	r := New(Options{Path: path})
	for range 100 {
		r.ToolCall(Call{Root: "/secret", Arguments: json.RawMessage(`{"path":"/secret/x"}`)})
	}
	lines := readLines(t, path)
	if !strings.HasSuffix(lines[100],
		`"repo_root":null,"total_tool_events":100,"hottest_paths":[],"slowest_paths":[]}`) {
		t.Errorf("summary = %s", lines[100])
	}
	if strings.Contains(strings.Join(lines, ""), "secret") {
		t.Error("a path was logged")
	}
}

// TestShowPaths checks that paths can be switched on and off.
func TestShowPaths(t *testing.T) {
	path := filepath.Join(t.TempDir(), "telemetry.jsonl")
	r := New(Options{Path: path})
	for _, show := range []bool{true, false} {
		r.ShowPaths(show)
		r.ToolCall(Call{Root: "/r", Arguments: json.RawMessage(`{"path":"/x"}`)})
	}
	lines := readLines(t, path)
	if !strings.Contains(lines[0], `"path_hint":"/x"`) || !strings.Contains(lines[1], `"path_hint":null`) ||
		len(r.log.hot.byPath) != 0 {
		t.Errorf("lines = %q, paths %v", lines, r.log.hot.byPath)
	}
}

// TestRotation checks that no file exceeds the limit, that old files are numbered, and that
// only the configured number of them is kept.
func TestRotation(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "telemetry.jsonl")
	const limit = 2000
	r := New(Options{Path: path, MaxBytes: limit})
	for i := range 99 {
		r.ToolCall(Call{Tool: "t", RequestID: fmt.Sprint(i)})
	}
	seen := 0
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
		info, err := e.Info()
		if err != nil || info.Size() > limit || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", e.Name(), info, err)
		}
		for _, line := range readLines(t, filepath.Join(dir, e.Name())) {
			if !json.Valid([]byte(line)) {
				t.Errorf("%s: broken line %q", e.Name(), line)
			}
			seen++
		}
	}
	if got := strings.Join(names, " "); got != "telemetry.jsonl telemetry.jsonl.1 telemetry.jsonl.2 telemetry.jsonl.3" {
		t.Errorf("files: %s", got)
	}
	if seen < 15 || seen > 30 {
		t.Errorf("%d lines are left", seen)
	}
	last := readLines(t, path)
	if !strings.Contains(last[len(last)-1], `"request_id":98,`) {
		t.Errorf("the newest line is %s", last[len(last)-1])
	}
	// The next daemon finds a file that is nearly full.
	r.Close()
	if err := os.WriteFile(path, bytes.Repeat([]byte("x\n"), limit/2), 0o600); err != nil {
		t.Fatal(err)
	}
	r = New(Options{Path: path, MaxBytes: limit})
	r.ToolCall(Call{Tool: "first"})
	if got := readLines(t, path); len(got) != 1 {
		t.Errorf("%d lines after the next start, want 1", len(got))
	}
	r.Close()
	// A log that keeps no old file.
	r = New(Options{Path: path, MaxBytes: 400, Keep: -1})
	for range 10 {
		r.ToolCall(Call{Tool: "t"})
	}
	if got := readLines(t, path); len(got) != 1 {
		t.Errorf("%d lines, want 1", len(got))
	}
	if files, err := filepath.Glob(path + ".*"); err != nil || len(files) != 0 {
		t.Errorf("of those that were kept when more were to be there are still %v, %v", files, err)
	}
}

// TestBound checks that new limits apply at once.
func TestBound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "telemetry.jsonl")
	r := New(Options{Path: path})
	for range 10 {
		r.ToolCall(Call{Tool: "t"})
	}
	r.Bound(400, 1)
	for range 10 {
		r.ToolCall(Call{Tool: "t"})
	}
	if got := readLines(t, path); len(got) != 1 {
		t.Errorf("%d lines, want 1", len(got))
	}
	if files, err := filepath.Glob(path + "*"); err != nil || len(files) != 2 {
		t.Errorf("files %v, %v", files, err)
	}
}

// TestLogFollowsItsPath checks that lines go into the file at the log's path, after another
// process has renamed or removed it.
func TestLogFollowsItsPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "telemetry.jsonl")
	r := New(Options{Path: path})
	r.ToolCall(Call{Tool: "one"})
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	r.ToolCall(Call{Tool: "two"})
	if got := readLines(t, path); len(got) != 1 || !strings.Contains(got[0], `"two"`) {
		t.Errorf("lines = %q", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	r.ToolCall(Call{Tool: "three"})
	if got := readLines(t, path); len(got) != 1 || !strings.Contains(got[0], `"three"`) {
		t.Errorf("lines = %q", got)
	}
	other := New(Options{Path: path}) // another daemon on the same file
	other.ToolCall(Call{Tool: "four"})
	r.ToolCall(Call{Tool: "five"})
	if got := readLines(t, path); len(got) != 3 {
		t.Errorf("lines = %q", got)
	}
}

// TestLogAfterTornLine checks that a line cut by a crash does not spoil the next one.
func TestLogAfterTornLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "telemetry.jsonl")
	if err := os.WriteFile(path, []byte(`{"event":"tool_c`), 0o644); err != nil {
		t.Fatal(err)
	}
	r := New(Options{Path: path})
	r.ToolCall(Call{Tool: "one"})
	r.ToolCall(Call{Tool: "two"})
	if got := readLines(t, path); len(got) != 3 || !json.Valid([]byte(got[1])) || !json.Valid([]byte(got[2])) {
		t.Errorf("lines = %q", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode = %v, %v", info.Mode(), err)
	}
}

// TestFailedWrite checks that a log that cannot be written appears in the health, is logged
// once and stops no call, and that writing begins again when it is possible.
func TestFailedWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "telemetry.jsonl")
	// Opening it must not block until there is a reader.
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	var told bytes.Buffer
	r := New(Options{Path: path, Log: slog.New(slog.NewTextHandler(&told, nil))})
	for range 3 {
		r.ToolCall(Call{Tool: "one"})
	}
	h := r.Health(Parts{})
	if h.TelemetryLog.Failed != 3 || h.TelemetryLog.Written != 0 || h.TelemetryLog.LastError == "" {
		t.Errorf("log = %+v", h.TelemetryLog)
	}
	if !strings.Contains(h.Text(true), "\ntelemetry log: 3 lines lost, failing now: ") {
		t.Errorf("text = %s", h.Text(true))
	}
	if got := strings.Count(told.String(), "telemetry log cannot be written"); got != 1 {
		t.Errorf("told %d times:\n%s", got, told.String())
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	r.ToolCall(Call{Tool: "two"})
	if h := r.Health(Parts{}).TelemetryLog; h.Written != 1 || h.Failed != 3 || h.LastError != "" {
		t.Errorf("log = %+v", h)
	}
	if !strings.Contains(told.String(), "telemetry log works again") {
		t.Errorf("told:\n%s", told.String())
	}
	// A symbolic link is refused: it could point to any file.
	link := filepath.Join(dir, "link.jsonl")
	if err := os.Symlink(filepath.Join(dir, "victim"), link); err != nil {
		t.Fatal(err)
	}
	r = New(Options{Path: link})
	r.ToolCall(Call{Tool: "one"})
	if _, err := os.Stat(filepath.Join(dir, "victim")); err == nil || r.Health(Parts{}).TelemetryLog.Failed != 1 {
		t.Error("a symbolic link was followed")
	}
}

// TestPathHint checks which argument of a call counts as its path.
func TestPathHint(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{``, ""},
		{`null`, ""},
		{`{"prompt":"look at /etc/passwd"}`, ""},
		{`{"path":"/a"}`, "/a"},
		{`{"uri":"/d","path":"/c","filePath":"/b","file_path":"/a"}`, "/a"},
		{`{"uri":"/d","path":"/c","filePath":"/b"}`, "/b"},
		{`{"uri":"file:///a%20b/c.go"}`, "/a b/c.go"},
		{`{"uri":"https://user:pw@example.com/x?token=1#f"}`, "https://example.com/x"},
		{`{"path":7,"uri":"/a"}`, "/a"},
		{`{"path":"","uri":"/a"}`, "/a"},
		{`{"textDocument":{"path":"/b","uri":"file:///a"}}`, "/a"},
		{`{"x":{"path":"/deep"},"textDocument":{"uri":"/near"}}`, "/near"},
		{`{"z":{"path":"/first"},"a":{"path":"/second"}}`, "/first"},
		{`{"edits":[{"n":1},{"filePath":"/in/array"}]}`, "/in/array"},
		{`{"arguments":"{\"path\":\"/in/string\"}"}`, "/in/string"},
		{`{"arguments":" [\"{\\\"path\\\":\\\"/twice\\\"}\"]"}`, "/twice"},
		{`{"arguments":"{not json"}`, ""},
		{`{"path":`, ""},
		{strings.Repeat(`{"a":`, 100) + `{"path":"/x"}` + strings.Repeat(`}`, 100), ""},
	} {
		if got := pathHint(json.RawMessage(c.in)); got != c.want {
			t.Errorf("pathHint(%.80s) = %q, want %q", c.in, got, c.want)
		}
	}
}

func FuzzPathHint(f *testing.F) {
	for _, s := range []string{
		`{"path":"/a"}`,
		`{"a":["{\"uri\":\"file:///x\"}"]}`,
		`[[[{"textDocument":{"path":"x"}}]]]`,
		`{"a":1,"a":2}`,
		`"{"`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if got := pathHint(raw); got != "" && !json.Valid(raw) {
			t.Errorf("pathHint(%q) = %q, though that is no JSON", raw, got)
		}
	})
}

func BenchmarkToolCall(b *testing.B) {
	r := New(Options{Path: filepath.Join(b.TempDir(), "telemetry.jsonl")})
	defer r.Close()
	c := Call{Session: "abc", Identity: "codex", Tool: "consult", RequestID: "1", Took: time.Second}
	b.ReportAllocs()
	for b.Loop() {
		r.ToolCall(c)
	}
}

// TestPathsSwitchedOffDuringCall switches paths off while a call is being logged: the summary must
// not show its path afterwards.
func TestPathsSwitchedOffDuringCall(t *testing.T) {
	l := newCallLog(Options{Path: filepath.Join(t.TempDir(), "log"), Paths: true})
	l.mu.Lock() // the call waits for it after its line is written
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.logCall(&Call{Tool: "x", Root: "/home/u", Arguments: json.RawMessage(`{"path":"/home/u/x.go"}`)})
	}()
	for l.Health().Written == 0 {
		runtime.Gosched()
	}
	l.paths.Store(false) // as showPaths does, which then waits for the lock
	clear(l.hot.byPath)
	l.mu.Unlock()
	<-done
	if len(l.hot.byPath) > 0 {
		t.Errorf("the paths %v are counted", l.hot.byPath)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
