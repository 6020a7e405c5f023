package userenv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdline/protocol/programtest"
)

// fakeShell writes a shell that runs script before it answers. $1 to $4 are its arguments.
func fakeShell(t *testing.T, script string) *Shell {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shell")
	text := "#!/bin/sh\ncase $2 in -i) kind=interactive; shift;; *) kind=login;; esac\n" + script +
		"\neval \"$3\"\n"
	programtest.Write(t, path, text)
	return &Shell{Path: path, Env: []string{"PATH=" + BasePath}}
}

// start runs an environment until the test ends.
func start(t *testing.T, o Options) *Environ {
	t.Helper()
	o.Log = slog.New(slog.DiscardHandler)
	e := New(o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { _ = e.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return e
}

// program makes a directory that has a program of that name.
func program(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	programtest.Write(t, filepath.Join(dir, name), "")
	return dir
}

// TestOrder checks that a program is found in the earliest source that has it, and that the
// source is reported.
func TestOrder(t *testing.T) {
	dirs := map[string]string{}
	for _, source := range []string{Captured, Login, Interactive, Starter} {
		dirs[source] = program(t, "tool")
	}
	for _, has := range [][]string{
		{Captured, Login, Interactive, Starter}, {Login, Interactive, Starter}, {Interactive, Starter}, {Starter}, {},
	} {
		state := t.TempDir()
		path := func(source string) string {
			if slices.Contains(has, source) {
				return dirs[source]
			}
			return "/nothing"
		}
		if slices.Contains(has, Captured) {
			if err := os.WriteFile(PathFile(state), []byte(dirs[Captured]+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		shell := fakeShell(t,
			fmt.Sprintf(`if [ $kind = login ]; then PATH=%s:$PATH; else PATH=%s:$PATH; fi`, path(Login),
				path(Interactive)))
		e := start(t, Options{StateDir: state, Shell: shell, Own: []string{"PATH=" + path(Starter)}})
		if err := e.Await(t.Context(), "tool"); err != nil {
			t.Fatal(err)
		}
		want, source := "", ""
		if len(has) > 0 {
			want, source = filepath.Join(dirs[has[0]], "tool"), has[0]
		}
		if got, where := e.Find("tool"); got != want || where != source {
			t.Errorf("with %q found %q by %q, want %q by %q", has, got, where, want, source)
		}
		if got := inDirs("tool", splitPath(value(e.List(), "PATH"))); got != want {
			t.Errorf("with %q the environment finds %q, want %q", has, got, want)
		}
	}
}

// TestKept checks that the next environment begins with the PATH and locale of the last
// answer, and that no other variable is ever written to a file.
func TestKept(t *testing.T) {
	state := t.TempDir()
	shell := fakeShell(t,
		`export LANG=de_DE.UTF-8 LC_TIME=C TOKEN=exported-secret; [ $kind = login ] && PATH=/login:$PATH || PATH=/interactive:$PATH`)
	e := start(t, Options{StateDir: state, Shell: shell, Own: []string{"LANG=C", "HOME=/h"}})
	if err := e.Await(t.Context(), "surely-not-there"); err != nil {
		t.Fatal(err)
	}
	if got := value(e.List(), "TOKEN"); got != "exported-secret" {
		t.Errorf("TOKEN=%s", got)
	}
	e.keepAnswer(t.Context())
	if err := filepath.Walk(state, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), "secret") || info.Mode().Perm() != 0o600 {
			t.Errorf("%s (%v): %s", path, info.Mode(), b)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	// The shell hangs: the kept values are in force at once.
	next := New(Options{
		StateDir: state, Shell: &Shell{Path: "/bin/false"}, Own: []string{"LANG=C", "HOME=/h"},
		Log: slog.New(slog.DiscardHandler),
	})
	env := next.List()
	if value(env, "LANG") != "de_DE.UTF-8" || value(env, "LC_TIME") != "C" || value(env, "HOME") != "/h" ||
		value(env, "TOKEN") != "" {
		t.Errorf("kept: %q", env)
	}
	if path := value(env, "PATH"); !strings.HasPrefix(path, "/login:") || !strings.HasSuffix(path, ":/interactive") {
		t.Errorf("kept: PATH=%s", path)
	}
}

// TestUnkept checks that a kept file is not used if another user could have written it or
// if it is invalid, and that no other variables are read from it.
func TestUnkept(t *testing.T) {
	for text, mode := range map[string]os.FileMode{
		"PATH=/evil\n": 0o622, "PATH /evil\n": 0o600, "LD_PRELOAD=/evil\nTOKEN=/evil\n": 0o600,
	} {
		state := t.TempDir()
		path := filepath.Join(state, keptFile)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		e := New(Options{StateDir: state, Shell: &Shell{Path: "/bin/false"}, Log: slog.New(slog.DiscardHandler)})
		if env := e.List(); strings.Contains(strings.Join(env, " "), "evil") {
			t.Errorf("of %q with mode %v: %q", text, mode, env)
		}
	}
}

// TestMerge checks which value wins. Variables that decide where daemon and proxies meet
// come from the process that started the daemon. The others come from the profile, except
// under a service manager.
func TestMerge(t *testing.T) {
	shell := fakeShell(t,
		"export HOME=/wrong XDG_STATE_HOME=/wrong HOLDLINE_CONFIG=/wrong LANG=profile HOLDLINE_CLAUDE_BIN=/profile")
	for managed, lang := range map[bool]string{false: "profile", true: "own"} {
		e := start(t, Options{
			StateDir: t.TempDir(), Shell: shell, OwnFirst: managed,
			Own: []string{"HOME=/h", "XDG_STATE_HOME=/s", "HOLDLINE_CONFIG=/c", "LANG=own"},
		})
		if err := e.Await(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		env := e.List()
		for name, want := range map[string]string{
			"HOME": "/h", "XDG_STATE_HOME": "/s", "HOLDLINE_CONFIG": "/c", "LANG": lang,
			"HOLDLINE_CLAUDE_BIN": "/profile",
		} {
			if got := value(env, name); got != want {
				t.Errorf("managed %v: %s=%s, want %s", managed, name, got, want)
			}
		}
	}
}

// TestStarterDirs checks that of the starting process's PATH, relative directories and
// those where another user could put a program are not searched.
func TestStarterDirs(t *testing.T) {
	root := t.TempDir()
	mkdir := func(name string, mode os.FileMode) string {
		dir := filepath.Join(root, name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	good := mkdir("good", 0o755)
	world := mkdir("world", 0o777)
	sticky := mkdir("sticky", 0o777|os.ModeSticky)
	link, badLink := filepath.Join(root, "link"), filepath.Join(root, "badlink")
	if err := os.Symlink(good, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(world, badLink); err != nil {
		t.Fatal(err)
	}
	t.Chdir(root)
	path := strings.Join([]string{"", ".", "good", world, sticky, badLink, filepath.Join(root, "absent"), good, link},
		":")
	want := []string{good, link}
	e := start(t, Options{StateDir: t.TempDir(), Own: []string{"PATH=" + path}})
	if err := e.Await(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if got := e.Paths(); len(got) != 1 || got[0].Source != Starter || !slices.Equal(got[0].Dirs, want) {
		t.Errorf("searched %q, want %q", got, want)
	}
}

// TestPathsOthersCanWrite_AreSkipped checks that none of the four PATHs has a directory in which
// another user could put a program, however the daemon learned of it, and that a directory that
// becomes such a one is not searched any more.
func TestPathsOthersCanWrite_AreSkipped(t *testing.T) {
	root := t.TempDir()
	mkdir := func(name string, mode os.FileMode) string {
		dir := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.Chmod(dir, mode)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	sources := []string{"captured", "login", "interactive", "starter"}
	paths := map[string]string{}
	var good []string
	for _, name := range sources {
		dirs := []string{mkdir(name+"/world", 0o777), mkdir(name+"/sticky", 0o777|os.ModeSticky), mkdir(name+"/good", 0o755)}
		good = append(good, dirs[2])
		dirs = append(dirs, filepath.Join(dirs[1], "absent"))
		paths[name] = strings.Join(dirs, ":")
	}
	e := start(t, Options{
		StateDir: t.TempDir(), Captured: paths["captured"], Own: []string{"PATH=" + paths["starter"]},
		Shell: fakeShell(t, "case $kind in login) PATH="+paths["login"]+";; *) PATH="+paths["interactive"]+";; esac; export PATH"),
	})
	if err := e.Await(t.Context(), "no-such-program"); err != nil {
		t.Fatal(err)
	}
	searched := func() []string {
		var dirs []string
		for _, p := range e.Paths() {
			dirs = append(dirs, p.Dirs...)
		}
		return dirs
	}
	if got := searched(); !slices.Equal(got, good) {
		t.Errorf("searched %q, want %q", got, good)
	}
	if err := os.Chmod(good[1], 0o777); err != nil {
		t.Fatal(err)
	}
	if got := searched(); slices.Contains(got, good[1]) {
		t.Errorf("searched %q, with a directory that others can write now", got)
	}
}

// TestRefresh checks that a second answer of the shell replaces the first, and that a later
// failure changes nothing.
func TestRefresh(t *testing.T) {
	dir := t.TempDir()
	profile := filepath.Join(dir, "profile")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(profile+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(profile+".new", profile); err != nil {
			t.Fatal(err)
		}
	}
	write("PATH=/one:$PATH")
	changed := make(chan struct{}, 16)
	e := start(t, Options{
		StateDir: t.TempDir(), Shell: fakeShell(t, ". "+profile),
		Changed: func(context.Context) { changed <- struct{}{} },
	})
	for _, want := range []string{"/one", "/two"} {
		for !strings.HasPrefix(value(e.List(), "PATH"), want+":") {
			<-changed
		}
		write("PATH=/two:$PATH")
		e.Refresh()
	}
	write("exit 1")
	e.Refresh()
	for e.Failure() == nil {
		e.Refresh()
	}
	if got := value(e.List(), "PATH"); !strings.HasPrefix(got, "/two:") {
		t.Errorf("after a failure PATH=%s", got)
	}
}

// TestCalling checks which directories of the calling process's PATH are added to the login
// shell's.
func TestCalling(t *testing.T) {
	more := t.TempDir()
	for _, c := range []struct{ calling, login, want string }{
		{"/usr/bin:/bin", "/usr/bin:/bin:/x", "/usr/bin:/bin:/x"},
		{more + ":/usr/bin", "/usr/bin:/bin", more + ":/usr/bin:/bin"},
		{more + ":.:relative:/surely/not/there:/usr/bin", "/usr/bin:/bin", more + ":/usr/bin:/bin"},
		{"", "/usr/bin", "/usr/bin"},
	} {
		if got := Calling(c.calling, c.login); got != c.want {
			t.Errorf("Calling(%q, %q) = %q, want %q", c.calling, c.login, got, c.want)
		}
	}
}

// TestSettle checks that an environment that knows what was kept asks the shell later, but at once
// if something needs the answer.
func TestSettle(t *testing.T) {
	state := t.TempDir()
	if err := os.WriteFile(filepath.Join(state, keptFile), []byte("PATH=/kept\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		e := New(Options{StateDir: state, Shell: &Shell{Path: "/nonexistent"}, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		begin := time.Now()
		go func() { _ = e.Run(ctx) }()
		<-e.settled
		if took := time.Since(begin); took != settleTime {
			t.Errorf("the shell was asked after %v, want %v", took, settleTime)
		}
		cancel()
		synctest.Wait()
		e = New(Options{StateDir: state, Shell: &Shell{Path: "/nonexistent"}, Log: slog.New(slog.DiscardHandler)})
		ctx, cancel = context.WithCancel(t.Context())
		begin = time.Now()
		go func() { _ = e.Run(ctx) }()
		if err := e.Await(ctx, ""); err != nil || time.Since(begin) != 0 {
			t.Errorf("a program waits for the shell for %v, %v", time.Since(begin), err)
		}
		cancel()
		synctest.Wait()
	})
}
