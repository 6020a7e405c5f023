package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdline/protocol/process"
)

// A damageRow is a file that processes open, and what may be lost by its damage. Whatever is not
// lost must be as if nothing had happened.
type damageRow struct {
	path string // below the place, with * for what differs between places
	in   string // one of [damageScenes]; "" for that of [damageCell]
	// absent says that the file is there only at times, and not when it is damaged: it is made.
	absent bool
	spare  bool // it is read when another one is damaged, or when a server starts: in no undamaged scene
	// loses says that the outcome of the call to m may be unknown that must not run twice: what is
	// damaged is the only record of it.
	loses bool
	// stops says that calls of m may be refused afterwards, with a message that names the file: whether m was
	// stopped, or how it is to be started, is not known. A wrong letter in its entry is a mistake, as after an edit.
	stops bool
	// except are the damages of which nothing is promised, as "how" or as "how/dead" and "how/alive" for
	// one state of the worker: no daemon starts if its locks can never be opened: see [TestDaemonLockUnreadable].
	except []string
}

// damageRows are the files of [TestDamage]: all that [TestDamage_EveryFileHasARow] finds.
var damageRows = []damageRow{
	{path: "home/.config/holdline/config.json", stops: true},
	{path: "home/.config/holdline/env", stops: true},
	{path: "home/.local/state/holdline/catalog/m.json"},
	{path: "home/.local/state/holdline/config/*.json"},
	{path: "home/.local/state/holdline/daemon.lock", except: []string{"unreadable"}},
	{path: "home/.local/state/holdline/daemon.path", absent: true},
	{path: "home/.local/state/holdline/daemon.place"},
	{path: "home/.local/state/holdline/environ", absent: true},
	{path: "home/.local/state/holdline/epoch"},
	{path: "home/.local/state/holdline/generation"},
	{path: "home/.local/state/holdline/logs/daemon.log"},
	{path: "home/.local/state/holdline/servers/m.json", absent: true, stops: true},
	{path: "home/.local/state/holdline/telemetry.jsonl", absent: true},
	{path: "run/holdline/adopting", absent: true},
	{path: "run/holdline/crash", absent: true},
	{path: "run/holdline/daemon.lock", except: []string{"unreadable"}},
	{path: "run/holdline/epoch"},
	{path: "run/holdline/home", absent: true},
	{path: "run/holdline/losses.json", absent: true},
	{path: "run/holdline/start.lock"},
	{path: "run/holdline/store"},
	{path: "run/holdline/w/sm-*/a/*", loses: true},
	{path: "run/holdline/w/sm-*/calls.jsonl", loses: true},
	{path: "run/holdline/w/sm-*/lists.json"},
	{path: "run/holdline/w/sm-*/lock", loses: true},
	{path: "run/holdline/w/sm-*/long.*", loses: true},
	{path: "run/holdline/w/sm-*/longline.json", absent: true},
	{path: "run/holdline/w/sm-*/server.json"},
	{path: "run/holdline/w/sm-*/spec.json"},
	{path: "run/holdline/w/sm-*/state.json", loses: true},
	{path: "run/holdline/w/sm-*/stderr.log", absent: true},
	{path: "run/holdline/w/sm-*/taken", loses: true},
	{path: "run/holdline/w/sm-*/worker.log"},

	{in: "a consult", path: "home/.local/state/holdline/consults/*/calls.jsonl", loses: true},
	{in: "a consult", path: "home/.local/state/holdline/consults/*/job.json", loses: true},
	{in: "a consult", path: "home/.local/state/holdline/consults/*/lock", loses: true},
	{in: "a consult", path: "home/.local/state/holdline/consults/*/longline.json", absent: true},
	{in: "a consult", path: "home/.local/state/holdline/consults/*/say.jsonl"},
	{in: "a consult", path: "home/.local/state/holdline/consults/*/spec.json", loses: true},
	{in: "a consult", path: "home/.local/state/holdline/consults/*/state.json", loses: true},
	{in: "a consult", path: "home/.local/state/holdline/consults/*/taken", loses: true},
	{in: "a consult", path: "home/.local/state/holdline/consults/*/transcript.jsonl"},
	{in: "a consult", path: "home/.local/state/holdline/consults/*/worker.log"},
	{in: "a budget", path: "home/.local/state/holdline/spent.json"},
	{in: "a budget", path: "home/.local/state/holdline/spent.json.copy"},
	{in: "an ended consult", path: "home/.local/state/holdline/consults/*/answer.json"},
	{in: "an ended consult", path: "home/.local/state/holdline/consults/*/job.json"},
	{in: "an ended consult", path: "home/.local/state/holdline/consults/*/outcome.json"},
	{in: "an ended consult", path: "home/.local/state/holdline/logs/consults.jsonl"},
	{in: "a task", path: "home/.local/state/holdline/tasks/*.json", loses: true},
	{in: "a question", path: "run/holdline/w/stools-*/q/*", loses: true},
	{in: "a question", path: "run/holdline/w/stools-*/q.json"},
	{in: "a long request", path: "run/holdline/.line.*"},
	{in: "a login", path: "home/.local/state/holdline/logins/*.json", loses: true},
	{in: "a login", path: "home/.local/state/holdline/logins/secrets/*.json", loses: true, spare: true},
	{in: "a login", path: "home/.local/state/holdline/logins/targets/*.json", loses: true},
	{in: "a far call", path: "far/.local/state/holdline/far/*/*/lock", loses: true},
	{in: "a far call", path: "far/.local/state/holdline/far/*/*/spec.json", loses: true},
	{in: "a far call", path: "far/.local/state/holdline/far/*/*/state.json", loses: true},
	{in: "a far call", path: "home/.local/state/holdline/away/stools-*"},
	{in: "a far call", path: "home/.local/state/holdline/origin"},
	{in: "a far call", path: "run/holdline/known/stools-*", spare: true},
	{in: "a far call", path: "run/holdline/w/stools-*/calls.jsonl", loses: true},
	{in: "a far call", path: "run/holdline/w/stools-*/spec.json", loses: true},
	{in: stopScene, path: "run/holdline/stopped"},
}

