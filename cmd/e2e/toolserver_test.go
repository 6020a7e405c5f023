package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
	"holdline/protocol/process"
)

// toolServer is an MCP server of the legacy era with a tool for each thing that a test needs
// of a server. Its effects are lines in a ledger, a file to which all processes of the
// server append, one write for each line: a verb, the call's token, the pid.
//
//	effect {token, ms, bytes, until} notes "begin", waits ms milliseconds, and until there is that
//	                       file, notes "end"; answers with the token, and so many bytes more
//	look {token, ms, bytes, until} notes "look"; the same as a read-only tool
//	big {token, bytes}     answers with the token and this many bytes
//	ask {token, method, ms} notes "asked", sends the client a request, notes "told", waits;
//	                       answers with the client's answer; with progress: true it asks for
//	                       the client's progress, with the token 1
//	withdraw {token, method} sends the client a request and cancels it; answers with the token
//	die {code}             writes last words to stderr, and exits; code is 7 by default
//	hang {token}           notes "begin", and never answers
//	noise {token}          writes a line that is no JSON before the answer
//	fresh {token, ttl}     notes "fresh"; its answer may be cached for ttl milliseconds
//	fail {token}           notes "fail"; answers that the tool has failed
//	refuse {token}         notes "refuse"; answers with a JSON-RPC error for bad arguments
//	words {token}          writes the token to stderr
//	log {token, level}     sends the token as a log message of this level; below "info" only
//	                       if the client has set such a level
//	mirror {…}             answers with the request's params as they were spelled
//	touch {token, ms}      changes the resource with this URI, and notifies subscribers; with ms
//	                       it notes "begin", waits, and notes "touched"
//
// With -own there are, with the effect of effect:
//
//	sample {token, ms}     listed if the client can sample
//	turn {token, ms}       notes "begin", waits, notes "turn"; from then on a tool with the
//	                       token as its name is listed, too, and the client is notified
//
// It also notes what the client tells it: "level" and the level of log messages,
// "subscribe" or "unsubscribe" and the URI, "roots changed", "progress" and the token,
// "late" and the id of an answer that it does not wait for, and "stray" and the id of a call
// that is cancelled but does not run. A cancelled call notes "cancelled" and is not
// answered. Calls run concurrently.
type toolServer struct {
	ledger string
	out    io.Writer
	errOut io.Writer
	other  string // path of the members for the listing of effect
	first  bool   // no process was started before it
	logs   bool
	late   bool // the id is the last member of an answer

	resources string
	level     string // that a client has set; guarded by mu
	own       bool
	under     string
	hush      string
	calls     sync.WaitGroup

	mu      sync.Mutex // guards out, too
	running map[string]context.CancelFunc
	asked   map[string]chan json.RawMessage
	asks    int

	subscribed map[string]bool
	grown      []string // tools that only this process lists
}

// watch ends the process once its parent is not what it should be, as servers do that must not outlive their clients.
func (s *toolServer) watch(parent int, each time.Duration) {
	for range time.Tick(each) {
		if os.Getppid() != parent {
			os.Exit(9)
		}
		s.note("watched", "")
	}
}

