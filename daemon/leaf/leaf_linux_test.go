package leaf

import (
	"bufio"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// world is a machine with a launcher that works as npx does: a program that stays, and starts the program of a package
// by a shell.
type world struct {
	t     *testing.T
	dir   string // of everything
	store *Store
	given Program
	o     Options
}

// newWorld makes a launcher, a package with a program, and a project.
func newWorld(t *testing.T) *world {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("needs node")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: dir, store: Open(filepath.Join(dir, "launches"))}
	w.write("bin/npx", `#!`+node+`
const {spawn} = require("child_process"), path = require("path");
const bin = path.join(process.env.CACHE, "node_modules", ".bin");
const env = {...process.env, PATH: bin + ":" + process.env.PATH, INIT_CWD: process.cwd(), npm_lifecycle_script: "'mine'", npm_lifecycle_event: "npx",
  npm_config_cache: "/c", npm_config_userconfig: path.join(process.env.CACHE, "../else/npmrc"),
  npm_config_prefix: path.join(process.env.CACHE, "../prefix"), ...JSON.parse(process.env.MORE || "{}")};
const child = spawn("sh", ["-c", "'mine' \"$@\"", "sh", ...process.argv.slice(4)], {env, stdio: "inherit"});
child.on("exit", code => process.exit(code ?? 1));
`)
	w.program(node, "console.log(JSON.stringify([process.argv.slice(2), process.env])); process.stdin.resume()\n")
	w.write("cache/node_modules/pkg/package.json", `{"name":"pkg"}`)
	if err := os.Symlink("../pkg/index.js", w.path("cache/node_modules/.bin/mine")); err != nil {
		t.Fatal(err)
	}
	w.write("project/node_modules/.bin/first", "")
	w.given = Program{
		Command: "npx", Args: []string{"-y", "pkg", "a", "b c"}, Dir: w.path("project"),
		Env: []string{
			"CACHE=" + w.path("cache"), "PATH=" + w.path("bin") + ":" + filepath.Dir(node) + ":/usr/bin:/bin", "KEY=hidden-1",
			"HOME=" + w.path("home"),
		},
	}
	w.o = Options{Server: "s", Secrets: []string{"hidden-1"}, Refresh: time.Hour}
	return w
}

// program writes the program of the package.
func (w *world) program(node, text string) {
	w.t.Helper()
	w.write("cache/node_modules/pkg/index.js", "#!/usr/bin/env node\n"+text)
}

// path returns a path in the world.
func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// write writes an executable file, and makes its directories.
func (w *world) write(name, text string) {
	w.t.Helper()
	path := w.path(name)
	for _, dir := range []string{filepath.Dir(path), w.path("cache/node_modules/.bin")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		w.t.Fatal(err)
	}
}

