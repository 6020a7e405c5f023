package console

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"holdline/cmd/holdline/ttytest"
)

// onScreen returns what a terminal with that many columns shows of an output, with colour if
// mode says so.
func onScreen(t *testing.T, columns int, mode string, show func(out *Output)) string {
	t.Helper()
	return ttytest.OnScreen(t, func(tty *os.File) {
		out := NewOutput(tty)
		env := map[string]string{"COLUMNS": fmt.Sprint(columns), "TERM": "xterm"}
		if err := out.Configure(mode, func(name string) string { return env[name] }); err != nil {
			t.Error(err)
		}
		show(out)
	})
}

// table prints a table with a column of each kind.
func table(out *Output) {
	t := NewTable(out, "SERVER", "STATE", "SESSIONS", "CACHED", "RUNS", "CWD")
	t.Optional("CACHED", "CWD")
	t.Row("github", Good.Paint("ready"), 3, 128, "npx -y @example/server-github --toolsets all --read-only",
		Path("/home/user/projects/shop"))
	t.Row("日本語のサーバー", Bad.Paint("failed"), 12, 0, "uvx", Path("/home/user"))
	t.Row("e\u0301te", "idle", "", 7, "node \x1b[31mserver.js\n--x", Path("/srv"))
	t.Flush()
}

// TestTableFitsTheTerminal checks what a table leaves out and shortens on a terminal, and that
// each row is one line.
func TestTableFitsTheTerminal(t *testing.T) {
	for columns, want := range map[int]string{
		80: `SERVER            STATE   SESSIONS  RUNS                CWD
github            ready          3  npx -y @example/s…  /home/user/projects/shop
日本語のサーバー  failed        12  uvx                 /home/user
éte               idle           -  node ?[31mserver.…  /srv
`,
		50: `SERVER            STATE   SESSIONS  RUNS
github            ready          3  npx -y @examp…
日本語のサーバー  failed        12  uvx
éte               idle           -  node ?[31mser…
`,
		20: `SERVER            S…
github            r…
日本語のサーバー  f…
éte               i…
`,
	} {
		got := onScreen(t, columns, "never", table)
		if strings.ReplaceAll(got, "e\u0301", "é") != want {
			t.Errorf("at %d columns:\n%s\nwant:\n%s", columns, got, want)
		}
		for line := range strings.Lines(got) {
			if n := Width(strings.TrimSuffix(line, "\n")); n > columns {
				t.Errorf("at %d columns a line has %d: %q", columns, n, line)
			}
		}
	}
}

