package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// consultOptions are the flags of `holdline consult`.
type consultOptions struct {
	session, model, effort, cwd string
	maxTurns                    int
	timeout                     time.Duration
	asJSON                      bool
}

// maxStdinPrompt is the most that is read from stdin; the daemon's own limit
// on a prompt is lower and gives the better error.
const maxStdinPrompt = 16 << 20

func newConsultCommand(w *world) *cobra.Command {
	var o consultOptions
	cmd := &cobra.Command{
		Use:   "consult PROMPT…",
		Short: "Ask Claude Code for a second opinion, read-only",
		Long: `Ask the system's Claude Code for a second opinion, read-only: it may look at the
current project and cannot write. The answer alone goes to stdout; progress goes to
stderr when that is a terminal. Without a prompt, or with "-", it is read from
stdin. Interrupting the command ends the consult. If the daemon ends or is replaced
the command goes on with the next one, which it starts if need be; if there is none
within a minute it exits with code 4 and says how to get the answer later.

With --json, one object: answer, session_id, models, cost_usd, num_turns,
duration_ms, consult_id, state and more.`,
		RunE: func(cmd *cobra.Command, args []string) error { return runConsult(cmd, w, o, args) },
	}
	f := cmd.Flags()
	f.StringVar(&o.session, "session", "", "continue from this session (always a fork of it)")
	f.StringVar(&o.model, "model", "", "model or alias, such as opus or sonnet")
	f.StringVar(&o.effort, "effort", "", "low, medium, high, xhigh or max")
	f.StringVar(&o.cwd, "cwd", "", "directory to look at (default the current one)")
	f.IntVar(&o.maxTurns, "max-turns", 0, "most turns of the model (default no limit)")
	f.DurationVar(&o.timeout, "timeout", 0, "end it after this time with the best answer so far (default from the configuration)")
	f.BoolVar(&o.asJSON, "json", false, "print the whole result as JSON")
	return cmd
}

func runConsult(cmd *cobra.Command, w *world, o consultOptions, args []string) error {
	if len(args) > 1 && slices.Contains(args, "-") {
		return fmt.Errorf(`%w: "-" is the prompt on stdin, and goes with no other words`, errUsage)
	}
	prompt := strings.Join(args, " ")
	if prompt == "" || prompt == "-" {
		if isTerminal(cmd.InOrStdin()) {
			return &hinted{fmt.Errorf("%w: no prompt", errUsage), "holdline consult 'what is wrong with …', or pipe it in"}
		}
		b, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxStdinPrompt))
		if err != nil {
			return fmt.Errorf("reading the prompt: %w", err)
		}
		prompt = string(b)
	}
	cwd, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("finding the current directory: %w", err)
	}
	arguments := map[string]any{"prompt": prompt}
	for key, value := range map[string]string{"session": o.session, "model": o.model, "effort": o.effort, "cwd": o.cwd} {
		if value != "" {
			arguments[key] = value
		}
	}
	if cmd.Flags().Changed("max-turns") {
		arguments["max_turns"] = o.maxTurns
	}
	if cmd.Flags().Changed("timeout") {
		arguments["timeout_s"] = o.timeout.Seconds()
	}
	raw, err := json.Marshal(arguments)
	if err != nil {
		return fmt.Errorf("encoding the prompt: %w", err)
	}
	c, err := connectOrStart(cmd, w)
	if err != nil {
		return err
	}
	params := control.ConsultParams{Identity: "cli", Cwd: cwd, Arguments: raw, Key: rand.Text()}
	answer, err := askConsult(cmd, w, c, params)
	if err != nil {
		return err
	}
	return printConsult(cmd, answer, o.asJSON)
}

// askConsult runs a consult, over the lives of the daemon: by its key it is the
// same one for each of them. It closes c.
func askConsult(cmd *cobra.Command, w *world, c *control.Client, params control.ConsultParams) (answer control.ConsultAnswer, err error) {
	show, done := progressLine(cmd.ErrOrStderr())
	id := ""
	err = lasting(cmd, w, c, func(ctx context.Context, c *control.Client) error {
		return c.Call(ctx, control.ConsultRun, params, &answer, func(p control.Progress) {
			id = cmp.Or(p.ConsultID, id)
			if show != nil && p.Message != "" {
				show(p)
			}
		})
	})
	done()
	switch remote, refused := errors.AsType[*control.RemoteError](err); {
	case errors.Is(err, errAbsent):
		return answer, &hinted{
			errors.New("interrupted while no daemon was there: the consult goes on until a daemon misses this command"),
			"end it with: holdline consults cancel " + cmp.Or(id, "ID"),
		}
	case errors.Is(err, context.Canceled):
		return answer, errors.New("interrupted: the consult is ended")
	case errors.Is(err, errLost):
		return answer, lostConsult(id, err)
	case refused && remote.Fault != nil && remote.Fault.Fault.Code == fault.InvalidInput: // what the flags say
		return answer, fmt.Errorf("%w: %w", errUsage, err)
	}
	return answer, err
}

// lostConsult says where the answer of a consult is whose daemon ended.
func lostConsult(id string, err error) error {
	if id == "" {
		return &hinted{fmt.Errorf("whether the consult was begun is not known: %w", err), "if it was, this lists it: holdline consults"}
	}
	return &hinted{fmt.Errorf("consult %s is not answered yet: %w", id, err), "get it with: holdline consults wait " + id}
}

// printConsult prints an answer, or what there is of one and the fault.
func printConsult(cmd *cobra.Command, answer control.ConsultAnswer, asJSON bool) error {
	if asJSON {
		if err := printJSON(cmd.OutOrStdout(), answer.Value); err != nil {
			return err
		}
	} else if answer.Text != "" {
		if _, err := io.WriteString(cmd.OutOrStdout(), shown(cmd.OutOrStdout(), strings.TrimRight(answer.Text, "\n"))+"\n"); err != nil {
			return err
		}
	}
	if f := answer.Fault; f != nil {
		return &hinted{fmt.Errorf("consult: %w", f), consultHint(f)}
	}
	return nil
}

func consultHint(f *fault.Record) string {
	switch f.Reason() {
	case fault.NotInstalled:
		return "npm install -g @anthropic-ai/claude-code, or set HOLDLINE_CLAUDE_BIN for the daemon"
	case fault.Rejected:
		return "the API refused the key or the request: claude itself says more"
	case fault.NotLoggedIn:
		return "run claude and /login, then try again"
	case fault.Deadline:
		return "a longer --timeout, or ask for less"
	case fault.RateLimited, fault.Overloaded, fault.Unreachable:
		return "try again later"
	default:
		return ""
	}
}

// progressLine shows progress on one line of a terminal, and nothing
// elsewhere. done removes it.
func progressLine(w io.Writer) (show func(control.Progress), done func()) {
	if !isTerminal(w) {
		return nil, func() {}
	}
	return func(p control.Progress) {
			text := strings.Map(printable, p.Message)
			if r := []rune(text); len(r) > 100 {
				text = string(r[:99]) + "…"
			}
			fmt.Fprintf(w, "\r\x1b[K%s", text)
		}, func() {
			fmt.Fprint(w, "\r\x1b[K")
		}
}

// isTerminal tells whether v is a terminal.
func isTerminal(v any) bool {
	f, ok := v.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&(os.ModeDevice|os.ModeCharDevice) == os.ModeDevice|os.ModeCharDevice && isTTY(f.Fd())
}
