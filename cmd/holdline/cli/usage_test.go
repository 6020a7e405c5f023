package cli

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/ttytest"
	"holdline/protocol/control"
)

// TestStatusKeys checks that the help of status names every key that status --json can
// print.
func TestStatusKeys(t *testing.T) {
	help := newStatusCommand(nil).Long
	words := strings.FieldsFunc(help, func(r rune) bool {
		return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	var look func(of reflect.Type)
	look = func(of reflect.Type) {
		for of.Kind() == reflect.Slice || of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || of.PkgPath() != reflect.TypeFor[control.StatusAnswer]().PkgPath() {
			return
		}
		for f := range of.Fields() {
			key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !slices.Contains(words, key) {
				t.Errorf("%s of %s is not in the help:\n%s", key, of.Name(), help)
			}
			look(f.Type)
		}
	}
	look(reflect.TypeFor[control.StatusAnswer]())
}

// TestShortHelp checks that each command of a list of commands has one line on a terminal of 80
// columns, and that the pages have no longer lines in a pipe, either.
func TestShortHelp(t *testing.T) {
	root := NewRoot(new(cmdenv.Process))
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			if n := 2 + sub.NamePadding() + 1 + len(sub.Short); sub.IsAvailableCommand() && n > ttytest.Columns {
				t.Errorf("%s: the line has %d columns: %s", sub.CommandPath(), n, sub.Short)
			}
			look(sub)
		}
		var page bytes.Buffer
		root.SetOut(&page)
		if err := cmd.Help(); err != nil || page.Len() == 0 {
			t.Errorf("%s has no help: %v", cmd.CommandPath(), err)
		}
		if text := page.String(); !strings.HasPrefix(text, "Usage:\n  holdline") {
			t.Errorf("%s --help does not begin with how to call it:\n%s", cmd.CommandPath(), text)
		} else if at := strings.Index(text, "\n\nWith --json, "); at >= 0 && strings.Contains(text[at:], "\nFlags:") {
			t.Errorf("%s --help has keys of JSON before the flags:\n%s", cmd.CommandPath(), text)
		}
		for line := range strings.SplitSeq(cmd.Long, "\n") {
			// Examples are copied, and lists were wrapped by hand.
			if strings.HasPrefix(line, " ") && !strings.Contains(page.String(), line+"\n") {
				t.Errorf("%s --help: this line is wrapped again: %s", cmd.CommandPath(), line)
			}
		}
		for line := range strings.Lines(page.String()) {
			if n := console.Width(strings.TrimRight(line, "\n")); n > ttytest.Columns {
				t.Errorf("%s --help: %d columns: %s", cmd.CommandPath(), n, line)
			}
		}
	}
	look(root)
}
