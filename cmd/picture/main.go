// Command picture turns the output of command demo, which it reads from stdin, into an
// animated picture of a terminal, which it writes to stdout as SVG. make picture joins the
// two and writes contrib/doc/demo.svg.
//
// The picture needs no script and no font of its own: each line appears by an animation in
// CSS, and the lines scroll by another one. A viewer that animates nothing, or whose user
// wants less motion, shows the end of the story.
//
// What differs in each run and says nothing, such as process numbers and temporary
// directories, is replaced, so that a new recording changes few lines (tidy.go).
//
// With -screen it reads what a program sends to its terminal instead, and draws the last
// screen (screen.go): contrib/doc/top.svg.
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"html"
	"io"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// Sizes of the terminal. Columns fit the width of a page on GitHub.
const (
	columns    = 96
	rows       = 25
	fontSize   = 13  // pixels
	textWidth  = 752 // pixels: columns of most monospaced fonts at fontSize
	lineHeight = 18  // pixels
	descent    = 5   // pixels, of a line below what its letters stand on
	margin     = 16  // pixels, around the text
	titleBar   = 34  // pixels
)

// Times of the picture, in seconds. The story is told at the pace of a reader: a pause in the
// recording is kept if it is between the shortest and the longest.
const (
	shortest = 0.5
	longest  = 1.6
	perLine  = 0.2 // more for each line, to read it
	atEnd    = 6.0 // before it begins again
)

// main reads the recording and writes the picture. A recording without a story, as of a demo
// that failed, is an error.
func main() {
	screen := flag.Bool("screen", false, "draw the last screen of a program from what it sent to its terminal")
	flag.Parse()
	draw := run
	if *screen {
		draw = drawScreen
	}
	if err := draw(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "picture: %v\n", err)
		os.Exit(1)
	}
}

// run writes the picture of the recording that it reads.
func run(in io.Reader, out io.Writer) error {
	scenes, err := record(in)
	if err != nil {
		return err
	}
	_, err = out.Write(draw(tidy(scenes)))
	return err
}

// A scene is what the demo prints at one moment.
type scene struct {
	at    float64 // seconds since the demo began; after pace, since the picture began
	lines []string
}

// stamp begins a scene: the time, as command demo prints it.
var stamp = regexp.MustCompile(`^\[ *(\d+\.\d+)s\] (.*)$`)

// record reads the output of the demo. Lines before the first scene are make's.
func record(in io.Reader) ([]scene, error) {
	var scenes []scene
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), " ")
		if m := stamp.FindStringSubmatch(line); m != nil {
			at, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				return nil, err
			}
			scenes = append(scenes, scene{at, []string{m[2]}})
		} else if last := len(scenes) - 1; last >= 0 {
			scenes[last].lines = append(scenes[last].lines, strings.TrimPrefix(line, "         "))
		}
	}
	if last := len(scenes) - 1; last < 0 || !strings.HasPrefix(scenes[last].lines[0], "nothing is left") {
		return nil, fmt.Errorf("the recording does not end as the demo does: it has %d scenes", len(scenes))
	}
	return scenes, lines.Err()
}

// pace gives each scene its time in the picture, and returns the length of the picture.
func pace(scenes []scene) (total float64) {
	for i := range scenes {
		pause := longest
		if i+1 < len(scenes) {
			pause = min(max(scenes[i+1].at-scenes[i].at, shortest), longest)
		}
		scenes[i].at = total
		total += pause + perLine*float64(len(scenes[i].lines))
	}
	return total + atEnd
}

