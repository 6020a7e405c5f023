package configcmd

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/daemon/clienttable"
	"holdline/daemon/config"
	"holdline/daemon/config/glob"
	"holdline/daemon/listing"
	"holdline/daemon/spelling"
	"holdline/daemon/statedir"
	"holdline/daemon/tool"
	"holdline/protocol/control"
	"holdline/protocol/ownfile"
)

// adviser looks in a valid configuration for settings that most likely have no effect. What it
// knows is what was seen on this machine so far, so it can only advise.
type adviser struct {
	cfg *config.Config
	// identities are those of well-known clients, of connected ones and of the call log.
	identities map[string]struct{}
	// names has the names by which rules know what a server has listed, for each server
	// that was ever listed.
	names map[string][]string
}

// newAdviser returns an adviser for cfg. It asks the running daemon, the call log and the kept
// lists of servers which identities and tools there are. What cannot be asked is left out: then
// there may be a warning too many about an identity, and one too few about a tool.
func newAdviser(cmd *cobra.Command, proc *cmdenv.Process, cfg *config.Config) *adviser {
	// Some identities need no client: that of clients without a name, and the command line's.
	a := &adviser{
		cfg: cfg, identities: map[string]struct{}{tool.Anonymous: {}, "cli": {}}, names: map[string][]string{},
	}
	for _, name := range clienttable.Identities() {
		a.identities[name] = struct{}{}
	}
	a.askDaemon(cmd, proc)
	root, err := cmdenv.StateDir(proc.Getenv)
	if err != nil {
		return a
	}
	dirs := statedir.In(root)
	a.readCallLog(dirs.Telemetry)
	// Rules may use a tool's own name or the name that agents see.
	for server := range cfg.Servers {
		tools, others, known := listing.Remembered(dirs.Catalog, server)
		if !known {
			continue
		}
		a.names[server] = []string{}
		for _, own := range append(tools, others...) {
			a.names[server] = append(a.names[server], own, tool.Shown(server, own))
		}
	}
	return a
}

// askDaemon adds the identities of the sessions of the running daemon, if one runs. They may
// not be in the call log yet, since they may have called nothing.
func (a *adviser) askDaemon(cmd *cobra.Command, proc *cmdenv.Process) {
	status, err := attach.Ask[control.StatusAnswer](cmd, proc, control.Status, nil)
	if err != nil {
		return
	}
	for i := range status.Sessions {
		a.identities[clienttable.Identity(status.Sessions[i].Identity)] = struct{}{}
	}
}

// readCallLog adds the identities of all lines of the call log, including its rotated files.
// path is that of the newest file.
func (a *adviser) readCallLog(path string) {
	older, _ := filepath.Glob(path + ".*") // only a bad pattern is an error
	// The daemon may rotate the log meanwhile. Then a file is read twice or not at all, which
	// matters little for an advice.
	for _, path := range append(older, path) {
		f, err := ownfile.Open(path)
		if err != nil {
			continue // then it has no identities
		}
		// The log has one JSON object in each line. Others are ignored.
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			var line struct {
				Identity string `json:"identity"`
			}
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Identity != "" {
				a.identities[clienttable.Identity(line.Identity)] = struct{}{}
			}
		}
		_ = f.Close()
	}
}

