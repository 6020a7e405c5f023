package config

import (
	"cmp"
	"path"
	"strings"
)

// A Socket is a second socket of the daemon, whose clients are guests: agents in containers and
// on other machines. They have one identity, and may use nothing that the socket does not name.
type Socket struct {
	Path        string            `json:"path"` // "" is below the daemon's runtime directory
	Identity    string            `json:"identity"`
	Servers     []string          `json:"servers"`
	Allow       []string          `json:"allow"` // never empty
	Deny        []string          `json:"deny"`
	UIDs        []int             `json:"uids"`        // empty is the daemon's own user
	Paths       map[string]string `json:"paths"`       // directory of the guest to that of a project here
	Connections int               `json:"connections"` // 0 is [GuestLimit]
	InFlight    int               `json:"in_flight"`   // 0 is [GuestCalls]
	Disabled    bool              `json:"disabled"`
}

// Limits of a socket, unless the file has others.
const (
	GuestLimit = 64 // connections
	GuestCalls = 8  // calls in flight of all its guests: they must not keep others from a shared server
)

// IdentityOf returns the identity of the guests of a socket, given its name. By default no other
// client has it.
func (s Socket) IdentityOf(name string) string { return cmp.Or(s.Identity, "guest:"+name) }

// ProjectOf returns the project here that a directory of a guest lies in, and "" if there is none.
// It is always one of the directories that Paths names, and never one below it: the guest can
// replace that by a link.
func (s Socket) ProjectOf(cwd string) string {
	cwd = path.Clean(cwd)
	longest, project := "", ""
	for guest, here := range s.Paths {
		within := strings.TrimSuffix(guest, "/") + "/"
		if strings.HasPrefix(cwd+"/", within) && len(guest) > len(longest) {
			longest, project = guest, here
		}
	}
	return project
}

// sockets checks the sockets. One that names no tool would be of no use.
func (d *decoder) sockets(c *Config) {
	owner := map[string]string{}
	for _, name := range sorted(c.Sockets) {
		at, s := "sockets."+name, c.Sockets[name]
		d.name(at, name, serverName, "of A-Z a-z 0-9 _ . -")
		if strings.Trim(name, "0123456789") == "" || strings.HasPrefix(name, ".") {
			d.wrongKey(at, "the name wants a letter, and no dot at its beginning")
		}
		d.servers(at+".servers", s.Servers, c)
		if len(s.Allow) == 0 {
			d.wrong(at+".allow", `wants at least one glob of what guests may use, such as "SERVER__*"`)
		}
		if s.Identity != "" {
			d.identity(s.Identity, Identity{})
		}
		for i, uid := range s.UIDs {
			if uid < 0 || uid >= 1<<32-1 {
				d.wrong(at+".uids", "%d is the number of no user (entry %d)", uid, i)
			}
		}
		for _, guest := range sorted(s.Paths) {
			if guest == "" || !path.IsAbs(guest) || path.Clean(guest) != guest {
				d.wrongKey(at+".paths."+guest, "wants a directory of the guest that begins with /")
			}
			d.path(at+".paths."+guest, s.Paths[guest])
		}
		if s.Path != "" {
			if other := owner[s.Path]; other != "" {
				d.wrong(at+".path", "is that of the socket %s, too", other)
			}
			owner[s.Path] = name
		}
	}
}
