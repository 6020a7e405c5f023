package console

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Table prints rows with aligned columns. Nothing is written before Flush.
type Table struct{ w *tabwriter.Writer }

// NewTable returns a table with a row of headings that is written to w.
func NewTable(w io.Writer, head ...string) *Table {
	t := &Table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	fmt.Fprintln(t.w, strings.Join(head, "\t"))
	return t
}

// Row adds a row, with each cell as [fmt.Sprint] shows it. Cells are made harmless for a
// terminal and bounded. The last one may be longer, since nothing is aligned after it.
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

// Flush writes the table. The error of a write is kept by [Output].
func (t *Table) Flush() { _ = t.w.Flush() }

// Age returns a duration in milliseconds for people: in seconds below a minute, in minutes
// below two days, else in days.
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