// warnings returns what most likely has no effect: identities that no client is known to use,
// and rules that match nothing. The order is that of the sorted names. Each begins with the key
// in the file.
func (a *adviser) warnings() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(a.cfg.Identities)) {
		id, key := a.cfg.Identities[name], "identities."+name
		if _, known := a.identities[name]; !known {
			out = append(out, fmt.Sprintf(
				"%s: no client is known by that name%s: it holds if one connects with --identity %s",
				key, nearest(name, slices.Collect(maps.Keys(a.identities))), name))
		}
		out = append(out, a.globs(key+".allow", id.Allow, a.inFull)...)
		out = append(out, a.globs(key+".deny", id.Deny, a.inFull)...)
	}
	// The rules of a server know its tools by their own names and by those that agents see.
	for _, server := range slices.Sorted(maps.Keys(a.cfg.Servers)) {
		h, key := a.cfg.Servers[server].Holdline, "mcpServers."+server+".holdline"
		of := func(string) ([]string, bool) { return a.names[server], a.names[server] != nil }
		out = append(out, a.globs(key+".allow", h.Allow, of)...)
		out = append(out, a.globs(key+".deny", h.Deny, of)...)
		out = append(out, a.globs(key+".contract", slices.Sorted(maps.Keys(h.Contracts)), of)...)
	}
	for _, name := range slices.Sorted(maps.Keys(a.cfg.Views)) {
		v, key := a.cfg.Views[name], "views."+name
		out = append(out, a.globs(key+".allow", v.Allow, a.inFull)...)
		out = append(out, a.globs(key+".deny", v.Deny, a.inFull)...)
		out = append(out, a.globs(key+".rename", slices.Sorted(maps.Keys(v.Rename)), a.inFull)...)
		for _, from := range slices.Sorted(maps.Keys(v.Rename)) {
			if _, own := tool.OwnDispatch(v.Rename[from]); own {
				out = append(out, fmt.Sprintf("%s.rename.%s: Holdline's own tool %s hides it", key, from,
					v.Rename[from]))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.cfg.Sockets)) {
		s, key := a.cfg.Sockets[name], "sockets."+name
		out = append(out, a.globs(key+".allow", s.Allow, a.inFull)...)
		out = append(out, a.globs(key+".deny", s.Deny, a.inFull)...)
	}
	return append(out, a.idleCommands()...)
}

// idleCommands returns a warning for each command of the table that no server names.
func (a *adviser) idleCommands() []string {
	var out []string
	named := map[string]bool{}
	for server := range a.cfg.Servers {
		s, _ := a.cfg.Server(server)
		for name := range s.Commands {
			named[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.cfg.Commands)) {
		if !named[name] {
			out = append(out, fmt.Sprintf("commands.%s: no server has ${cmd:%s} in its env or headers", name, name))
		}
	}
	return out
}

// globs returns a warning for each glob that matches no name. names returns the names that a
// glob is compared with, and whether these are all; if not, there is no warning. key says in the
// warning where the globs stand.
func (a *adviser) globs(key string, globs []string, names func(glob string) (all []string, complete bool)) []string {
	var out []string
	for _, pattern := range globs {
		all, complete := names(pattern)
		// A glob with a colon is for resources, which need not be listed. The glob * is
		// right without any tool.
		if !complete || pattern == "*" || strings.Contains(pattern, ":") {
			continue
		}
		if !slices.ContainsFunc(all, func(name string) bool { return glob.Match(pattern, name) }) {
			out = append(out, fmt.Sprintf("%s: %q names nothing that there is%s", key, pattern, nearest(pattern, all)))
		}
	}
	return out
}

// inFull returns the names by which the rules of identities know tools: holdline's own, and
// those of servers with the server's name before them. complete is false if the glob may match
// a tool of a server that was never listed: then a glob without a match is no sign of a
// mistake.
func (a *adviser) inFull(glob string) (all []string, complete bool) {
	all = tool.OwnNames()
	// fixed is the part of the glob before its first wildcard.
	fixed := glob
	if i := strings.IndexAny(glob, `*?[\`); i >= 0 {
		fixed = glob[:i]
	}
	for server := range a.cfg.Servers {
		prefix := server + "__"
		names, listed := a.names[server]
		if !listed && (strings.HasPrefix(fixed, prefix) || fixed != glob && strings.HasPrefix(prefix, fixed)) {
			return nil, false
		}
		for _, name := range names {
			if !strings.HasPrefix(name, prefix) {
				name = prefix + name
			}
			all = append(all, name)
		}
	}
	return all, true
}

// nearest returns a question, in parentheses: whether one of names was meant, if one is much
// like name; else "". It sorts the slice of the caller.
func nearest(name string, names []string) string {
	slices.Sort(names)
	near := spelling.Nearest(name, names)
	if near == "" {
		return ""
	}
	return fmt.Sprintf(" (is it %q?)", near)
}
