package direct

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"holdline/daemon/config"
	"holdline/daemon/config/resolve"
	"holdline/daemon/dialect"
	"holdline/daemon/hosted/startup"
	"holdline/daemon/listing"
	"holdline/daemon/redact"
	"holdline/daemon/spawn"
	"holdline/daemon/telling"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
	"holdline/protocol/process"
)

// Limits of the start of a server that is only tried.
const (
	tryTimeout  = 60 * time.Second // npx and uvx may have to download it first
	tryLine     = 32 << 20         // bytes of one of its messages
	tryStderr   = 16 << 10         // bytes of the end of what it prints
	tryPages    = 100              // of its list of tools
	leaveWait   = 2 * time.Second  // for it to end by itself once its stdin is closed
	maxLastLine = 200              // bytes of one of its lines that are shown
	maxStrays   = 5                // of its lines to stdout that are no messages
)

// ErrNeedsLogin is wrapped by the error of a server that wants a login which it has not got
// to holdline.
var ErrNeedsLogin = errors.New("it needs a login")

// ErrLate is wrapped by the error of a server that did not answer in time.
var ErrLate = errors.New("it did not answer")

// Try starts a server, asks it for its tools as a client does, and kills its process group. It
// returns the names of the tools; nil if the server does not say. said may be nil; another
// goroutine calls it with what the server does meanwhile, by the lines that it writes to stderr.
//
// The error says why the server does not work, with secrets masked. It blocks for [tryTimeout]
// at most, besides the time in which the login shell answers.
func (l *Launcher) Try(
	ctx context.Context, s *config.Settings, project string, said func(line string),
) (tools []string, err error) {
	p, err := l.Process(ctx, s, project)
	switch {
	case errors.Is(err, syscall.ENOENT) && !strings.Contains(s.Command, "/"):
		return nil, fmt.Errorf("%s was not found on the daemon's PATH", s.Command)
	case err != nil:
		return nil, err
	}
	// A header is a login that the client's file has. If the server wants another one, that
	// is no login which the client would make.
	root := "" // of the project, as the daemon would name it to the server
	if s.Scope == config.ScopeProject {
		root = cmp.Or(project, p.Dir)
	}
	tools, err = ask(ctx, p, root, wanted{patience: s.StartTimeout}, said)
	if errors.Is(err, ErrNeedsLogin) && len(s.Headers) > 0 {
		err = errors.New("it refuses the headers that its client's file has for it (401)")
	}
	return tools, err
}

// TryEntry starts a program as a client would by its own configuration, asks it for its tools
// and has it end. If the list lacks tools of want, it waits for them until limit has passed: a
// daemon that starts the server just now lists it later. If the list still lacks some, the tools
// that it has are returned with an error. If ctx is done, the error is its cause.
func TryEntry(
	ctx context.Context, p resolve.Process, want []string, limit time.Duration,
) (tools []string, err error) {
	tools, err = ask(ctx, p, "", wanted{tools: want, limit: limit}, nil)
	if lacks := missing(tools, want); err == nil && len(lacks) > 0 {
		err = fmt.Errorf("it lists %d of its %d tools after %v, and not: %s", len(want)-len(lacks), len(want),
			limit.Round(time.Second), tool.Cut(strings.Join(lacks, ", "), maxLastLine))
	}
	return tools, err
}

// wanted are tools that a list is to have, how long to wait for them once one lacks some, and for how
// long the program may write nothing to stderr before it has answered: 0 is [tryTimeout].
type wanted struct {
	tools    []string
	limit    time.Duration
	patience time.Duration
}

// missing returns which of want a list has not.
func missing(list, want []string) []string {
	return slices.DeleteFunc(slices.Clone(want), func(name string) bool { return slices.Contains(list, name) })
}

