package setupcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/direct"
	"holdline/cmd/holdline/importer"
	"holdline/cmd/holdline/planview"
	"holdline/daemon/adapter/engines"
	"holdline/daemon/config"
	"holdline/daemon/config/resolve"
	"holdline/daemon/plural"
	"holdline/daemon/telling"
	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// maxChecksAtOnce bounds the entries that are started at the same time.
const maxChecksAtOnce = 4

const (
	watchEach = 300 * time.Millisecond // between two questions about a server that is checked
	maxCheck  = 5 * time.Minute        // for a server whose client gives it long to start
	maxCalls  = 10 * time.Second       // for the calls of all servers together
)

// checkedEntry is what came of the start of an entry that several clients may have.
type checkedEntry struct {
	Clients []string        `json:"clients"` // titles
	Paths   []string        `json:"paths"`   // of their files
	Entry   string          `json:"entry"`
	Tools   []string        `json:"tools"`
	Called  []direct.Called `json:"called,omitempty"`
	Error   string          `json:"error,omitempty"`

	entry importer.Entry
	as    []speaker // the clients, but one of those that speak the same; the newest comes first
}

// speaker is a client, and what it speaks.
type speaker struct {
	title string
	direct.Client
}

// failedError is the error of entries that do not work.
type failedError struct {
	failed, of int
	servers    []string // that the entries start
}

// Error counts the entries. What is wrong with each is printed above.
func (f *failedError) Error() string {
	return fmt.Sprintf("%d of %d entries that start holdline do not work", f.failed, f.of)
}

// checkEntries starts each entry as its client does, in the project that it is for or else in
// the current one, and compares its tools with those that the server has listed when it was
// tried. Entries that are the same are started once for each version of MCP that their clients speak.
// One tool of each server is called by one of its entries. The progress is shown on stderr. It returns when
// all have ended, or soon after the context of the command has.
func (s *setup) checkEntries(list []importer.Entry) []checkedEntry {
	checked := joinEntries(list)
	live := planview.NewLive(s.cmd.ErrOrStderr(), "Starting entries as clients do")
	defer live.Close()
	var g errgroup.Group
	g.SetLimit(maxChecksAtOnce)
	calls := make([]map[string]*direct.Called, len(checked))
	for i := range checked {
		calls[i] = s.take(&checked[i])
	}
	for i := range checked {
		c := &checked[i] // no other goroutine has this element
		g.Go(func() error {
			live.Begin(c.Entry, len(checked))
			if err := s.checkAll(c, calls[i], func(doing string) { live.Say(c.Entry, doing) }); err != nil {
				c.Error = err.Error()
			}
			outcome := []string{"works, " + plural.Count(len(c.Tools), "tool")}
			for _, one := range c.Called {
				outcome = append(outcome, one.Tool+" "+one.Outcome)
			}
			live.End(c.Entry, cmp.Or(c.Error, strings.Join(outcome, "; ")))
			return nil
		})
	}
	_ = g.Wait() // each error is with its entry
	return checked
}

// take returns the tools that an entry is to call: those of servers of which none was called, nor is to be
// called by another entry. It notes with the entry what came of earlier calls.
func (s *setup) take(c *checkedEntry) map[string]*direct.Called {
	calls := map[string]*direct.Called{}
	for _, one := range c.entry.Calls {
		switch known := s.called[one.Server]; {
		case known == nil:
			s.called[one.Server] = &direct.Called{}
			calls[one.Tool] = s.called[one.Server]
		case known.Tool == one.Tool:
			c.Called = append(c.Called, *known)
		}
	}
	return calls
}

