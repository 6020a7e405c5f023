// Package hostname has the names of the machines and containers on which servers run.
package hostname

import (
	"errors"
	"strconv"
	"strings"
)

// Prefixes of names that are no hosts of ssh.
const (
	Docker = "docker:"
	Podman = "podman:"
	Kube   = "kube:"
)

// separators are what the programs of each prefix take names apart at. "" is ssh, whose names
// have a user: everything before the last @.
var separators = map[string]string{"": "@/", Docker: "", Podman: "", Kube: "/"}

// Check returns what is wrong with the name of a host. Programs get the name as an argument. They
// take it apart, and may hand a part to another program as an argument: so each part is checked.
func Check(s string) error {
	prefix, name := "", s
	if i := strings.IndexByte(s, ':') + 1; i > 0 {
		prefix, name = s[:i], s[i:]
	}
	if at, known := separators[prefix]; !known || !isName(name, at) {
		return errors.New("wants a host of ssh, or docker:NAME, podman:NAME or kube:POD, " +
			"in which no part begins with a dash")
	}
	return nil
}

// CheckSSH returns what is wrong with the name of a host of ssh, which may be an ssh:// address with
// a port, too.
func CheckSSH(s string) error {
	name, isURL := strings.CutPrefix(s, "ssh://")
	port, err := uint64(1), error(nil)
	if host, number, has := strings.Cut(name, ":"); isURL && has {
		name = host
		port, err = strconv.ParseUint(number, 10, 16)
	}
	if err != nil || port == 0 || !isName(name, separators[""]) {
		return errors.New("wants a host of ssh, in which no part begins with a dash")
	}
	return nil
}

// isName reports whether a name, and each part of it between the separators, can be handed to a
// program.
func isName(name, separators string) bool {
	begins := true // a part begins with the next character
	for _, r := range name {
		switch separates := strings.ContainsRune(separators, r); {
		case begins && (separates || r == '-'), !separates && !plain(r):
			return false
		default:
			begins = separates
		}
	}
	return !begins
}

// plain reports whether no shell and no program takes a character for anything but a part of a name.
func plain(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r)
}
