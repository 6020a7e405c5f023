package config

import (
	"path"
	"slices"
)

// Allowed tells whether an identity may see and call a tool: no glob of deny
// names it, and one of allow does, if there are any. An identity that the
// file does not name may use every tool.
func (c Config) Allowed(identity, tool string) bool {
	id := c.Identities[identity]
	matches := func(glob string) bool {
		ok, err := path.Match(glob, tool)
		return err == nil && ok // bad globs are refused when the file is read
	}
	return !slices.ContainsFunc(id.Deny, matches) && (id.Allow == nil || slices.ContainsFunc(id.Allow, matches))
}
