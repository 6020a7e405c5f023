package sandbox

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"holdline/daemon/command"
)

// trialTimeout bounds the trial of bubblewrap.
const trialTimeout = 5 * time.Second

// ErrInterrupted is the error of a trial of bubblewrap that did not end in time.
// It says nothing about the machine.
var ErrInterrupted = fmt.Errorf("the trial of bubblewrap did not end within %s; try again", trialTimeout)

// Wrapper returns the path of the program bwrap on the PATH of env, or "".
func Wrapper(env []string) string {
	path, _ := command.LookPath("bwrap", command.Variable(env, "PATH"))
	return path
}

// Bubblewrap returns nil if a program with this environment, itself inside a sandbox of
// bubblewrap, can run commands in a second sandbox without a network. For that bwrap
// and socat must be on its PATH, and the kernel must let this user create namespaces,
// one inside the other. Only a trial can show the latter, so Bubblewrap runs one, which
// takes five seconds at most. The error says what is missing and how to get it, or is
// [ErrInterrupted].
func Bubblewrap(ctx context.Context, env []string) error {
	if runtime.GOOS != "linux" {
		return errors.New("bubblewrap is for Linux alone")
	}
	bwrap := Wrapper(env)
	if bwrap == "" {
		return errors.New("bubblewrap is not installed on this system (no bwrap on the daemon's PATH); install the package bubblewrap")
	}
	if _, err := command.LookPath("socat", command.Variable(env, "PATH")); err != nil {
		return errors.New("socat is not installed (not on the daemon's PATH), which the sandbox needs beside " +
			"bubblewrap; install the package socat")
	}
	ctx, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	words, err := trial(ctx, bwrap, env)
	if errors.Is(err, context.DeadlineExceeded) {
		return ErrInterrupted
	}
	if err != nil {
		return fmt.Errorf("bubblewrap cannot make a sandbox here, most likely since user namespaces "+
			"are switched off for you (%w%s); see user.max_user_namespaces and "+
			"kernel.apparmor_restrict_unprivileged_userns of sysctl", err, words)
	}
	return nil
}

// Resolved returns path without symbolic links, as far as it exists. Bubblewrap does
// not follow links, and users keep such directories elsewhere.
func Resolved(path string) string {
	rest := ""
	for dir := path; ; dir = filepath.Dir(dir) {
		if p, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(p, rest)
		}
		if dir == filepath.Dir(dir) {
			return path
		}
		rest = filepath.Join(filepath.Base(dir), rest)
	}
}

// Nests returns nil if the bubblewrap at path can make a sandbox, and another one in it, for a program
// with this environment. It runs a trial, which takes five seconds at most. The error is
// [ErrInterrupted] if that did not end.
func Nests(ctx context.Context, path string, env []string) error {
	if runtime.GOOS != "linux" {
		return errors.New("bubblewrap is for Linux alone")
	}
	ctx, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	_, err := trial(ctx, path, env)
	if errors.Is(err, context.DeadlineExceeded) {
		return ErrInterrupted
	}
	return err
}

// trial runs the program true inside two sandboxes of the kind that a consult needs. It
// returns the first line that bubblewrap wrote to stderr, for the error's text. The trial may
// outlive this process, for it ends by itself: with --die-with-parent a bwrap that dies while it
// starts its child leaves one that waits for it for ever.
func trial(ctx context.Context, bwrap string, env []string) (words string, err error) {
	cmd := command.Command{Path: bwrap, Env: env, Dir: "/", Stderr: 4 << 10, Args: []string{
		"--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--bind", "/proc", "/proc", "--",
		bwrap, "--ro-bind", "/", "/", "--dev", "/dev", "--unshare-net", "--unshare-pid", "--proc", "/proc",
		"--new-session", "--", "true",
	}}
	out, err := cmd.Run(ctx)
	line, _, _ := strings.Cut(strings.TrimSpace(string(out.Stderr)), "\n")
	if line != "" {
		line = ": " + line[:min(len(line), 200)]
	}
	return line, err
}
