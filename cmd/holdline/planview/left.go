package planview

import (
	"strings"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/importer"
)

// WarnLeft prints a warning for each entry or file that an import or its undo has left as it
// was.
func WarnLeft(cmd *cobra.Command, left []importer.Left) {
	for _, l := range left {
		what := strings.TrimSpace(l.Path + " " + l.Key)
		console.Warn(cmd, "%s", strings.Map(console.Printable, "left "+what+": "+l.Why))
	}
}

// Names returns the names of entries that start holdline, on one line.
func Names(held []importer.Held) string {
	var all []string
	for _, h := range held {
		all = append(all, h.String())
	}
	return strings.Map(console.Printable, strings.Join(all, ", "))
}
