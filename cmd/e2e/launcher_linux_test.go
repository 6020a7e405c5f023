package e2e

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"holdline/protocol/control"
	"holdline/protocol/process"
)

// newLaunched makes a place with a launcher; see [place.launcher]. The server has the name tools, and gets args.
func newLaunched(t *testing.T, last, script string, args ...string) *launched {
	t.Helper()
	l := newPlace(t).launcher(last, script)
	l.entry("shared", append([]string{"-y", "pkg", "-ledger", l.effects()}, args...)...)
	return l
}

// entry writes the configuration.
func (l *launched) entry(scope string, args ...string) {
	l.t.Helper()
	l.configure(map[string]any{"tools": l.npxEntry(hosting{"scope": scope}, args...)})
}

// times returns how often the launcher was asked.
func (l *launched) times() int {
	b, _ := os.ReadFile(l.asked)
	return strings.Count(string(b), "x")
}

// records returns the records of launches, and their paths.
func (l *launched) records() (paths, texts []string) {
	l.t.Helper()
	paths, err := filepath.Glob(filepath.Join(l.dir, "home/.local/state/holdline/launches/*.json"))
	for _, path := range paths {
		b, rerr := os.ReadFile(path)
		if rerr != nil {
			l.t.Fatal(rerr)
		}
		texts = append(texts, string(b))
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return paths, texts
}

// untilRecorded waits for a record with this text, and returns why the server is started as its entry says.
func (l *launched) untilRecorded(text string) (why string) {
	l.t.Helper()
	waitFor(l.t, "a record with "+text, func() bool {
		_, texts := l.records()
		var r struct {
			Why string `json:"why"`
		}
		if len(texts) != 1 || !strings.Contains(texts[0], text) || json.Unmarshal([]byte(texts[0]), &r) != nil {
			return false
		}
		why = r.Why
		return true
	})
	return why
}

// age makes the record as old as the Unix epoch.
func (l *launched) age() {
	l.t.Helper()
	paths, texts := l.records()
	if len(paths) != 1 {
		l.t.Fatalf("%q", paths)
	}
	text := regexp.MustCompile(`"at": "[^"]*"`).ReplaceAllString(texts[0], `"at": "1970-01-01T00:00:00Z"`)
	text = regexp.MustCompile(`"sum": "[^"]*"`).ReplaceAllString(text, `"sum": ""`)
	var plain bytes.Buffer
	if err := json.Compact(&plain, []byte(text)); err != nil {
		l.t.Fatal(err)
	}
	sum := sha256.Sum256(plain.Bytes())
	text = strings.Replace(text, `"sum": ""`, `"sum": "`+hex.EncodeToString(sum[:])+`"`, 1)
	if err := os.WriteFile(paths[0], []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// isDirect reports whether a process of the server runs without its launcher.
func (l *launched) isDirect(pid int) bool {
	args := process.Args(pid)
	return len(args) > 0 && args[0] == l.program
}

// spared returns how many processes status says that the server does without.
func (l *launched) spared() int {
	l.t.Helper()
	var s control.StatusAnswer
	if err := json.Unmarshal([]byte(l.must("status", "--json")), &s); err != nil || len(s.Servers) != 1 {
		l.t.Fatalf("status: %v, %+v", err, s.Servers)
	}
	return s.Servers[0].SparedProcesses
}

// killed kills the server's process, checks that a call behind that is answered, and returns the next process.
func (l *launched) killed(a *agent, pid int) int {
	l.t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		l.t.Fatal(err)
	}
	// Behind a launcher that was killed the server itself may still answer for a moment.
	waitFor(l.t, "its successor", func() bool {
		next := child(l.status(), "tools")
		return next != 0 && next != pid
	})
	if x := a.wait(a.call("tools__look", map[string]any{"token": "again"})); x.text() != "again" {
		l.t.Errorf("a call behind a restart: %s", x.raw)
	}
	return l.untilReady("tools")
}

// direct starts a daemon and an agent with these flags, and returns once the server runs without its launcher, with its
// process.
func (l *launched) direct(flags ...string) (a *agent, pid int) {
	l.t.Helper()
	l.daemonAt(cmp.Or(l.exe, filepath.Join(programs, "holdline")))
	a = l.agent(flags...).shake()
	first := l.untilReady("tools")
	if why := l.untilRecorded(`"exe"`); why != "" {
		l.t.Fatal(why)
	}
	if l.isDirect(first) || l.times() != 1 {
		l.t.Errorf("the first process is %q, and the launcher was asked %d times", process.Args(first), l.times())
	}
	if pid = l.killed(a, first); !l.isDirect(pid) {
		l.t.Fatalf("the second process is %q", process.Args(pid))
	}
	return a, pid
}

// TestLauncherDirect_ServerRunsWithoutIt checks that a server with launcher: direct, which a launcher starts, is started
// without that after its first start, with the same arguments and variables; and that it is started as its entry says
// again once its program is another one.
func TestLauncherDirect_ServerRunsWithoutIt(t *testing.T) {
	t.Parallel()
	l := newLaunched(t, stays, "")
	a, second := l.direct()
	if args := process.Args(second); args[len(args)-1] != l.effects() || l.times() != 1 ||
		process.Variable(second, "npm_config_x") != "1" {
		t.Errorf("the second process is %q, and the launcher was asked %d times", args, l.times())
	}
	if n := l.spared(); n != 1 {
		t.Errorf("%d processes are spared", n)
	}
	tool, err := os.ReadFile(l.program)
	if err == nil {
		err = os.WriteFile(l.program+".new", tool, 0o700) // another file: the record does not hold
	}
	if err == nil {
		err = os.Rename(l.program+".new", l.program)
	}
	if err != nil {
		t.Fatal(err)
	}
	third := l.killed(a, second)
	if n := l.spared(); l.isDirect(third) || l.times() != 2 || n != 0 {
		t.Errorf("the third process is %q, the launcher was asked %d times, and %d processes are spared",
			process.Args(third), l.times(), n)
	}
	a.rest()
}

// TestUnusualServer_ServesDirectlyOrAsWritten starts servers that watch their parent, that a script starts, whose
// launcher stays between, and that start other processes. Each answers before and after a crash: directly, or as its
// entry says, and then the record says why.
func TestUnusualServer_ServesDirectlyOrAsWritten(t *testing.T) {
	t.Parallel()
	const between = `cat | toolserver "$@" | cat; exit 0`
	for name, c := range map[string]struct {
		last, script string
		args         []string
		why          string // in the record, as a pattern; "" for one that is started directly
	}{
		"watches its parent each 250 ms": {last: stays, args: []string{"-watch", "250ms"}},
		"watches its parent each second": {last: stays, args: []string{"-watch", "1s"}},
		"watches its parent each 5 s":    {last: stays, args: []string{"-watch", "5s"}},
		"wants its launcher":             {last: stays, args: []string{"-under", "bin/npx"}, why: "it ended by itself soon"},
		"a script that waits": {
			last: `sh -c 'mine "$@"' sh "$@"; exit $?`, script: "#!/bin/sh\ntoolserver \"$@\"\nexit $?\n", why: "a script",
		},
		"a script that it replaces": {
			last: `sh -c 'mine "$@"' sh "$@"; exit $?`, script: "#!/bin/sh\nexec toolserver \"$@\"\n", why: "a script",
		},
		"a script that forks": {
			last:   `sh -c 'mine "$@"' sh "$@"; exit $?`,
			script: "#!/bin/sh\nexec 3<&0\ntoolserver \"$@\" <&3 3<&- &\nexec 3<&-\nwait\n", why: "a script",
		},
		"a launcher between":        {last: between, why: "processes"},
		"a program that forks":      {last: stays, args: []string{"-grandchild"}, why: "processes|started another one"},
		"a launcher that goes away": {last: `exec toolserver "$@"`, why: "does not stay"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLaunched(t, c.last, c.script, c.args...)
			// watched waits until a process has looked at its parent.
			watched := func(pid int) {
				if slices.Contains(c.args, "-watch") {
					waitFor(t, "a look at its parent", func() bool {
						b, _ := os.ReadFile(l.effects())
						return regexp.MustCompile(`(?m)^watched +` + strconv.Itoa(leafOf(pid)) + `$`).Match(b)
					})
				}
			}
			if c.why == "" {
				a, pid := l.direct()
				watched(pid)
				if x := a.wait(a.effect("last", 0)); x.text() != "last" || l.untilReady("tools") != pid {
					t.Errorf("after it has looked at its parent: %s", x.raw)
				}
				a.rest()
				return
			}
			l.daemon()
			a := l.agent().shake()
			pid := l.untilReady("tools")
			l.untilRecorded(`"at"`)
			pid = l.killed(a, pid)
			why := l.untilRecorded(`"why": "`)
			waitFor(t, "a process with its launcher", func() bool {
				pid = child(l.status(), "tools")
				return pid != 0 && !l.isDirect(pid)
			})
			if x := a.wait(a.effect("last", 0)); x.text() != "last" || !regexp.MustCompile(c.why).MatchString(why) {
				t.Errorf("it is started as its entry says, since %q, want %q; a call: %s", why, c.why, x.raw)
			}
			a.rest()
		})
	}
}

// TestDirectServerKilled_CallsAreAnsweredAndNothingIsLeft checks that a server that runs without its launcher is back when
// it or its worker is killed, outlives the daemon, answers the calls meanwhile, and that nothing of it is left at the end.
func TestDirectServerKilled_CallsAreAnsweredAndNothingIsLeft(t *testing.T) {
	t.Parallel()
	l := newLaunched(t, stays, "", "-deaf")
	a, pid := l.direct()
	// killing makes a call, kills a process while it runs, and checks that it is answered.
	killing := func(token string, victim int) {
		t.Helper()
		id := a.call("tools__look", map[string]any{"token": token, "until": filepath.Join(l.dir, token)})
		l.untilEffect("look " + token)
		if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "its end", func() bool { return !alive(victim) })
		if err := os.WriteFile(filepath.Join(l.dir, token), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if x := a.wait(id); x.text() != token {
			t.Errorf("the call over the end of %s: %s", token, x.raw)
		}
	}
	killing("child", pid)
	second := l.untilReady("tools")
	if second == pid || !l.isDirect(second) {
		t.Errorf("behind the end of process %d runs %d, %q", pid, second, process.Args(second))
	}
	s := l.status()
	for _, w := range s.Workers {
		killing("worker", w.PID)
	}
	third := l.untilReady("tools")
	if third == second || !l.isDirect(third) {
		t.Errorf("behind the end of the worker of process %d runs %d, %q", second, third, process.Args(third))
	}
	killing("daemon", s.Daemon.PID)
	if at := l.untilReady("tools"); at != third || l.effectsOf("look daemon") != 1 {
		t.Errorf("behind the daemon's end process %d serves, want %d", at, third)
	}
	if l.times() != 1 {
		t.Errorf("the launcher was asked %d times", l.times())
	}
	a.rest()
	l.must("stop", "--all")
	l.untilEmpty(t)
}

// TestDirectServer_GoesOnOverAnUpgrade checks that an upgrade of the daemon leaves a server alone that runs without its
// launcher, with a call in flight, and that nothing of it is left at the end.
func TestDirectServer_GoesOnOverAnUpgrade(t *testing.T) {
	t.Parallel()
	l := newLaunched(t, stays, "", "-deaf")
	l.installVersion(t, older)
	l.exe = l.bin()
	a, pid := l.direct()
	id := a.call("tools__effect", map[string]any{"token": "upgrade", "until": filepath.Join(l.dir, "upgrade")})
	l.untilEffect("begin upgrade")
	l.installVersion(t, newer)
	l.upgrade(newer + " has taken over")
	if err := os.WriteFile(filepath.Join(l.dir, "upgrade"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if x := a.wait(id); x.text() != "upgrade" || l.effectsOf("begin upgrade") != 1 || l.untilReady("tools") != pid {
		t.Errorf("the call over the upgrade: %s", x.raw)
	}
	if n := l.spared(); l.times() != 1 || n != 1 {
		t.Errorf("the launcher was asked %d times, and %d processes are spared", l.times(), n)
	}
	a.rest(id)
	l.must("stop", "--all")
	l.untilEmpty(t)
}

// TestDirectServer_LeavesNoOrphans kills the daemon, its proxies and the workers of a server that runs without its launcher
// and ends by no friendly means: the next daemon ends what is left.
func TestDirectServer_LeavesNoOrphans(t *testing.T) {
	t.Parallel()
	l := newLaunched(t, stays, "", "-deaf")
	l.windows(60)
	a, _ := l.direct("--no-autostart")
	s := l.status()
	v := victims{agents: []*agent{a}, workers: s.Workers}
	if err := syscall.Kill(s.Daemon.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the daemon's end", func() bool { return !alive(s.Daemon.PID) })
	v.kill(t, "proxies", "workers")
	l.nothingButTheDaemon(l.daemon().Process.Pid, 2*waitLimit)
}

// TestOldRecord_LauncherLooksAgain_OfflineItIsNotNeeded checks that the launcher of a server with an old record is asked
// at the next start; and that if it cannot start the server, as without a network, that runs without it.
func TestOldRecord_LauncherLooksAgain_OfflineItIsNotNeeded(t *testing.T) {
	t.Parallel()
	l := newLaunched(t, `[ ! -e "${0%/bin/npx}/offline" ] || exit 1; `+stays, "")
	a, _ := l.direct()
	l.untilRecorded(`"confirmed"`)
	l.age()
	l.must("servers", "restart", "tools")
	if pid := l.untilReady("tools"); l.isDirect(pid) || l.times() != 2 {
		t.Errorf("with an old record: %q, and the launcher was asked %d times", process.Args(pid), l.times())
	}
	waitFor(t, "a new record", func() bool {
		_, texts := l.records()
		return len(texts) == 1 && !strings.Contains(texts[0], `"at": "1970-`)
	})
	l.must("servers", "restart", "tools")
	if pid := l.untilReady("tools"); !l.isDirect(pid) || l.times() != 2 {
		t.Errorf("with a new record: %q, and the launcher was asked %d times", process.Args(pid), l.times())
	}
	l.age()
	if err := os.WriteFile(filepath.Join(l.dir, "offline"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l.must("servers", "restart", "tools")
	if pid := l.untilReady("tools"); !l.isDirect(pid) || l.times() == 2 {
		t.Errorf("offline: %q, and the launcher was asked %d times", process.Args(pid), l.times())
	}
	if x := a.wait(a.effect("offline", 0)); x.text() != "offline" {
		t.Errorf("a call: %s", x.raw)
	}
	// The user wants a newer version, which cannot be had.
	if out, errs, code := l.run("", "servers", "restart", "tools", "--refresh"); code == 0 {
		t.Errorf("restart --refresh offline: %s%s", out, errs)
	}
	if x := a.wait(a.effect("refreshed", 0)); x.text() != "refreshed" {
		t.Errorf("a call after a restart --refresh: %s", x.raw)
	}
	if pid := l.untilReady("tools"); !l.isDirect(pid) {
		t.Errorf("after a restart --refresh: %q", process.Args(pid))
	}
	a.rest()
}

// TestRecordOfOneProject_IsNotUsedInAnother checks that each project runs its own program: a record is for one directory,
// and ends when its project brings a version of its own.
func TestRecordOfOneProject_IsNotUsedInAnother(t *testing.T) {
	t.Parallel()
	l := newLaunched(t, `PATH="$PWD/node_modules/.bin:$PATH"; `+stays, "")
	l.entry("project", "-y", "toolserver", "-ledger", l.effects())
	// bring gives a project a program of its own.
	bring := func(project string) string {
		path := filepath.Join(project, "node_modules/.bin/toolserver")
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.Link(filepath.Join(l.dir, "pkg/toolserver"), path+".new")
		}
		if err == nil {
			err = os.Rename(path+".new", path)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	other := filepath.Join(l.dir, "q")
	if err := os.MkdirAll(other+"/.git", 0o700); err != nil {
		t.Fatal(err)
	}
	mine := bring(other)
	a, pid := l.direct()
	cmd := l.command("mcp-stdio")
	cmd.Dir = other
	b := l.agentOf(cmd).shake()
	// serving returns the process of a project that is not one of these.
	serving := func(not ...int) (at int) {
		t.Helper()
		waitFor(t, "another process", func() bool {
			at = 0
			for _, w := range l.status().Workers {
				if w.State == "ready" && !slices.Contains(not, w.ChildPID) {
					at = w.ChildPID
				}
			}
			return at != 0
		})
		return at
	}
	if x := b.wait(b.effect("other", 0)); x.text() != "other" {
		t.Errorf("a call in the other project: %s", x.raw)
	}
	first := serving(pid)
	if exe, _ := os.Readlink("/proc/" + strconv.Itoa(leafOf(first)) + "/exe"); exe != mine {
		t.Errorf("the other project runs %s, want %s", exe, mine)
	}
	b.rest()
	mine = bring(l.project)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "its end", func() bool { return !alive(pid) })
	if x := a.wait(a.call("tools__look", map[string]any{"token": "again"})); x.text() != "again" {
		t.Errorf("a call behind a restart: %s", x.raw)
	}
	second := serving(pid, first)
	if exe, _ := os.Readlink("/proc/" + strconv.Itoa(leafOf(second)) + "/exe"); exe != mine {
		t.Errorf("the project with a program of its own runs %s, want %s", exe, mine)
	}
	a.rest()
}

// TestServersTest_TriesServerWithoutItsLauncher checks that a trial finds out whether a server works without its
// launcher, that the daemon starts it so from then on, that commands say how it is started and why, and that a restart
// with --refresh asks the launcher again.
func TestServersTest_TriesServerWithoutItsLauncher(t *testing.T) {
	t.Parallel()
	t.Run("works", func(t *testing.T) {
		t.Parallel()
		l := newLaunched(t, stays, "")
		if out := l.must("servers", "test", "tools"); !strings.Contains(out, "It works without npx, too") {
			t.Errorf("servers test: %s", out)
		}
		l.daemon()
		a := l.agent().shake()
		if pid := l.untilReady("tools"); !l.isDirect(pid) || l.times() != 1 {
			t.Errorf("the first process is %q, and the launcher was asked %d times", process.Args(pid), l.times())
		}
		if out := l.must("servers", "get", "tools"); !strings.Contains(out, "directly: "+l.program+"\n") {
			t.Errorf("servers get: %s", out)
		}
		var shown struct {
			Launches []struct {
				Program []string `json:"program"`
			} `json:"launches"`
		}
		out := l.must("servers", "get", "tools", "--json")
		if err := json.Unmarshal([]byte(out), &shown); err != nil || len(shown.Launches) != 1 ||
			!slices.Equal(shown.Launches[0].Program, []string{l.program}) {
			t.Errorf("servers get --json: %v, %s", err, out)
		}
		if out, _, _ := l.run("", "doctor", "-v"); !strings.Contains(out, "without their launchers") {
			t.Errorf("doctor: %s", out)
		}
		l.must("servers", "restart", "tools", "--refresh")
		if pid := l.untilReady("tools"); l.isDirect(pid) || l.times() != 2 {
			t.Errorf("after --refresh: %q, and the launcher was asked %d times", process.Args(pid), l.times())
		}
		a.rest()
	})
	for name, c := range map[string]struct {
		last, script string
		args         []string
		why          string
	}{
		"a script": {
			last: `sh -c 'mine "$@"' sh "$@"; exit $?`, script: "#!/bin/sh\ntoolserver \"$@\"\nexit $?\n",
			why: "a script of its package",
		},
		"other lists each time": {last: stays, args: []string{"-own", "-resources", "told"}, why: "it answers otherwise"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLaunched(t, c.last, c.script, c.args...)
			out := l.must("servers", "test", "tools")
			if words := strings.Join(strings.Fields(out), " "); !strings.Contains(words, "It is started with npx: "+c.why) {
				t.Errorf("servers test: %s", out)
			}
			var tested struct {
				Direct bool   `json:"direct"`
				Why    string `json:"launcher_kept"`
			}
			out = l.must("servers", "test", "tools", "--json")
			if err := json.Unmarshal([]byte(out), &tested); err != nil || tested.Direct || !strings.HasPrefix(tested.Why, c.why) {
				t.Errorf("servers test --json: %v, %s", err, out)
			}
			if out := l.must("servers", "get", "tools"); !strings.Contains(out, "with its launcher: "+c.why) {
				t.Errorf("servers get: %s", out)
			}
			out, _, _ = l.run("", "doctor")
			if words := strings.Join(strings.Fields(out), " "); !strings.Contains(words, "it is started with npx: "+c.why) {
				t.Errorf("doctor: %s", out)
			}
			l.daemon()
			a := l.agent().shake()
			if pid := l.untilReady("tools"); l.isDirect(pid) {
				t.Errorf("the first process is %q", process.Args(pid))
			}
			a.rest()
		})
	}
}

// TestLauncherKept_EntryIsStarted checks that a server with launcher: keep is always started as its entry says, and that
// nothing is recorded of it.
func TestLauncherKept_EntryIsStarted(t *testing.T) {
	t.Parallel()
	l := newLaunched(t, stays, "")
	l.configure(map[string]any{"tools": l.npxEntry(hosting{"launcher": "keep"}, "-y", "pkg", "-ledger", l.effects())})
	if out := l.must("servers", "test", "tools"); strings.Contains(out, "npx") {
		t.Errorf("servers test: %s", out)
	}
	l.daemon()
	a := l.agent().shake()
	pid := l.untilReady("tools")
	for range 2 {
		if l.isDirect(pid) {
			t.Errorf("a process is %q", process.Args(pid))
		}
		pid = l.killed(a, pid)
	}
	if paths, _ := l.records(); len(paths) > 0 {
		t.Errorf("there are records: %q", paths)
	}
	a.rest()
}

// TestPlanOfImport_LeavesNoRecordOfALauncher checks that a plan of import and of setup, which starts the servers, leaves the
// home as it was, and that both keep what they have found out about launchers once they move the servers.
func TestPlanOfImport_LeavesNoRecordOfALauncher(t *testing.T) {
	t.Parallel()
	for _, words := range [][]string{{"import", "--write"}, {"setup", "--yes"}} {
		t.Run(words[0], func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).login()
			l := p.launcher(stays, "")
			p.putHome(t, map[string]string{".claude.json": mustJSON(t, map[string]any{"mcpServers": map[string]any{
				"tools": map[string]any{"command": l.npx, "args": []string{"-y", "pkg", "-ledger", p.effects()}},
			}})})
			before := p.home(t)
			plan := []string{"import"}
			if words[0] == "setup" {
				plan = []string{"setup", "--dry-run"}
			}
			p.must(plan...)
			p.sameHome(t, before)
			if l.times() == 0 {
				t.Error("the plan has not started the server")
			}
			p.must(words...)
			if _, texts := l.records(); !slices.ContainsFunc(texts, func(text string) bool {
				return strings.Contains(text, `"confirmed"`)
			}) {
				t.Errorf("the records are %q", texts)
			}
			p.must("stop", "--all")
		})
	}
}

// TestServerThatIsOtherInItsFirstStart_RunsWithoutItsLauncher checks that a server which says something else in its very
// first start, as one does that makes its files then, is tried again, by the daemon and by a trial.
func TestServerThatIsOtherInItsFirstStart_RunsWithoutItsLauncher(t *testing.T) {
	t.Parallel()
	t.Run("daemon", func(t *testing.T) {
		t.Parallel()
		l := newLaunched(t, stays, "")
		l.entry("shared", "-y", "pkg", "-ledger", l.effects(), "-first", filepath.Join(l.dir, "first"))
		l.daemon()
		a := l.agent().shake()
		pid := l.untilReady("tools")
		l.untilRecorded(`"exe"`)
		pid = l.killed(a, pid) // its leaf says something else, and then what is behind the launcher says the same
		if l.isDirect(pid) {
			t.Errorf("the second process is %q", process.Args(pid))
		}
		l.untilRecorded(`"confirmed"`)
		if pid = l.killed(a, pid); !l.isDirect(pid) {
			t.Errorf("the third process is %q", process.Args(pid))
		}
		a.rest()
	})
	t.Run("trial", func(t *testing.T) {
		t.Parallel()
		l := newLaunched(t, stays, "")
		l.entry("shared", "-y", "pkg", "-ledger", l.effects(), "-first", filepath.Join(l.dir, "first"))
		if out := l.must("servers", "test", "tools"); !strings.Contains(out, "It works without npx, too") {
			t.Errorf("servers test: %s", out)
		}
	})
}

// TestListIsNotAnsweredInTime_NothingIsDecidedAboutTheLauncher checks that a start whose lists were not all answered in
// time, as on a busy machine, neither confirms nor refuses that the server works without its launcher: a later one does.
func TestListIsNotAnsweredInTime_NothingIsDecidedAboutTheLauncher(t *testing.T) {
	t.Parallel()
	l := newLaunched(t, stays, "")
	hush := filepath.Join(l.dir, "hush")
	l.entry("shared", "-y", "pkg", "-ledger", l.effects(), "-resources", "told", "-hush", hush)
	quiet := func(is bool) {
		t.Helper()
		err := os.Remove(hush)
		if is {
			err = os.WriteFile(hush, nil, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	quiet(true)
	if out := strings.Join(strings.Fields(l.must("servers", "test", "tools")), " "); !strings.Contains(out,
		"It is started with npx: it did not answer a list in time") {
		t.Errorf("servers test: %s", out)
	}
	l.daemon()
	a := l.agent().shake()
	pid := l.untilReady("tools")
	quiet(false)
	if pid = l.killed(a, pid); l.isDirect(pid) {
		t.Errorf("the second process is %q", process.Args(pid))
	}
	if why := l.untilRecorded(`"exe"`); why != "" {
		t.Fatal(why)
	}
	quiet(true)
	pid = l.killed(a, pid)
	if _, texts := l.records(); !l.isDirect(pid) || len(texts) != 1 || strings.Contains(texts[0], `"confirmed"`) ||
		strings.Contains(texts[0], `"why"`) {
		t.Errorf("the third process is %q, and the records are %q", process.Args(pid), texts)
	}
	quiet(false)
	if pid = l.killed(a, pid); !l.isDirect(pid) {
		t.Errorf("the fourth process is %q", process.Args(pid))
	}
	if why := l.untilRecorded(`"confirmed"`); why != "" {
		t.Error(why)
	}
	a.rest()
}

// TestServerThatRunsOnlyOnce_IsTriedAndServes checks that a server of which one process alone can run, as with a lock or a
// port, passes its trial, that the daemon can start it at once behind that, and again behind a crash.
func TestServerThatRunsOnlyOnce_IsTriedAndServes(t *testing.T) {
	t.Parallel()
	l := newLaunched(t, stays, "")
	l.entry("shared", "-y", "pkg", "-ledger", l.effects(), "-only", filepath.Join(l.dir, "only"))
	if out := l.must("servers", "test", "tools"); !strings.Contains(out, "It works without npx, too") {
		t.Errorf("servers test: %s", out)
	}
	l.daemon()
	a := l.agent().shake()
	pid := l.untilReady("tools")
	if !l.isDirect(pid) {
		t.Errorf("the first process is %q", process.Args(pid))
	}
	if pid = l.killed(a, pid); !l.isDirect(pid) {
		t.Errorf("the second process is %q", process.Args(pid))
	}
	a.rest()
}

// TestTwoAgentsAtOnce_BothServeWhileTheirServerIsRecorded checks that two processes of one entry, which are started at the
// same time and recorded, both serve, and that both run without their launcher from their next start on.
func TestTwoAgentsAtOnce_BothServeWhileTheirServerIsRecorded(t *testing.T) {
	t.Parallel()
	l := newLaunched(t, stays, "")
	l.entry("session", "-y", "pkg", "-ledger", l.effects())
	l.daemon()
	agents := []*agent{l.agent("--identity", "a").shake(), l.agent("--identity", "b").shake()}
	serving := func(other ...int) (pids []int) {
		waitFor(t, "a process for each agent", func() bool {
			pids = nil
			for _, w := range l.status().Workers {
				if w.State == "ready" && !slices.Contains(other, w.ChildPID) {
					pids = append(pids, w.ChildPID)
				}
			}
			return len(pids) == len(agents)
		})
		return pids
	}
	first := serving()
	look := func(token string) { // each has a process that serves
		for i, a := range agents {
			own := token + strconv.Itoa(i)
			if x := a.wait(a.call("tools__look", map[string]any{"token": own})); x.text() != own {
				t.Errorf("agent %d: %s", i, x.raw)
			}
		}
	}
	look("first")
	if why := l.untilRecorded(`"exe"`); why != "" {
		t.Fatal(why)
	}
	for _, pid := range first {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "its end", func() bool { return !alive(pid) })
	}
	look("again")
	for _, pid := range serving(first...) {
		if !l.isDirect(pid) {
			t.Errorf("a later process is %q", process.Args(pid))
		}
	}
	for _, a := range agents {
		a.rest()
	}
}

// TestLauncherHangs_VersionThatRanLastServes checks that a launcher that is to look for a newer version, and waits for a
// network that is not there, is given up for what it has started last, and left alone for a while.
func TestLauncherHangs_VersionThatRanLastServes(t *testing.T) {
	t.Parallel()
	l := newLaunched(t, `[ ! -e "${0%/bin/npx}/offline" ] || exec sleep 600; `+stays, "")
	a, _ := l.direct()
	l.untilRecorded(`"confirmed"`)
	l.age()
	if err := os.WriteFile(filepath.Join(l.dir, "offline"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		l.must("servers", "restart", "tools")
		if pid := l.untilReady("tools"); !l.isDirect(pid) || l.times() != 2 {
			t.Errorf("offline: %q, and the launcher was asked %d times", process.Args(pid), l.times())
		}
	}
	if x := a.wait(a.effect("offline", 0)); x.text() != "offline" {
		t.Errorf("a call: %s", x.raw)
	}
	a.rest()
}

// TestDirectServer_IsHeldAsBehindItsLauncher checks that confinement and limits hold a server that runs without its launcher
// as they hold it behind that.
func TestDirectServer_IsHeldAsBehindItsLauncher(t *testing.T) {
	t.Parallel()
	l := newLaunched(t, stays, "")
	needConfinement(t)
	entry := l.npxEntry(hosting{
		"scope": "shared", "confine": "read", "limits": map[string]any{"memory": "1GiB"},
		"write": []string{filepath.Join(l.dir, "bin"), filepath.Join(l.dir, "pkg")},
	}, "-y", "pkg", "-ledger", filepath.Join(l.dir, "pkg/ledger"))
	l.configure(map[string]any{"tools": entry})
	held := func(pid int) (all []string) {
		for file, names := range map[string][]string{
			"status": {"NoNewPrivs", "Seccomp", "Seccomp_filters"}, "limits": {"Max data size"}, "cgroup": {""},
		} {
			b, err := os.ReadFile("/proc/" + strconv.Itoa(leafOf(pid)) + "/" + file)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(b)) {
				if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(line, name) }) {
					all = append(all, regexp.MustCompile(`holdline-[^/]*`).ReplaceAllString(strings.TrimSpace(line), "holdline"))
				}
			}
		}
		slices.Sort(all)
		return all
	}
	l.daemon()
	a := l.agent().shake()
	first := l.untilReady("tools")
	if why := l.untilRecorded(`"exe"`); why != "" {
		t.Fatal(why)
	}
	behind := held(first)
	second := l.killed(a, first)
	if got := held(second); !l.isDirect(second) || !slices.Equal(got, behind) || !slices.Contains(got, "NoNewPrivs:\t1") {
		t.Errorf("%q is held by %q, and was by %q", process.Args(second), got, behind)
	}
	a.rest()
}
