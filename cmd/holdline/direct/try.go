package direct

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"holdline/daemon/command"
	"holdline/daemon/config"
	"holdline/daemon/config/resolve"
	"holdline/daemon/dialect"
	"holdline/daemon/hosted/startup"
	"holdline/daemon/launch"
	"holdline/daemon/redact"
	"holdline/daemon/spawn"
	"holdline/daemon/telling"
	"holdline/daemon/tool"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
	"holdline/protocol/process"
)

// Limits of the start of a server that is only tried.
const (
	tryTimeout  = 60 * time.Second // npx and uvx may have to download it first
	tryLine     = 32 << 20         // bytes of one of its messages
	tryStderr   = 16 << 10         // bytes of the end of what it prints
	leaveWait   = 2 * time.Second  // for it to end by itself once its stdin is closed
	maxLastLine = 200              // bytes of one of its lines that are shown
	maxStrays   = 5                // of its lines to stdout that are no messages
)

// ErrNeedsLogin is wrapped by the error of a server that wants a login which it has not got
// to holdline.
var ErrNeedsLogin = errors.New("it needs a login")

// ErrLate is wrapped by the error of a server that did not answer in time.
var ErrLate = errors.New("it did not answer")

// Tools is what a server lists.
type Tools struct {
	Names []string
	// Harmless is the name of a tool that only reads, and can be called without arguments; "" if there is none.
	Harmless string

	Took     time.Duration // until it had listed them
	Launcher string        // of the server, such as npx, if it may be started without that; else ""
	Why      string        // it is started with that launcher; "" if it is started without it from now on
	Runs     []string      // the program that the launcher has started, with its arguments; nil if that is not known
}

// Try starts a server, introduces itself and asks it for its tools as the daemon does, and kills its
// process group. said may be nil; another goroutine calls it with what the server does meanwhile, by
// the lines that it writes to stderr.
//
// The error says why the server does not work, with secrets masked. It blocks for [tryTimeout]
// at most, besides the time in which the login shell answers.
func (l *Launcher) Try(
	ctx context.Context, s *config.Settings, project string, said func(line string),
) (tools Tools, err error) {
	p, err := l.Process(ctx, s, project)
	switch {
	case errors.Is(err, syscall.ENOENT) && !strings.Contains(s.Command, "/"):
		return tools, fmt.Errorf("%s was not found on the daemon's PATH", s.Command)
	case errors.Is(err, syscall.ENOENT) && filepath.IsAbs(p.Command):
		// As after another version of node took the place of the one that nvm had.
		name := filepath.Base(p.Command)
		if at, lookErr := command.LookPath(name, command.Variable(p.Env, "PATH")); lookErr == nil {
			return tools, fmt.Errorf("%s is not there any more; %s is now at %s: correct its entry", p.Command, name, at)
		}
		return tools, err
	case err != nil:
		return tools, err
	}
	// A header is a login that the client's file has. If the server wants another one, that
	// is no login which the client would make.
	root := "" // of the project, as the daemon would name it to the server
	if s.Scope == config.ScopeProject {
		root = cmp.Or(project, p.Dir)
	}
	t := leafTrial{launch: launch.Leaf(l.leaves, s, &p), process: p, root: root, said: said}
	w := wanted{patience: s.StartTimeout, while: t.observe}
	begun := time.Now()
	out, err := tryProcess(ctx, p, root, w, said)
	tools = Tools{Names: out.names, Harmless: out.harmless, Took: time.Since(begun)}
	if err == nil && t.launch != nil {
		if program, ok := t.launch.Direct(true); ok {
			tools.Runs = append([]string{program.Command}, program.Args...)
		}
		tools.Launcher, tools.Why = filepath.Base(s.Command), t.run(ctx, wanted{patience: s.StartTimeout}, out)
	}
	if errors.Is(err, ErrNeedsLogin) && len(s.Headers) > 0 {
		err = errors.New("it refuses the headers that its client's file has for it (401)")
	}
	return tools, err
}

