// Package hostname has the names of the machines and containers on which servers run.
package hostname

import (
	"errors"
	"slices"
	"strings"
)

// Prefixes of names that are no hosts of ssh.
const (
	Docker = "docker:"
	Podman = "podman:"
	Kube   = "kube:"
)

// Check returns what is wrong with the name of a host. Programs get the name as an argument.
func Check(s string) error {
	prefix, name, prefixed := strings.Cut(s, ":")
	if !prefixed {
		name = s
	}
	if name == "" || name[0] == '-' || prefixed && !slices.Contains([]string{Docker, Podman, Kube}, prefix+":") ||
		strings.ContainsFunc(name, func(r rune) bool { return !plain(r) }) {
		return errors.New("wants a host of ssh, or docker:NAME, podman:NAME or kube:POD")
	}
	return nil
}

// plain reports whether no shell and no program takes a character for anything but a part of a name.
func plain(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.@/", r)
}
