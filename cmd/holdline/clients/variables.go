package clients

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"holdline/daemon/clienttable"
	"holdline/daemon/jsonedit"
)

// Environment returns the variables that the client has when it starts a server: those of environ, in
// which the user starts the client, and over them those that the client's own settings set. Of the
// settings of a project nothing is read.
func (c *Client) Environment(p Places, environ []string) []string {
	settings := map[string]any{}
	if c.Settings != "" {
		if text, err := ReadFile(p.path(c.Settings)); err == nil {
			if plain, err := hujson.Standardize(jsonedit.EndLine(text)); err == nil {
				_ = json.Unmarshal(plain, &settings) // a file that cannot be read says nothing
			}
		}
	}
	own, _ := settings[c.EnvKey].(map[string]any)
	out := slices.Clone(environ)
	for name, value := range own {
		if text, ok := value.(string); ok {
			out = append(out, name+"="+text)
		}
	}
	return out
}

// Passes reports whether the client passes a variable of its own environment to the servers that it
// starts, and does not set it itself.
func (c *Client) Passes(name string) bool {
	return c.Inherits == clienttable.All && !slices.Contains(c.Adds, name)
}

// Lookup returns the last value of a variable in an environment.
func Lookup(environ []string, name string) (value string, ok bool) {
	for _, kv := range slices.Backward(environ) {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value, true
		}
	}
	return "", false
}