// toolServerMain plays the server until the end of its input.
//
//	-ledger FILE  the ledger
//	-deaf         neither the end of input nor SIGTERM ends the process
//	-grandchild   first starts a process in a session of its own that ignores all signals
//	              that can be ignored
//	-logs         has the capability to send log messages
//	-resources W  has the resources mem://a, mem://b, mem://fixed and mem://many/{n}; if W is
//	              "told" all but mem://fixed can be subscribed to
//	-own          lists what other processes of it do not: the resources mem://pid/PID and
//	              mem://in/NAME, of its directory, and tools
//	-late         the id is the last member of each answer
//	-noise        writes a line that is no JSON before anything else
//	-listing FILE while there is such a file, lists the tool effect with the members in it
//	              instead of its own; a name with a slash in it does what look does
//	-hush FILE    while there is such a file, does not answer resources/list
//	-first FILE   makes the file, and lists the tool effect with a note that it is the first process if there was none
//	-only FILE    exits with code 4 if another process that was started with it runs
//	-sick FILE    while there is such a file, exits at once with code 3
//	-watch D      looks at its parent after each D and notes "watched": it exits with code 9 if that is not the one
//	              that it was started by
//	-under WORD   exits with code 9 once it has answered a call if the command line of its parent does not have the
//	              word
func toolServerMain(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	f := flag.NewFlagSet("toolserver", flag.ContinueOnError)
	s := &toolServer{
		out: stdout, errOut: stderr, running: map[string]context.CancelFunc{}, asked: map[string]chan json.RawMessage{},
		subscribed: map[string]bool{},
	}
	f.StringVar(&s.ledger, "ledger", "", "")
	deaf, noise, grandchild := f.Bool("deaf", false, ""), f.Bool("noise", false, ""), f.Bool("grandchild", false, "")
	sick, first, only := f.String("sick", "", ""), f.String("first", "", ""), f.String("only", "", "")
	f.StringVar(&s.other, "listing", "", "")
	f.BoolVar(&s.logs, "logs", false, "")
	f.BoolVar(&s.late, "late", false, "")
	f.StringVar(&s.resources, "resources", "", "")
	f.BoolVar(&s.own, "own", false, "")
	watch := f.Duration("watch", 0, "")
	f.StringVar(&s.under, "under", "", "")
	f.StringVar(&s.hush, "hush", "", "")
	if err := f.Parse(args); err != nil {
		return 2
	}
	if _, err := os.Stat(*sick); err == nil {
		_, _ = fmt.Fprintln(stderr, "toolserver: I am sick")
		return 3
	}
	if *only != "" {
		lock, err := os.OpenFile(*only, os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
		if err == nil {
			defer lock.Close()
			err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		}
		if err != nil {
			_, _ = fmt.Fprintln(stderr, "toolserver: another one runs")
			return 4
		}
	}
	if *first != "" {
		made, err := os.OpenFile(*first, os.O_CREATE|os.O_EXCL, 0o600)
		if s.first = err == nil; s.first {
			_ = made.Close()
		}
	}
	if *deaf {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	}
	if *grandchild {
		cmd := exec.Command("sh", "-c", "trap '' TERM INT HUP; exec sleep 600")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
	}
	if *watch > 0 {
		go s.watch(os.Getppid(), *watch) // for as long as the process runs
	}
	if *noise {
		s.print([]byte("toolserver: this is no JSON"))
	}
	lines := bufio.NewReaderSize(stdin, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			s.line(line)
		}
		if err != nil {
			break
		}
	}
	if *deaf {
		time.Sleep(time.Hour)
	}
	s.mu.Lock()
	for _, cancel := range s.running {
		cancel()
	}
	s.mu.Unlock()
	s.calls.Wait()
	return 0
}

