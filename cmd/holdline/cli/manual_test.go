package cli

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestManPages_OneForEachCommand checks that each command of the help has a page with its flags and its text, that a
// page has no request of roff but our own, and that pages do not change by themselves.
func TestManPages_OneForEachCommand(t *testing.T) {
	pages := ManPages("1.2.3")
	if again := ManPages("1.2.3"); !maps.EqualFunc(pages, again, bytes.Equal) {
		t.Error("two runs make different pages")
	}
	requests := []string{".TH", ".nh", ".ad", ".SH", ".nf", ".fi", ".PP", ".TP"}
	commands := 0
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		if !cmd.IsAvailableCommand() && cmd.HasParent() {
			return
		}
		commands++
		page := string(pages[strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"])
		if !strings.HasPrefix(page, ".TH \"HOLDLINE") || !strings.Contains(page, roff(cmd.Short)) {
			t.Errorf("the page of %s is %.200q", cmd.CommandPath(), page)
		}
		for line := range strings.Lines(page) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			if strings.HasPrefix(line, ".") && !slices.Contains(requests, word) || strings.HasPrefix(line, "'") {
				t.Errorf("the page of %s has the line %q", cmd.CommandPath(), line)
			}
		}
		if f := cmd.NonInheritedFlags().Lookup("json"); f != nil && !strings.Contains(page, `\-\-json`) {
			t.Errorf("the page of %s has no --json", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look(documentedTree())
	if commands != len(pages) {
		t.Errorf("%d pages for %d commands", len(pages), commands)
	}
}

// TestCompletions_OneForEachShell checks that there is a script for each shell.
func TestCompletions_OneForEachShell(t *testing.T) {
	scripts, err := Completions()
	if err != nil {
		t.Fatal(err)
	}
	for shell, line := range map[string]string{
		"bash": "complete -o default -F __start_holdline holdline", "zsh": "#compdef holdline",
		"fish": "complete -c holdline",
	} {
		if !strings.Contains(string(scripts[shell]), line) {
			t.Errorf("the script of %s has no %q", shell, line)
		}
	}
}
