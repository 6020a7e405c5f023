package cli

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/clients"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/consultcmd"
	"holdline/cmd/holdline/setupcmd"
	"holdline/daemon/adapter/engines"
	"holdline/daemon/clienttable"
	"holdline/daemon/config"
	"holdline/daemon/listing"
	"holdline/daemon/spelling"
	"holdline/daemon/statedir"
	"holdline/daemon/tool"
)

// completer proposes arguments to the user's shell. It asks no daemon: what it knows is in the
// configuration and in the state directory, so that the shell never waits.
type completer struct{ proc *cmdenv.Process }

// completion is the function of a command that completes its arguments.
type completion = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective)

// addCompletions lets the shell complete names of servers and tools, ids of consults,
// identities, keys of the configuration, and the values of flags that have few.
func addCompletions(root *cobra.Command, proc *cmdenv.Process) {
	c := completer{proc}
	for path, complete := range map[string]completion{
		"logs": c.each(c.servers), "servers get": c.each(c.servers), "servers remove": c.each(c.servers),
		"servers enable": c.each(c.servers), "servers disable": c.each(c.servers), "servers start": c.each(c.servers),
		"servers stop": c.each(c.servers), "servers restart": c.each(c.servers), "servers reload": c.each(c.servers),
		"servers tools": c.each(c.servers), "servers logs": c.each(c.servers), "servers test": c.each(c.servers),
		"servers login": c.each(c.servers), "servers edit": c.each(c.servers), "servers logout": c.each(c.servers),
		"servers call": c.each(c.servers, c.toolsOf),
		"consult show": c.each(c.consults), "consult wait": c.each(c.consults), "consult cancel": c.each(c.consults),
		"consult rm": c.each(c.consults), "config get": c.each(c.keys), "config unset": c.each(c.keys),
		"connect": c.each(nobody, c.sockets), "disconnect": c.each(c.sockets),
		"config set": c.each(c.keys, c.values), "config explain": c.each(c.identities, c.tools),
	} {
		if cmd, _, err := root.Find(strings.Fields(path)); err == nil && cmd != root {
			cmd.ValidArgsFunction = complete
		}
	}
	c.addFlags(root)
}

// addFlags lets the shell complete the values of flags. A flag whose values are a closed list keeps
// it, for [wrongValue].
func (c completer) addFlags(root *cobra.Command) {
	scopes := []string{config.ScopeProject, config.ScopeShared, config.ScopeSession}
	closed := map[string][]string{
		"color": console.ColorModes, "consult level": {"read", "shell"},
		"consult effort":        {"low", "medium", "high", "xhigh", "max"},
		"servers add scope":     scopes,
		"servers add transport": {config.Stdio, config.HTTP, config.SSE},
		"servers add contract":  {string(tool.Convergent), string(tool.NeverReplay)},
		"import scope":          scopes, "setup scope": scopes,
		"import from": clients.Names(), "setup from": clients.Names(),
	}
	found := func([]string) []string { return setupcmd.FoundServers(c.proc) }
	complete := map[string]func([]string) []string{
		"consult engine":   c.engines,
		"consult diff":     func([]string) []string { return []string{"uncommitted", "staged"} },
		"mcp-stdio server": c.servers, "mcp-stdio direct": c.servers, "mcp-stdio identity": c.identities,
		"mcp-stdio view": c.views, "config explain view": c.views, "config explain guest": c.sockets,
		"import skip": found, "setup skip": found,
	}
	for flag, values := range closed {
		complete[flag] = func([]string) []string { return values }
	}
	for flag, values := range complete {
		words := strings.Fields(flag)
		last := len(words) - 1
		cmd, _, err := root.Find(words[:last])
		if err != nil || cmd.Flag(words[last]) == nil {
			continue // a flag that is gone is no harm
		}
		_ = cmd.RegisterFlagCompletionFunc(words[last], func(_ *cobra.Command, _ []string, word string) (
			[]string, cobra.ShellCompDirective,
		) {
			return proposals(values(nil), word, isList(cmd.Flag(words[last]))), cobra.ShellCompDirectiveNoFileComp
		})
		if closed[flag] != nil {
			_ = cmd.Flags().SetAnnotation(words[last], valuesAnnotation, closed[flag])
			_ = cmd.PersistentFlags().SetAnnotation(words[last], valuesAnnotation, closed[flag]) // one of both has it
		}
	}
}