// TestPathsKeepTheirEnd checks that a path loses its beginning where a text loses its end.
func TestPathsKeepTheirEnd(t *testing.T) {
	got := onScreen(t, 40, "never", func(out *Output) {
		table := NewTable(out, "NAME", "CWD")
		table.Row("a-long-name-of-a-server-of-the-team", Tilde("/home/user/projects/of-the-team/shop", "/home/user"))
		table.Flush()
	})
	const want = "NAME                    CWD\na-long-name-of-a-serv…  …f-the-team/shop\n"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestTableInAPipe checks that a table elsewhere shows everything and has no colour, unless the
// user wants it.
func TestTableInAPipe(t *testing.T) {
	for mode, colored := range map[string]bool{"auto": false, "never": false, "always": true} {
		var b bytes.Buffer
		out := NewOutput(&b)
		env := map[string]string{"COLUMNS": "30"}
		if err := out.Configure(mode, func(name string) string { return env[name] }); err != nil {
			t.Error(err)
		}
		table(out)
		if !strings.Contains(b.String(), "--toolsets all --read-only  /home/user/projects/shop\n") {
			t.Errorf("something is left out:\n%s", b.String())
		}
		styled := strings.Contains(b.String(), "\x1b[32mready\x1b[0m ")
		if styled != colored || strings.Contains(b.String(), "\x1b") != colored {
			t.Errorf("--color %s: %q", mode, b.String())
		}
	}
}

// TestColor checks when text has colour.
func TestColor(t *testing.T) {
	for _, c := range []struct {
		mode, noColor, term string
		terminal, want      bool
	}{
		{mode: "auto", terminal: true, want: true},
		{mode: "auto"},
		{mode: "auto", terminal: true, noColor: "1"},
		{mode: "auto", terminal: true, term: "dumb"},
		{mode: "always", noColor: "1", want: true},
		{mode: "never", terminal: true},
	} {
		env := map[string]string{"NO_COLOR": c.noColor, "TERM": c.term}
		got, err := WantsColor(c.mode, func(name string) string { return env[name] }, c.terminal)
		if got != c.want || err != nil {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
	if _, err := WantsColor("yes", os.Getenv, true); err == nil {
		t.Error("--color yes is accepted")
	}
}

// TestHelpFitsTheTerminal checks that rows of a help page are wrapped below their second column,
// and that paragraphs are wrapped together if they have to be.
func TestHelpFitsTheTerminal(t *testing.T) {
	const page = `Two lines that fit
stay as they are.

This line is far too long for it
and so is filled up.

Use:
  top     Watch all of the agents
      --json   print JSON in one go
    an example that is indented and long
`
	const want = `Two lines that fit
stay as they are.

This line is far too long for
it and so is filled up.

Use:
  top     Watch all of the
          agents
      --json   print JSON in
               one go
    an example that is
    indented and long
`
	if got := Fold(page, 30); got != want {
		t.Errorf("%s\nwant:\n%s", got, want)
	}
}

// TestLineWraps checks that lines are wrapped between words, by what the terminal shows, and
// that words of others stay harmless text.
func TestLineWraps(t *testing.T) {
	show := func(out *Output) {
		Line(out, 4, "%-8v %s: %v has %d calls in %s", Bad.Paint("problem"), "a\x1b[2Jb\nc", Dim.Paint("it all"), 7,
			"/a/path/that/is/longer/than/the/line /usr/local/bin:/usr/bin:/bin")
	}
	want := "problem  a?[2Jb c: it\n    all has 7 calls in\n" +
		"    /a/path/that/is/longer/than/the/line\n    /usr/local/bin:\n    /usr/bin:/bin\n"
	if got := onScreen(t, 22, "never", show); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	styles := strings.NewReplacer("problem ", "\x1b[31mproblem\x1b[0m ", "it\n    all", "\x1b[2mit\n    all\x1b[0m")
	want = styles.Replace(want)
	if got := onScreen(t, 22, "auto", show); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	var b bytes.Buffer
	show(NewOutput(&b))
	if strings.Count(b.String(), "\n") != 1 || strings.Contains(b.String(), "\x1b") {
		t.Errorf("in a pipe: %q", b.String())
	}
}

// TestNoColumns checks that a $COLUMNS that is no width is left to the terminal, which does not
// know its own here.
func TestNoColumns(t *testing.T) {
	for _, columns := range []int{0, -1} {
		onScreen(t, columns, "never", func(out *Output) {
			if got := Columns(out); got != 0 {
				t.Errorf("with COLUMNS=%d a line has %d columns", columns, got)
			}
		})
	}
}

// TestWriteLog_WrapsLongLinesOnATerminal checks that the rest of a long line of a log is indented on a terminal, that
// a line which has not ended yet is printed as it is, and that a log elsewhere keeps its bytes.
func TestWriteLog_WrapsLongLinesOnATerminal(t *testing.T) {
	const log = "12:00 short\n12:01 one two three four five\n12:02 begins with a long"
	write := func(out *Output) {
		if err := WriteLog(out, []byte(log)); err != nil {
			t.Error(err)
		}
	}
	const want = "12:00 short\n12:01 one two three\n    four five\n12:02 begins with a long"
	if got := onScreen(t, 20, "never", write); strings.TrimRight(got, "\n") != want {
		t.Errorf("on a terminal\n%s\nwant\n%s", got, want)
	}
	var b bytes.Buffer
	if write(NewOutput(&b)); b.String() != log {
		t.Errorf("elsewhere %q, want %q", &b, log)
	}
}
