package serverscmd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/daemon/plural"
	"holdline/protocol/control"
	"holdline/protocol/jsonrpc"
)

// controls returns the commands about the processes of servers. All of them need a daemon;
// tools and call start one. Where the command runs counts, too: the daemon picks the processes
// of this directory's project.
func (s *serversCommand) controls() []*cobra.Command {
	// command returns a command that makes one request about one server.
	command := func(
		verb, method string, words func(name string, n int) string, short, long string,
	) *cobra.Command {
		return &cobra.Command{
			Use: verb + " NAME", Short: short, Long: long, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return s.controlServer(cmd, method, control.ServerParams{Name: args[0]}, words)
			},
		}
	}
	return []*cobra.Command{
		command("start", control.ServerStart, started, "Start a server that was stopped or ejected",
			`Let agents use a server again that was stopped, or that was ejected because it ended
or failed to start too often. The daemon starts it for the agents that are connected,
or, if none is, for the project of the current directory.`),
		command("stop", control.ServerStop, stopped, "End a server's processes, and start none until you say so",
			`End a server's processes. No daemon, not even a later one, starts the server again
until: holdline servers start NAME. Calls in flight end with a fault.`),
		s.restartCommand(), s.testCommand(), s.reloadCommand(), s.toolsCommand(), s.callCommand(), s.logsCommand(),
	}
}

// reloadCommand returns the command servers reload. Without a name it is the same as reload.
// With a name it is a restart that also reads the variables again, and works for a server that
// was ejected.
func (s *serversCommand) reloadCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "reload [NAME]", Short: "Read the configuration again; with NAME, start that server anew",
		Long: `Read the configuration again. Servers whose entries have changed are replaced once their
calls in flight have ended; the others go on. With NAME, that server is started anew
in any case, with the variables as they are now, even if it was ejected; its calls in
flight end with a fault.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return s.controlServer(cmd, control.ServerReload, control.ServerParams{Name: args[0]}, started)
			}
			return reload(cmd, s.proc, yes)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "also if the file is empty or gone; do not ask")
	return cmd
}

// restartCommand returns the command servers restart.
func (s *serversCommand) restartCommand() *cobra.Command {
	var refresh bool
	cmd := &cobra.Command{
		Use: "restart NAME", Short: "End a server's processes and start new ones",
		Long: `End a server's processes and start new ones. The count of restarts begins anew and the
circuit is closed. Calls in flight end with a fault. With --refresh, a server that is
started without its launcher, such as npx, is started with that once: it looks for a
newer version.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			params := control.ServerParams{Name: args[0], Refresh: refresh}
			return s.controlServer(cmd, control.ServerRestart, params, started)
		},
	}
	cmd.Flags().BoolVar(&refresh, "refresh", false, "have npx or the like look for a newer version")
	return cmd
}

// controlServer asks the daemon to do method to a server and prints the outcome in words; n is the
// number of processes that the daemon has started or ended.
func (s *serversCommand) controlServer(
	cmd *cobra.Command, method string, params control.ServerParams, words func(name string, n int) string,
) error {
	name := params.Name
	params.Whereabouts = attach.Whereabouts(s.proc)
	stop := s.showStart(cmd, name)
	answer, err := attach.Ask[control.ServerAnswer](cmd, s.proc, method, params)
	stop()
	if err != nil {
		return s.withLastWords(cmd, err)
	}
	return console.Say(cmd, "%s", words(name, answer.Processes))
}

// withLastWords returns err unchanged. If the end of a server is why the command failed, it
// first prints the last lines that the server wrote to stderr: most servers say there what they
// lack.
func (s *serversCommand) withLastWords(cmd *cobra.Command, err error) error {
	if remote, ok := errors.AsType[*control.RemoteError](err); ok && remote.Fault != nil && remote.Fault.Cause != nil {
		for _, line := range remote.Fault.Cause.StderrTail {
			fmt.Fprintf(cmd.ErrOrStderr(), "| %s\n", strings.Map(console.Printable, line))
		}
	}
	return err
}

// stopped returns the words for a server that was stopped; n of its processes have ended. They
// say how to undo that, since a stop outlasts the daemon.
func stopped(name string, n int) string {
	ended := ""
	if n > 0 {
		ended = " (" + plural.Count(n, "process") + " ended)"
	}
	return fmt.Sprintf("server %s is stopped%s; to have it back: holdline servers start %[1]s", name, ended)
}

// started returns the words for a server that may be used; n of its processes were started. A
// server of scope session has none until an agent connects.
func started(name string, n int) string {
	if n == 0 {
		return fmt.Sprintf("server %s may be used; each agent that connects starts its own", name)
	}
	return fmt.Sprintf("server %s is ready (%s)", name, plural.Count(n, "process"))
}

