package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/install"
)

// ManPages returns the man pages of all commands that the help shows, by the names of their files. They depend on the
// command tree and the version alone: they bear no date, so that a second installation changes nothing.
func ManPages(version string) map[string][]byte {
	pages := map[string][]byte{}
	var add func(cmd *cobra.Command)
	add = func(cmd *cobra.Command) {
		pages[pageOf(cmd)+".1"] = manPage(cmd, version)
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				add(sub)
			}
		}
	}
	add(documentedTree())
	return pages
}

// Completions returns the completion scripts, by the names of their shells.
func Completions() (map[string][]byte, error) {
	root := documentedTree()
	var bash, zsh, fish bytes.Buffer
	err := errors.Join(root.GenBashCompletionV2(&bash, true), root.GenZshCompletion(&zsh),
		root.GenFishCompletion(&fish, true))
	return map[string][]byte{"bash": bash.Bytes(), "zsh": zsh.Bytes(), "fish": fish.Bytes()}, err
}

// documentedTree returns a command tree that nobody runs.
func documentedTree() *cobra.Command {
	root := NewRoot(&cmdenv.Process{Getenv: func(string) string { return "" }})
	root.InitDefaultCompletionCmd() // cobra adds it when it runs the tree
	return root
}

// pageOf returns the name of a command's man page.
func pageOf(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage returns the man page of one command, in the macros of man(7).
func manPage(cmd *cobra.Command, version string) []byte {
	cmd.InitDefaultHelpFlag()
	var b bytes.Buffer
	title := strings.ToUpper(roff(pageOf(cmd)))
	fmt.Fprintf(&b, ".TH \"%s\" \"1\" \"\" \"holdline %s\" \"Holdline\"\n.nh\n.ad l\n", title, roff(version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(pageOf(cmd)), roff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.nf\n%s\n.fi\n", roff(cmd.UseLine()))
	about, keys, hasKeys := strings.Cut(cmp.Or(cmd.Long, cmd.Short), "\n\nWith --json, ")
	b.WriteString(".SH DESCRIPTION\n")
	writeRoff(&b, about)
	if cmd.HasExample() {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(cmd.Example))
	}
	writeOptions(&b, "OPTIONS", cmd.NonInheritedFlags())
	writeOptions(&b, "OPTIONS OF ALL COMMANDS", cmd.InheritedFlags())
	if hasKeys {
		b.WriteString(".SH JSON\n")
		writeRoff(&b, "With --json, "+keys)
	}
	var others []string
	if cmd.HasParent() {
		others = append(others, pageOf(cmd.Parent()))
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			others = append(others, pageOf(sub))
		}
	}
	if len(others) > 0 {
		b.WriteString(".SH SEE ALSO\n")
		for i, page := range others {
			others[i] = "\\fB" + roff(page) + "\\fP(1)"
		}
		fmt.Fprintf(&b, "%s\n", strings.Join(others, ",\n"))
	}
	return b.Bytes()
}

// writeOptions writes a section about flags, if there are any that the help shows.
func writeOptions(b *bytes.Buffer, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(b, ".SH %s\n", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		fmt.Fprintf(b, ".TP\n\\fB%s\\fP", roff(name))
		if value != "" {
			fmt.Fprintf(b, " \\fI%s\\fP", roff(value))
		}
		fmt.Fprintf(b, "\n%s\n", roff(usage))
	})
}

// writeRoff writes a text of the help. Its paragraphs are filled, and lines that are indented stay as they are.
func writeRoff(b *bytes.Buffer, text string) {
	for part := range strings.SplitSeq(text, "\n\n") {
		if strings.HasPrefix(part, " ") {
			fmt.Fprintf(b, ".PP\n.nf\n%s\n.fi\n", roff(part))
		} else {
			fmt.Fprintf(b, ".PP\n%s\n", roff(part))
		}
	}
}

// roff returns a text so that roff shows it as it is: a line is no request, a hyphen is one that can be copied, and a
// backslash is one.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

// documents returns the man pages and completions for install, where the shells and man(1) look for those of one user.
func documents(proc *cmdenv.Process) ([]install.Document, error) {
	data, err := cmdenv.XDGDir(proc.Getenv, "XDG_DATA_HOME", ".local/share")
	if err != nil {
		return nil, err
	}
	config, err := cmdenv.XDGDir(proc.Getenv, "XDG_CONFIG_HOME", ".config")
	if err != nil {
		return nil, err
	}
	data, config = filepath.Dir(data), filepath.Dir(config)
	scripts, err := Completions()
	if err != nil {
		return nil, err
	}
	all := []install.Document{
		{Path: filepath.Join(data, "bash-completion/completions/holdline"), Data: scripts["bash"]},
		{Path: filepath.Join(zshFunctions(data), "_holdline"), Data: scripts["zsh"]},
		{Path: filepath.Join(config, "fish/completions/holdline.fish"), Data: scripts["fish"]},
	}
	for name, page := range ManPages(cmdenv.Version) {
		all = append(all, install.Document{Path: filepath.Join(data, "man/man1", name), Data: page})
	}
	return all, nil
}

// zshFunctions returns the directory for completions of zsh below the data directory.
func zshFunctions(data string) string { return filepath.Join(data, "zsh/site-functions") }
