package main

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"io"
	"strings"
	"sync"

	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
)

// Size of the terminal of holdline top, in characters (cmd/demo/top.go).
const (
	screenColumns = 96
	screenLines   = 24
)

// drawScreen writes the picture of a terminal that has got all that in has. A terminal that shows
// nothing is an error.
func drawScreen(in io.Reader, out io.Writer) error {
	sent, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	terminal := vt.NewEmulator(screenColumns, screenLines)
	var answers sync.WaitGroup // to the program's questions
	answers.Go(func() { _, _ = io.Copy(io.Discard, terminal) })
	defer answers.Wait()
	// It ends the copy. Close would, too, and writes what a Read at the same time reads.
	defer func() { _ = terminal.InputPipe().(io.Closer).Close() }()
	if _, err := terminal.Write(sent); err != nil {
		return err
	}
	if strings.TrimSpace(terminal.String()) == "" {
		return fmt.Errorf("the screen is empty after %d bytes", len(sent))
	}
	var b bytes.Buffer
	b.WriteString(window(screenLines, "holdline top in a terminal: agents, servers, consults and events",
		"the screen of holdline top", ""))
	fmt.Fprintf(&b, "<g transform=\"translate(%d %d)\" fill=\"#c9d1d9\">\n", margin, titleBar)
	cell := float64(textWidth) / screenColumns
	for y := range screenLines {
		for x := 0; x < screenColumns; {
			// Cells of one style are one run.
			first, end := terminal.CellAt(x, y), x+1
			var text strings.Builder
			text.WriteString(content(first))
			for end < screenColumns && first != nil && terminal.CellAt(end, y) != nil &&
				terminal.CellAt(end, y).Style.Equal(&first.Style) {
				text.WriteString(content(terminal.CellAt(end, y)))
				end++
			}
			drawRun(&b, first, text.String(), float64(x)*cell, y*lineHeight, float64(end-x)*cell)
			x = end
		}
	}
	b.WriteString("</g>\n</svg>\n")
	_, err = out.Write(b.Bytes())
	return err
}

// palette has the terminal's own colours that holdline top uses. They can be read on a dark ground.
var palette = map[ansi.BasicColor]string{1: "#ff7b72", 2: "#7ee787", 3: "#ffa657", 6: "#79c0ff"}

// content returns the character of a cell, a space for one without.
func content(c *uv.Cell) string {
	if c == nil || c.Content == "" {
		return " "
	}
	return c.Content
}

// drawRun writes characters of one style. It is left out if nothing of it can be seen.
func drawRun(b *bytes.Buffer, c *uv.Cell, text string, x float64, y int, width float64) {
	var style uv.Style
	if c != nil {
		style = c.Style
	}
	front, back := style.Fg, style.Bg
	if style.Attrs&uv.AttrReverse != 0 {
		front, back = back, front
	}
	if back != nil {
		fmt.Fprintf(b, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>\n", x, y, width, lineHeight, hex(back))
	}
	if strings.TrimSpace(text) == "" {
		return
	}
	lead := len(text) - len(strings.TrimLeft(text, " "))
	x += float64(lead) * textWidth / screenColumns
	text = strings.TrimSpace(text)
	fmt.Fprintf(b, "<text x=\"%.1f\" y=\"%d\" textLength=\"%.1f\"", x, y+lineHeight-descent,
		float64(len([]rune(text)))*textWidth/screenColumns)
	if front != nil {
		fmt.Fprintf(b, " fill=\"%s\"", hex(front))
	}
	if style.Attrs&uv.AttrBold != 0 {
		b.WriteString(` font-weight="bold"`)
	}
	fmt.Fprintf(b, ">%s</text>\n", html.EscapeString(text))
}

// hex returns a colour as SVG writes it.
func hex(c color.Color) string {
	if basic, ok := c.(ansi.BasicColor); ok && palette[basic] != "" {
		return palette[basic]
	}
	r, g, b, _ := c.RGBA()
	return fmt.Sprintf("#%02x%02x%02x", r>>8, g>>8, b>>8)
}