// toolMessage is a line from the client.
type toolMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Version string `json:"protocolVersion"`
		Client  struct {
			Sampling json.RawMessage `json:"sampling"`
		} `json:"capabilities"`
		Name      string          `json:"name"`
		Arguments toolArgs        `json:"arguments"`
		RequestID json.RawMessage `json:"requestId"`
		Progress  json.RawMessage `json:"progressToken"`
		Level     string          `json:"level"`
		URI       string          `json:"uri"`
		Meta      struct {
			Progress json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	} `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// toolArgs are the arguments of all tools together.
type toolArgs struct {
	Token  string  `json:"token"`
	MS     float64 `json:"ms"`
	Before float64 `json:"before"` // ask pauses for so many milliseconds first
	Until  string  `json:"until"`
	Bytes  int     `json:"bytes"`
	Method string  `json:"method"`
	Code   int     `json:"code"`
	TTL    int     `json:"ttl"`
	Level  string  `json:"level"`

	Progress bool `json:"progress"`

	Text  string `json:"text"`
	Late  bool   `json:"late"`
	Count int    `json:"count"`
}

// long returns the token, and behind it as many bytes as are wanted.
func (a *toolArgs) long() string { return a.Token + strings.Repeat("x", a.Bytes) }

// pause waits as long as a call of effect is to take; false if it was cancelled.
func (a *toolArgs) pause(ctx context.Context) bool {
	for ok := toolPause(ctx, a.MS); ; ok = toolPause(ctx, 5) {
		if !ok || a.Until == "" {
			return ok
		}
		if _, err := os.Stat(a.Until); err == nil {
			return true
		}
	}
}

// line handles a line from the client.
func (s *toolServer) line(line []byte) {
	var m toolMessage
	if err := json.Unmarshal(line, &m); err != nil {
		s.send(map[string]any{
			"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": -32700, "message": err.Error()},
		})
		return
	}
	switch {
	case m.Method == "":
		s.mu.Lock()
		c := s.asked[string(m.ID)]
		delete(s.asked, string(m.ID))
		s.mu.Unlock()
		if c == nil {
			s.note("late", string(m.ID))
			return
		}
		if m.Error != nil {
			m.Result = m.Error
		}
		c <- m.Result
	case m.Method == "notifications/cancelled":
		s.mu.Lock()
		cancel := s.running[string(m.Params.RequestID)]
		s.mu.Unlock()
		if cancel == nil {
			s.note("stray", string(m.Params.RequestID))
			return
		}
		cancel()
	case m.Method == "notifications/roots/list_changed":
		s.note("roots", "changed")
	case m.Method == "notifications/progress":
		s.note("progress", string(m.Params.Progress))
	case m.ID == nil: // initialized, and any other notification
	case m.Method == "initialize":
		capabilities := map[string]any{"tools": map[string]any{}}
		if s.logs {
			capabilities["logging"] = map[string]any{}
		}
		if s.resources != "" {
			capabilities["resources"] = map[string]any{"subscribe": s.resources == "told"}
		}
		if s.own {
			capabilities["tools"] = map[string]any{"listChanged": true}
			capabilities["resources"] = map[string]any{}
		}
		if s.own && m.Params.Client.Sampling != nil {
			s.grow("sample")
		}
		s.answer(m.ID, map[string]any{
			"protocolVersion": cmp.Or(m.Params.Version, "2025-11-25"), "capabilities": capabilities,
			"serverInfo": map[string]any{"name": "toolserver", "version": "1"},
		})
	case strings.HasPrefix(m.Method, "resources/"):
		s.resource(&m)
	case m.Method == "logging/setLevel":
		s.note("level", m.Params.Level)
		s.mu.Lock()
		s.level = m.Params.Level
		s.mu.Unlock()
		s.answer(m.ID, map[string]any{})
	case m.Method == "ping":
		s.answer(m.ID, map[string]any{})
	case m.Method == "tools/list":
		list := toolServerTools(s.ownTools()...)
		if s.first {
			list[0].(map[string]any)["description"] = "the first process"
		}
		if b, err := os.ReadFile(s.other); err == nil {
			effect := list[0].(map[string]any)
			if err := json.Unmarshal(b, &effect); err != nil {
				panic(err)
			}
		}
		s.answer(m.ID, map[string]any{"tools": list})
	case m.Method == "tools/call" && m.Params.Name == "mirror":
		s.print(fmt.Appendf(nil,
			`{"jsonrpc":"2.0","id":%s,"result":{"odd": 1.0, "content":[],"structuredContent":%s,"x":null}}`, m.ID,
			jsonrpc.Field(line, "params")))
	case m.Method == "tools/call":
		s.call(&m)
	default:
		s.refuse(m.ID, -32601, "unknown method "+m.Method)
	}
}

// isHushed reports whether resources/list gets no answer now.
func (s *toolServer) isHushed() bool {
	_, err := os.Stat(s.hush)
	return s.hush != "" && err == nil
}

// resource answers a request about resources.
func (s *toolServer) resource(m *toolMessage) {
	switch {
	case m.Method == "resources/list" && s.isHushed():
	case m.Method == "resources/list" && s.own:
		list := []any{}
		for _, uri := range ownResources() {
			list = append(list, map[string]any{"uri": uri, "name": uri})
		}
		s.answer(m.ID, map[string]any{"resources": list})
	case m.Method == "resources/templates/list" && s.own:
		s.answer(m.ID, map[string]any{"resourceTemplates": []any{}})
	case m.Method == "resources/read" && s.own:
		s.answer(m.ID,
			map[string]any{"contents": []any{map[string]any{
				"uri": m.Params.URI, "text": fmt.Sprint("of ", os.Getpid()),
			}}})
	case m.Method == "resources/list":
		list := []any{}
		for _, uri := range []string{"mem://a", "mem://b", "mem://fixed"} {
			list = append(list, map[string]any{"uri": uri, "name": uri})
		}
		s.answer(m.ID, map[string]any{"resources": list})
	case m.Method == "resources/templates/list":
		s.answer(m.ID,
			map[string]any{"resourceTemplates": []any{map[string]any{"uriTemplate": "mem://many/{n}", "name": "many"}}})
	case m.Method == "resources/subscribe" && m.Params.URI == "mem://fixed":
		s.refuse(m.ID, -32602, "it never changes")
	case m.Method == "resources/subscribe", m.Method == "resources/unsubscribe":
		s.note(strings.TrimPrefix(m.Method, "resources/"), m.Params.URI)
		s.mu.Lock()
		s.subscribed[m.Params.URI] = m.Method == "resources/subscribe"
		s.mu.Unlock()
		s.answer(m.ID, map[string]any{})
	default:
		s.refuse(m.ID, -32601, "unknown method "+m.Method)
	}
}

// toolServerTools returns the tools as they are listed.
func toolServerTools(more ...string) []any {
	properties := map[string]any{}
	for name, kind := range map[string]string{
		"token": "string", "ms": "number", "bytes": "integer", "method": "string", "code": "integer", "ttl": "integer",
		"level": "string",
	} {
		properties[name] = map[string]any{"type": kind}
	}
	list := []any{}
	for _, name := range append([]string{
		"effect", "look", "big", "ask", "withdraw", "die", "hang", "noise", "fresh", "fail", "refuse", "words", "log",
		"mirror", "touch",
	}, more...) {
		tool := map[string]any{
			"name": name, "description": "does " + name,
			"inputSchema": map[string]any{"type": "object", "properties": properties},
		}
		if name == "look" || name == "big" || name == "fresh" {
			tool["annotations"] = map[string]any{"readOnlyHint": true}
		}
		list = append(list, tool)
	}
	return list
}

// ownResources returns the resources of this process alone, and of its directory.
func ownResources() []string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	return []string{fmt.Sprintf("mem://pid/%d", os.Getpid()), "mem://in/" + filepath.Base(dir)}
}

// ownTools returns the tools of this process alone, and turn, which adds them.
func (s *toolServer) ownTools() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.own {
		return nil
	}
	return append([]string{"turn"}, s.grown...)
}

func (s *toolServer) grow(tool string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grown = append(s.grown, tool)
}

// call begins a call in a goroutine of its own.
func (s *toolServer) call(m *toolMessage) {
	ctx, cancel := context.WithCancel(context.Background())
	s.mu.Lock()
	s.running[string(m.ID)] = cancel
	s.mu.Unlock()
	s.calls.Go(func() {
		text, err := s.tool(ctx, m)
		s.mu.Lock()
		delete(s.running, string(m.ID))
		s.mu.Unlock()
		cancelled := ctx.Err() != nil
		cancel()
		switch {
		case cancelled:
			s.note("cancelled", m.Params.Arguments.Token)
		case err != nil:
			s.refuse(m.ID, -32602, err.Error())
		default:
			result := map[string]any{
				"content": []any{map[string]any{"type": "text", "text": text}}, "isError": m.Params.Name == "fail",
			}
			if m.Params.Name == "fresh" {
				result["ttlMs"] = m.Params.Arguments.TTL
			}
			s.answer(m.ID, result)
			if !strings.Contains(strings.Join(process.Args(os.Getppid()), " "), s.under) {
				os.Exit(9)
			}
		}
	})
}

// tool carries out a call, until it is done or cancelled.
func (s *toolServer) tool(ctx context.Context, m *toolMessage) (string, error) {
	a := &m.Params.Arguments
	name := m.Params.Name
	if name != "turn" && slices.Contains(s.ownTools(), name) {
		name = "effect"
	}
	if strings.Contains(name, "/") {
		name = "look" // a test has it listed under that name
	}
	switch name {
	case "turn":
		s.note("begin", a.Token)
		toolPause(ctx, a.MS)
		s.grow(a.Token)
		s.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
		s.note("turn", a.Token)
		return a.Token, nil
	case "effect":
		s.note("begin", a.Token)
		s.progress(m, 1)
		if !a.pause(ctx) {
			return "", nil
		}
		s.note("end", a.Token)
		s.progress(m, 2)
		return a.long(), nil
	case "look":
		s.note("look", a.Token)
		a.pause(ctx)
		return a.long(), nil
	case "big":
		return a.Token + " " + strings.Repeat("x", a.Bytes), nil
	case "ask":
		toolPause(ctx, a.Before)
		s.note("asked", a.Token)
		params := map[string]any{"token": a.Token}
		if a.Progress {
			params["_meta"] = map[string]any{"progressToken": 1}
		}
		got, ok := s.ask(ctx, cmp.Or(a.Method, "roots/list"), params)
		if !ok {
			return "", nil
		}
		s.note("told", a.Token)
		toolPause(ctx, a.MS)
		return a.Token + " " + string(got), nil
	case "withdraw":
		id := `"withdrawn"`
		s.send(map[string]any{
			"jsonrpc": "2.0", "id": json.RawMessage(id), "method": a.Method, "params": map[string]any{"token": a.Token},
		})
		s.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": map[string]any{
			"requestId": json.RawMessage(id), "reason": a.Token,
		}})
		s.send(map[string]any{
			"jsonrpc": "2.0", "method": "notifications/elicitation/complete",
			"params": map[string]any{"elicitationId": a.Token},
		})
		return a.Token, nil
	case "die":
		_, _ = fmt.Fprintln(s.errOut, "toolserver: these are my last words")
		os.Exit(cmp.Or(a.Code, 7))
	case "hang":
		s.note("begin", a.Token)
		<-ctx.Done()
		return "", nil
	case "fresh", "fail":
		s.note(m.Params.Name, a.Token)
		return a.Token, nil
	case "refuse":
		s.note(m.Params.Name, a.Token)
		return "", errors.New("the arguments are bad")
	case "words":
		_, _ = fmt.Fprintf(s.errOut, "toolserver: %s\n", a.Token)
		return a.Token, nil
	case "touch":
		if a.MS > 0 {
			s.note("begin", a.Token)
			toolPause(ctx, a.MS)
			defer s.note("touched", a.Token)
		}
		s.mu.Lock()
		told := s.subscribed[a.Token]
		s.mu.Unlock()
		if told {
			s.send(map[string]any{
				"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": map[string]any{"uri": a.Token},
			})
		}
		return a.Token, nil
	case "log":
		s.mu.Lock()
		level := cmp.Or(s.level, "info")
		s.mu.Unlock()
		if !mcp.Covers(level, a.Level) {
			return a.Token, nil
		}
		s.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/message", "params": map[string]any{
			"level": a.Level, "logger": "tools", "data": a.Token,
		}})
		return a.Token, nil
	case "noise":
		s.print([]byte("toolserver: this is no JSON either"))
		fmt.Fprintln(os.Stderr, "toolserver: this goes to the log")
		return a.Token, nil
	}
	return "", errors.New("unknown tool " + m.Params.Name)
}

// toolPause waits, and reports whether the time has passed without a cancellation.
func toolPause(ctx context.Context, ms float64) bool {
	t := time.NewTimer(time.Duration(ms * float64(time.Millisecond)))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// ask sends a request to the client, and waits for the answer.
func (s *toolServer) ask(ctx context.Context, method string, params map[string]any) (json.RawMessage, bool) {
	c := make(chan json.RawMessage, 1)
	s.mu.Lock()
	s.asks++
	id := fmt.Sprintf(`"ask-%d"`, s.asks)
	s.asked[id] = c
	s.mu.Unlock()
	s.send(map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(id), "method": method, "params": params})
	select {
	case got := <-c:
		return got, true
	case <-ctx.Done():
		return nil, false
	}
}

func (s *toolServer) progress(m *toolMessage, n int) {
	if m.Params.Meta.Progress == nil {
		return
	}
	s.send(map[string]any{"jsonrpc": "2.0", "method": "notifications/progress", "params": map[string]any{
		"progressToken": m.Params.Meta.Progress, "progress": n, "total": 2,
	}})
}

// note appends a line to the ledger.
func (s *toolServer) note(verb, token string) {
	if s.ledger == "" {
		return
	}
	f, err := os.OpenFile(s.ledger, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(f, "%s %s %d\n", verb, token, os.Getpid())
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		_, _ = fmt.Fprintln(s.errOut, "toolserver: ledger:", err)
	}
}

func (s *toolServer) answer(id json.RawMessage, result any) {
	if s.late {
		b, err := json.Marshal(result)
		if err != nil {
			panic(err)
		}
		s.print(fmt.Appendf(nil, `{"jsonrpc":"2.0","result":%s,"id":%s}`, b, id))
		return
	}
	s.send(map[string]any{"jsonrpc": "2.0", "id": id, "result": result})
}

func (s *toolServer) refuse(id json.RawMessage, code int, message string) {
	s.send(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": message}})
}

func (s *toolServer) send(v map[string]any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	s.print(b)
}

func (s *toolServer) print(line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.out.Write(append(line, '\n'))
}

// serverRig is a tool server in this process, with its client.
type serverRig struct {
	*agent
	ledger string
}

// newServerRig starts a tool server in a goroutine.
func newServerRig(t *testing.T, args ...string) *serverRig {
	t.Helper()
	p := &place{t: t}
	r := &serverRig{ledger: filepath.Join(t.TempDir(), "ledger")}
	cmd := exec.Command(filepath.Join(programs, "toolserver"), append([]string{"-ledger", r.ledger}, args...)...)
	cmd.Env = []string{"GORACE=atexit_sleep_ms=0"}
	r.agent = p.agentOf(cmd)
	return r
}

// notes returns the ledger without the pids.
func (r *serverRig) notes() string {
	b, _ := os.ReadFile(r.ledger)
	return string(bytes.ReplaceAll(b, fmt.Appendf(nil, " %d\n", r.cmd.Process.Pid), []byte(";")))
}

func (r *serverRig) tool(name string, args map[string]any) answer {
	r.t.Helper()
	return r.wait(r.call(name, args))
}

// TestToolServer tests the tools of this server directly.
func TestToolServer(t *testing.T) {
	r := newServerRig(t)
	r.shake()
	if x := r.ask("ping", map[string]any{}); x.Error != nil {
		t.Errorf("ping = %s", x.raw)
	}
	if x := r.ask("tools/list", map[string]any{}); len(x.Result.Tools) != len(toolServerTools()) ||
		!strings.Contains(x.raw, `"readOnlyHint":true`) {
		t.Errorf("tools/list = %s", x.raw)
	}
	if x := r.tool("effect", map[string]any{"token": "a", "ms": 1}); x.text() != "a" || r.notes() != "begin a;end a;" {
		t.Errorf("effect = %s, ledger %q", x.raw, r.notes())
	}
	if x := r.tool("look", map[string]any{"token": "b"}); x.text() != "b" || r.notes() != "begin a;end a;look b;" {
		t.Errorf("look = %s, ledger %q", x.raw, r.notes())
	}
	if x := r.tool("big", map[string]any{"token": "c", "bytes": 3 << 20}); len(x.text()) != 3<<20+2 {
		t.Errorf("big answers with %d bytes", len(x.text()))
	}
	if x := r.ask("tools/call", map[string]any{"name": "nonsense"}); x.Error == nil || x.Error.Code != -32602 {
		t.Errorf("an unknown tool: %s", x.raw)
	}
	if x := r.ask("nonsense", nil); x.Error == nil || x.Error.Code != -32601 {
		t.Errorf("an unknown method: %s", x.raw)
	}
	r.rest()
}

// TestToolServerAsks checks that the server asks its client, and returns the answer.
func TestToolServerAsks(t *testing.T) {
	r := newServerRig(t)
	r.shake()
	id := r.call("ask", map[string]any{"token": "a", "method": "roots/list"})
	var m toolMessage
	decode(t, r.read(), &m)
	if m.Method != "roots/list" || m.ID == nil {
		t.Fatalf("the server asks %+v", m)
	}
	r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"roots":[]}}`, m.ID))
	if x := r.wait(id); x.text() != `a {"roots":[]}` || r.notes() != "asked a;told a;" {
		t.Errorf("ask = %s, ledger %q", x.raw, r.notes())
	}
	r.rest()
}

