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

// onlyChanged leaves of what servers offer the tools that were seen to change.
func onlyChanged(servers []control.ServerOffers) {
	for i := range servers {
		servers[i].Tools = slices.DeleteFunc(servers[i].Tools, func(t control.ServerTool) bool { return t.Pinned == nil || t.Pinned.Change == nil })
	}
}

// printChanges prints how tools have changed since they were pinned.
func printChanges(w io.Writer, servers []control.ServerOffers) {
	var changed []string // servers
	rows := 0
	t := console.NewTable(w, "SERVER", "TOOL", "CHANGED", "SEEN", "FROM", "TO")
	for _, one := range servers {
		for _, tool := range one.Tools {
			c := tool.Pinned.Change
			what := strings.Join(c.Parts, ", ")
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
		fmt.Fprintf(w, "to take them as they are now: holdline servers tools %s --accept\n", name)
	}
}

// printDescriptions prints what a tool's description was and what it became.
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

// short is the beginning of a hash, as much as people compare.
func short(hash string) string { return hash[:min(len(hash), 12)] }

// moment is a time in milliseconds since 1970, for people.
func moment(ms int64) string { return time.UnixMilli(ms).Format("2006-01-02 15:04:05") }

// accept has the tools of a server be pinned as they are now.
func (s *serversCommand) accept(cmd *cobra.Command, params control.ServerParams, o toolsOptions) error {
	if params.Name == "" {
		return cmdenv.WithHint(fmt.Errorf("%w: --accept wants the name of a server", cmdenv.ErrUsage), "holdline servers tools NAME --accept")
	}
	c, err := attach.ConnectOrStart(cmd, s.proc)
	if err != nil {
		return err
	}
	defer c.Close()
	var answer control.ServerAcceptAnswer
	if err := c.Call(cmd.Context(), control.ServerAccept, params, &answer, nil); err != nil {
		return s.withLastWords(cmd, err)
	}
	if o.json {
		return console.PrintJSON(cmd.OutOrStdout(), answer)
	}
	if len(answer.Tools) == 0 {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "server %s: no tool has changed since it was first seen\n", params.Name)
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "server %s: pinned as they are now: %s\n", params.Name, strings.Map(console.Printable, strings.Join(answer.Tools, ", ")))
	return err
}
