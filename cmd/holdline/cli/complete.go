package cli

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/consultcmd"
	"holdline/daemon/adapter/engines"
	"holdline/daemon/config"
	"holdline/daemon/listing"
	"holdline/daemon/statedir"
	"holdline/daemon/tool"
	"holdline/protocol"
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
		"servers call": c.each(c.servers, c.toolsOf),
		"consult show": c.each(c.consults), "consult wait": c.each(c.consults), "consult cancel": c.each(c.consults),
		"consult rm": c.each(c.consults), "config get": c.each(c.keys), "config unset": c.each(c.keys),
		"config set": c.each(c.keys, c.values), "config explain": c.each(c.identities, c.tools),
	} {
		if cmd, _, err := root.Find(strings.Fields(path)); err == nil && cmd != root {
			cmd.ValidArgsFunction = complete
		}
	}
	one := func(values ...string) func([]string) []string { return func([]string) []string { return values } }
	for flag, values := range map[string]func([]string) []string{
		"consult engine": one(engines.Names()...), "consult level": one("read", "shell"),
		"consult effort":        one("low", "medium", "high", "xhigh", "max"),
		"consult diff":          one("uncommitted", "staged"),
		"servers add scope":     one(config.ScopeProject, config.ScopeShared, config.ScopeSession),
		"servers add transport": one(config.Stdio, config.HTTP, config.SSE),
		"servers add contract":  one(string(tool.Convergent), string(tool.NeverReplay)),
		"mcp-stdio server":      c.servers, "mcp-stdio direct": c.servers, "mcp-stdio identity": c.identities,
	} {
		words := strings.Fields(flag)
		if cmd, _, err := root.Find(words[:len(words)-1]); err == nil {
			_ = cmd.RegisterFlagCompletionFunc(words[len(words)-1], c.each(values)) // a flag that is gone is no harm
		}
	}
}

// each returns the completion of a command whose n-th argument is one of what the n-th
// function returns; the functions get the arguments before it.
func (c completer) each(of ...func(args []string) []string) completion {
	return func(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(of) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var out []string
		for _, one := range of[len(args)](args) {
			if strings.HasPrefix(one, word) {
				out = append(out, one)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
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
func (c completer) servers([]string) []string { return slices.Sorted(maps.Keys(c.config().Servers)) }

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
	all := append(protocol.ClientNames(), slices.Collect(maps.Keys(c.config().Identities))...)
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