// damages are what can happen to a file. Each gets its path, its content, an earlier one, and that
// of a neighbour, of the same kind where there is one.
var damages = map[string]func(p *place, path string, now, old, other []byte) error{
	"emptied": func(_ *place, path string, _, _, _ []byte) error { return os.Truncate(path, 0) },
	"halved":  func(_ *place, path string, now, _, _ []byte) error { return os.Truncate(path, int64(len(now)/2)) },
	"last byte": func(_ *place, path string, now, _, _ []byte) error {
		return os.Truncate(path, int64(max(len(now)-1, 0)))
	},
	"one bit": func(_ *place, path string, now, _, _ []byte) error {
		if len(now) == 0 {
			return nil
		}
		return flipBit(path, int64(len(now)/2))
	},
	"old copy": func(_ *place, path string, _, old, _ []byte) error { return os.WriteFile(path, old, 0o600) },
	"swapped":  func(_ *place, path string, _, _, other []byte) error { return os.WriteFile(path, other, 0o600) },
	"missing":  func(_ *place, path string, _, _, _ []byte) error { return os.Remove(path) },
	"unreadable once": func(p *place, path string, _, _, _ []byte) error {
		return os.WriteFile(filepath.Join(p.dir, faultDir, faultUnreadOnce), []byte(path), 0o600)
	},
	"unreadable": func(p *place, path string, _, _, _ []byte) error {
		return os.WriteFile(filepath.Join(p.dir, faultDir, faultUnread), []byte(path), 0o600)
	},
}