// tryProcess starts a program of which no era is known, and a second time if it has ended at the question
// for that, as some do of the legacy era.
func tryProcess(
	ctx context.Context, p resolve.Process, root string, w wanted, said func(line string),
) (heard, error) {
	out, err := ask(ctx, p, root, w, said)
	if err != nil && out.era == dialect.Legacy {
		w.era = out.era
		out, err = ask(ctx, p, root, w, said)
	}
	return out, err
}

// A Client is what an entry is started as.
type Client struct {
	Era   string // the newest version of MCP that it speaks; "" if nobody knows
	Older string // the one that it names to a server that does not know that; "" for the newest
}

// speaks returns the era with which the client begins, and the versions of the legacy era that it speaks.
func (c *Client) speaks() (era string, versions []string) {
	switch {
	case c.Era != mcp.Modern && c.Era != "":
		return dialect.Legacy, []string{c.Era}
	case c.Era == "":
		return dialect.Legacy, mcp.Legacy()
	case c.Older != "":
		return dialect.Modern, []string{c.Older}
	}
	return dialect.Modern, mcp.Legacy()
}

// A Check is what an entry is started for.
type Check struct {
	As    Client
	Tools []string      // that it has to list
	Limit time.Duration // for the list to have them
	Calls []string      // tools to be called, if it lists them
	Time  *CallTime     // of all calls; nil without Calls

	leave time.Duration // for the program to end by itself; 0 is leaveWait
}

// TryEntry starts a program as a client would by its own configuration, introduces itself as that client
// does, asks it for its tools and has it end. If the list lacks tools, it waits for them until the limit has
// passed: a daemon that starts the server just now lists it later. If the list still lacks some, the tools
// that it has are returned with an error. If it has all, the calls are made: an error that is the entry's
// fault is in the outcome of the call. If ctx is done, the error is its cause.
func TryEntry(ctx context.Context, p resolve.Process, check Check) (tools []string, called []Called, err error) {
	w := wanted{tools: check.Tools, limit: check.Limit, calls: check.Calls, time: check.Time, leave: check.leave}
	w.era, w.versions = check.As.speaks()
	out, err := ask(ctx, p, "", w, nil)
	if lacks := missing(out.names, check.Tools); err == nil && len(lacks) > 0 {
		err = fmt.Errorf("it lists %d of its %d tools after %v, and not: %s", len(check.Tools)-len(lacks), len(check.Tools),
			check.Limit.Round(time.Second), tool.Cut(strings.Join(lacks, ", "), maxLastLine))
	}
	return out.names, out.called, err
}

// wanted is what a program is asked.
type wanted struct {
	era      string   // that it is of, as far as is known
	versions []string // of the legacy era that the one who asks speaks; nil for all
	tools    []string // that its list is to have
	limit    time.Duration
	// patience is for how long the program may write nothing to stderr before it has answered: 0 is [tryTimeout].
	patience time.Duration
	calls    []string // tools to be called
	time     *CallTime
	while    func(pid int, said string) // nil, or called before the program is to end, if it has answered
	byTerm   bool                       // it is to end at SIGTERM, and not at the end of its stdin
	leave    time.Duration              // for it to end by itself; 0 is leaveWait
}

// heard is what a program has answered.
type heard struct {
	era      string   // of the program; with an error, what to try the next time
	names    []string // of its tools
	harmless string   // see [Tools]
	called   []Called
	said     string // what stands for all that it has said; see [leaf.Said]
	unheard  bool   // it has not answered a list in time: said is not to be compared
	left     bool   // it ended when it was to end
}

// missing returns which of want a list has not.
func missing(list, want []string) []string {
	return slices.DeleteFunc(slices.Clone(want), func(name string) bool { return slices.Contains(list, name) })
}

