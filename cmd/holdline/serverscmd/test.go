package serverscmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/direct"
	"holdline/daemon/config"
	"holdline/daemon/plural"
	"holdline/daemon/telling"
	"holdline/protocol/control"
)

// tested is what servers test prints with --json.
type tested struct {
	Server string   `json:"server"`
	Tools  []string `json:"tools,omitempty"` // their names; none if the server does not say
	TookMS int64    `json:"took_ms"`
	// Direct is set if it runs without its launcher from now on; Why says why it does not.
	Direct bool   `json:"direct,omitempty"`
	Why    string `json:"launcher_kept,omitempty"`
	Error  string `json:"error,omitempty"` // why it does not work
}

// testCommand returns the command servers test. It needs no daemon, and leaves the processes
// of a daemon that runs alone.
func (s *serversCommand) testCommand() *cobra.Command {
	cmd := console.WithJSON(&cobra.Command{
		Use: "test NAME", Short: "Start a server once: what it lists, or why it fails",
		Long: `Start a configured server once, with the environment and in the directory that the daemon
would give it, ask it for its tools, and end it. The daemon is not needed, and its own
processes of the server go on. On a terminal the last line that the server writes is
shown meanwhile: npx and uvx may have to download it first.

A server that npx or the like starts is then started without that, too, unless its
holdline object has "launcher": "keep". If it answers and ends as before, it is started
so from now on.

With --json, an object: server, tools (names), took_ms, direct (it is started without its
launcher from now on), launcher_kept (why it is not), error (why it does not work).`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return s.testServer(cmd, args[0]) },
	})
	console.ConfigFlag(cmd.Flags(), &s.file)
	return cmd
}

// testServer starts a server once and prints what it lists.
func (s *serversCommand) testServer(cmd *cobra.Command, name string) error {
	path, cfg, err := s.loadConfig()
	if err != nil {
		return err
	}
	settings, ok := cfg.Server(name)
	if !ok {
		return config.NoServer(name, &cfg)
	}
	if err := settings.Unusable(); err != nil {
		return fmt.Errorf("server %s: %w", name, err)
	}
	tools, took, err := s.try(cmd, path, &settings)
	if console.IsJSON(cmd) {
		out := tested{
			Server: name, Tools: tools.Names, TookMS: took.Milliseconds(),
			Direct: tools.Launcher != "" && tools.Why == "", Why: tools.Why,
		}
		if err != nil {
			out.Error = err.Error()
		}
		if perr := console.PrintJSON(cmd.OutOrStdout(), out); perr != nil || err == nil {
			return perr
		}
		return cmdenv.ExitWith(cmdenv.ExitFailure)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted: the server is ended")
	case errors.Is(err, direct.ErrNeedsLogin):
		hint := fmt.Sprintf("put its token into mcpServers.%s.headers: holdline config edit", name)
		if settings.LogsIn() && settings.OAuth.Grant == "" {
			hint = "holdline servers login " + name
		}
		return cmdenv.WithHint(fmt.Errorf("%s needs a login", name), hint)
	case err != nil:
		return fmt.Errorf("%s does not work: %w", name, err)
	}
	return console.Print(cmd, nil, func(out io.Writer) { printTested(out, name, &tools, took) })
}

// try starts a server once by the configuration file at path, which need not have it, and returns what it lists and
// how long that took.
func (s *serversCommand) try(
	cmd *cobra.Command, path string, settings *config.Settings,
) (tools direct.Tools, took time.Duration, err error) {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	l, err := direct.New(ctx, s.proc, path, "")
	if err != nil {
		return tools, 0, err
	}
	show, done := console.ProgressLine(cmd.ErrOrStderr())
	defer done()
	var said func(line string)
	if show != nil {
		show(control.Progress{Message: "starting " + settings.Name})
		said = func(line string) { show(control.Progress{Message: line}) }
	}
	begun := time.Now()
	tools, err = l.Try(ctx, settings, "", said)
	return tools, cmp.Or(tools.Took, time.Since(begun)), err
}

// printTested prints the tools of a server that works.
func printTested(out io.Writer, name string, tools *direct.Tools, took time.Duration) {
	if took < time.Second {
		took = max(took, 10*time.Millisecond).Round(10 * time.Millisecond)
	} else {
		took = took.Round(100 * time.Millisecond)
	}
	if len(tools.Names) == 0 {
		console.Line(out, 2, "%s works: it answers after %v, and names no tools", name, took)
	} else {
		console.Line(out, 2, "%s works: %s after %v: %s", name, plural.Count(len(tools.Names), "tool"), took,
			strings.Join(tools.Names, ", "))
	}
	switch {
	case tools.Launcher == "":
	case tools.Why == "":
		console.Line(out, 2, "It works without %s, too, and is started so from now on.", tools.Launcher)
	default:
		console.Line(out, 2, "It is started with %s: %s.", tools.Launcher, tools.Why)
	}
}

// showStart shows on a terminal, each second until the returned function is called, for how
// long a server has been starting, and the last line that it has written to stderr.
func (s *serversCommand) showStart(cmd *cobra.Command, name string) (stop func()) {
	show, done := console.ProgressLine(cmd.ErrOrStderr())
	if show == nil {
		return done
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	ended := make(chan struct{})
	go func() { // it ends with stop
		defer close(ended)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if line := s.lastLine(ctx, cmd, name); line != "" {
				show(control.Progress{Message: line})
			}
		}
	}()
	return func() {
		cancel()
		<-ended
		done()
	}
}

// lastLine returns the last line that the processes of a server have written to stderr; "" if
// there is none, or if the daemon does not say. It has a connection of its own.
func (s *serversCommand) lastLine(ctx context.Context, cmd *cobra.Command, name string) string {
	c, err := attach.Connect(ctx, cmd, s.proc)
	if err != nil {
		return ""
	}
	defer c.Close()
	var answer control.ServerLogsAnswer
	if c.Call(ctx, control.ServerLogs, control.ServerLogsParams{Name: name}, &answer, nil) != nil {
		return ""
	}
	last := ""
	for _, l := range answer.Logs {
		if text := strings.TrimSpace(l.Text); text != "" {
			last = telling.Doing(text[strings.LastIndexByte(text, '\n')+1:])
		}
	}
	return last
}
