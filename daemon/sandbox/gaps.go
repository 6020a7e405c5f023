package sandbox

import (
	"errors"
	"fmt"
	"strings"

	"holdline/protocol/process"
)

// Versions of the Landlock ABI.
const (
	// Complete is the first version that protects a file entirely: its content, its
	// name and its place.
	Complete = 3
	// Ports is the first version that limits connections of TCP to ports.
	Ports = 4
	// Signals is the first version that keeps a process from sending signals to others.
	Signals = 6
)

// Gaps says for people what a process can still change that [Confine] has confined
// under this version of the Landlock ABI. It returns "" if there is nothing, and for
// version 0, which has no Landlock.
func Gaps(version int) string {
	if version > 0 && version < Complete {
		return "this kernel's Landlock (ABI 1 or 2, before Linux 6.2) does not keep a file that exists from being " +
			"truncated"
	}
	return ""
}

// Refusal returns why this machine cannot confine a hosted server, and what would help;
// nil if it can. ports says that its connections are limited to ports.
func Refusal(ports bool) error { return refusal(Landlock(), filters(), ports) }

// refusal is [Refusal] for a version of the Landlock ABI. filters says that system calls can be
// filtered.
func refusal(version int, filters, ports bool) error {
	switch {
	case version == 0:
		return errors.New("this system has no Landlock; Linux 6.2 or newer has, with landlock in the list of " +
			"security modules (lsm= on the kernel's command line)")
	case version < Complete:
		return errors.New(Gaps(version) + "; Linux 6.2 or newer does")
	case !filters:
		return errors.New("this system cannot filter system calls (seccomp) for this processor, by which sockets " +
			"are kept out of reach; Linux on amd64 or arm64 can, with CONFIG_SECCOMP_FILTER")
	case ports && version < Ports:
		return fmt.Errorf("Landlock ABI %d knows no ports; Linux 6.7 or newer does", version)
	}
	return nil
}

// Holds says for people what holds a confined server on this machine: which mechanism
// keeps it from what. sockets and ports are those of its [process.Confine].
func Holds(sockets string, ports []int) string {
	version := Landlock()
	words := fmt.Sprintf("files by Landlock ABI %d; unix sockets by seccomp", version)
	switch sockets {
	case process.SocketsTCP:
		words = fmt.Sprintf("files and TCP ports %s by Landlock ABI %d; all other sockets by seccomp",
			strings.Trim(fmt.Sprint(ports), "[]"), version)
	case process.SocketsNone:
		words = fmt.Sprintf("files by Landlock ABI %d; all sockets by seccomp", version)
	}
	if version < Signals {
		return words + "; it can signal your other processes (Linux 6.12 or newer prevents that)"
	}
	return words + "; signals by Landlock"
}
