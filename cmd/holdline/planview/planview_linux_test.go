package planview

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/ttytest"
)

// TestPrintOnATerminal compares what a terminal of 80 columns shows of a plan, without and with
// details, with the frames in testdata.
func TestPrintOnATerminal(t *testing.T) {
	p := plan(t)
	home := filepath.Dir(p.Config)
	p.Config = strings.Replace(p.Config, home, "/home/me", 1)
	for _, f := range p.Files {
		f.Path = strings.Replace(f.Path, home, "/home/me", 1)
		for _, s := range f.Servers {
			s.Project = strings.Replace(s.Project, home, "/home/me", 1)
		}
	}
	for name, verbose := range map[string]bool{"plan": false, "plan-verbose": true} {
		got := ttytest.OnScreen(t, func(tty *os.File) {
			out := console.NewOutput(tty)
			env := map[string]string{"COLUMNS": "80", "TERM": "xterm"}
			if err := out.Configure("never", func(name string) string { return env[name] }); err != nil {
				t.Error(err)
			}
			Print(out, p, verbose)
		})
		ttytest.CompareFrame(t, name, got, console.Width)
	}
}