// ask starts a program, makes the handshake of MCP with it, and returns the names of the tools
// that it lists. It declares to the server what the daemon would: with a root, that there is one.
// Some servers list other tools without that. If the list lacks some of want, ask waits for a
// list that has them, and returns the last one when its time is up. In the end its stdin is
// closed, and it has leaveWait to end by itself: a proxy takes its leave, and docker removes its
// container. A process that needs more time to end is not killed before, whatever ends the trial:
// it may be renewing a login. said may be nil; it is called with the lines that the program writes to stderr.
func ask(
	all context.Context, p resolve.Process, root string, want wanted, said func(line string),
) (tools []string, err error) {
	patience := cmp.Or(want.patience, tryTimeout)
	ctx, clock, cancel := startup.NewClock(all, patience+want.limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.Command, p.Args...)
	words := &lastBytes{most: tryStderr, secrets: p.Secrets, said: said, each: clock.Progress}
	cmd.Env, cmd.Dir, cmd.Stderr = p.Env, p.Dir, words
	// A group of its own, so that programs which the server starts end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	kill := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	leave, atTimeout := leaveWait, kill
	cmd.WaitDelay = time.Second
	if p.EndGrace > 0 {
		leave = 2 * p.EndGrace
		atTimeout = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
		cmd.WaitDelay = leave
	}
	// The server gets pipes, as from the daemon. Its stderr is only shown if it fails.
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	// A program that has left the group lives on, and may keep the pipe open.
	closeSoon := func() { time.AfterFunc(cmd.WaitDelay, func() { _ = stdout.Close() }) }
	cmd.Cancel = func() error {
		closeSoon()
		return atTimeout()
	}
	start := cmd.Start
	if p.Confine != nil {
		start = func() error { return startConfined(cmd, p.Confine) }
	}
	if err := start(); err != nil {
		return nil, err
	}
	c := conversation{stdin: stdin, lines: bufio.NewScanner(stdout), secrets: p.Secrets, root: root, end: cancel}
	c.lines.Buffer(nil, tryLine)
	tools, err = c.tools(want)
	// Look now: time may also run out while the server ends, below.
	late := ctx.Err() != nil
	if c.late != nil {
		c.late.Stop()
	}
	_ = stdin.Close()
	killer := time.AfterFunc(leave, func() {
		_ = kill()
		closeSoon()
	})
	for err != nil { // what it printed before it stopped reading says why
		if _, last := c.next(); last != nil {
			break
		}
	}
	_, _ = io.Copy(io.Discard, stdout) // until it has ended
	killer.Stop()
	_ = kill()     // programs that it has left
	_ = cmd.Wait() // its error is in cmd.ProcessState, too
	switch {
	case all.Err() != nil:
		return nil, context.Cause(all)
	case late && tools != nil: // it works, and lacks tools
		return tools, nil
	case late:
		return nil, fmt.Errorf("%w within %v%s%s", ErrLate, patience, words.last(p.Secrets), c.printed())
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("it ended before it answered (%s)%s%s", cmd.ProcessState, words.last(p.Secrets), c.printed())
	case errors.Is(err, ErrNeedsLogin):
		return nil, err // its last words say it again
	case err != nil:
		return nil, fmt.Errorf("%w%s", err, words.last(p.Secrets))
	}
	return tools, nil
}

// startConfined starts a command by the exec step, which confines it first, as the worker does.
func startConfined(cmd *exec.Cmd, c *process.Confine) error {
	exe, err := spawn.Self()
	if err != nil {
		return err
	}
	goR, goW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer goW.Close()
	defer goR.Close()
	statusR, statusW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer statusR.Close()
	request := process.ExecRequest{Argv: cmd.Args, Parent: os.Getpid(), Confine: c}
	cmd.Path, cmd.Args, cmd.ExtraFiles = exe, []string{"holdline", "exec"}, []*os.File{goR, statusW}
	err = cmd.Start()
	_ = statusW.Close()
	if err != nil {
		return err
	}
	// If it ends before it has read the request, its status is empty, as if it were the program:
	// that then ends before it answers.
	_, _ = goW.Write(jsonrpc.Encode(request))
	_ = goW.Close()
	var failure process.ExecFailure
	if json.NewDecoder(statusR).Decode(&failure) != nil { // at the end: it is the program
		return nil
	}
	_ = cmd.Wait()
	spec := process.Spec{Argv: request.Argv, Cwd: cmd.Dir}
	return errors.New(spec.NotStarted(process.Exit{
		SpawnOp: failure.Op, SpawnErrno: process.ErrnoName(syscall.Errno(failure.Errno)),
	}))
}