// read returns what a file has.
func (w *world) read(name string) string {
	w.t.Helper()
	b, err := os.ReadFile(w.path(name))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

// run starts a program, waits for its first line, and calls while before it ends the program. It returns the line.
func (w *world) run(p Program, while func(pid int)) string {
	w.t.Helper()
	path, err := exec.LookPath(p.Command)
	if !strings.Contains(p.Command, "/") {
		path, err = w.path("bin/npx"), nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command(path, p.Args...)
	cmd.Env, cmd.Dir, cmd.Stderr = p.Env, p.Dir, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		w.t.Error(err)
	}
	while(cmd.Process.Pid)
	_ = in.Close()
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait()
	return line
}

// observe starts the server as its entry says, and records it. It returns what the server printed, and why it is not
// started directly.
func (w *world) observe() (line, why string) {
	w.t.Helper()
	l := w.store.Launch(w.given, w.o)
	if l == nil {
		w.t.Fatal("npx is no launcher")
	}
	line = w.run(w.given, func(pid int) {
		var err error
		if why, err = l.Observe(pid, "said"); err != nil {
			w.t.Error(err)
		}
	})
	return line, why
}

// secret gives the server another secret.
func (w *world) secret(text string) {
	i := slices.Index(w.given.Env, "KEY=hidden-1")
	w.given.Env[i], w.o.Secrets = "KEY="+text, []string{text}
}

// record returns the record of the server.
func (w *world) record() *record {
	w.t.Helper()
	r := w.store.read(w.store.Launch(w.given, w.o).key)
	if r == nil {
		w.t.Fatal("there is no record")
	}
	return r
}

// direct returns the leaf of the next start.
func (w *world) direct() (Program, bool) {
	w.t.Helper()
	return w.store.Launch(w.given, w.o).Direct(false)
}

// TestRecordedLeaf_SeesWhatItSeesBehindItsLauncher checks that a program which is started by its record has the same
// arguments, variables and directory as behind its launcher, and that the record has none of the given values.
func TestRecordedLeaf_SeesWhatItSeesBehindItsLauncher(t *testing.T) {
	w := newWorld(t)
	if _, ok := w.direct(); ok {
		t.Error("a server without a record is started directly")
	}
	behind, why := w.observe()
	if why != "" {
		t.Fatal(why)
	}
	p, ok := w.direct()
	if !ok {
		t.Fatal("the record does not hold")
	}
	var seen [2]struct {
		args []string
		env  map[string]string
	}
	for i, line := range []string{behind, w.run(p, func(int) {})} {
		parts := []any{&seen[i].args, &seen[i].env}
		if err := json.Unmarshal([]byte(line), &parts); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(seen[0].args, seen[1].args) || !slices.Equal(seen[0].args, []string{"a", "b c"}) {
		t.Errorf("arguments: %q and %q", seen[0].args, seen[1].args)
	}
	for _, name := range slices.AppendSeq(slices.Collect(maps.Keys(seen[0].env)), maps.Keys(seen[1].env)) {
		if seen[0].env[name] != seen[1].env[name] {
			t.Errorf("%s is %q behind the launcher, and %q without it", name, seen[0].env[name], seen[1].env[name])
		}
	}
	files, err := filepath.Glob(w.path("launches/*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil || strings.Contains(string(b), "hidden-1") || strings.Contains(string(b), "KEY") {
		t.Errorf("%s, %v", b, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if r := w.record(); !strings.HasSuffix(strings.Join(r.Args, " "), "/mine") || r.Given != 2 || r.Why != "" {
		t.Errorf("%+v", r)
	}
}

// TestWhatALauncherFindsChanges_RecordEnds checks that whatever may lead a launcher to another program ends the record,
// and that what does not leaves it.
func TestWhatALauncherFindsChanges_RecordEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(w *world)
		holds  bool
	}{
		"nothing":                        {func(*world) {}, true},
		"program":                        {func(w *world) { w.write("cache/node_modules/pkg/index.js", "") }, false},
		"package":                        {func(w *world) { w.write("cache/node_modules/pkg/package.json", `{"name":"pkg","version":"2"}`) }, false},
		"cache removed":                  {func(w *world) { _ = os.RemoveAll(w.path("cache")) }, false},
		"launcher":                       {func(w *world) { w.write("bin/npx", "#!/bin/sh\n") }, false},
		"project has the program":        {func(w *world) { w.write("project/node_modules/.bin/mine", "") }, false},
		"project has the package":        {func(w *world) { w.write("project/node_modules/pkg/package.json", "{}") }, false},
		"directory above has it":         {func(w *world) { w.write("node_modules/.bin/mine", "") }, false},
		"installed for all":              {func(w *world) { w.write("bin/mine", "") }, false},
		"project has the package's name": {func(w *world) { w.write("project/node_modules/.bin/pkg", "") }, false},
		"settings of the project":        {func(w *world) { w.write("project/.npmrc", "cache=/elsewhere") }, false},
		"settings of the user":           {func(w *world) { w.write("home/.npmrc", "prefix=/elsewhere") }, false},
		"another node in front":          {func(w *world) { w.write("bin/node", "#!/bin/sh\n") }, false},
		"project is the package":         {func(w *world) { w.write("project/package.json", `{"name":"pkg"}`) }, false},
		"project is another package":     {func(w *world) { w.write("project/package.json", `{"name":"other"}`) }, false},
		"package above":                  {func(w *world) { w.write("package.json", `{"name":"other"}`) }, false},
		"project has a dependency of it": {func(w *world) { w.write("project/node_modules/.package-lock.json", "{}") }, false},
		"installed for all, not linked":  {func(w *world) { w.write("lib/node_modules/pkg/package.json", "{}") }, false},
		"settings that npm names":        {func(w *world) { w.write("else/npmrc", "cache=/elsewhere") }, false},
		"installed where npm says":       {func(w *world) { w.write("prefix/bin/mine", "") }, false},
		"token":                          {func(w *world) { w.secret("another secret") }, true},
		"project has other programs":     {func(w *world) { w.write("project/node_modules/.bin/other", "") }, true},
		"arguments":                      {func(w *world) { w.given.Args = append(w.given.Args, "c") }, false},
		"version":                        {func(w *world) { w.given.Args[1] = "pkg@latest" }, false},
		"directory":                      {func(w *world) { w.given.Dir = w.dir }, false},
		"variable":                       {func(w *world) { w.given.Env = append(w.given.Env, "npm_config_registry=x") }, false},
		"variable of a desktop":          {func(w *world) { w.given.Env = append(w.given.Env, "SSH_AUTH_SOCK=x") }, true},
		"wall":                           {func(w *world) { w.o.Wall = "read" }, false},
		"other server":                   {func(w *world) { w.o.Server = "other" }, false},
		"forgotten":                      {func(w *world) { _ = os.RemoveAll(w.path("launches")) }, false},
		"old":                            {func(w *world) { w.o.Refresh = time.Nanosecond }, false},
		"pipe in place of a manifest":    {func(w *world) { _ = exec.Command("mkfifo", w.path("project/package.json")).Run() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if _, why := w.observe(); why != "" {
				t.Fatal(why)
			}
			c.change(w)
			if _, ok := w.direct(); ok != c.holds {
				t.Errorf("started directly: %v, want %v", ok, c.holds)
			}
		})
	}
}

// TestRecordIsDamaged_EntryIsStarted checks that a record counts only as it was written.
func TestRecordIsDamaged_EntryIsStarted(t *testing.T) {
	w := newWorld(t)
	if _, why := w.observe(); why != "" {
		t.Fatal(why)
	}
	files, err := filepath.Glob(w.path("launches/*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty": "", "half": string(whole[:len(whole)/2]), "other": `{"version":1}`,
		"one word": strings.Replace(string(whole), `"given": 2`, `"given": 1`, 1),
	} {
		if err := os.WriteFile(files[0], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, ok := w.direct(); ok {
			t.Errorf("%s: the record holds", name)
		}
	}
}

// TestUnclearLeaf_EntryIsStarted checks that a server whose leaf is not clear is started as its entry says, and that the
// record says why.
func TestUnclearLeaf_EntryIsStarted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(w *world, node string)
		why    string
	}{
		"a title": {func(w *world, node string) {
			w.program(node, `process.title = "server"; console.log("x"); process.stdin.resume()`)
		}, "command line"},
		"a child": {func(w *world, node string) {
			w.program(node, `const c = require("child_process").spawn("sleep", ["60"], {stdio: "ignore"});
c.on("spawn", () => console.log("x")); process.stdin.resume(); process.stdin.on("end", () => {c.kill(); process.exit()})`)
		}, "2 processes"},
		"a script before it": {func(w *world, node string) {
			w.write("cache/node_modules/pkg/real.js", `console.log("x"); process.stdin.resume()`)
			w.write("cache/node_modules/pkg/index.js", "#!/bin/sh\nexec "+node+" $CACHE/node_modules/pkg/real.js\n")
		}, "a script of its package"},
		"a script that runs it": {func(w *world, node string) {
			w.write("cache/node_modules/pkg/real.js", `console.log("x"); process.stdin.resume()`)
			w.write("cache/node_modules/pkg/index.js", "#!/bin/sh\n"+node+" $CACHE/node_modules/pkg/real.js\nexit 0\n")
		}, "a script of its package"},
		"a launcher between": {func(w *world, node string) {
			w.write("bin/npx", "#!/bin/sh\nexport PATH=$CACHE/node_modules/.bin:$PATH\ncat | mine | cat\n")
		}, "3 processes"},
		"a program in front": {func(w *world, node string) {
			w.write("bin/npx.js", w.read("bin/npx"))
			w.write("bin/npx", "#!/bin/sh\nexport CHOSEN=20\nexec "+node+" "+w.path("bin/npx.js")+" \"$@\"\n")
		}, "variable CHOSEN"},
		"a secret in its arguments": {func(w *world, node string) {
			w.write("cache/node_modules/pkg/real.js", `console.log("x"); process.stdin.resume()`)
			w.write("cache/node_modules/.bin/two", "#!/bin/sh\nexec "+node+" $CACHE/node_modules/pkg/real.js --key $KEY\n")
			w.write("bin/npx", "#!/bin/sh\nexport PATH=$CACHE/node_modules/.bin:$PATH\nsh -c two\n")
			w.write("cache/node_modules/pkg/package.json", `{"name":"pkg","bin":{"two":"real.js"}}`)
		}, "secret"},
		"a script that npm does not name": {func(w *world, node string) {
			w.write("cache/node_modules/pkg/real.js", `console.log("x"); process.stdin.resume()`)
			w.write("cache/node_modules/.bin/two", "#!/bin/sh\nexec "+node+" $CACHE/node_modules/pkg/real.js\n")
			w.write("bin/npx", "#!/bin/sh\nexport PATH=$CACHE/node_modules/.bin:$PATH\nsh -c two\n")
			w.write("cache/node_modules/pkg/package.json", `{"name":"pkg","bin":"two.sh"}`)
		}, "a script of its package"},
		"a program in front that changes the modes of files": {func(w *world, node string) {
			w.write("bin/npx.js", w.read("bin/npx"))
			w.write("bin/npx", "#!/bin/sh\numask 067\nexec "+node+" "+w.path("bin/npx.js")+" \"$@\"\n")
		}, "the modes of the files"},
		"a program in front that changes the directory": {func(w *world, node string) {
			w.write("bin/npx.js", w.read("bin/npx"))
			w.write("bin/npx", "#!/bin/sh\ncd /\nexec "+node+" "+w.path("bin/npx.js")+" \"$@\"\n")
		}, "another directory"},
		"a variable of a script": {func(w *world, _ string) {
			w.given.Env = append(w.given.Env, `MORE={"TOKEN":"x"}`)
		}, "variable TOKEN"},
		"a secret": {func(w *world, _ string) {
			w.given.Env = append(w.given.Env, `MORE={"npm_config_x":"-hidden-1"}`)
		}, "secret"},
		"another PATH": {func(w *world, _ string) {
			w.given.Env = append(w.given.Env, `MORE={"PATH":"`+w.path("cache/node_modules/.bin")+`:/usr/bin:/bin"}`)
		}, "PATH"},
		"another directory": {func(w *world, node string) {
			w.program(node, `process.chdir("/"); console.log("x"); process.stdin.resume()`)
		}, "directory"},
		"the package itself": {func(w *world, _ string) { w.write("project/package.json", `{"name":"pkg"}`) }, "the package itself"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			node, err := exec.LookPath("node")
			if err != nil {
				t.Fatal(err)
			}
			c.change(w, node)
			_, why := w.observe()
			if !strings.Contains(why, c.why) {
				t.Errorf("why: %q, want %q", why, c.why)
			}
			if _, ok := w.direct(); ok || w.record().Why != why {
				t.Errorf("started directly: %v; %+v", ok, w.record())
			}
		})
	}
}

// TestLeafIsRefused_UntilItIsAnother checks that a leaf which does not work is not tried again for as long as it is the
// same, and that one which has answered once need not be compared again.
func TestLeafIsRefused_UntilItIsAnother(t *testing.T) {
	w := newWorld(t)
	if _, why := w.observe(); why != "" {
		t.Fatal(why)
	}
	l := w.store.Launch(w.given, w.o)
	if l.Said() != "said" {
		t.Errorf("before its first start it is to say %q", l.Said())
	}
	if err := l.Confirm("said"); err != nil {
		t.Fatal(err)
	}
	if _, why := w.observe(); why != "" { // the launcher was asked again, and finds the same
		t.Fatal(why)
	}
	if l = w.store.Launch(w.given, w.o); l.Said() != "" {
		t.Errorf("after it was confirmed it is to say %q", l.Said())
	}
	if err := l.Refuse("it does not work"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, ok := w.direct(); ok {
			t.Error("a refused leaf is started")
		}
		if _, why := w.observe(); why != "it does not work" {
			t.Errorf("why: %q", why)
		}
	}
	w.write("cache/node_modules/pkg/package.json", `{"name":"pkg","version":"2"}`)
	if _, why := w.observe(); why != "" {
		t.Errorf("another version: %q", why)
	}
	if _, ok := w.direct(); !ok {
		t.Error("another version is not started directly")
	}
}

// TestServerIsForgotten_RememberedIsWhatNothingElseReplaces checks that a server that is forgotten is started as its entry
// says, and that what was known can be put back unless its launcher has found something by then.
func TestServerIsForgotten_RememberedIsWhatNothingElseReplaces(t *testing.T) {
	w := newWorld(t)
	if _, why := w.observe(); why != "" {
		t.Fatal(why)
	}
	before := w.record()
	forget := func() (remember func() error) {
		remember, err := w.store.Forget("s")
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := w.direct(); ok {
			t.Error("a forgotten server is started directly")
		}
		return remember
	}
	if err := forget()(); err != nil {
		t.Fatal(err)
	}
	if _, ok := w.direct(); !ok || !w.record().At.Equal(before.At) {
		t.Errorf("directly: %v; before\n%+v\nafter\n%+v", ok, before, w.record())
	}
	remember := forget()
	if _, why := w.observe(); why != "" {
		t.Fatal(why)
	}
	found := w.record()
	if err := remember(); err != nil {
		t.Fatal(err)
	}
	if r := w.record(); r.Sum != found.Sum || r.At.Equal(before.At) {
		t.Errorf("what was found by now\n%+v\nis replaced by\n%+v", found, r)
	}
}

// TestProcessEndsWhileItIsRecorded_RecordOfAnotherHolds checks that a process which ends while it is looked at says nothing
// of its server, nor one whose leaf has ended.
func TestProcessEndsWhileItIsRecorded_RecordOfAnotherHolds(t *testing.T) {
	w := newWorld(t)
	if _, why := w.observe(); why != "" {
		t.Fatal(why)
	}
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	for name, pid := range map[string]int{"ended": ended.Process.Pid, "has no leaf": os.Getpid()} {
		if why, err := w.store.Launch(w.given, w.o).Observe(pid, "said"); why != "" || err != nil {
			t.Errorf("%s: %q, %v", name, why, err)
		}
		if _, ok := w.direct(); !ok {
			t.Errorf("%s: it is started as its entry says: %+v", name, w.record())
		}
	}
}

// TestLauncherHasBegunToReplaceTheLeaf_ThatIsNoSpare checks that a leaf whose files have changed since its launcher was
// started is not started in place of that: it may be half installed.
func TestLauncherHasBegunToReplaceTheLeaf_ThatIsNoSpare(t *testing.T) {
	w := newWorld(t)
	if _, why := w.observe(); why != "" {
		t.Fatal(why)
	}
	l := w.store.Launch(w.given, w.o)
	if err := l.Confirm("said"); err != nil {
		t.Fatal(err)
	}
	l = w.store.Launch(w.given, w.o)
	if _, ok := l.Spare(); !ok {
		t.Fatal("it is no spare")
	}
	w.write("cache/node_modules/pkg/package.json", `{"name":"pkg","version":"2"}`)
	if _, ok := l.Spare(); ok {
		t.Error("a changed leaf is a spare")
	}
}

// TestAnotherLeafIsRecordedMeanwhile_NotConfirmed checks that only the leaf that was started is confirmed, and never that
// there is none.
func TestAnotherLeafIsRecordedMeanwhile_NotConfirmed(t *testing.T) {
	w := newWorld(t)
	if _, why := w.observe(); why != "" {
		t.Fatal(why)
	}
	l := w.store.Launch(w.given, w.o)
	if _, ok := l.Direct(false); !ok {
		t.Fatal("it is not started directly")
	}
	if err := l.store.change(l.key, func(r *record) {
		*r = record{Key: r.Key, Server: r.Server, Dir: r.Dir, At: r.At, Why: "it is another one", Files: r.Files}
	}); err != nil {
		t.Fatal(err)
	}
	if err := l.Confirm("said"); err != nil {
		t.Fatal(err)
	}
	if r := w.record(); r.Why == "" || r.Confirmed {
		t.Errorf("confirmed: %+v", r)
	}
	if _, ok := w.direct(); ok {
		t.Error("no leaf is started directly")
	}
}

// TestLaunchers checks which commands are those of launchers, what they ask for, and which options are not known.
func TestLaunchers(t *testing.T) {
	for line, want := range map[string]wish{
		"npx -y pkg": {"pkg", ""}, "npx pkg@latest a": {"pkg@latest", ""}, "/opt/bin/npx --yes -- pkg": {"pkg", ""}, "npx": {},
		"npx -y": {}, "npx -c pkg": {"pkg", "-c"}, "npx --call=pkg": {"", "--call=pkg"}, "npx -y pkg -c a": {"pkg", ""},
		"npx -p pkg bin": {"bin", ""}, "npx -y --package=pkg --package b bin a": {"bin", ""}, "npx -p=pkg bin": {"bin", "-p=pkg"},
		"npx github:a/b": {"github:a/b", ""}, "npx ./local": {"./local", ""}, "npx --registry=x pkg": {"pkg", "--registry=x"},
		"npm exec pkg": {"pkg", ""}, "npm x -- pkg -a": {"pkg", ""}, "npm exec pkg -- -a": {"pkg", ""}, "npm run pkg": {},
		"npm exec pkg -c a": {"pkg", "-c"}, "npm exec -w a pkg": {"a", "-w"}, "npm -y exec pkg": {"pkg", ""}, "npm": {}, "npm exec": {},
		"pnpm dlx pkg": {"pkg", ""}, "pnpm run pkg": {}, "pnpx pkg": {"pkg", ""}, "pnpm --package=pkg dlx bin": {"bin", ""},
		"bunx pkg": {"pkg", ""}, "bun x pkg": {"pkg", ""}, "bun run pkg": {}, "bunx -p a pkg": {"a", "-p"},
		"node index.js": {}, "uvx pkg": {}, "pipx run pkg": {}, "yarn dlx pkg": {},
	} {
		words := strings.Fields(line)
		if got := parse(words[0], words[1:]); got != want {
			t.Errorf("%s: %+v, want %+v", line, got, want)
		}
		if got := IsLauncher(words[0], words[1:]); got != (want.name != "" && want.unknown == "") {
			t.Errorf("%s: a launcher: %v", line, got)
		}
	}
}

// TestPackage checks which package a command asks for, with which arguments, and which commands are of no known package.
// Options that change nothing are left out of what is essential.
func TestPackage(t *testing.T) {
	for line, want := range map[string]string{
		"npx -y pkg": "pkg", "npx pkg@1 a -b": "pkg@1 a -b", "/opt/bin/npx --yes -- pkg -a": "pkg -a", "npm exec -y pkg -- -a": "pkg -a",
		"npm exec pkg a": "pkg a", "pnpm dlx pkg a": "pkg a", "bunx pkg": "pkg", "npx -q --prefer-offline pkg": "pkg",
		"bunx --bun pkg": "", "npx -p other pkg": "", "npx --package=other pkg": "", "npx -c pkg": "", "npm run pkg": "", "npm pkg": "",
		"node pkg": "", "uvx pkg": "", "npx": "",
	} {
		words := strings.Fields(line)
		spec, rest, ok := Package(words[0], words[1:])
		if got := strings.Join(append([]string{spec}, rest...), " "); ok != (want != "") || ok && got != want {
			t.Errorf("%s: %q, %v; want %q", line, got, ok, want)
		}
		essential := words[1:]
		if ok {
			essential = strings.Fields("exec " + spec + " -- " + strings.Join(rest, " "))
			if i := slices.Index(words, "--prefer-offline"); i > 0 { // it may be an older version
				essential = slices.Insert(essential, 1, words[i])
			}
		}
		if got := Essential(words[0], words[1:]); !slices.Equal(got, essential) {
			t.Errorf("%s: essential is %q, want %q", line, got, essential)
		}
	}
}
