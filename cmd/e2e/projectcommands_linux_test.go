package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestProjectsFileNamesCommands_NoneStartsBeforeTheUserSaysYes checks that what a repository's own files start
// is started by no dry run, without a terminal only with --yes, and on a terminal once it was shown and the
// user has said yes; a command that a file of the user's own has, too, is tried as ever.
func TestProjectsFileNamesCommands_NoneStartsBeforeTheUserSaysYes(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	p.env = append(p.env, "TERM=xterm", "COLUMNS=200")
	marks := func(name string) (file string, entry map[string]any) {
		file = filepath.Join(p.dir, name)
		return file, map[string]any{"command": "sh", "args": []string{
			"-c", "echo x >>" + file + "; exec " + filepath.Join(programs, "toolserver"),
		}}
	}
	ran, theirs := marks("theirs")
	ranOwn, own := marks("own")
	settings := filepath.Join(p.project, ".mcp.json")
	text := mustJSON(t, map[string]any{"mcpServers": map[string]any{"theirs": theirs, "mine": own}})
	if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p.putHome(t, map[string]string{".claude.json": mustJSON(t, map[string]any{"projects": map[string]any{
		p.project: map[string]any{"mcpServers": map[string]any{"mine": own}},
	}})})
	started := func(file string) bool { _, err := os.Stat(file); return err == nil }
	unchanged := func(when string) {
		t.Helper()
		if now, err := os.ReadFile(settings); started(ran) || err != nil || string(now) != text {
			t.Errorf("%s: the project's command ran: %v, its file: %s, %v", when, started(ran), now, err)
		}
	}
	for _, args := range [][]string{
		{"setup", "--project", "--dry-run"},
		{"setup", "--project", "--dry-run", "--json"},
		{"import", "--project"},
		{"import", "--project", "--json"},
	} {
		out, errs, code := p.run("", args...)
		if code != exitOK || !strings.Contains(out, "not started yet") {
			t.Errorf("%q: exit %d\n%s%s", args, code, out, errs)
		}
		unchanged(strings.Join(args, " "))
	}
	if !started(ranOwn) {
		t.Error("a command that the user's own file has, too, was not tried")
	}
	for _, args := range [][]string{{"setup", "--project"}, {"import", "--project", "--write"}} {
		if out, errs, code := p.run("", args...); code != exitUsage || !strings.Contains(errs, "--yes") {
			t.Errorf("%q without a terminal: exit %d\n%s%s", args, code, out, errs)
		}
		unchanged(strings.Join(args, " "))
		for _, answer := range []string{"n\n", "\n"} {
			cmd := p.command(append([]string{"--color", "never"}, args...)...)
			got := onTerminalSeen(t, cmd, "y\n", "Start them?", func(screen *os.File, shown string) {
				if !strings.Contains(shown, "echo x >>"+ran) || strings.Contains(shown, ranOwn) {
					t.Errorf("%q shows %s", args, shown)
				}
				if _, err := screen.WriteString(answer); err != nil {
					t.Error(err)
				}
			})
			if cmd.ProcessState.ExitCode() != exitFailure || !strings.Contains(got, "Nothing was changed.") {
				t.Errorf("%q, %q: exit %d\n%s", args, answer, cmd.ProcessState.ExitCode(), got)
			}
			unchanged(strings.Join(args, " ") + ", " + answer)
		}
	}
	p.must("import", "--project", "--write", "--no-check", "--from", "cursor") // it starts nothing
	unchanged("--no-check")
	if out := p.must("import", "--project", "--write", "--yes"); !started(ran) || !strings.Contains(out, "written: "+settings) {
		t.Errorf("--yes: started %v\n%s", started(ran), out)
	}
}