// conversation is what a client says to a server that is only tried.
type conversation struct {
	stdin   io.Writer
	lines   *bufio.Scanner // of the server's stdout
	secrets []string       // that its words may have
	root    string         // of the project that the server gets; "" for none
	asked   int            // id of the last request
	strays  []string       // the first lines of the server that are no messages
	changed bool           // the server has said since then that its tools are others
	end     func()         // kills the server
	late    *time.Timer    // calls end, once the list lacks tools
}

// tools makes the handshake and lists the tools, again and again until the list has all of
// want. It returns nil for a server of 2026-07-28 alone, which knows no handshake: it works,
// and its tools are not asked for. A server without tools has an empty list.
//
// With an error the last list is returned, too.
func (c *conversation) tools(want wanted) ([]string, error) {
	var refusal *dialect.RefusalError
	var err error
	for left := mcp.Legacy(); len(left) > 0; {
		_, refusal, err = c.request(mcp.Initialize, `{"protocolVersion":"`+left[0]+`","capabilities":`+
			string(dialect.OwnCapabilities(c.root != ""))+`,"clientInfo":{"name":"holdline","version":"1"}}`)
		if refusal == nil {
			break
		}
		if refusal.IsUnknownMethod() {
			return nil, nil
		}
		left = refusal.OtherVersions(left, left[0])
	}
	if err == nil {
		err = c.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	if err != nil {
		return nil, err
	}
	var last []string
	for {
		c.changed = false
		names, err := c.list()
		if err != nil {
			return last, err
		}
		if last = names; len(missing(names, want.tools)) == 0 {
			return names, nil
		}
		if c.late == nil {
			c.late = time.AfterFunc(want.limit, c.end)
		}
		for !c.changed { // until its list is another one, or time is up
			if _, err := c.next(); err != nil {
				return last, err
			}
		}
	}
}

// list returns the names of the tools, from all pages. It leaves out those that the daemon
// leaves out, too, since clients refuse them.
func (c *conversation) list() ([]string, error) {
	names, params := []string{}, "{}"
	for range tryPages {
		result, refusal, err := c.request(mcp.ToolsList, params)
		if refusal != nil && (refusal.IsUnknownMethod() || len(names) > 0) {
			return names, nil // it has no more
		}
		if err != nil {
			return nil, err
		}
		var page struct {
			Tools []json.RawMessage `json:"tools"`
			Next  json.RawMessage   `json:"nextCursor"`
		}
		if json.Unmarshal(result, &page) != nil {
			return nil, errors.New("its list of tools cannot be read")
		}
		kept, _ := listing.Fit(listing.Tools, page.Tools)
		for _, one := range kept {
			name, _ := mcp.String(jsonrpc.Field(one, listing.Tools.MCP().Key))
			names = append(names, name)
		}
		if next := string(page.Next); next == "" || next == "null" || next == `""` {
			return names, nil
		}
		params = `{"cursor":` + string(page.Next) + `}`
	}
	return nil, errors.New("its list of tools does not end")
}

// request sends a request and returns the result of the answer. If the server refuses the
// request, it returns the refusal and an error for people. The error is [io.EOF] if the server
// ends without an answer.
func (c *conversation) request(
	method, params string,
) (result []byte, refusal *dialect.RefusalError, err error) {
	c.asked++
	id := fmt.Sprint(c.asked)
	err = c.write(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`)
	if err != nil {
		return nil, nil, err
	}
	for {
		m, err := c.next()
		if err != nil {
			return nil, nil, err
		}
		if m.Kind != jsonrpc.Response || dialect.Number(m.ID) != int64(c.asked) {
			continue
		}
		if m.Error == nil {
			return m.Result, nil, nil
		}
		return nil, &dialect.RefusalError{Method: method, Raw: bytes.Clone(m.Error)}, c.refusal(method, m.Error)
	}
}

// refusal returns the error that stands for the error of an answer. A server by address whose
// answer is 401 has a fault that says so.
func (c *conversation) refusal(method string, failure []byte) error {
	var f fault.Record
	if json.Unmarshal(jsonrpc.Field(failure, "data"), &f) == nil && f.Fault.Code == fault.Unauthenticated &&
		f.Reason() == fault.NotLoggedIn {
		return fmt.Errorf("%w (401)", ErrNeedsLogin)
	}
	if method == mcp.Initialize {
		method = "to begin"
	}
	message, _ := mcp.String(jsonrpc.Field(failure, "message"))
	return fmt.Errorf("it refused %s: %s", method, redact.Mask(message, c.secrets))
}

// next returns the next message of the server. It skips lines that are no message, such as
// those of a log. The message is valid until the next call.
func (c *conversation) next() (jsonrpc.Message, error) {
	for c.lines.Scan() {
		m, err := jsonrpc.Parse(c.lines.Bytes())
		if err != nil {
			if line := strings.TrimSpace(c.lines.Text()); line != "" && len(c.strays) < maxStrays {
				c.strays = append(c.strays, tool.Cut(redact.Mask(line, c.secrets), maxLastLine))
			}
			continue
		}
		c.changed = c.changed || m.Method == mcp.ToolsChanged
		if m.Kind == jsonrpc.Request {
			answer, _ := dialect.OwnAnswer(m.Method, m.ID, "", c.root)
			if err := c.write(strings.TrimSpace(string(answer))); err != nil {
				return m, err
			}
		}
		return m, nil
	}
	if err := c.lines.Err(); err != nil {
		return jsonrpc.Message{}, fmt.Errorf("reading its answer: %w", err)
	}
	return jsonrpc.Message{}, io.EOF
}

// printed says which lines the server has written that are no messages, to be added to an error; "" if
// there are none.
func (c *conversation) printed() string {
	if len(c.strays) == 0 {
		return ""
	}
	return "; it printed to stdout, where only MCP may be: " + fault.Quote([]byte(strings.Join(c.strays, " / ")))
}

// write sends a line. It fails with [io.EOF] if the server has ended.
func (c *conversation) write(line string) error {
	if _, err := io.WriteString(c.stdin, line+"\n"); err != nil {
		return io.EOF
	}
	return nil
}

// lastBytes is a writer that keeps the last bytes that are written to it, most of them at most.
// The goroutine of exec.Cmd writes; [lastBytes.last] may be called after Wait.
type lastBytes struct {
	most    int
	b       []byte
	secrets []string
	said    func(line string) // nil, or called with the last whole line of each write
	each    func()            // nil, or called at each write
}

// Write keeps the last bytes of all writes. It never fails.
func (t *lastBytes) Write(p []byte) (int, error) {
	if t.each != nil {
		t.each()
	}
	t.b = append(t.b, p...)
	if extra := len(t.b) - t.most; extra > 0 {
		t.b = append(t.b[:0], t.b[extra:]...)
	}
	if line := bytes.TrimSpace(t.b); t.said != nil && bytes.HasSuffix(p, []byte("\n")) && len(line) > 0 {
		line = line[bytes.LastIndexByte(line, '\n')+1:]
		t.said(telling.Doing(tool.Cut(redact.Mask(string(line), t.secrets), maxLastLine)))
	}
	return len(p), nil
}

// last returns the line that says most about why the program ended, without the secrets, to be
// added to an error; "" if there is none.
func (t *lastBytes) last(secrets []string) string {
	line := telling.Line(strings.Split(string(t.b), "\n"))
	if line == "" {
		return ""
	}
	return ": " + tool.Cut(redact.Mask(line, secrets), maxLastLine)
}
