package flow

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// errNoBrowser is the error of a machine without a browser that can be opened.
var errNoBrowser = errors.New("no browser can be opened")

// Opener returns the command that opens an address: configured, or the first entry of
// $BROWSER, or that of the system. It is nil if there is none, and for "none".
func Opener(configured string, getenv func(string) string) []string {
	first, _, _ := strings.Cut(getenv("BROWSER"), ":")
	system := map[string]string{"darwin": "open"}[runtime.GOOS]
	if system == "" {
		system = "xdg-open"
	}
	for _, text := range []string{configured, first, system} {
		argv := strings.Fields(text)
		switch {
		case len(argv) == 0:
			continue
		case text == "none":
			return nil
		}
		path, err := exec.LookPath(argv[0])
		if err != nil {
			return nil
		}
		argv[0] = path
		return argv
	}
	return nil
}

// OpenWith returns a function that opens an address with a command, without a shell. %s in an
// argument stands for the address; if there is none, it is the last argument. The browser
// lives on after this program.
func OpenWith(argv, environ []string) func(ctx context.Context, address string) error {
	return func(ctx context.Context, address string) error {
		if len(argv) == 0 {
			return errNoBrowser
		}
		args, placed := append([]string(nil), argv[1:]...), false
		for i, arg := range args {
			args[i] = strings.ReplaceAll(arg, "%s", address)
			placed = placed || args[i] != arg
		}
		if !placed {
			args = append(args, address)
		}
		cmd := exec.CommandContext(context.WithoutCancel(ctx), argv[0], args...)
		cmd.Env, cmd.SysProcAttr = environ, &syscall.SysProcAttr{Setsid: true} // Ctrl-C is not for the browser
		if err := cmd.Start(); err != nil {
			return errNoBrowser
		}
		return cmd.Process.Release()
	}
}

// HasBrowser reports whether a person at this terminal can see a browser of this machine.
func HasBrowser(getenv func(string) string) bool {
	if getenv("SSH_CONNECTION") != "" || getenv("SSH_TTY") != "" {
		return false
	}
	return runtime.GOOS != "linux" || getenv("DISPLAY") != "" || getenv("WAYLAND_DISPLAY") != ""
}