// toolsCommand returns the command servers tools. It lists tools, shows which ones have changed,
// or accepts the changes of one server.
func (s *serversCommand) toolsCommand() *cobra.Command {
	var changes, accept bool
	cmd := console.WithJSON(&cobra.Command{
		Use: "tools [NAME]", Short: "List the tools of a server, or of all",
		Long: `List the tools of a server, or of all that are seen in this project, as the daemon
knows them. A server that was never asked is started for that. Processes of one
server may list different tools, and each agent sees those of the process that it
uses. Shown here is what this project's process lists; of a server with a process
for each session, or with none here, what a process of it listed last.

The contract says whether a call may run again after a crash: safe to repeat (it may;
"convergent" with --json) or not repeatable ("never_replay"). It comes from the configuration, or else from what the
tool says of itself: _meta["io.libmcp/effect"], readOnlyHint or idempotentHint. Agents
see it in tools/list as annotations.holdline.replayContract.

A tool is pinned as it is when it is first seen: name, description, schemas and
annotations. A tool that differs later is marked as changed, since a server could win
trust with a harmless tool and then turn it into something else. Editing the server's
entry changes no pin. With "pin": "block" in its holdline object, agents neither see nor
call such a tool until it is accepted; otherwise they can go on using it. With
--changes, what has changed, when, and from what to what; with --accept, the tools of
server NAME are pinned as they are now.

With --json, a list of objects: server, tools (name, exposed (the name that agents
see), contract, listing (the tool as it is listed for agents that use this server
alone), changed, blocked, pinned (hash, description (its beginning), since_unix_ms,
change (hash, parts, description,
at_unix_ms, undone_unix_ms if it was undone since))), fault (why they are not
known). With --accept, an object: server, tools (names of those accepted).`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			params := control.ServerParams{Whereabouts: attach.Whereabouts(s.proc)}
			if len(args) == 1 {
				params.Name = args[0]
			}
			if accept {
				return s.acceptTools(cmd, params)
			}
			return s.listTools(cmd, params, changes)
		},
	})
	cmd.Flags().BoolVar(&changes, "changes", false, "show which tools have changed since they were first seen, and how")
	cmd.Flags().BoolVar(&accept, "accept", false, "take the tools of NAME as they are now")
	cmd.MarkFlagsMutuallyExclusive("changes", "accept")
	return cmd
}

// listTools lists the tools of one server or of all; with changes it shows how they have changed.
// If the tools of a server are not known, the reason is an error if the user has named that
// server, else a warning.
func (s *serversCommand) listTools(cmd *cobra.Command, params control.ServerParams, changes bool) error {
	answer, err := attach.AskOrStart[control.ServerToolsAnswer](cmd, s.proc, control.ServerTools, params, nil)
	if err != nil {
		return err
	}
	if changes {
		onlyChanged(answer.Servers)
	}
	err = console.Print(cmd, answer.Servers, func(out io.Writer) {
		if changes {
			printChanges(out, answer.Servers)
		} else {
			printTools(out, answer.Servers)
		}
	})
	// The tools of the other servers were printed, so a fault of one of them is no error. It
	// is one if the user has asked for that server alone.
	for _, one := range answer.Servers {
		if one.Fault == nil {
			continue
		}
		failed := s.withLastWords(cmd, &control.RemoteError{Message: one.Fault.Fault.Detail, Fault: one.Fault})
		if params.Name != "" {
			return failed
		}
		console.Warn(cmd, "%v", failed)
	}
	return err
}

// printTools prints a row for each tool, under the server's own name of it.
func printTools(w io.Writer, servers []control.ServerOffers) {
	t := console.NewTable(w, "SERVER", "TOOL", "CONTRACT", "DESCRIPTION")
	rows := 0
	for _, one := range servers {
		for _, tool := range one.Tools {
			name := tool.Name
			switch {
			case tool.Blocked:
				name += " (changed, blocked)"
			case tool.Changed:
				name += " (changed)"
			}
			contract := "not repeatable"
			if tool.Contract == "convergent" {
				contract = "safe to repeat"
			}
			t.Row(one.Server, name, contract, firstWords(tool.Listing))
			rows++
		}
	}
	if rows == 0 {
		fmt.Fprintln(w, "no tools")
		return
	}
	t.Flush()
}

// firstWords returns the beginning of a tool's description on one line, cut between words if
// it is long.
func firstWords(listing json.RawMessage) string {
	const most = 72 // characters
	var text string
	_ = json.Unmarshal(jsonrpc.Field(listing, "description"), &text) // a description that is no string counts as none
	text = strings.Join(strings.Fields(text), " ")
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	cut := string([]rune(text)[:most-1])
	// Cut between words, unless the last word is very long.
	if i := strings.LastIndexByte(cut, ' '); i > most/2 {
		cut = cut[:i]
	}
	return cut + "…"
}

// maxArguments bounds the arguments of a call that are read from stdin, in bytes. Those on the
// command line are bounded by the system.
const maxArguments = 32 << 20