// damagePlace returns a place with two servers, of which an agent uses both.
func damagePlace(t *testing.T) (*place, *agent) {
	t.Helper()
	p := newPlace(t).login().faults()
	p.configure(map[string]any{
		"m": p.toolsEntry(hosting{"scope": "shared"}), "o": p.toolsEntry(hosting{"scope": "shared"}),
	})
	env := filepath.Join(p.dir, "home/.config/holdline/env")
	if err := os.WriteFile(env, []byte("FIRST_OF_TWO=1\nSECOND_OF_TWO=2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := p.agent().shake()
	for _, server := range []string{"m", "o"} {
		if x := a.wait(a.call(server+"__effect", map[string]any{"token": "first"})); x.text() != "first" {
			t.Fatalf("the first call of %s: %s", server, x.raw)
		}
	}
	return p, a
}

// TestDamage damages each file that processes open, in each way, while no daemon runs and the agent
// has calls in flight; the worker of the file lives, or dies, too. Each pending call gets one answer
// soon, that of a server which is not concerned its own; what may not run twice does
// not, and what may is made; new calls work, and nothing runs on at the end. Without HOLDLINE_LONG
// it takes a share of the cells, another one each time.
func TestDamage(t *testing.T) {
	t.Parallel()
	type cell struct {
		row   damageRow
		how   string
		alive bool
	}
	var cells []cell
	for _, row := range damageRows {
		for how := range damages {
			for _, alive := range []bool{true, false} {
				state := how + map[bool]string{true: "/alive", false: "/dead"}[alive]
				if !slices.Contains(row.except, how) && !slices.Contains(row.except, state) {
					cells = append(cells, cell{row, how, alive})
				}
			}
		}
	}
	rand.Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
	if os.Getenv("HOLDLINE_LONG") == "" {
		cells = cells[:60]
	}
	slots := make(chan struct{}, atOnce)
	var wait sync.WaitGroup
	for _, c := range cells {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			t.Run(fmt.Sprintf("%s/%s/%s/alive=%v", c.row.in, c.row.path, c.how, c.alive), func(t *testing.T) {
				if c.row.in != "" {
					sceneCell(t, c.row, c.how, c.alive)
				} else {
					damageCell(t, c.row, c.how, c.alive)
				}
			})
		})
	}
	wait.Wait()
}

// damageCell damages one file in one way.
func damageCell(t *testing.T, row damageRow, how string, alive bool) {
	t.Helper()
	p, a := damagePlace(t)
	old := p.contentsOfState(t)
	calls := map[string]int{}
	for name, tool := range map[string]string{"e": "m__effect", "l": "m__look", "u": "o__effect"} {
		bytes := 0
		if name == "e" {
			bytes = 300_000
		}
		calls[name] = a.call(tool, map[string]any{"token": name, "until": p.latch(name), "bytes": bytes})
	}
	p.untilEffect("begin e")
	p.untilEffect("look l")
	p.untilEffect("begin u")
	daemon := p.pid(0)
	halt(t, a.cmd.Process.Pid)
	answered := strings.Contains(row.path, "/long.") || strings.Contains(row.path, "/a/")
	if strings.Contains(row.path, "/long.") { // the worker alone has the answer
		halt(t, daemon)
	}
	if answered {
		p.letThrough("e") // its answer lies in a file, and the agent has not read it
		p.untilDamageable(filepath.Join(p.dir, row.path))
	}
	kill9(t, daemon)
	path := p.damagePath(t, row)
	now, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("there is no %s to be damaged: %v", row.path, err)
	}
	if !alive {
		p.killWorker(t, "sm-")
	}
	if err := damages[how](p, path, now, old[path], p.neighbour(path)); err != nil {
		t.Fatal(err)
	}
	p.damageContinues(a)
	begun := time.Now()
	for name := range calls {
		p.letThrough(name)
	}
	got := a.waitAll(calls["e"], calls["l"], calls["u"])
	if took := time.Since(begun); took > endBound {
		t.Errorf("the answers took %v", took)
	}
	p.checkEffect(t, "begin e", got[calls["e"]], alive && !row.loses, 300_000)
	refused := func(x answer) bool {
		return row.stops && (x.Error != nil || x.code() != "") && strings.Contains(x.raw, path)
	}
	if x := got[calls["l"]]; (!strings.HasPrefix(x.text(), "l") || x.code() != "") && !refused(x) {
		t.Errorf("the call that may run again: %.300s", x.raw)
	}
	p.checkEffect(t, "begin u", got[calls["u"]], true, 0)
	if x := got[calls["e"]]; alive && x.code() == "outcome_unknown" {
		out, errs, _ := p.run("", "doctor", "-v")
		log, _ := os.ReadFile(filepath.Join(p.stateRoot(), "logs/daemon.log"))
		if all := x.raw + out + errs + string(log); !strings.Contains(all, filepath.Base(path)) {
			t.Errorf("nothing names %s: %s", filepath.Base(path), x.raw)
		}
	}
	begun = time.Now()
	for _, server := range []string{"m", "o"} {
		x := a.wait(a.call(server+"__effect", map[string]any{"token": "after"}))
		if server == "m" && refused(x) {
			continue
		}
		if x.text() != "after" {
			t.Errorf("a new call of %s: %.300s", server, x.raw)
		}
	}
	if took := time.Since(begun); took > endBound {
		t.Errorf("new calls took %v", took)
	}
	a.rest(calls["e"], calls["l"], calls["u"])
}

