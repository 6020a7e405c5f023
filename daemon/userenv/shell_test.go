package userenv

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// realShell is a shell of this machine, with the files that it reads.
type realShell struct {
	name        string
	login       string // name of its login file in the home directory
	interactive string // name of the file for interactive shells; "" if it is the same
	export      string // how PATH is extended there; %s is the directory
	onlyIf      string // guards a command that only an interactive shell runs
	secret      string // the line that exports TOKEN=secret
	noInter     bool   // with -c it is never interactive
	goesOn      bool   // an exit in the profile ends the profile, not the shell
}

var realShells = []realShell{
	{
		name: "bash", login: ".bash_profile", interactive: ".bash_profile", export: "export PATH=%s:$PATH",
		onlyIf: "case $- in *i*) ", secret: "export TOKEN=secret",
	},
	{
		name: "zsh", login: ".zprofile", interactive: ".zshrc", export: "export PATH=%s:$PATH",
		secret: "export TOKEN=secret",
	},
	{
		name: "fish", login: ".config/fish/config.fish", interactive: ".config/fish/config.fish",
		export: "set -gx PATH %s $PATH", onlyIf: "status is-interactive; and ", secret: "set -gx TOKEN secret",
		goesOn: true,
	},
	{
		name: "tcsh", login: ".login", export: "setenv PATH %s:$PATH", secret: "setenv TOKEN secret", noInter: true,
		goesOn: true,
	},
	{name: "dash", login: ".profile", export: "export PATH=%s:$PATH", secret: "export TOKEN=secret", noInter: true},
}

// user makes a home directory whose profile has these lines, and returns its shell.
func (r realShell) user(t *testing.T, login, interactive string) Shell {
	t.Helper()
	path, err := exec.LookPath(r.name)
	if err != nil {
		t.Skipf("%s is not installed", r.name)
	}
	home := t.TempDir()
	add := func(name, text string) {
		if text == "" || name == "" {
			return
		}
		file := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text + "\n"); err != nil {
			t.Fatal(err)
		}
	}
	add(r.login, login)
	if interactive != "" && r.onlyIf != "" {
		interactive = r.onlyIf + interactive
		if strings.HasPrefix(r.onlyIf, "case") {
			interactive += " ;; esac"
		}
	}
	add(r.interactive, interactive)
	env := map[string]string{
		"HOME": home, "SHELL": path, "USER": "me", "LANG": "C.UTF-8", "ANTHROPIC_API_KEY": "agent's",
	}
	return UserShell(func(name string) string { return env[name] })
}

func value(env []string, name string) string {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// TestRealShells checks that each shell reports what its profile exports, whatever the
// profile prints, and what only an interactive shell adds to PATH.
func TestRealShells(t *testing.T) {
	t.Parallel()
	for _, r := range realShells {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			set := func(dir string) string { return strings.Replace(r.export, "%s", dir, 1) }
			noise := "printf 'welcome\\0A=B\\0PATH=/printed\\n'\n"
			s := r.user(t, noise+set("/login/bin")+"\n"+r.secret, set("/interactive/bin"))
			env, err := s.Login(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := value(env, "PATH"); !strings.HasPrefix(got, "/login/bin:") ||
				strings.Contains(got, "/interactive/bin") {
				t.Errorf("PATH of the login shell is %q", got)
			}
			if value(env, "TOKEN") != "secret" || value(env, "LANG") != "C.UTF-8" || value(env, "HOME") == "" {
				t.Errorf("the environment lacks what the profile or the session has: %q", env)
			}
			for _, name := range []string{"A", "ANTHROPIC_API_KEY", "SHLVL", "PWD", "TERM", Asking} {
				if got := value(env, name); got != "" {
					t.Errorf("%s=%s is in the environment", name, got)
				}
			}
			env, err = s.Interactive(t.Context())
			if got := value(env, "PATH"); err != nil || !r.noInter && !strings.Contains(got, "/interactive/bin") {
				t.Errorf("PATH of the interactive shell is %q, %v", got, err)
			}
		})
	}
}

// TestRealShellsFail checks that a profile that hangs, ends the shell or executes another
// program is an error within the time limit, and leaves no process.
func TestRealShellsFail(t *testing.T) {
	t.Parallel()
	for _, r := range realShells {
		for what, profile := range map[string]string{
			"ends": "exit 0", "fails": "exit 3", "is another program": "exec true", "is another shell": "exec dash",
			"floods": "yes",
		} {
			t.Run(r.name+" "+what, func(t *testing.T) {
				t.Parallel()
				s := r.user(t, profile, "")
				env, err := s.Login(t.Context())
				if r.goesOn && strings.HasPrefix(profile, "exit") {
					if value(env, "PATH") == "" || err != nil {
						t.Errorf("environment %q, error %v", env, err)
					}
				} else if err == nil || env != nil || !strings.Contains(err.Error(), s.Path) {
					t.Errorf("environment %q, error %v", env, err)
				}
			})
		}
		t.Run(r.name+" hangs", func(t *testing.T) {
			t.Parallel()
			mark := filepath.Join(t.TempDir(), "hangs")
			s := r.user(t, "touch "+mark+"; sleep 6789", "")
			ctx, cancel := context.WithCancelCause(t.Context())
			stop := errors.New("stopped")
			go func() {
				for _, err := os.Stat(mark); err != nil; _, err = os.Stat(mark) {
					time.Sleep(time.Millisecond)
				}
				cancel(stop)
			}()
			if env, err := s.Login(ctx); !errors.Is(err, stop) || env != nil {
				t.Errorf("environment %q, error %v", env, err)
			}
		})
	}
	for _, path := range []string{"/usr/sbin/nologin", "/bin/false", "/surely/not/there"} {
		if env, err := (Shell{Path: path}).Login(t.Context()); err == nil || env != nil {
			t.Errorf("%s: environment %q, error %v", path, env, err)
		}
	}
}

// TestShellLeavesSomething checks that a process that a profile leaves running, with the
// output open, does not delay the answer.
func TestShellLeavesSomething(t *testing.T) {
	s := realShells[0].user(t, "sleep 600 &\nexport PATH=/login/bin:$PATH MULTI='x\ny'", "")
	env, err := s.Login(t.Context())
	if err != nil || !strings.HasPrefix(value(env, "PATH"), "/login/bin:") || !slices.Contains(env, "MULTI=x\ny") {
		t.Errorf("environment %q, error %v", env, err)
	}
}

// TestUserShell checks which shell is asked, and with which environment.
func TestUserShell(t *testing.T) {
	for shell, relative := range map[string]bool{"/bin/mine": false, "mine": true, "": true} {
		env := map[string]string{
			"SHELL": shell, "HOME": "/h", "SSH_AUTH_SOCK": "/s", "PATH": "/agent", "CLAUDECODE": "1",
		}
		s := UserShell(func(name string) string { return env[name] })
		if (s.Path == shell) == relative || !filepath.IsAbs(s.Path) {
			t.Errorf("SHELL=%s: the shell is %s", shell, s.Path)
		}
		if value(s.Env, "PATH") != BasePath || value(s.Env, "HOME") != "/h" || value(s.Env, "SSH_AUTH_SOCK") != "/s" ||
			value(s.Env, "CLAUDECODE") != "" {
			t.Errorf("it is started with %q", s.Env)
		}
	}
}
