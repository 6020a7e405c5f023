// Package consultcmd has the command consult and those below it.
//
// consult PROMPT runs a consult for the user and blocks until its answer; it survives the end
// of the daemon (consult.go) and cancels the consult when it is interrupted (politely.go).
// The commands below it list the consults of all agents, and act on one of them (list.go).
// What ended consults have left can also be read without a daemon (kept.go), and so can what a
// running one does (live.go). What is piped into a command is in stdin.go.
package consultcmd

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
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/daemon/adapter/engines"
	"holdline/daemon/config"
	"holdline/daemon/spelling"
	"holdline/daemon/userenv"
	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/fault"
	"holdline/protocol/socket"
)

// consultOptions are the flags of consult. Most become arguments of the tool consult; see
// [consultOptions.arguments].
type consultOptions struct {
	engine, session, model, effort, cwd, level, judge string

	engines        []string
	schema         string // JSON, or the name of a file with it
	diff           string // which git diff to quote
	files, addDirs []string
	maxTurns       int
	maxUSD         float64
	timeout        time.Duration
}

// NewCommand returns the command consult with those below it. It does for a user at a terminal
// what the tool consult does for an agent, under the identity "cli".
func NewCommand(proc *cmdenv.Process) *cobra.Command {
	var o consultOptions
	cmd := &cobra.Command{
		Use:   "consult PROMPT…",
		Short: "Ask another model for a second opinion, or handle consults",
		Long: `Ask the system's ` + engines.Titles() + ` for a second opinion, read-only: it may look
at the current project and cannot write. The answer alone goes to stdout; progress
goes to stderr when that is a terminal: what the model does, in which turn, and what
it has cost so far, once that is known. At the end stderr has the consult's id, its
model and its cost.

Where ID is asked for below, the beginning of an id is enough, and "last" is the latest
consult. If the first word of a prompt is one of the commands below, quote the prompt,
or put it after "--".

Without a prompt, or with "-", the command reads it from stdin. If there is a prompt,
piped input is added after it: git diff | holdline consult 'review this'.

Ctrl-C ends the consult; the answer so far is printed, and kept. A second Ctrl-C does
not wait for that. If the daemon ends or is replaced, the command goes on with the
next daemon, and starts it if necessary. If there is none within a minute it exits
with code 4 and says how to get the answer later.

With --engines, several are asked at the same time: all of them are checked before any
starts, each answer is kept as a consult of its own, and the exit code is 0 if one of
them has answered. A judge compares the answers without knowing whose they are.

With --json, one object: answer, structured, session_id, engine, models, cost_usd,
num_turns, duration_ms, consult_id, state, window and more.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return runConsult(cmd, proc, o, args) },
	}
	cmd.AddCommand(newListCommands(proc)...)
	cmd.PersistentFlags().Bool("json", false, "print JSON")
	f := cmd.Flags()
	f.StringVar(&o.engine, "engine", "", engines.Join(func(e *engines.Engine) string { return e.Name })+
		", or acp:NAME of an agent in the configuration (default from there, else "+engines.BuiltIn[0].Name+")")
	f.StringSliceVar(&o.engines, "engines", nil,
		"ask several at once, such as claude/opus,codex: their answers side by side")
	f.StringVar(&o.judge, "judge", "", "with --engines: who then compares the answers, such as claude/opus")
	f.StringVar(&o.session, "session", "", "continue from this session (always a fork of it)")
	f.StringVar(&o.model, "model", "", "model or alias, such as opus or sonnet")
	f.StringVar(&o.effort, "effort", "", "low, medium, high, xhigh or max")
	f.StringVar(&o.cwd, "cwd", "", "directory to look at (default the current one)")
	f.StringArrayVar(&o.files, "file", nil, "file to quote behind the prompt (may be repeated)")
	f.StringArrayVar(&o.addDirs, "add-dir", nil, "another directory to look at (may be repeated)")
	f.StringVar(&o.diff, "diff", "", "quote a git diff: uncommitted, staged, or a commit to compare with")
	f.StringVar(&o.schema, "schema", "", "JSON Schema of the answer, or a file that holds it")
	f.StringVar(&o.level, "level", "", "read, or shell: commands in a sandbox, too (default read, unless configured)")
	f.IntVar(&o.maxTurns, "max-turns", 0, "most turns of the model (default no limit)")
	f.Float64Var(&o.maxUSD, "max-usd", 0, "most US dollars that it may cost (default from the configuration)")
	f.DurationVar(&o.timeout, "timeout", 0,
		"end it after this time with the best answer so far (default from the configuration)")
	return cmd
}

// refuseSlip returns an error for a prompt of one word that is all but the name of a command
// below consult, such as lst: as a prompt it would cost money and answer nothing.
func refuseSlip(cmd *cobra.Command, args []string) error {
	if len(args) != 1 || cmd.ArgsLenAtDash() >= 0 {
		return nil
	}
	for _, sub := range cmd.Commands() {
		if spelling.Distance(args[0][:min(len(args[0]), 16)], sub.Name()) == 1 {
			return cmdenv.WithHint(fmt.Errorf("%w: did you mean holdline consult %s?", cmdenv.ErrUsage, sub.Name()),
				"as a prompt: holdline consult -- "+args[0])
		}
	}
	return nil
}

// refuseEngine returns an error for a name that can be no engine. Which agents there are, the
// daemon knows.
func refuseEngine(name string) error {
	known := engines.Names(&config.Consult{})
	if name == "" || strings.HasPrefix(name, config.AgentPrefix) || slices.Contains(known, name) {
		return nil
	}
	if engine, model, ok := strings.Cut(name, "/"); ok && slices.Contains(known, engine) {
		return cmdenv.WithHint(fmt.Errorf("%w: --engine: %s is an engine with a model", cmdenv.ErrUsage, name),
			"to ask it: holdline consult --engine "+engine+" --model "+model+" PROMPT")
	}
	near := "; a model is named with --model"
	if one := spelling.Nearest(name, known); one != "" {
		near = "; did you mean " + one + "?"
	}
	return fmt.Errorf("%w: --engine: %q is not known; these are: %s and %sNAME%s", cmdenv.ErrUsage, name,
		strings.Join(known, ", "), config.AgentPrefix, near)
}

// refuseModel returns an error for a model that is the name of an engine, or an engine with a model as --engines has
// it: the default engine would refuse it only after it has been asked.
func refuseModel(engine, model string) error {
	name, its, _ := strings.Cut(model, "/")
	if strings.HasPrefix(engine, config.AgentPrefix) { // an agent has names of its own
		return nil
	}
	if !slices.Contains(engines.Names(&config.Consult{}), name) && !strings.HasPrefix(name, config.AgentPrefix) {
		return nil
	}
	fix := "--engine " + name
	if its != "" {
		fix += " --model " + its
	}
	return cmdenv.WithHint(fmt.Errorf("%w: --model: %s is an engine, not a model", cmdenv.ErrUsage, name),
		"to ask it: holdline consult "+fix+" PROMPT")
}

// runConsult asks the daemon for a consult and prints the answer. It blocks until then, and
// starts a daemon if none runs. The random key lets a later daemon find the consult again, should
// this one end.
func runConsult(cmd *cobra.Command, proc *cmdenv.Process, o consultOptions, args []string) error {
	if err := refuseSlip(cmd, args); err != nil {
		return err
	}
	if err := refuseEngine(o.engine); err != nil {
		return err
	}
	if err := refuseModel(o.engine, o.model); err != nil {
		return err
	}
	prompt, err := consultPrompt(cmd, args, "prompt", "holdline consult 'what is wrong with …'")
	if err != nil {
		return err
	}
	cwd, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("finding the current directory: %w", err)
	}
	// Build the arguments before the connection, so that wrong flags start no daemon. Flags
	// whose values only the daemon can check do start one.
	raw, err := o.arguments(cmd, proc, prompt)
	if err != nil {
		return err
	}
	c, err := attach.ConnectOrStart(cmd, proc)
	if err != nil {
		return err
	}
	params := control.ConsultParams{
		Identity: "cli", Cwd: cwd, Arguments: raw, Key: rand.Text(), Logins: protocol.LoginVariables(os.Environ()),
	}
	answer, err := askConsult(cmd, proc, c, params)
	if err != nil {
		return err
	}
	err = printConsult(cmd, answer)
	if out, ok := cmd.OutOrStdout().(*console.Output); !ok || out.Failure() == nil {
		confirmConsult(cmd, proc, params.Key)
	}
	return err
}

// confirmTime bounds how long a command waits for the daemon after its answer.
const confirmTime = 2 * time.Second

// confirmConsult tells the daemon that the command has its answer and does not come back for it, so that the
// user can remove that at once. A daemon that does not hear it keeps the answer a little longer.
func confirmConsult(cmd *cobra.Command, proc *cmdenv.Process, key string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), confirmTime)
	defer cancel()
	c, err := attach.Connect(ctx, cmd, proc)
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.Call(ctx, control.ConsultClose, control.ConsultKey{Key: key}, nil, nil)
}

// arguments returns the arguments of the tool consult that the flags and the prompt make. A
// flag that was not given leaves its argument out, so that the configuration decides. It refuses
// numbers that are not above 0; of other values the daemon refuses what it cannot use.
func (o *consultOptions) arguments(cmd *cobra.Command, proc *cmdenv.Process, prompt string) (json.RawMessage, error) {
	if o.session != "" && !isSessionID(o.session) {
		return nil, cmdenv.WithHint(fmt.Errorf("%w: %q is not a session id", cmdenv.ErrUsage, o.session),
			"take one from: holdline consult show ID")
	}
	arguments := map[string]any{"prompt": prompt}
	for key, value := range map[string]string{
		"engine": o.engine, "session": o.session, "model": o.model, "effort": o.effort,
		"diff": o.diff, "level": o.level, "judge": o.judge,
	} {
		if value != "" {
			arguments[key] = value
		}
	}
	if len(o.engines) > 0 {
		arguments["engines"] = o.engines
	}
	// The daemon has another current directory than the user.
	absolute := func(name string) (string, error) {
		path, err := socket.Absolute(name, proc.Getenv)
		if err != nil {
			return "", fmt.Errorf("finding %s: %w", name, err)
		}
		return path, nil
	}
	var err error
	if o.cwd != "" {
		if arguments["cwd"], err = absolute(o.cwd); err != nil {
			return nil, err
		}
	}
	for key, list := range map[string][]string{"files": o.files, "add_dirs": o.addDirs} {
		abs := make([]string, len(list))
		for i, name := range list {
			if abs[i], err = absolute(name); err != nil {
				return nil, err
			}
		}
		if len(abs) > 0 {
			arguments[key] = abs
		}
	}
	for _, arg := range []struct {
		flag, key string
		value     float64
	}{
		{"max-turns", "max_turns", float64(o.maxTurns)},
		{"max-usd", "max_usd", o.maxUSD},
		{"timeout", "timeout_s", o.timeout.Seconds()},
	} {
		flag := cmd.Flags().Lookup(arg.flag)
		if flag.Changed && arg.value <= 0 {
			return nil, fmt.Errorf("%w: --%s: must be above 0 (got %s)", cmdenv.ErrUsage, arg.flag, flag.Value)
		}
		if flag.Changed {
			arguments[arg.key] = arg.value
		}
	}
	// A schema begins with a brace. Anything else is the name of a file.
	if o.schema != "" {
		schema := []byte(o.schema)
		if !strings.HasPrefix(strings.TrimSpace(o.schema), "{") {
			path, err := socket.Absolute(o.schema, proc.Getenv)
			if err == nil {
				schema, err = os.ReadFile(path)
			}
			if err != nil {
				return nil, fmt.Errorf("%w: --schema: %w", cmdenv.ErrUsage, err)
			}
		}
		if !json.Valid(schema) {
			return nil, fmt.Errorf("%w: --schema: it is not JSON", cmdenv.ErrUsage)
		}
		arguments["schema"] = json.RawMessage(schema)
	}
	raw, err := json.Marshal(arguments)
	if err != nil {
		return nil, fmt.Errorf("encoding the prompt: %w", err)
	}
	return raw, nil
}

// isSessionID reports whether a text has the form of a session id of a consult program: a UUID.
func isSessionID(text string) bool {
	if len(text) == 12 && strings.Trim(text, "0123456789abcdef") == "" { // of an agent: the consult's id
		return true
	}
	parts := strings.Split(text, "-")
	if len(text) != 36 || len(parts) != 5 || strings.Trim(text, "0123456789abcdefABCDEF-") != "" {
		return false
	}
	for i, length := range []int{8, 4, 4, 4, 12} {
		if len(parts[i]) != length {
			return false
		}
	}
	return true
}

// askConsult runs a consult and returns its answer, which may have a fault in it. If the daemon
// ends or is replaced, it goes on with the next daemon, which finds the same consult by its
// key. An interrupt cancels the consult and waits for the answer so far; see [politely].
// askConsult closes c.
func askConsult(
	cmd *cobra.Command, proc *cmdenv.Process, c *control.Client, params control.ConsultParams,
) (answer control.ConsultAnswer, err error) {
	show, done := console.ProgressLine(cmd.ErrOrStderr())
	// The id is known once the daemon has begun the consult. The goroutine of politely
	// reads it. It stays the same with the next daemon.
	var known atomic.Value
	known.Store("")
	idOf := func() string { s, _ := known.Load().(string); return s }
	err = attach.Outlast(cmd, proc, c, func(_ context.Context, c *control.Client) error {
		// The interrupt of the command must not end the connection: the answer so far
		// comes through it.
		ctx, done := politely(cmd, proc, idOf)
		defer done()
		return c.Call(ctx, control.ConsultRun, params, &answer, func(p control.Progress) {
			if p.ConsultID != "" {
				known.Store(p.ConsultID)
			}
			if show != nil && p.Message != "" {
				show(p)
			}
		})
	})
	done()
	id := idOf()
	switch remote, refused := errors.AsType[*control.RemoteError](err); {
	// The context of politely has not ended the consult: no daemon was there to be asked.
	case errors.Is(err, attach.ErrAbsent):
		return answer, cmdenv.WithHint(
			errors.New("interrupted while no daemon was there: the consult goes on until a daemon misses this command"),
			"end it with: holdline consult cancel "+cmp.Or(id, "ID"))

	case errors.Is(err, context.Canceled):
		return answer, errors.New("interrupted: the consult is ended")
	case errors.Is(err, cmdenv.ErrLost):
		return answer, lostConsult(id, err)
	// The daemon checks most flags, as arguments of the tool.
	case refused && remote.Fault != nil && remote.Fault.Fault.Code == fault.InvalidInput: // the flags are wrong
		return answer, fmt.Errorf("%w: %w", cmdenv.ErrUsage, err)
	case refused && remote.Fault != nil:
		return answer, explain(remote.Fault)
	}
	return answer, err
}

// lostConsult returns the error about a consult whose daemon ended, with the command
// that gets its answer later. id is "" if the command never learnt it. err is that of
// the connection.
func lostConsult(id string, err error) error {
	if id == "" {
		return cmdenv.WithHint(fmt.Errorf("whether the consult was begun is not known: %w", err),
			"if it was, this lists it: holdline consult list")
	}
	return cmdenv.WithHint(fmt.Errorf("consult %s is not answered yet: %w", id, err),
		"get it with: holdline consult wait "+id)
}

// printConsult prints an answer. With a fault it prints what there is of an answer, and
// returns the fault as an error. The answer alone goes to stdout, so that it can be piped
// on.
func printConsult(cmd *cobra.Command, answer control.ConsultAnswer) error {
	err := console.Print(cmd, answer.Value, func(out io.Writer) {
		if answer.Text != "" {
			console.Text(out, answer.Text)
		}
	})
	if err != nil {
		return err
	}
	return closeConsult(cmd, answer)
}

// closeConsult prints what comes below an answer that was printed, and returns its fault as an
// error.
func closeConsult(cmd *cobra.Command, answer control.ConsultAnswer) error {
	// A fault that an interrupt has brought about is no news to the user.
	if f := answer.Fault; f != nil {
		if f.Fault.Code == fault.Cancelled && cmd.Context().Err() != nil {
			return errors.New("interrupted: the consult is ended")
		}
		return explain(f)
	}
	if note := unwhole(answer); note != "" {
		console.Warn(cmd, "%s", note)
	}
	if !console.IsJSON(cmd) {
		console.Lines(cmd.ErrOrStderr(), summary(answer))
	}
	return nil
}

// summary returns the line below an answer: the id of the consult, its model, what it cost and
// how long it took, as far as these are known.
func summary(answer control.ConsultAnswer) string {
	var is struct {
		ID         string   `json:"consult_id"`
		Session    string   `json:"session_id"`
		Engine     string   `json:"engine"`
		Models     []string `json:"models"`
		CostUSD    *float64 `json:"cost_usd"`
		DurationMS int64    `json:"duration_ms"`
	}
	_ = json.Unmarshal(answer.Value, &is) // what is not known is left out
	parts := []string{"consult " + is.ID, cmp.Or(strings.Join(is.Models, "+"), is.Engine)}
	if is.CostUSD != nil {
		parts = append(parts, fmt.Sprintf("$%.4f", *is.CostUSD))
	}
	if is.DurationMS > 0 {
		took := time.Duration(is.DurationMS) * time.Millisecond
		parts = append(parts, took.Round(100*time.Millisecond).String())
	}
	text := strings.Join(parts, ", ")
	if is.Session != "" { // too long for the same line of 80 columns
		text += ",\n session " + is.Session
	}
	return "[" + text + "]"
}

// unwhole returns a note that an answer is partial, or not final yet; "" if it is
// the whole answer. State and partial are members of the answer's JSON.
func unwhole(answer control.ConsultAnswer) string {
	var is struct {
		State   string `json:"state"`
		Partial bool   `json:"partial"`
	}
	if json.Unmarshal(answer.Value, &is) != nil || !is.Partial {
		return ""
	}
	if is.State == "done" {
		return "time was up: this is the best answer so far"
	}
	return "the consult is " + is.State + ": this is what was said so far"
}

// explain returns the error about a fault of a consult, with what the user can do. Of a program
// that the daemon does not find it says where this shell has it, which the daemon cannot know.
func explain(f *fault.Record) error {
	if f.Reason() == fault.NotInstalled {
		if help := userenv.ShellHas(f.Cause.Program, os.Environ()); help != "" {
			f.Fault.Detail = fmt.Sprintf("Holdline's daemon cannot find `%s`. %s", f.Cause.Program, help)
		}
	}
	return cmdenv.WithHint(f, consultHint(f))
}

// consultHint returns what the user can do about a fault of a consult, or "" if its text says
// all.
func consultHint(f *fault.Record) string {
	switch f.Reason() {
	case fault.Rejected:
		return "the program itself says more: run it in your shell"
	case fault.NotLoggedIn:
		for i := range engines.BuiltIn { // an agent's fault says all itself
			if e := &engines.BuiltIn[i]; strings.HasPrefix(f.Fault.Detail, e.Title) {
				return e.Login + ", then try again"
			}
		}
		return ""
	case fault.Deadline:
		return "a longer --timeout, or ask for less"
	case fault.RateLimited, fault.Overloaded, fault.Unreachable:
		return "try again later"
	default:
		return ""
	}
}
