// Package direct starts MCP servers as the daemon would, without the daemon. mcp-stdio
// --direct replaces itself with a server; import starts servers to see whether they work.
package direct

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/daemon/command"
	"holdline/daemon/config"
	"holdline/daemon/launch"
	"holdline/daemon/session/peer"
	"holdline/daemon/tool"
	"holdline/daemon/userenv"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Launcher starts servers as the daemon would, with the same configuration, environment and
// directory, but without the daemon. Several goroutines may try servers at the same time.
type Launcher struct {
	from  launch.Start     // configuration, home and program; its environment is set for each server
	env   *userenv.Environ // of the user's login shell
	asked chan struct{}    // closed when the goroutine that asks the shell has ended
	root  string           // of the project of the current directory
}

// New returns a launcher for the configuration at path. It starts to ask the user's login
// shell in the background, until ctx is done.
func New(ctx context.Context, proc *cmdenv.Process, path string) (*Launcher, error) {
	state, err := cmdenv.StateDir(proc.Getenv)
	if err != nil {
		return nil, err
	}
	image, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	cwd, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("finding the current directory: %w", err)
	}
	shell := userenv.UserShell(proc.Getenv)
	l := &Launcher{
		from: launch.Start{Config: path, Home: proc.Getenv("HOME"), Image: image},
		env: userenv.New(userenv.Options{
			Log: slog.New(slog.DiscardHandler), StateDir: state, Own: attach.DaemonEnv(proc.Getenv), Shell: &shell,
		}),
		root: peer.ProjectRoot(cwd), asked: make(chan struct{}),
	}
	go func() {
		defer close(l.asked)
		_ = l.env.Run(ctx) // ends with ctx
	}()
	return l, nil
}

// process returns how a server is started, with its command as an absolute path. It waits
// until the environment is known, within bounds. project is the root of its project; "" is
// that of the current directory.
func (l *Launcher) process(ctx context.Context, s *config.Settings, project string) (config.Process, error) {
	// The environment is known once the login shell has answered; a program that is not on its
	// PATH may be on that of an interactive shell.
	if err := l.env.Await(ctx, s.Command); err != nil {
		return config.Process{}, err
	}
	// A server of scope shared has no project.
	from, root := l.from, l.root
	from.Environ = l.env.List()
	switch {
	case s.Scope == config.ScopeShared:
		root = ""
	case project != "":
		root = project
	}
	p, err := from.Process(s, root)
	if unset, ok := errors.AsType[*config.UnsetError](err); ok {
		return p, fmt.Errorf("variable %s is not set; set it in %s or in the profile of your shell",
			unset.Name, config.VariablesFile(from.Config))
	} else if err != nil {
		return p, err
	}
	// Find the program as the daemon does, on the PATH of the server, not of this process.
	path, _ := config.Lookup(p.Env)("PATH")
	found, err := command.LookPath(p.Command, path)
	if err != nil {
		return p, err
	}
	p.Command = found
	return p, nil
}

// Run replaces this process with a configured server. It returns only if that fails. The server
// gets the streams of this process, its environment as the daemon would make it, and keeps the
// pid.
func Run(proc *cmdenv.Process, server string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	path, err := cmdenv.ConfigPath("", proc.Getenv)
	if err != nil {
		return err
	}
	c, err := config.Load(path)
	if err != nil {
		return err
	}
	// The user has most likely misspelt the name: list those that exist.
	s, ok := c.Server(server)
	if !ok {
		names := cmp.Or(strings.Join(slices.Sorted(maps.Keys(c.Servers)), ", "), "none")
		return fmt.Errorf("%w: no server %q is configured; there is %s", cmdenv.ErrUsage, server, names)
	}
	l, err := New(ctx, proc, path)
	if err != nil {
		return err
	}
	p, err := l.process(ctx, &s, "")
	if err != nil {
		return fmt.Errorf("server %s: %w", server, err)
	}
	cancel() // the server must not inherit a shell as its child
	<-l.asked
	// Exec keeps the current directory, which must be that of the server.
	if err := os.Chdir(p.Dir); err != nil {
		return fmt.Errorf("server %s: %w", server, err)
	}
	err = syscall.Exec(p.Command, append([]string{p.Command}, p.Args...), p.Env)
	return fmt.Errorf("server %s: %s: %w", server, p.Command, err)
}