// checkAll starts an entry as each of its clients does, and has the first one make the calls. It stores the
// tools that the last one saw, and what came of calls.
func (s *setup) checkAll(c *checkedEntry, calls map[string]*direct.Called, say func(doing string)) error {
	names := slices.Sorted(maps.Keys(calls))
	for _, as := range c.as {
		tools, called, err := s.checkEntry(&c.entry, direct.Check{As: as.Client, Calls: names, Time: s.callTime}, say)
		names = nil
		c.Tools = append([]string{}, tools...)
		for _, one := range called {
			*calls[one.Tool], c.Called = one, append(c.Called, one)
			if one.Failed && err == nil {
				err = fmt.Errorf("its tool %s, called without arguments, %s", one.Tool, one.Outcome)
			}
		}
		if err != nil && len(c.as) > 1 {
			err = fmt.Errorf("as %s speaks to it: %w", as.title, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkEntry starts one entry. A name without a directory is looked for on the PATH, as the
// client would. What the server does meanwhile goes to say. If a process of the server has ended
// or did not start, the check fails at once, for that reason.
func (s *setup) checkEntry(
	e *importer.Entry, check direct.Check, say func(doing string),
) (tools []string, called []direct.Called, err error) {
	p := resolve.Process{Command: e.Command, Args: e.Args, Dir: s.look.Cwd, Env: s.proc.Environ()}
	if e.Project != "" {
		p.Dir = e.Project
	}
	if p.Command, err = exec.LookPath(e.Command); err != nil {
		return nil, nil, fmt.Errorf("%s is not on the PATH", e.Command)
	}
	check.Tools = e.Tools
	check.Limit = max(protocol.ReconnectWindow/2, min(e.Limit, maxCheck)) // the server has started before
	ctx, cancel := context.WithCancelCause(s.cmd.Context())
	words := make(chan string, 1)
	go func() { words <- s.watch(ctx, e.Server, check.Limit, say, cancel) }() // ends with ctx
	tools, called, err = direct.TryEntry(ctx, p, check)
	cancel(nil)
	if last := <-words; last != "" && err != nil && len(tools) < len(e.Tools) {
		err = fmt.Errorf("%w; its last words: %q", err, last)
	}
	return tools, called, err
}

// watch asks the daemon for what a server writes, every [watchEach] until ctx is done, and tells
// it to say. It ends the check with the reason if a process of the server has ended or did not
// start. It returns the line that tells most of what the server wrote; "" if that is in the reason.
func (s *setup) watch(
	ctx context.Context, server string, limit time.Duration, say func(string), fail context.CancelCauseFunc,
) (words string) {
	if server == "" { // an entry for all servers, or for holdline's own tools
		return ""
	}
	tick := time.NewTicker(watchEach)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return words
		case <-tick.C:
		}
		var answer control.ServerLogsAnswer
		c, err := attach.Connect(ctx, s.cmd, s.proc)
		if err != nil {
			continue // the entry starts the daemon just now
		}
		err = c.Call(ctx, control.ServerLogs, control.ServerLogsParams{Name: server}, &answer, nil)
		c.Close()
		switch {
		case err != nil:
			continue
		case answer.Last != nil && len(answer.Logs) == 0:
			fail(errors.New(answer.Last.Fault.Detail))
			return ""
		}
		doing := "no tools yet"
		for _, l := range answer.Logs {
			if words = telling.Line(strings.Split(l.Text, "\n")); words != "" {
				doing = telling.Doing(words)
			}
		}
		say(fmt.Sprintf("%s; waits %v at most", doing, limit.Round(time.Second)))
	}
}

// joinEntries returns the entries, those that start the same in the same directory as one.
func joinEntries(list []importer.Entry) []checkedEntry {
	var out []checkedEntry
	for _, e := range list {
		i := slices.IndexFunc(out, func(c checkedEntry) bool {
			return c.entry.Command == e.Command && slices.Equal(c.entry.Args, e.Args) && c.entry.Project == e.Project
		})
		if i < 0 {
			i = len(out)
			out = append(out, checkedEntry{Entry: e.Name, Tools: []string{}, entry: e})
		}
		out[i].Clients, out[i].Paths = append(out[i].Clients, e.Client), append(out[i].Paths, e.Path)
		speaks := direct.Client{Era: e.Era, Older: e.Older}
		if !slices.ContainsFunc(out[i].as, func(s speaker) bool { return s.Client == speaks }) {
			out[i].as = append(out[i].as, speaker{e.Client, speaks})
		}
	}
	for i := range out {
		slices.SortStableFunc(out[i].as, func(a, b speaker) int { return cmp.Compare(b.Era, a.Era) })
	}
	return out
}

// printCalls names the tools that are called once servers have moved.
func printCalls(out io.Writer, plan *importer.Plan) {
	var calls []string
	for _, f := range plan.Files {
		for _, s := range f.Servers {
			if one := s.Call + " of " + s.As; s.Verdict == importer.Moves && s.Call != "" && !slices.Contains(calls, one) {
				calls = append(calls, one)
			}
		}
	}
	if len(calls) > 0 {
		console.Line(out, 4, "To check servers that have moved, setup calls a tool of each that says that it only reads, "+
			"once and without arguments, for %v at most: %s. --no-call calls none.", maxCalls, strings.Join(calls, ", "))
	}
}

// failedEntries returns a [*failedError] if entries do not work, or nil.
func failedEntries(checked []checkedEntry) error {
	f := failedError{of: len(checked)}
	for _, c := range checked {
		if c.Error == "" {
			continue
		}
		f.failed++
		if c.entry.Server != "" {
			f.servers = append(f.servers, c.entry.Server)
		}
	}
	if f.failed == 0 {
		return nil
	}
	return &f
}

// printFailed prints a line for each entry that does not work.
func printFailed(out io.Writer, checked []checkedEntry) {
	for _, c := range checked {
		if c.Error != "" {
			console.Line(out, 4, "  %s  %s  %s: %s",
				console.Bad.Paint("fails"), c.Entry, strings.Join(slices.Compact(c.Clients), ", "), c.Error)
		}
	}
}

// adviseLogin prints what to do if the program of consults is there, and the daemon can see no
// login of it. That is so if its key is a variable of this shell alone. The clients have got the
// tool consult, so their first use of it would fail. A daemon that does not answer is no matter
// of setup's.
//
// Without a terminal setup does not store the key itself, so it prints the command, which has the names of the
// variables and no value.
func (s *setup) adviseLogin(out io.Writer) {
	for _, e := range engines.BuiltIn {
		check, err := attach.Ask[control.CheckAnswer](s.cmd, s.proc, control.ConsultCheck,
			control.CheckParams{Engine: e.Name})
		if err != nil || !check.Default {
			continue
		}
		if check.Fault == nil || check.Fault.Reason() != fault.NotLoggedIn {
			return
		}
		none := e.New(&config.Consult{}, nil, nil) // lacks all variables that it can log in by
		names := none.Without(protocol.LoginVariables(s.proc.Environ()))
		if len(names) == 0 {
			console.Line(out, 6, "consult: %s has no login that the daemon can see: %s; with an API key, %s.",
				e.Title, e.Login, e.ByKey)
			return
		}
		console.Line(out, 6, "consult: %s has no login that the daemon can see: only this shell has %s. "+
			"This puts it into a file that you alone can read:", e.Title, strings.Join(names, ", "))
		fmt.Fprintln(out, "\n    holdline env set "+strings.Join(names, " ")) // one line, to be copied
		return
	}
}
