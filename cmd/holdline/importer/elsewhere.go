package importer

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"holdline/cmd/holdline/clients"
)

// isElsewhere reports whether an entry that starts holdline may reach another daemon than this command does: by
// another program (ssh, a container, a shell), by its arguments, or by its environment. Which servers that one has
// is not known here, and it does not end with this one, so nothing removes such an entry by itself.
func (o *Options) isElsewhere(c *clients.Client, e *clients.Entry) bool {
	program, args := e.CommandLine()
	if words := strings.Fields(program); len(args) == 0 && len(words) > 1 && !isProxy(program) {
		program, args = words[0], words[1:] // a client that has a whole line as one word
	}
	switch {
	case !isProxy(program) && program != o.Command,
		clients.FlagValue(args, "--guest") != "",
		!slices.Contains([]string{"", o.Getenv("HOLDLINE_SOCKET")}, clients.FlagValue(args, "--socket")),
		!slices.Contains([]string{"", o.Config}, clients.FlagValue(args, "--config")):
		return true
	}
	env := map[string]any{}
	for _, kv := range c.Environment(o.Places, nil) { // its own settings set these
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	own, _ := e.Keys["env"].(map[string]any)
	maps.Copy(env, own)
	if home, set := env["HOME"]; set && home != o.Home {
		return true
	}
	for name, value := range env {
		if places := strings.HasPrefix(name, "HOLDLINE_") || strings.HasPrefix(name, "XDG_"); places && value != o.Getenv(name) {
			return true
		}
	}
	return false
}

// isProxy reports whether a program is holdline by its name.
func isProxy(program string) bool {
	name := filepath.Base(program)
	return name == "holdline" || name == "holdline-stdio"
}