// checkEffect checks the answer to a call that must not run twice against its effects.
func (p *place) checkEffect(t *testing.T, verb string, x answer, sound bool, size int) {
	t.Helper()
	n := p.effectsOf(verb)
	token := strings.TrimPrefix(verb, "begin ")
	switch {
	case n != 1:
		t.Errorf("%s ran %d times, and got %.300s", token, n, x.raw)
	case x.code() == "" && x.text() == token+strings.Repeat("x", size):
	case x.code() == "outcome_unknown" && !sound:
	default:
		t.Errorf("%s got %.400s", token, x.raw)
	}
}

// damageContinues lets a stopped agent go on.
func (p *place) damageContinues(a *agent) {
	p.t.Helper()
	if err := syscall.Kill(a.cmd.Process.Pid, syscall.SIGCONT); err != nil {
		p.t.Fatal(err)
	}
}

// damaged returns the path that a row means, of several files the largest; "" if there is none.
func (p *place) damaged(pattern string) string {
	found, err := filepath.Glob(filepath.Join(p.dir, pattern))
	if err != nil {
		p.t.Fatal(err)
	}
	largest, most := "", int64(-1)
	for _, path := range found {
		if info, err := os.Stat(path); err == nil && info.Size() > most {
			largest, most = path, info.Size()
		}
	}
	return largest
}

// untilDamageable waits until there is a file of that pattern which has the whole long answer.
func (p *place) untilDamageable(pattern string) {
	p.t.Helper()
	waitFor(p.t, pattern, func() bool {
		found, _ := filepath.Glob(pattern)
		return slices.ContainsFunc(found, func(path string) bool {
			info, err := os.Stat(path)
			return err == nil && info.Size() > 300_001
		})
	})
}

// contentsOfState returns the contents of all files of the runtime and the state directory.
func (p *place) contentsOfState(t *testing.T) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, root := range []string{"run/holdline", "home/.local/state/holdline", "home/.config/holdline"} {
		_ = filepath.WalkDir(filepath.Join(p.dir, root), func(path string, d os.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				if b, err := os.ReadFile(path); err == nil {
					all[path] = b
				}
			}
			return nil
		})
	}
	return all
}

