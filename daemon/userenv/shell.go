package userenv

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdline/daemon/command"
)

// LoginTimeout is how long a login shell may take to report its environment: many profiles start version
// managers. It is constant but for tests.
var LoginTimeout = 8 * time.Second

// Other limits of a shell that is asked for its environment.
const (
	interactiveTimeout = 3 * time.Second
	maxOutput          = 1 << 20 // bytes
)

// BasePath is the PATH that a shell is started with, and that holds until one has answered.
const BasePath = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

// Asking is the variable by which a profile can tell that the shell was started only
// to report its environment.
const Asking = "HOLDLINE_RESOLVING_ENVIRONMENT"

// session are the variables that belong to the user's session and not to one program
// in it. A shell is started with them.
var session = []string{
	"LANG", "LC_ALL", "LC_CTYPE", "TZ", "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS",
	"DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME",
}

// Shell is the user's login shell, with the environment that it is started with.
type Shell struct {
	Path string
	Env  []string
}

// UserShell returns the login shell of this user. Its environment is a clean one, with
// the few variables of getenv that belong to the user's session and not to the program
// that started this process.
func UserShell(getenv func(string) string) Shell {
	name, home, shell := Account(os.Getuid())
	if s := getenv("SHELL"); filepath.IsAbs(s) {
		shell = s
	}
	if h := getenv("HOME"); h != "" {
		home = h
	}
	if name == "" {
		name = getenv("USER")
	}
	if shell == "" {
		shell = "/bin/sh"
	}
	env := []string{"PATH=" + BasePath, "SHELL=" + shell, "TERM=dumb"}
	for _, kv := range [][2]string{{"HOME", home}, {"USER", name}, {"LOGNAME", name}} {
		if kv[1] != "" {
			env = append(env, kv[0]+"="+kv[1])
		}
	}
	for _, name := range session {
		if value := getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return Shell{Path: shell, Env: env}
}

// Login returns the environment that the shell gives to programs when it is
// started as a login shell.
func (s Shell) Login(ctx context.Context) ([]string, error) {
	return s.printEnviron(ctx, LoginTimeout, false)
}

// Interactive returns the environment that the shell gives to programs when it
// is started as an interactive login shell: many users set their PATH in a file
// that only interactive shells read.
func (s Shell) Interactive(ctx context.Context) ([]string, error) {
	return s.printEnviron(ctx, interactiveTimeout, true)
}

// LoginPath returns the PATH that the login shell gives to programs.
func (s Shell) LoginPath(ctx context.Context) (string, error) {
	env, err := s.Login(ctx)
	if err != nil {
		return "", err
	}
	path := command.Variable(env, "PATH")
	if path == "" || strings.Contains(path, "\n") {
		return "", fmt.Errorf("the PATH of your shell %s cannot be kept in one line", s.Path)
	}
	return path, nil
}

// printEnviron runs the shell with a command that prints the environment, and returns that. A
// profile may print anything, so the environment is printed between two markers that no profile
// can know: a variable alone, and one more variable, which env prints last. A profile may also
// hang, so limit bounds the wait.
func (s Shell) printEnviron(ctx context.Context, limit time.Duration, interactive bool) ([]string, error) {
	slow := fmt.Errorf("the profile of your shell %s took longer than %v", s.Path, limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, slow)
	defer cancel()
	marker := rand.Text()
	script := fmt.Sprintf("/usr/bin/env -i %s=; exec /usr/bin/env -0 %s=", marker, marker)
	cmd := command.Command{
		Path: s.Path, Env: append([]string{Asking + "=1"}, s.Env...), Dir: "/", Session: true, Strict: true,
		Stdout: maxOutput, Stderr: maxOutput,
	}
	if strings.HasSuffix(filepath.Base(s.Path), "csh") {
		cmd.Name = "-" + filepath.Base(s.Path) // csh and tcsh do not take -l beside -c
	} else {
		cmd.Args = append(cmd.Args, "-l")
	}
	if interactive {
		cmd.Args = append(cmd.Args, "-i")
	}
	cmd.Args = append(cmd.Args, "-c", script)
	out, err := cmd.Run(ctx)
	env := parse(out.Stdout, marker)
	switch {
	case command.Variable(env, "PATH") != "": // a shell may fail once it has answered
		return env, nil
	case errors.Is(context.Cause(ctx), slow):
		return nil, slow
	case err != nil:
		return nil, fmt.Errorf("your shell %s fails as a login shell: %w", s.Path, err)
	}
	return nil, fmt.Errorf("your shell %s ended without saying its environment", s.Path)
}

// own are variables that a shell sets for itself.
var own = []string{"", "_", "SHLVL", "PWD", "OLDPWD", "TERM", Asking}

// parse returns the environment that `env -0` has printed after the line and before the
// variable that have marker for a name, without the variables that a shell sets for itself. It
// returns nil if the second marker is missing.
func parse(out []byte, marker string) []string {
	_, out, _ = bytes.Cut(out, []byte(marker+"=\n"))
	out, _, complete := bytes.Cut(out, []byte("\x00"+marker+"=\x00"))
	if !complete {
		return nil
	}
	var list []string
	for kv := range bytes.SplitSeq(out, []byte{0}) {
		name, _, ok := strings.Cut(string(kv), "=")
		if ok && !slices.Contains(own, name) {
			list = append(list, string(kv))
		}
	}
	return list
}

// Account returns what /etc/passwd says of uid. It returns empty strings if uid is not
// in it: users of macOS and of network directories are not.
func Account(uid int) (name, home, shell string) {
	b, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return "", "", ""
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		f := strings.Split(line, ":")
		if len(f) == 7 && f[2] == strconv.Itoa(uid) {
			return f[0], f[5], f[6]
		}
	}
	return "", "", ""
}
