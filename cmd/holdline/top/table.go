package top

import (
	"slices"
	"strings"

	"charm.land/lipgloss/v2"

	"holdline/cmd/holdline/console"
)

// gap is the number of columns of the terminal between two cells.
const gap = 2

// column is a column of a table.
type column struct {
	title string
	right bool // its cells are aligned at the right, as numbers are
	least int  // columns of the terminal below which it is not shortened
	grow  bool // takes what is left of the line, with others of its kind
	drop  int  // the column with the highest number is left out first; 0 is never left out
}

// cell is a cell of a table. Its text has no control characters.
type cell struct {
	text  string
	style lipgloss.Style
	draw  func(columns int) []piece // draws it, if that is not text
	span  bool                      // it takes the rest of the line, in place of the cells after it
}

// piece is a part of a line in one style.
type piece struct {
	text  string
	style lipgloss.Style
}

// text returns a cell with words of any origin in it, made harmless.
func text(words string, style lipgloss.Style) cell { return cell{text: harmless(words), style: style} }

// harmless returns words on one line that cannot control the terminal.
func harmless(words string) string {
	words = strings.Join(strings.Fields(words), " ")
	return strings.Map(console.Printable, words)
}

// fit returns the widths of columns in a line of that many columns of the terminal; a column
// that is left out has the width 0. It leaves out what may be left out before it shortens
// anything below its least width. What is left of the line goes to the columns that grow,
// first to those that need it.
func fit(columns []column, rows []row, width int) []int {
	natural := make([]int, len(columns))
	widths := make([]int, len(columns))
	for i, c := range columns {
		natural[i] = max(console.Width(c.title), c.least)
		for _, r := range rows {
			if !r.cells[i].span {
				natural[i] = max(natural[i], console.Width(r.cells[i].text))
			}
		}
		widths[i] = natural[i]
		if c.least > 0 {
			widths[i] = max(c.least, console.Width(c.title))
		}
	}
	for over(widths) > width {
		worst := -1
		for i, c := range columns {
			if c.drop > 0 && widths[i] > 0 && (worst < 0 || c.drop > columns[worst].drop) {
				worst = i
			}
		}
		if worst < 0 { // nothing is left to leave out: the widest gives way
			worst = slices.Index(widths, slices.Max(widths))
			widths[worst] = max(1, widths[worst]-(over(widths)-width))
			break
		}
		widths[worst] = 0
	}
	spread(columns, widths, natural, width-over(widths))
	return widths
}

// over returns how many columns of the terminal cells of these widths take.
func over(widths []int) int {
	sum := 0
	for _, w := range widths {
		if w > 0 {
			sum += w + gap
		}
	}
	return sum - gap
}

// enoughFirst is the width up to which the first column, which says what a row is about, is
// widened before others are.
const enoughFirst = 22

// spread adds free columns of the terminal to the widths of columns that are shortened, and
// the rest to the last one that grows.
func spread(columns []column, widths, natural []int, free int) {
	last, first := -1, min(free, max(0, min(natural[0], enoughFirst)-widths[0]))
	widths[0] += max(0, first)
	free -= max(0, first)
	for free > 0 {
		given := false
		for i, c := range columns {
			if widths[i] == 0 {
				continue
			}
			if c.grow {
				last = i
			}
			if c.least > 0 && widths[i] < natural[i] && free > 0 {
				widths[i]++
				free--
				given = true
			}
		}
		if !given {
			break
		}
	}
	if last >= 0 {
		widths[last] += max(free, 0)
	}
}

// headline returns the titles of the columns on one line. The first column has title instead.
func headline(columns []column, widths []int, title string) string {
	var b strings.Builder
	for i, c := range columns {
		if widths[i] == 0 {
			continue
		}
		name := c.title
		if i == 0 {
			name = title
		} else {
			b.WriteString(strings.Repeat(" ", gap))
		}
		b.WriteString(pad(console.Shorten(name, widths[i]), widths[i], c.right))
	}
	return b.String()
}

// pad returns text with spaces to that width, which are before it if it is aligned at the right.
func pad(text string, width int, right bool) string {
	spaces := strings.Repeat(" ", max(0, width-console.Width(text)))
	if right {
		return spaces + text
	}
	return text + spaces
}

// drawRow returns a row of a table as one line. A selected row has a background of its own.
func drawRow(columns []column, widths []int, r *row, selected bool) string {
	var pieces []piece
	for i, c := range columns {
		if widths[i] == 0 {
			continue
		}
		if i > 0 {
			pieces = append(pieces, piece{strings.Repeat(" ", gap), plainText})
		}
		cell := r.cells[i]
		if cell.span {
			rest := over(widths[i:])
			return render(append(pieces, piece{fill(cell.text, rest), cell.style}), selected)
		}
		if cell.draw != nil {
			pieces = append(pieces, cell.draw(widths[i])...)
			continue
		}
		pieces = append(pieces, piece{pad(console.Shorten(cell.text, widths[i]), widths[i], c.right), cell.style})
	}
	return render(pieces, selected)
}

// render returns pieces as one line.
func render(pieces []piece, selected bool) string {
	var b strings.Builder
	for _, p := range pieces {
		style := p.style
		if selected {
			style = style.Background(selection).Bold(true)
			if _, none := style.GetForeground().(lipgloss.NoColor); none {
				style = style.Foreground(selectFore)
			}
		}
		b.WriteString(style.Inline(true).Render(p.text))
	}
	return b.String()
}

// spark returns a cell with a bar for each rate, the latest at the right. A rate of 0 is a low
// grey bar. Without room for all of them the latest are shown.
func spark(rates []float64) cell {
	return cell{draw: func(columns int) []piece {
		shown := rates[max(0, len(rates)-columns):]
		highest := 0.0
		for _, r := range shown {
			highest = max(highest, r)
		}
		pieces, before := []piece{{strings.Repeat(" ", columns-len(shown)), plainText}}, -2
		for _, r := range shown {
			level, p := -1, piece{bars[0], dimText}
			if r > 0 {
				level = min(int(r/highest*float64(len(bars))), len(bars)-1)
				p = piece{bars[level], heat[level]}
			}
			if level == before { // the same bar again
				pieces[len(pieces)-1].text += p.text
				continue
			}
			pieces, before = append(pieces, p), level
		}
		return pieces
	}}
}