// Limits of the start of a server that is only tried.
const (
	tryTimeout  = 60 * time.Second // npx and uvx may have to download it first
	tryLine     = 1 << 20          // bytes of its answer that are read
	tryStderr   = 16 << 10         // bytes of the end of what it prints
	maxLastLine = 200              // bytes of its last line that are shown
)

// Try starts a server, waits until it answers its first request, and kills its process group.
// The error says why the server does not work, with secrets masked. It blocks for [tryTimeout]
// at most, besides the time in which the login shell answers.
func (l *Launcher) Try(ctx context.Context, s *config.Settings, project string) error {
	p, err := l.process(ctx, s, project)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.Command, p.Args...)
	words := &lastBytes{most: tryStderr}
	cmd.Env, cmd.Dir, cmd.Stderr = p.Env, p.Dir, words
	// A group of its own, so that programs which the server starts end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	// The server gets pipes, as from the daemon. Its stderr is only shown if it fails.
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	answer, err := firstAnswer(stdin, stdout)
	// Look now: time may also run out while the server ends, below.
	late := errors.Is(ctx.Err(), context.DeadlineExceeded)
	_ = stdin.Close()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	_ = cmd.Wait() // its error is in cmd.ProcessState, too
	switch {
	case late:
		return fmt.Errorf("it did not answer within %v%s", tryTimeout, words.last(p.Secrets))
	case errors.Is(err, io.EOF):
		return fmt.Errorf("it ended before it answered (%s)%s", cmd.ProcessState, words.last(p.Secrets))
	case err != nil:
		return fmt.Errorf("%w%s", err, words.last(p.Secrets))
	}
	// A server of 2026-07-28 alone knows no initialize, and works.
	if code := string(jsonrpc.Field(answer, "code")); code != "" && code != "-32601" {
		message, _ := mcp.String(jsonrpc.Field(answer, "message"))
		return fmt.Errorf("it refused to begin: %s", config.Mask(message, p.Secrets))
	}
	return nil
}

// firstAnswer sends initialize and returns the error object of the answer, or nil if the
// answer is a result. The error is [io.EOF] if the server ends without an answer.
func firstAnswer(stdin io.Writer, stdout io.Reader) ([]byte, error) {
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
		`"capabilities":{},"clientInfo":{"name":"holdline","version":"1"}}}` + "\n"
	if _, err := io.WriteString(stdin, hello); err != nil {
		return nil, io.EOF // the server has ended
	}
	// A server may write other lines before its answer, such as log messages or notifications.
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, tryLine)
	for lines.Scan() {
		m, err := jsonrpc.Parse(lines.Bytes())
		if err != nil || m.Kind != jsonrpc.Response || string(m.ID) != "1" {
			continue // no JSON-RPC message, or a notification
		}
		return jsonrpc.Field(lines.Bytes(), "error"), nil
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading its answer: %w", err)
	}
	return nil, io.EOF
}

// lastBytes is a writer that keeps the last bytes that are written to it, most of them at most.
// The goroutine of exec.Cmd writes; [lastBytes.last] may be called after Wait.
type lastBytes struct {
	most int
	b    []byte
}

// Write keeps the last bytes of all writes. It never fails.
func (t *lastBytes) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if extra := len(t.b) - t.most; extra > 0 {
		t.b = append(t.b[:0], t.b[extra:]...)
	}
	return len(p), nil
}

// last returns the last line with text, without the secrets, to be added to an error; "" if
// there is none.
func (t *lastBytes) last(secrets []string) string {
	lines := strings.Split(strings.TrimSpace(string(t.b)), "\n")
	line := strings.TrimSpace(lines[len(lines)-1])
	if line == "" {
		return ""
	}
	return ": " + tool.Cut(config.Mask(line, secrets), maxLastLine)
}
