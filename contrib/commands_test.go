package contrib_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holdline/cmd/holdline/cli"
	"holdline/cmd/holdline/cmdenv"
)

// undocumented are commands of the tree that need no row in the guide.
var undocumented = []string{"help"}

// foreignFlags are flags of other programs that the pages name alone.
var foreignFlags = []string{"--restricted", "--replay-user-messages", "--headless", "--no-sandbox", "--ro-bind"}

var (
	// commandStart finds the beginning of a command of ours in a line of a shell.
	commandStart = regexp.MustCompile(`(?:^|\$ |\| |-- |; |: )(?:\./|bin/)?holdline (.*)`)
	wordPattern  = regexp.MustCompile(`'[^']*'|"[^"]*"|[^\s'"]+`)
	flagPattern  = regexp.MustCompile(`^--?[a-z][a-z-]*`)
	// subcommandPattern is what a subcommand looks like; NAME and 'a question' are arguments.
	subcommandPattern = regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
)

// commandTree returns the command tree as users have it.
func commandTree() *cobra.Command {
	root := cli.NewRoot(&cmdenv.Process{Getenv: func(string) string { return "" }})
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	return root
}

// TestCommandsExist checks that each command of ours in the pages exists with the flags that
// it is shown with.
func TestCommandsExist(t *testing.T) {
	root, found := commandTree(), 0
	for name, p := range readPages(t) {
		if name == "CHANGELOG.md" {
			continue // it speaks of earlier versions, too
		}
		for n, text := range p.code() {
			m := commandStart.FindStringSubmatch(text)
			if m == nil {
				continue
			}
			found++
			for _, words := range alternatives(commandWords(m[1])) {
				if problem := checkCommand(root, words); problem != "" {
					t.Errorf("%s:%d: %s: %s", name, n, text, problem)
				}
			}
		}
	}
	if found < 50 {
		t.Errorf("found only %d commands in the pages", found)
	}
}

// commandWords splits a command into its words, without a comment, what follows a pipe, and
// the brackets of optional words.
func commandWords(text string) []string {
	text, _, _ = strings.Cut(text, " # ")
	text, _, _ = strings.Cut(text, " | ")
	text, _, _ = strings.Cut(text, "; ")
	var words []string
	for _, word := range wordPattern.FindAllString(text, -1) {
		if word == "--" { // the rest is another program's
			break
		}
		if word = strings.Trim(word, "[]"); word != "" {
			words = append(words, word)
		}
	}
	return words
}

// alternatives returns one command for each of the words that a|b stands for.
func alternatives(words []string) [][]string {
	for i, word := range words {
		if strings.ContainsRune(`'"`, rune(word[0])) {
			continue
		}
		parts := strings.Split(word, "|")
		if len(parts) == 1 {
			continue
		}
		var all [][]string
		for _, part := range parts {
			part = strings.Trim(part, "[]")
			all = append(all, alternatives(slices.Concat(words[:i], []string{part}, words[i+1:]))...)
		}
		return all
	}
	return [][]string{words}
}

// checkCommand returns what is wrong with a command, or "".
func checkCommand(cmd *cobra.Command, words []string) string {
	for i := 0; i < len(words); i++ {
		word := words[i]
		if flag := flagPattern.FindString(word); flag != "" {
			f := lookupFlag(cmd, flag)
			if f == nil {
				return cmd.CommandPath() + " has no flag " + flag
			}
			// The next word is the value of this flag, unless it is the next flag in a list.
			if f.Value.Type() != "bool" && word == flag && i+1 < len(words) && words[i+1][0] != '-' {
				i++
			}
			continue
		}
		if !cmd.HasSubCommands() || !subcommandPattern.MatchString(word) {
			continue // an argument
		}
		next, _, err := cmd.Find([]string{word})
		if err != nil || next == cmd {
			return cmd.CommandPath() + " has no command " + word
		}
		cmd = next
	}
	return ""
}

// lookupFlag returns the flag of a command by its name with hyphens, or nil.
func lookupFlag(cmd *cobra.Command, flag string) *pflag.Flag {
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	if name, long := strings.CutPrefix(flag, "--"); long {
		return cmd.Flag(name)
	}
	if f := cmd.Flags().ShorthandLookup(flag[1:]); f != nil {
		return f
	}
	return cmd.InheritedFlags().ShorthandLookup(flag[1:])
}

// TestGuideListsCommands checks that the guide has each command of the tree in its table, and
// that the flags that a row names alone belong to the command of the row.
func TestGuideListsCommands(t *testing.T) {
	guide, root := readPages(t)["contrib/doc/guide.md"], commandTree()
	listed := map[string]bool{}
	for n, spans := range guide.spans {
		m := commandStart.FindStringSubmatch(spans[0])
		if m == nil || !strings.HasPrefix(guide.lines[n-1], "| `holdline ") {
			continue
		}
		var commands []*cobra.Command
		for _, span := range spans {
			if m := commandStart.FindStringSubmatch(span); m != nil {
				for _, words := range alternatives(commandWords(m[1])) {
					listed[words[0]] = true
					if cmd, _, err := root.Find(words); err == nil {
						commands = append(commands, cmd)
					}
				}
			}
		}
		for _, span := range spans {
			for word := range strings.FieldsSeq(span) {
				flag := flagPattern.FindString(word)
				has := func(cmd *cobra.Command) bool { return lookupFlag(cmd, flag) != nil }
				if strings.HasPrefix(span, "--") && flag != "" && !slices.ContainsFunc(commands, has) {
					t.Errorf("guide.md:%d: the commands of the row have no flag %s", n, word)
				}
			}
		}
	}
	for _, cmd := range root.Commands() {
		if !cmd.Hidden && !listed[cmd.Name()] && !slices.Contains(undocumented, cmd.Name()) {
			t.Errorf("guide.md has no row for holdline %s", cmd.Name())
		}
	}
}

// TestFlagsExist checks that each flag that a page names alone belongs to a command of ours.
func TestFlagsExist(t *testing.T) {
	root := commandTree()
	var has func(cmd *cobra.Command, flag string) bool
	has = func(cmd *cobra.Command, flag string) bool {
		return lookupFlag(cmd, flag) != nil ||
			slices.ContainsFunc(cmd.Commands(), func(c *cobra.Command) bool { return has(c, flag) })
	}
	for name, p := range readPages(t) {
		for n, spans := range p.spans {
			for _, span := range spans {
				flag := flagPattern.FindString(span)
				if strings.HasPrefix(flag, "--") && !slices.Contains(foreignFlags, flag) && !has(root, flag) {
					t.Errorf("%s:%d: no command has the flag %s", name, n, flag)
				}
			}
		}
	}
}
