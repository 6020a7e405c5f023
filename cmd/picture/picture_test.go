package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
)

// recording is the output of a short demo.
const recording = `go run ./cmd/demo
[  0.00s] consults use a built-in imitation of claude
[  0.10s] daemon 25867 listens at /tmp/holdline-demo-406/run/daemon.sock (private: yes)
[  0.12s] agent alpha sees progress: starting, 0.0 s
[  1.42s] $ kill -9 25867
         the daemon is killed <now>
[  9.46s] daemon 25867 is gone; after 41 ms daemon 26464 has adopted all its workers
[  9.50s] a line that is so long that it does not fit the terminal, and so it goes on in the next line of the picture

[  9.60s] $ holdline stop --all
         A  TABLE  OF  MANY  COLUMNS  WHICH  ALL  HAVE  LONG  NAMES  SO  THAT  THE  LAST  ONES  HAVE  NO  ROOM  IN  IT
         daemon 26464 stopped
[  9.79s] nothing is left: all 13 processes have ended, /tmp/holdline-demo-406 is removed
`

// TestPicture checks that a recording becomes a well-formed picture of the lines that matter, in
// their order, with names in place of what differs in each run.
func TestPicture(t *testing.T) {
	var b bytes.Buffer
	if err := run(strings.NewReader(recording), &b); err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, m := range regexp.MustCompile(`<text y="\d+">(.*)</text>`).FindAllStringSubmatch(b.String(), -1) {
		shown = append(shown, regexp.MustCompile(`</?tspan[^>]*>`).ReplaceAllString(m[1], ""))
	}
	want := []string{
		"$ make demo",
		"daemon 40101 listens at /tmp/demo/run/daemon.sock",
		"", "$ kill -9 40101", "the daemon is killed &lt;now&gt;",
		"daemon 40101 is gone; after 41 ms daemon 40102 has adopted all its workers",
		"a line that is so long that it does not fit the terminal, and so it goes on in the next line of",
		"the picture",
		"", "$ holdline stop --all",
		"A  TABLE  OF  MANY  COLUMNS  WHICH  ALL  HAVE  LONG  NAMES  SO  THAT  THE  LAST  ONES  HAVE",
		"daemon 40102 stopped",
		"nothing is left: all 13 processes have ended, /tmp/demo is removed",
	}
	if got := strings.Join(shown, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("the picture shows\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	for d := xml.NewDecoder(&b); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestPictureOfFailedDemo checks that a demo that broke off replaces no picture.
func TestPictureOfFailedDemo(t *testing.T) {
	for _, in := range []string{"", "[  0.10s] daemon 7 listens\n"} {
		var b bytes.Buffer
		if err := run(strings.NewReader(in), &b); err == nil || b.Len() != 0 {
			t.Errorf("run(%q) = %v, and wrote %d bytes; want an error and nothing", in, err, b.Len())
		}
	}
}

// TestPictureKeepsPace checks that pauses of the recording become ones that a reader can follow.
func TestPictureKeepsPace(t *testing.T) {
	scenes := []scene{{0, []string{"a"}}, {0.01, []string{"b"}}, {60, []string{"c", "d"}}}
	total := pace(scenes)
	for i, want := range []float64{0, shortest + perLine, shortest + longest + 2*perLine} {
		if got := scenes[i].at; got < want-0.001 || got > want+0.001 {
			t.Errorf("scene %d is at %.2f s, want %.2f s", i, got, want)
		}
	}
	if want := scenes[2].at + longest + 2*perLine + atEnd; total < want-0.001 || total > want+0.001 {
		t.Errorf("the picture takes %.2f s, want %.2f s", total, want)
	}
}

// TestScreen checks that the picture of a screen has the text, the colours and the bars of the terminal, and
// that an empty one is an error.
func TestScreen(t *testing.T) {
	var out bytes.Buffer
	sent := "\x1b[?1049h\x1b[2J\x1b[1;1H\x1b[32mready\x1b[0m  <3\x1b[2;5H\x1b[48;5;31m\x1b[1m up \x1b[0m"
	if err := drawScreen(strings.NewReader(sent), &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`fill="#7ee787">ready</text>`, `>&lt;3</text>`, `fill="#0087af"/>`, `font-weight="bold">up</text>`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the picture has no %s:\n%s", want, out.String())
		}
	}
	if err := drawScreen(strings.NewReader("\x1b[2J"), io.Discard); err == nil {
		t.Error("an empty screen has a picture")
	}
}