// callCommand returns the command servers call. The daemon treats the call as that of an agent
// in this directory, so a user can find out what agents get.
func (s *serversCommand) callCommand() *cobra.Command {
	return console.WithJSON(&cobra.Command{
		Use: "call NAME TOOL [JSON]", Short: "Call a tool of a server",
		Long: `Call a tool of a server: JSON is an object with its arguments, or - to read that
from standard input. The server is the one that agents in this directory use;
allowlists, limits, cache and circuit count as for them. The result's text goes to
standard output; a tool that says it failed makes the exit code 1.

    holdline servers call github get_repo '{"owner": "golang", "repo": "go"}'

With --json, the result as the server gave it.`,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			params := control.ServerCallParams{Whereabouts: attach.Whereabouts(s.proc), Server: args[0], Tool: args[1]}
			if len(args) == 3 {
				var err error
				if params.Arguments, err = callArguments(cmd, args[2]); err != nil {
					return err
				}
			}
			return s.callTool(cmd, params)
		},
	})
}

// callArguments returns the arguments of a call: text, or what stdin has if text is "-". They
// must be a JSON object. An interrupt ends the wait for stdin.
func callArguments(cmd *cobra.Command, text string) (json.RawMessage, error) {
	raw := []byte(text)
	if text == "-" {
		var err error
		raw, err = console.Await(cmd.Context(), func() ([]byte, error) {
			return io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxArguments))
		})
		switch {
		case cmd.Context().Err() != nil:
			return nil, errors.New("interrupted: nothing was called")
		case err != nil:
			return nil, fmt.Errorf("reading the arguments: %w", err)
		}
	}
	// Anything else than an object would fail at the server, with a worse message. So does
	// text that was cut at the limit: it is no valid JSON any more.
	raw = bytes.TrimSpace(raw)
	if !json.Valid(raw) || raw[0] != '{' {
		return nil, cmdenv.WithHint(fmt.Errorf("%w: the arguments are no JSON object", cmdenv.ErrUsage),
			`holdline servers call NAME TOOL '{"key": "value"}'`)
	}
	return raw, nil
}

// callTool calls a tool and prints the result. It starts a daemon if none runs. If the daemon ends
// meanwhile the call is not made again: it may have had its effect. An interrupt ends the
// connection, and with it the call.
func (s *serversCommand) callTool(cmd *cobra.Command, params control.ServerCallParams) error {
	show, done := console.ProgressLine(cmd.ErrOrStderr())
	answer, err := attach.AskOrStart[control.ServerCallAnswer](cmd, s.proc, control.ServerCall, params, show)
	done()
	switch {
	// The end of the connection has cancelled the call.
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted: the call is cancelled")
	case attach.IsLost(err):
		return cmdenv.WithHint(
			fmt.Errorf("%w: the daemon ended during the call: whether it had its effect is not known", cmdenv.ErrLost),
			"holdline logs says why it ended")
	case err != nil:
		return s.withLastWords(cmd, err)
	}
	return printCall(cmd, &answer)
}

// printCall prints the answer of a server. It returns an error if the answer is a JSON-RPC
// error, and makes the exit code 1 if the tool reports a failure. With --json both are printed
// as the server gave them.
func printCall(cmd *cobra.Command, answer *control.ServerCallAnswer) error {
	if answer.Error != nil {
		var e struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		}
		if console.IsJSON(cmd) {
			if err := console.PrintJSON(cmd.OutOrStdout(), answer.Error); err != nil {
				return err
			}
		}
		_ = json.Unmarshal(answer.Error, &e) // an error of another form is shown with --json
		words := strings.Map(console.Printable, strings.Join(strings.Fields(e.Message), " "))
		return fmt.Errorf("the server refuses the call: %s (%d)", words, e.Code)
	}
	err := console.Print(cmd, answer.Result, func(out io.Writer) {
		if text := resultText(answer.Result); text != "" {
			fmt.Fprintln(out, strings.TrimRight(text, "\n"))
		}
	})
	if err == nil && string(jsonrpc.Field(answer.Result, "isError")) == "true" {
		return cmdenv.ExitWith(cmdenv.ExitFailure)
	}
	return err
}

// resultText returns a tool's result for people: its texts, and one line for each part that is
// no text. If there is neither, it returns the structured content. A result of another form is
// returned as it is.
func resultText(result json.RawMessage) string {
	// This has the members of all kinds of content; each kind uses some.
	var r struct {
		Content []struct {
			Type, Text, URI, MimeType string
			Data                      string
			Resource                  struct{ URI, Text string }
		} `json:"content"`
		Structured json.RawMessage `json:"structuredContent"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return string(result)
	}
	var out []string
	for _, c := range r.Content {
		// An embedded resource has its text, or only an address.
		switch {
		case c.Type == "text":
			out = append(out, c.Text)
		case c.Resource.Text != "":
			out = append(out, c.Resource.Text)
		case cmp.Or(c.URI, c.Resource.URI) != "":
			out = append(out, fmt.Sprintf("[%s %s]", c.Type, cmp.Or(c.URI, c.Resource.URI)))
		default:
			out = append(out, fmt.Sprintf("[%s %s, %d characters of base64; see --json]",
				c.Type, c.MimeType, len(c.Data)))
		}
	}
	if len(out) == 0 && r.Structured != nil {
		out = append(out, string(r.Structured))
	}
	return strings.Join(out, "\n")
}
