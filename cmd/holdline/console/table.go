package console

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Table prints aligned columns.
type Table struct{ w *tabwriter.Writer }

// NewTable returns a table that is written to w, below its head.
func NewTable(w io.Writer, head ...string) *Table {
	t := &Table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	fmt.Fprintln(t.w, strings.Join(head, "\t"))
	return t
}

// Row adds a row. Cells are made harmless for a terminal, and bounded.
func (t *Table) Row(cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		most := maxCell
		if i == len(cells)-1 {
			most = maxLastCell
		}
		texts[i] = cell(fmt.Sprint(c), most)
	}
	fmt.Fprintln(t.w, strings.Join(texts, "\t"))
}

// Flush writes the table.
func (t *Table) Flush() { _ = t.w.Flush() }

// Age is a duration in milliseconds, for people.
func Age(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%dd", int(d/(24*time.Hour)))
}