// TestToolServerProgress checks that calls report progress if it was requested.
func TestToolServerProgress(t *testing.T) {
	r := newServerRig(t)
	r.shake()
	r.call("effect", map[string]any{"token": "a"})
	for _, want := range []string{`"progress":1`, `"progress":2`, `"text":"a"`} {
		if line := r.read(); !strings.Contains(line, want) {
			t.Errorf("line %s, want %s", line, want)
		}
	}
	r.rest()
}

// TestToolServerCancel checks that a cancelled call has neither an end nor an answer, and
// that others continue meanwhile.
func TestToolServerCancel(t *testing.T) {
	r := newServerRig(t)
	r.shake()
	var ids []int
	for i, tool := range []string{"effect", "hang"} {
		token := fmt.Sprint("t", i)
		id := r.begin("tools/call",
			map[string]any{"name": tool, "arguments": map[string]any{"token": token, "ms": 3600_000}})
		waitFor(t, "the effect", func() bool { return strings.Contains(r.notes(), "begin "+token) })
		if x := r.ask("ping", map[string]any{}); x.Error != nil {
			t.Errorf("ping = %s", x.raw)
		}
		r.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id))
		waitFor(t, "the cancellation", func() bool { return strings.Contains(r.notes(), "cancelled "+token) })
		ids = append(ids, id)
	}
	r.rest(ids...)
	if strings.Contains(r.notes(), "end") {
		t.Errorf("ledger %q", r.notes())
	}
}

// TestToolServerMisbehaves tests the options for bad behaviour.
func TestToolServerMisbehaves(t *testing.T) {
	r := newServerRig(t, "-noise", "-deaf")
	if line := r.read(); json.Valid([]byte(line)) {
		t.Errorf("the first line is %s", line)
	}
	r.shake()
	r.call("noise", map[string]any{"token": "a"})
	if line := r.read(); json.Valid([]byte(line)) {
		t.Errorf("before the answer comes %s", line)
	}
	if x := r.wait(r.next); x.text() != "a" {
		t.Errorf("noise = %s", x.raw)
	}
	r.tool("look", map[string]any{"token": "last"})
	_ = r.stdin.Close()
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-r.lines:
		t.Error("the deaf server ended")
	case <-time.After(200 * time.Millisecond):
	}

	r = newServerRig(t)
	r.shake()
	r.call("die", map[string]any{})
	for range r.lines {
	}
	_ = r.cmd.Wait()
	if code := r.cmd.ProcessState.ExitCode(); code != 7 || !strings.Contains(r.errs.String(), "last words") {
		t.Errorf("died with %d, %q", code, r.errs)
	}
}