// draw returns the picture of the scenes as SVG.
func draw(scenes []scene) []byte {
	total := pace(scenes)
	percent := func(at float64) string {
		return strconv.FormatFloat(math.Round(at/total*1e4)/100, 'f', -1, 64) + "%"
	}
	var appear, scroll, text bytes.Buffer
	row, up := 0, 0
	for i, s := range scenes {
		fmt.Fprintf(&appear, "@keyframes s%d{0%%{opacity:0}%s{opacity:1}}.s%d{animation-name:s%d}\n",
			i, percent(s.at), i, i)
		fmt.Fprintf(&text, "<g class=\"s s%d\">\n", i)
		for _, line := range s.lines {
			row++
			fmt.Fprintf(&text, "<text y=\"%d\">%s</text>\n", row*lineHeight-descent, paint(line))
		}
		text.WriteString("</g>\n")
		if row-rows > up {
			up = row - rows
			fmt.Fprintf(&scroll, "%s{transform:translateY(-%dpx)}", percent(s.at), up*lineHeight)
		}
	}
	var b bytes.Buffer
	b.WriteString(window(rows, "make demo in a terminal: the daemon is killed, and both agents get their answers",
		"the output of make demo", fmt.Sprintf(motion, total, up*lineHeight, total, scroll.String(), appear.String())))
	fmt.Fprintf(&b, "<svg x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"><g class=\"rows\">\n",
		margin, titleBar, textWidth, rows*lineHeight)
	b.Write(text.Bytes())
	b.WriteString("</g></svg>\n</svg>\n")
	return b.Bytes()
}

// font is what all text of a picture has. The size is in pixels.
const font = `text{font:%dpx ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre}
`

// motion is the style of the lines that appear and scroll.
const motion = `text{fill:#c9d1d9}
.s{animation:%.2fs step-end infinite}
.rows{transform:translateY(-%dpx);animation:scroll %.2fs step-end infinite}
@keyframes scroll{0%%{transform:none}%s}
.c{fill:#f0f6fc;font-weight:bold}.k{fill:#ff7b72;font-weight:bold}.g{fill:#7ee787}.d{fill:#8b949e}
.a{fill:#79c0ff}.b{fill:#d2a8ff}.w{fill:#ffa657}
%s@media(prefers-reduced-motion:reduce){.s,.rows{animation:none}}
`

// window returns a picture up to the text: a window with that many lines, what it shows in words, from what it
// is made, and its style besides the font. The window is dark on any page.
func window(lines int, shows, source, style string) string {
	width, height := textWidth+2*margin, titleBar+lines*lineHeight+margin
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" xml:space="preserve" `+
		`aria-label="%s">
<!-- Made by make picture from %s. -->
<style>
`+font+`%s</style>
<rect width="%[1]d" height="%[2]d" rx="10" fill="#0d1117" stroke="#30363d"/>
<circle cx="20" cy="17" r="6" fill="#ff5f57"/><circle cx="40" cy="17" r="6" fill="#febc2e"/>`+
		`<circle cx="60" cy="17" r="6" fill="#28c840"/>
`, width, height, shows, source, fontSize, style)
}

// paints has the colours of what stands in a line, by classes of the style. The first that
// matches a place wins.
var paints = []struct {
	pattern *regexp.Regexp
	class   string
}{
	{regexp.MustCompile(`^\$ kill .*`), "k"},
	{regexp.MustCompile(`^\$ .*`), "c"},
	{regexp.MustCompile(`\balpha\b`), "a"},
	{regexp.MustCompile(`\bbeta\b`), "b"},
	{regexp.MustCompile(`\bwatcher\b`), "w"},
	{regexp.MustCompile(`gets its answer, once|has adopted all its workers|continues in the same( claude)? process|` +
		`has restarted it|^nothing is left.*|\bready\b`), "g"},
	{regexp.MustCompile(`^[A-Z][A-Z /0-9]+$`), "d"},
}

// paint returns a line as the content of a text element, with its colours.
func paint(line string) string {
	for _, p := range paints {
		at := p.pattern.FindStringIndex(line)
		if at == nil || at[0] == at[1] {
			continue
		}
		return paint(line[:at[0]]) + `<tspan class="` + p.class + `">` + html.EscapeString(line[at[0]:at[1]]) +
			`</tspan>` + paint(line[at[1]:])
	}
	return html.EscapeString(line)
}
