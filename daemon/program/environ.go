package program

import (
	"slices"
	"strings"

	"holdline/daemon/command"
)

// Environment returns the environment of a program; see [command.Compose]. A later
// source replaces an earlier one:
//
//   - base, the daemon's own environment: the names of any session, those that say how to
//     reach the network, and those that pass accepts,
//   - set,
//   - extra, which the configuration names.
//
// No source can set what makes a program load foreign code or believe that it runs inside
// another session, nor the daemon's own variables, which hold tokens.
func Environment(base []string, pass func(name string) bool, set, extra []string) []string {
	inherits := func(name string) bool { return command.Core.Has(name) || command.Network.Has(name) || pass(name) }
	never := func(name string) bool {
		return command.Loaders.Has(name) || command.Agents.Has(name) || name == "LD_LIBRARY_PATH" ||
			strings.HasPrefix(name, "HOLDLINE_")
	}
	return command.Compose(base, inherits, slices.Concat(set, extra), never)
}