// neighbour returns the content of the same file of the other server, or of another file beside it.
func (p *place) neighbour(path string) []byte {
	p.t.Helper()
	name := filepath.Base(path)
	for _, pattern := range []string{
		filepath.Join(p.dir, "run/holdline/w/so-*", name),
		strings.Replace(path, "/m.json", "/o.json", 1),
		filepath.Join(filepath.Dir(path), "*"),
	} {
		found, _ := filepath.Glob(pattern)
		for _, other := range found {
			if info, err := os.Lstat(other); err == nil && info.Mode().IsRegular() && other != path {
				b, err := os.ReadFile(other)
				if err == nil {
					return b
				}
			}
		}
	}
	return []byte("nonsense\n")
}

// killWorker kills the worker whose directory has a name that begins with prefix.
func (p *place) killWorker(t *testing.T, prefix string) {
	t.Helper()
	for pid, argv := range p.processes() {
		if strings.Contains(argv, "/w/"+prefix) && strings.Contains(argv, "worker") {
			kill9(t, pid)
			return
		}
	}
	t.Fatalf("there is no worker of %s", prefix)
}

// TestDaemonLockUnreadable has a disk that does not give out the lock of daemons. No daemon can start, and who needs one
// is told at once which file it is and what to do, by doctor, too; so is stop --all, which cannot know whether a daemon
// uses the workers. An agent whose daemon has died gets the same as the answer to its call, and does not wait for a
// minute. Once the file can be opened all is as before, and the call was made once.
func TestDaemonLockUnreadable(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{
		"of the runtime directory": "run/holdline/daemon.lock",
		"of the state directory":   "home/.local/state/holdline/daemon.lock",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).faults()
			p.configure(map[string]any{"tools": p.toolsEntry(hosting{"scope": "shared"})})
			path := filepath.Join(p.dir, file)
			unread := filepath.Join(p.dir, faultDir, faultUnread)
			a := p.agent().shake()
			call := a.call("tools__effect", map[string]any{"token": "e", "until": p.latch("e")})
			p.untilEffect("begin e")
			daemon := p.pid(0)
			halt(t, a.cmd.Process.Pid) // so that no daemon starts before the file is damaged
			kill9(t, daemon)
			if err := os.WriteFile(unread, []byte(path), 0o600); err != nil {
				t.Fatal(err)
			}
			p.damageContinues(a)
			if x := a.wait(call); x.code() != "outcome_unknown" || !strings.Contains(x.raw, "rm "+path) {
				t.Errorf("the call of an agent whose daemon has died: %s", x.raw)
			}
			a.leave(exitLost)
			if err := os.Remove(unread); err != nil {
				t.Fatal(err)
			}
			p.agent().shake().leave()
			if n := p.effectsOf("begin e"); n != 1 {
				t.Errorf("the call was made %d times", n)
			}
			p.must("stop", "--all")
			if err := os.WriteFile(unread, []byte(path), 0o600); err != nil {
				t.Fatal(err)
			}
			const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
				`"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n"
			for _, c := range []struct {
				stdin string
				args  []string
			}{
				{"", []string{"start"}},
				{"", []string{"stop", "--all"}},
				{"", []string{"doctor"}},
				{hello, []string{"mcp-stdio"}},
			} {
				begun := time.Now()
				out, errs, code := p.run(c.stdin, c.args...)
				if said := out + errs; code == 0 || !strings.Contains(said, "rm "+path) ||
					!strings.Contains(strings.ToLower(said), "input/output error") {
					t.Errorf("%v ends with %d and says\n%s", c.args, code, said)
				}
				if took := time.Since(begun); took > endBound {
					t.Errorf("%v took %v", c.args, took)
				}
			}
			if err := os.Remove(unread); err != nil {
				t.Fatal(err)
			}
			a = p.agent().shake()
			if x := a.wait(a.effect("after", 1)); x.text() != "after" {
				t.Errorf("a call once the file can be opened: %s", x.raw)
			}
			a.leave()
		})
	}
}

// damageCommands are commands that read files of a place.
var damageCommands = [][]string{
	{"status"},
	{"doctor"},
	{"servers", "list"},
	{"config", "check"},
	{"logs"},
	{"telemetry"},
	{"reload"},
	{"servers", "stop", "o"},
	{"servers", "start", "o"},
	{"consult", "list"},
}

// openedFiles returns the files below the place that its processes have opened since the list of them was made.
func (p *place) openedFiles(t *testing.T) (paths []string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(p.dir, faultDir, faultOpened))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		if _, path, _ := strings.Cut(strings.TrimSpace(string(line)), " "); strings.HasPrefix(path, p.dir+"/") {
			paths = append(paths, path)
		}
	}
	return paths
}

// recordCalls returns the files that processes open in the scene of [damageCell] and afterwards.
func recordCalls(t *testing.T) (p *place, opened []string) {
	t.Helper()
	p = newPlace(t).login().faults()
	if err := os.WriteFile(filepath.Join(p.dir, faultDir, faultOpened), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.configure(map[string]any{
		"m": p.toolsEntry(hosting{"scope": "shared"}), "o": p.toolsEntry(hosting{"scope": "shared"}),
	})
	a := p.agent().shake()
	long := a.call("m__effect", map[string]any{"token": "e", "until": p.latch("e"), "bytes": 300_000})
	look := a.call("o__look", map[string]any{"token": "l", "until": p.latch("l")})
	p.untilEffect("begin e")
	p.untilEffect("look l")
	kill9(t, p.pid(0))
	p.letThrough("e")
	p.letThrough("l")
	a.waitAll(long, look)
	for _, args := range damageCommands {
		p.run("", args...)
	}
	a.rest()
	p.run("", "stop", "--all")
	p.must("start")
	p.agent().shake().rest()
	return p, p.openedFiles(t)
}

// damagedIDs match what differs between places in paths: the names of workers, the ids of consults and of tasks.
var damagedIDs = regexp.MustCompile(`/(s[a-z]+-[0-9a-f]{8}|[0-9a-f]{12}|[0-9a-f]{32})(/|\.json|$)`)

// hasName reports whether a row means a file below its place. Workers of all servers are alike.
func (row damageRow) hasName(name string) bool {
	pattern := strings.NewReplacer("/sm-*", "/*", "/stools-*", "/*", "/m.json", "/*.json").Replace(row.path)
	ok, _ := filepath.Match(pattern, name)
	return ok
}

// TestDamage_EveryFileHasARow records which files are opened in sessions over a kill of the daemon, with
// calls, consults, tasks, questions, logins and another machine, by proxies, daemons, workers and commands, and
// checks that [TestDamage] damages each, and that each of its rows means a file that is there.
func TestDamage_EveryFileHasARow(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen := map[string]bool{}
	note := func(p *place, paths []string) {
		mu.Lock()
		defer mu.Unlock()
		for _, path := range paths {
			name := strings.TrimPrefix(path, p.dir+"/")
			seen[damagedIDs.ReplaceAllString(name, "/id$2")] = true
		}
	}
	t.Run("in", func(t *testing.T) {
		t.Run("calls", func(t *testing.T) {
			t.Parallel()
			note(recordCalls(t))
		})
		for scene := range damageScenes {
			t.Run(scene, func(t *testing.T) {
				t.Parallel()
				note(recordScene(t, scene))
			})
		}
	})
	unused := slices.DeleteFunc(slices.Clone(damageRows), func(row damageRow) bool { return row.spare })
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		if strings.HasPrefix(filepath.Base(name), process.FileInput) { // for a moment: a second name of a client's line
			continue
		}
		has := func(row damageRow) bool { return row.hasName(name) }
		if !slices.ContainsFunc(damageRows, has) {
			t.Errorf("%s is opened, and no row damages it", name)
		}
		unused = slices.DeleteFunc(unused, has)
	}
	for _, row := range unused {
		t.Errorf("no process opens %s (%s)", row.path, row.in)
	}
}