// ask starts a program, makes the handshake of MCP with it, and returns what it lists. It declares to the
// server what the daemon would: with a root, that there is one. Some servers list other tools without
// that. If the list lacks some tools, ask waits for a list that has them, and returns the last one when its
// time is up. In the end the program's stdin is closed, and it has leaveWait to end by itself: a proxy takes
// its leave, and docker removes its container. A process that needs more time to end is not killed before,
// whatever ends the trial: it may be renewing a login. said may be nil; it is called with the lines that the
// program writes to stderr.
func ask(
	all context.Context, p resolve.Process, root string, want wanted, said func(line string),
) (out heard, err error) {
	patience := cmp.Or(want.patience, tryTimeout)
	ctx, clock, cancel := startup.NewClock(all, patience+want.limit+want.time.most())
	defer cancel()
	cmd := exec.CommandContext(ctx, p.Command, p.Args...)
	words := &lastBytes{most: tryStderr, secrets: redact.Forms(p.Secrets), said: said, each: clock.Progress}
	cmd.Env, cmd.Dir, cmd.Stderr = p.Env, p.Dir, words
	// A group of its own, so that programs which the server starts end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	kill := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	leave, atTimeout := cmp.Or(want.leave, leaveWait), kill
	cmd.WaitDelay = time.Second
	if p.EndGrace > 0 {
		leave = 2 * p.EndGrace
		atTimeout = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
		cmd.WaitDelay = leave
	}
	// The server gets pipes, as from the daemon. Its stderr is only shown if it fails.
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return out, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return out, err
	}
	// A program that has left the group lives on, and may keep the pipe open.
	closeSoon := func() { time.AfterFunc(cmd.WaitDelay, func() { _ = stdout.Close() }) }
	stopped := false // when its time was up; read it after cmd.Wait
	cmd.Cancel = func() error {
		stopped = process.AnyStopped(cmd.Process.Pid)
		closeSoon()
		return atTimeout()
	}
	start := cmd.Start
	if p.Confine != nil {
		start = func() error { return startConfined(cmd, p.Confine) }
	}
	if err := start(); err != nil {
		return out, err
	}
	c := converse(stdin, stdout, p.Secrets, root)
	out, err = c.ask(ctx, want)
	// Look now: time may also run out while the server ends, below.
	late := ctx.Err() != nil
	if want.while != nil && err == nil && !late && !out.unheard {
		want.while(cmd.Process.Pid, out.said)
	}
	if want.byTerm {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
	} else {
		_ = stdin.Close()
	}
	killer := time.AfterFunc(leave, func() {
		_ = kill()
		closeSoon()
	})
	<-c.over // it has ended, and has printed why
	out.left = killer.Stop()
	_ = kill()     // programs that it has left
	_ = cmd.Wait() // its error is in cmd.ProcessState, too
	untilGone(cmd.Process.Pid)
	switch {
	case all.Err() != nil:
		return heard{}, context.Cause(all)
	case late && out.names != nil: // it works, and lacks tools
		return out, nil
	case late && stopped:
		return heard{}, fmt.Errorf("%w within %v. %s%s", ErrLate, patience, startup.WasStopped, c.printed())
	case late:
		return heard{}, fmt.Errorf("%w within %v%s%s", ErrLate, patience, words.last(p.Secrets), c.printed())
	case errors.Is(err, io.EOF):
		return out, fmt.Errorf("it ended before it answered (%s)%s%s", cmd.ProcessState, words.last(p.Secrets), c.printed())
	case errors.Is(err, ErrNeedsLogin):
		return out, err // its last words say it again
	case err != nil:
		last := words.last(p.Secrets)
		if _, why, ok := strings.Cut(err.Error(), ": "); ok && strings.Contains(last, why) { // it says the same again
			last = ""
		}
		return out, fmt.Errorf("%w%s", err, last)
	}
	return out, nil
}

// untilGone waits for the end of the processes of a group that was killed: the next start may need what they hold, such as
// a port. The kernel ends them in a moment, unless it waits for a device.
func untilGone(group int) {
	tick, end := time.NewTicker(5*time.Millisecond), time.After(leaveWait)
	defer tick.Stop()
	for {
		if left, err := process.Group(group); err != nil || len(left) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			return
		}
	}
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
	return ": " + tool.Cut(redact.Mask(line, redact.Forms(secrets)), maxLastLine)
}
