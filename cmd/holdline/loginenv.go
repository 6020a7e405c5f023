package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Limits of the login shell's run.
const (
	loginTimeout = 3 * time.Second
	maxLoginEnv  = 1 << 20 // bytes of environment
)

// basePath is where programs are found before a login shell says otherwise.
const basePath = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

// loginEnv is the environment that the user's login shell would give a
// program. The shell starts from a clean one, which holds the little of this
// process's that belongs to the user's session and not to the agent. If the
// shell does not answer in time, that clean environment comes with the error.
func loginEnv(ctx context.Context, env func(string) string) ([]string, error) {
	base, shell := cleanEnv(env)
	out, err := runLogin(ctx, shell, base)
	if err != nil {
		return base, fmt.Errorf("login shell %s: %w", shell, err)
	}
	list := parseEnv(out)
	for _, kv := range list {
		if strings.HasPrefix(kv, "PATH=") {
			return list, nil
		}
	}
	return base, fmt.Errorf("login shell %s: printed no environment", shell)
}

// loginPath is the PATH that the user's login shell gives to programs.
func loginPath(ctx context.Context, getenv func(string) string) (string, error) {
	list, err := loginEnv(ctx, getenv)
	if err != nil {
		return "", err
	}
	for _, kv := range list {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok && path != "" && !strings.ContainsAny(path, "\n") {
			return path, nil
		}
	}
	return "", errors.New("it has none that could be kept")
}

// cleanEnv is the environment that a login shell is started with, and that
// shell.
func cleanEnv(env func(string) string) (list []string, shell string) {
	name, home, shell := account(os.Getuid())
	if s := env("SHELL"); filepath.IsAbs(s) {
		shell = s
	}
	if h := env("HOME"); h != "" {
		home = h
	}
	if name == "" {
		name = env("USER")
	}
	if shell == "" {
		shell = "/bin/sh"
	}
	list = []string{"PATH=" + basePath, "SHELL=" + shell, "TERM=dumb"}
	for _, kv := range [][2]string{{"HOME", home}, {"USER", name}, {"LOGNAME", name}} {
		if kv[1] != "" {
			list = append(list, kv[0]+"="+kv[1])
		}
	}
	for _, name := range []string{
		"LANG", "LC_ALL", "LC_CTYPE", "TZ", "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS",
		"DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME",
	} {
		if value := env(name); value != "" {
			list = append(list, name+"="+value)
		}
	}
	return list, shell
}

// runLogin runs the shell and returns what it printed. The shell and all that
// it started in its session's first group are killed when the time is over.
func runLogin(ctx context.Context, shell string, env []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, loginTimeout)
	defer cancel()
	// The zero byte ends whatever the profile prints of its own.
	cmd := exec.CommandContext(ctx, shell, "-lc", `printf '\0'; env -0`)
	out := &limitedBuffer{left: maxLoginEnv}
	cmd.Env, cmd.Dir, cmd.Stdout = env, "/", out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 50 * time.Millisecond
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, exec.ErrWaitDelay): // something in the background holds its output
		return out.b.Bytes(), nil
	}
	return out.b.Bytes(), err
}

// limitedBuffer is a buffer that fails when it is full.
type limitedBuffer struct {
	b    bytes.Buffer
	left int
}

func (l *limitedBuffer) Write(p []byte) (int, error) {
	if len(p) > l.left {
		return 0, errors.New("too much output")
	}
	l.left -= len(p)
	return l.b.Write(p)
}

// parseEnv reads the output of `env -0` behind the first zero byte. Variables
// of the shell itself are left out.
func parseEnv(out []byte) []string {
	_, out, _ = bytes.Cut(out, []byte{0})
	var list []string
	for kv := range bytes.SplitSeq(out, []byte{0}) {
		name, _, ok := strings.Cut(string(kv), "=")
		switch name {
		case "", "_", "SHLVL", "PWD", "OLDPWD", "TERM":
			continue
		}
		if ok {
			list = append(list, string(kv))
		}
	}
	return list
}

// account is what the system's list of users says of uid, empty strings if it
// says nothing (users of macOS and of directories are not in the file).
func account(uid int) (name, home, shell string) {
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
