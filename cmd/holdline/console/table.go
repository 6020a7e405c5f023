package console

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Table prints rows with aligned columns. Columns of numbers are aligned at the right. Nothing
// is written before Flush.
//
// No row is longer than a line of the terminal: a table that is too wide leaves out optional
// columns and shortens long cells. Elsewhere it shows everything.
type Table struct {
	w        io.Writer
	columns  []column
	rows     [][]cell
	optional []string // names of columns, the least important first
	details  bool     // see NewDetails
}

// column is a column of a table. width is that of its widest cell.
type column struct {
	name  string
	width int
	text  bool // it has a cell that is no number, and may be shortened
}

// cell is a cell of a table, on one line and harmless.
type cell struct {
	rendered

	path    bool                     // it is shortened at its beginning
	shorter func(columns int) string // nil for the usual way to shorten it
}

// Shortener is a value for a cell that knows what of it matters most.
type Shortener interface {
	fmt.Stringer
	// Shorter returns the value in about that many columns; String has more.
	Shorter(columns int) string
}

// Right is a text in a cell that is aligned at the right and never shortened, such as a number
// with its unit.
type Right string

// Tilde returns a path as a cell, with ~ in place of the home directory.
func Tilde(path, home string) Path {
	if rest, ok := strings.CutPrefix(path, home); ok && home != "" && (rest == "" || rest[0] == '/') {
		return Path("~" + rest)
	}
	return Path(path)
}

// Path is a path in a cell. If the table is too wide, it loses its beginning.
type Path string

// Columns between two cells, and the widths to which text is shortened before an optional
// column is left out. The first column says what the row is about, and the last one often has
// the longest texts.
const (
	gap         = 2
	minText     = 16
	minEdgeText = 24
)

// NewTable returns a table with a row of headings that is written to w.
func NewTable(w io.Writer, head ...string) *Table {
	t := &Table{w: w}
	for _, name := range head {
		name = bound(name, maxCell)
		t.columns = append(t.columns, column{name: name, width: Width(name)})
	}
	return t
}

// NewDetails returns a table of two columns, names and values, whose first row is that one. A
// value that is too long for the terminal goes on below, and nothing is shortened.
func NewDetails(w io.Writer, name, value string) *Table {
	t := NewTable(w, name, value)
	t.details = true
	return t
}

// Optional names the columns that a narrow terminal does not show, the least important first.
func (t *Table) Optional(names ...string) { t.optional = append(t.optional, names...) }

// Row adds a row, with each cell as [fmt.Sprint] shows it, in the style that it has. Cells are
// made harmless for a terminal and bounded. The last one may be longer, since nothing is
// aligned after it.
func (t *Table) Row(cells ...any) {
	row := make([]cell, len(t.columns))
	for i := range t.columns {
		var v any = ""
		if i < len(cells) {
			v = cells[i]
		}
		most := maxCell
		if i == len(t.columns)-1 {
			most = maxLastCell
		}
		c := cell{rendered: rendered{Text: bound(fmt.Sprint(v), most)}}
		isNumber := c.Text == "-"
		switch v := v.(type) {
		case int, int64, Right:
			isNumber = true
		case Painted:
			_, err := strconv.Atoi(v.Text)
			c.Style, isNumber = v.Style, err == nil
		case Path:
			c.path = true
		case Shortener:
			c.shorter = func(columns int) string { return bound(v.Shorter(columns), most) }
		}
		row[i] = c
		column := &t.columns[i]
		column.width = max(column.width, Width(c.Text))
		column.text = column.text || !isNumber
	}
	t.rows = append(t.rows, row)
}

// Flush writes the table. The error of a write is kept by [Output].
func (t *Table) Flush() {
	if t.details {
		width := t.columns[0].width + gap
		Line(t.w, width, "%-*v%v", width, Bold.Paint(t.columns[0].name), Bold.Paint(t.columns[1].name))
		for _, row := range t.rows {
			Line(t.w, width, "%-*v%v", width, Painted(row[0].rendered), Painted(row[1].rendered))
		}
		return
	}
	limit, color := layout(t.w)
	shown := t.fit(limit)
	head := make([]cell, len(t.columns))
	for i := range t.columns {
		head[i].rendered = rendered{Bold, t.columns[i].name}
	}
	var b strings.Builder
	for _, row := range slices.Concat([][]cell{head}, t.rows) {
		line, at := strings.Builder{}, 0
		for n, i := range shown {
			c, width := row[i], t.columns[i].width
			if limit > 0 { // the last resort, of tables with very many columns
				width = min(width, max(1, limit-at))
			}
			if c.shorter != nil && Width(c.Text) > width {
				c.Text = c.shorter(width)
			}
			if c.path {
				c.Text = shortenPath(c.Text, width)
			} else {
				c.Text = Shorten(c.Text, width)
			}
			if !color {
				c.Style = Plain
			}
			switch {
			case !t.columns[i].text:
				fmt.Fprintf(&line, "%*v", width, c.rendered)
			case n == len(shown)-1:
				fmt.Fprint(&line, c.rendered)
			default:
				fmt.Fprintf(&line, "%-*v", width, c.rendered)
			}
			if at += width + gap; n < len(shown)-1 {
				line.WriteString(strings.Repeat(" ", gap))
			}
			if limit > 0 && at >= limit {
				break
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	writeOwn(t.w, b.String())
}

// fit returns the columns to show in that many columns of a terminal, by their indices, and sets
// their widths. It shortens the widest columns of text to a width that can still be read, and
// if that is not enough leaves out one optional column after the other. Only then it shortens
// further. A limit of 0 is none.
func (t *Table) fit(limit int) []int {
	shown := make([]int, len(t.columns))
	for i := range shown {
		shown[i] = i
	}
	if limit <= 0 {
		return shown
	}
	for _, name := range append(slices.Clone(t.optional), "") {
		if t.shrink(shown, limit, minText, minEdgeText) {
			return shown
		}
		shown = slices.DeleteFunc(shown, func(i int) bool { return name != "" && t.columns[i].name == name })
	}
	if !t.shrink(shown, limit, 6, minText) {
		t.shrink(shown, limit, 1, 1)
	}
	return shown
}

// shrink makes columns of text narrower, the widest first, until the shown columns fit into the
// limit. None gets narrower than its name or than least, and the first and the last one not
// narrower than leastEdge; the first one comes after the others. It changes nothing and returns
// false if that is not enough.
func (t *Table) shrink(shown []int, limit, least, leastEdge int) bool {
	total, floor := gap*(len(shown)-1), gap*(len(shown)-1)
	spare := make([]int, len(t.columns)) // by how much a column may become narrower
	for n, i := range shown {
		c := t.columns[i]
		to := max(least, Width(c.name))
		if n == 0 || n == len(shown)-1 {
			to = max(leastEdge, Width(c.name))
		}
		if c.text {
			spare[i] = max(0, c.width-to)
		}
		total, floor = total+c.width, floor+c.width-spare[i]
	}
	if floor > limit {
		return false
	}
	for ; total > limit; total-- {
		widest := shown[0]
		for _, i := range shown[1:] {
			if spare[i] > 0 && (widest == shown[0] || t.columns[i].width > t.columns[widest].width) {
				widest = i
			}
		}
		spare[widest]--
		t.columns[widest].width--
	}
	return true
}

// JoinSome returns the names, joined with commas. It names at most that many of them and counts
// the others.
func JoinSome(names []string, most int) string {
	if n := len(names) - most; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n)
	}
	return strings.Join(names, ", ")
}