// proposals returns those of values that begin with word. In a list with commas the last element
// is completed, by one that the list has not yet.
func proposals(values []string, word string, list bool) []string {
	before := ""
	if list {
		before = word[:strings.LastIndexByte(word, ',')+1]
	}
	var out []string
	for _, one := range values {
		if strings.HasPrefix(one, word[len(before):]) && !slices.Contains(strings.Split(before, ","), one) {
			out = append(out, before+one)
		}
	}
	return out
}

// each returns the completion of a command whose n-th argument is one of what the n-th
// function returns; the functions get the arguments before it.
func (c completer) each(of ...func(args []string) []string) completion {
	return func(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(of) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return proposals(of[len(args)](args), word, false), cobra.ShellCompDirectiveNoFileComp
	}
}

// views returns the names of the views.
func (c completer) views([]string) []string {
	cfg := c.config()
	return spelling.Sorted(maps.Keys(cfg.Views))
}

// sockets returns the names of the sockets for guests.
func (c completer) sockets([]string) []string {
	cfg := c.config()
	return spelling.Sorted(maps.Keys(cfg.Sockets))
}

// nobody completes nothing.
func nobody([]string) []string { return nil }

// engines returns the engines of consults.
func (c completer) engines([]string) []string {
	cfg := c.config()
	return engines.Names(&cfg.Consult)
}

// config returns the configuration as far as it can be read.
func (c completer) config() config.Config {
	path, err := cmdenv.ConfigPath("", c.proc.Getenv)
	if err != nil {
		return config.Default()
	}
	cfg, err := config.Load(path)
	if err != nil {
		return config.Default()
	}
	return cfg
}

// servers returns the names of the configured servers.
func (c completer) servers([]string) []string { return spelling.Sorted(maps.Keys(c.config().Servers)) }

// listed returns the tools that a server has listed last, by its own names.
func (c completer) listed(server string) []string {
	dir, err := cmdenv.StateDir(c.proc.Getenv)
	if err != nil {
		return nil
	}
	tools, _, _ := listing.Remembered(statedir.In(dir).Catalog, server)
	return tools
}

// toolsOf returns the tools of the server that the first argument names.
func (c completer) toolsOf(args []string) []string { return c.listed(args[0]) }

// tools returns all tools as agents see them.
func (c completer) tools([]string) []string {
	all := tool.OwnNames()
	for _, server := range c.servers(nil) {
		for _, own := range c.listed(server) {
			all = append(all, tool.Shown(server, own))
		}
	}
	return all
}

// identities returns the identities of well-known clients and of the configuration.
func (c completer) identities([]string) []string {
	all := append(clienttable.Identities(), slices.Collect(maps.Keys(c.config().Identities))...)
	slices.Sort(all)
	return slices.Compact(all)
}

// consults returns the ids of the consults, with their questions.
func (c completer) consults([]string) []string {
	all := []string{"last\tthe latest one"}
	for _, one := range consultcmd.Kept(c.proc) {
		all = append(all, one.ID+"\t"+one.Question)
	}
	return all
}

// keys returns the keys of the configuration, with what they are about.
func (c completer) keys([]string) []string {
	var all []string
	for _, k := range c.config().Keys() {
		all = append(all, k.Key.String()+"\t"+k.Help)
	}
	return all
}

// values returns the values that the key which the first argument names can have, if these
// are a few words.
func (c completer) values(args []string) []string {
	for _, k := range c.config().Keys() {
		if k.Key.String() == args[0] {
			return k.Values
		}
	}
	return nil
}
