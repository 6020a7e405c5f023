package serverscmd

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/protocol/control"
)

// onlyChanged removes from servers all tools that have not changed since they were pinned. It
// changes the slices of the caller. A server without a changed tool keeps its place, since it
// may have a fault to report.
func onlyChanged(servers []control.ServerOffers) {
	for i := range servers {
		servers[i].Tools = slices.DeleteFunc(servers[i].Tools, func(t control.ServerTool) bool {
			return t.Pinned == nil || t.Pinned.Change == nil
		})
	}
}

// printChanges prints a table of the tools that have changed, then the old and new
// descriptions, then how to accept the changes. All tools must have changed, see
// [onlyChanged]. Descriptions are shown line by line, since models act on them: a server
// that turns bad could put instructions there.
func printChanges(w io.Writer, servers []control.ServerOffers) {
	var changed []string // servers with changes that are not undone
	rows := 0
	t := console.NewTable(w, "SERVER", "TOOL", "CHANGED", "SEEN", "FROM", "TO")
	t.Optional("FROM", "TO", "SEEN")
	for _, one := range servers {
		for _, tool := range one.Tools {
			c := tool.Pinned.Change
			what := strings.Join(c.Parts, ", ")
			// A change that was undone is shown, and need not be accepted: the tool is again
			// as it was pinned.
			if c.UndoneMS != 0 {
				what += " (undone " + moment(c.UndoneMS) + ")"
			} else if !slices.Contains(changed, one.Server) {
				changed = append(changed, one.Server)
			}
			t.Row(one.Server, tool.Name, what, moment(c.AtMS), short(tool.Pinned.Hash), short(c.Hash))
			rows++
		}
	}
	if rows == 0 {
		fmt.Fprintln(w, "no tool has changed since it was first seen")
		return
	}
	t.Flush()
	for _, one := range servers {
		for _, tool := range one.Tools {
			printDescriptions(w, one.Server, &tool)
		}
	}
	for _, name := range changed {
		fmt.Fprintf(w, "to accept them as they are now: holdline servers tools %s --accept\n", name)
	}
}

// printDescriptions prints a tool's old and new description line by line, if it has changed. It
// replaces what would control the terminal.
func printDescriptions(w io.Writer, server string, t *control.ServerTool) {
	if !slices.Contains(t.Pinned.Change.Parts, "description") {
		return
	}
	fmt.Fprintf(w, "%s %s:\n", server, strings.Map(console.Printable, t.Name))
	for _, side := range [][2]string{{"-", t.Pinned.Description}, {"+", t.Pinned.Change.Description}} {
		for line := range strings.Lines(side[1]) {
			fmt.Fprintf(w, "  %s %s\n", side[0], strings.Map(console.Printable, strings.TrimRight(line, "\r\n")))
		}
	}
}

// short returns the beginning of a hash, which is enough to compare two by eye.
func short(hash string) string { return hash[:min(len(hash), 12)] }

// moment returns a time in milliseconds since 1970 as local time.
func moment(ms int64) string { return time.UnixMilli(ms).Format("2006-01-02 15:04:05") }

// acceptTools has the daemon pin the tools of a server as they are now, and prints which ones have
// changed. It starts a daemon if none runs. params must name a server: there is
// no way to accept the tools of all at once.
func (s *serversCommand) acceptTools(cmd *cobra.Command, params control.ServerParams) error {
	if params.Name == "" {
		return cmdenv.WithHint(fmt.Errorf("%w: --accept wants the name of a server", cmdenv.ErrUsage),
			"holdline servers tools NAME --accept")
	}
	answer, err := attach.AskOrStart[control.ServerAcceptAnswer](cmd, s.proc, control.ServerAccept, params, nil)
	if err != nil {
		return s.withLastWords(cmd, err)
	}
	if console.IsJSON(cmd) {
		return console.PrintJSON(cmd.OutOrStdout(), answer)
	}
	if len(answer.Tools) == 0 {
		return console.Say(cmd, "server %s: no tool has changed since it was first seen", params.Name)
	}
	return console.Say(cmd, "server %s: pinned as they are now: %s", params.Name,
		strings.Map(console.Printable, strings.Join(answer.Tools, ", ")))
}
