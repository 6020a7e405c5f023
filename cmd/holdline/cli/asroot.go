package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/daemon/statedir"
	"holdline/daemon/userenv"
	"holdline/protocol/ownfile"
	"holdline/protocol/socket"
)

// forRoot are the commands that root may run in another user's home: they change nothing, or check the owner of
// what they use themselves.
var forRoot = []string{"help", "version", "completion", "mcp-stdio", "daemon", "engine", "path", "far"}

// refuseHome returns an error for a command that root runs in the home of a user who has Holdline, or who has become
// root by sudo. It would leave files there that the user's own daemon refuses, and take the user's files for those
// of an intruder. A container whose root has such a home, and nothing of Holdline in it, is no such case.
func refuseHome(cmd *cobra.Command, proc *cmdenv.Process) error {
	home := proc.Getenv("HOME")
	owner, ok := ownerOf(home)
	if os.Geteuid() != 0 || !ok || owner == 0 || strings.HasPrefix(cmd.Name(), "__") {
		return nil
	}
	for c := cmd; c.HasParent(); c = c.Parent() {
		if slices.Contains(forRoot, c.Name()) {
			return nil
		}
	}
	state, err := cmdenv.StateDir(proc.Getenv)
	if err != nil {
		return err
	}
	other, has := ownerOf(state)
	if proc.Getenv("SUDO_UID") != strconv.Itoa(owner) && (!has || other != owner) {
		return nil
	}
	name := nameOf(owner)
	return cmdenv.WithHint(
		fmt.Errorf("you are root, and HOME is that of %s: %s", name, daemonWords(name, state)),
		fmt.Sprintf("run it as %s, without sudo: %s", name, cmd.CommandPath()))
}

// hintForSudo adds to the error that no daemon runs that the user who has become root by sudo has one.
func hintForSudo(cmd *cobra.Command, proc *cmdenv.Process, err error) error {
	uid, uerr := strconv.Atoi(proc.Getenv("SUDO_UID"))
	if !errors.Is(err, socket.ErrNoDaemon) || os.Geteuid() != 0 || uerr != nil || uid == 0 {
		return err
	}
	_, home, _ := userenv.Account(uid)
	name := nameOf(uid)
	words := daemonWords(name, filepath.Join(home, ".local/state/holdline"))
	return cmdenv.WithHint(err, fmt.Sprintf("you are root; %s. Without sudo: %s", words, cmd.CommandPath()))
}

// daemonWords says whether the daemon of a user runs, whose state directory that is.
func daemonWords(name, state string) string {
	if runs, err := statedir.Held(filepath.Join(state, socket.LockFile)); err == nil && runs {
		return name + "'s daemon runs"
	}
	return name + " has a Holdline of their own"
}

// nameOf returns the name of a user, or else the number.
func nameOf(uid int) string {
	if name, _, _ := userenv.Account(uid); name != "" {
		return name
	}
	return fmt.Sprintf("user %d", uid)
}

// ownerOf returns the owner of a file or directory, and whether there is one.
func ownerOf(path string) (uid int, ok bool) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, false
	}
	uid = ownfile.Owner(info)
	return uid, uid >= 0
}
