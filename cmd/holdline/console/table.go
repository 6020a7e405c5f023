package console

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// table prints aligned columns.
type table struct{ w *tabwriter.Writer }

func NewTable(w io.Writer, head ...string) *table {
	t := &table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	fmt.Fprintln(t.w, strings.Join(head, "\t"))
	return t
}

func (t *table) Row(cells ...any) {
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

func (t *table) Flush() { _ = t.w.Flush() }

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
