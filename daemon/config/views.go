package config

import (
	"fmt"
	"strings"
)

// A View is what sessions that choose it see of all that their identity may use. All views share
// the processes of the servers.
type View struct {
	Servers []string          `json:"servers"` // nil is all
	Allow   []string          `json:"allow"`   // nil allows all
	Deny    []string          `json:"deny"`
	Rename  map[string]string `json:"rename"` // SERVER__TOOL to the name that sessions see
}

// maxRenamed bounds the new name of a tool, as those of all tools that sessions see.
const maxRenamed = 49

// views checks the views. A server that is not configured is a mistake: the view would lack it.
func (d *decoder) views(c *Config) {
	for _, name := range sorted(c.Views) {
		at, v := "views."+name, c.Views[name]
		d.name(at, name, serverName, "of A-Z a-z 0-9 _ . -")
		d.servers(at+".servers", v.Servers, c)
		taken := map[string]string{}
		for _, from := range sorted(v.Rename) {
			inner, to := at+".rename."+from, v.Rename[from]
			if server, own, ok := strings.Cut(from, "__"); !ok || server == "" || own == "" {
				d.wrongKey(inner, "wants SERVER__TOOL")
			}
			switch {
			case to == "" || len(to) > maxRenamed || strings.Contains(to, "__") ||
				strings.ContainsFunc(to, func(r rune) bool { return !serverName(r) }):
				d.wrong(inner, "wants 1 to %d of A-Z a-z 0-9 _ . - without two underscores in a row", maxRenamed)
			case taken[to] != "":
				d.wrong(inner, "is the name of %s already", taken[to])
			}
			taken[to] = from
		}
	}
}

// servers checks a list of names of servers.
func (d *decoder) servers(at string, list []string, c *Config) {
	for i, name := range list {
		if _, ok := c.Servers[name]; !ok {
			d.wrong(fmt.Sprintf("%s[%d]", at, i), "%v", NoServer(name, c))
		}
	}
}
