package e2e

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"holdline/protocol/process"
)

// mineText is a server for Node that says what it is, how it was started, and by which program. VERSION is in its place.
const mineText = `#!/usr/bin/env node
const fs = require("fs");
const {_, HOLDLINE_WORKER, ...env} = process.env;
const about = {version: "VERSION", node: process.execPath, args: process.argv.slice(2), cwd: process.cwd(), env};
require("readline").createInterface({input: process.stdin}).on("line", line => {
  const m = JSON.parse(line), result = {
    initialize: {protocolVersion: "2025-11-25", capabilities: {tools: {}}, serverInfo: {name: "mine", version: "1"}},
    "tools/list": {tools: [{name: "about", inputSchema: {type: "object"}, annotations: {readOnlyHint: true}}]},
    "tools/call": {content: [{type: "text", text: JSON.stringify(about)}]},
  }[m.method];
  if (m.id === undefined) return;
  const answer = result ? {result} : {error: {code: -32601, message: "unknown method"}};
  console.log(JSON.stringify({jsonrpc: "2.0", id: m.id, ...answer}));
});
`

// mineFiles are the files of the package mine in a version, by their names.
func mineFiles(version string) map[string]string {
	return map[string]string{
		"package.json": `{"name":"mine","version":"` + version + `","bin":{"mine-server":"index.js"}}`,
		"index.js":     strings.Replace(mineText, "VERSION", version, 1),
	}
}

// npmRegistry is a registry of npm that has the package mine in one version.
type npmRegistry struct {
	*httptest.Server

	version atomic.Pointer[string]
}

func newRegistry(t *testing.T) *npmRegistry {
	t.Helper()
	r := &npmRegistry{}
	r.publish("1.0.0")
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		version := *r.version.Load()
		switch {
		case strings.HasSuffix(req.URL.Path, ".tgz"):
			zip := gzip.NewWriter(w)
			archive := tar.NewWriter(zip)
			for name, text := range mineFiles(version) {
				_ = archive.WriteHeader(&tar.Header{Name: "package/" + name, Mode: 0o755, Size: int64(len(text))})
				_, _ = io.WriteString(archive, text)
			}
			_, _ = archive.Close(), zip.Close() // npm says what is wrong with it
		case req.URL.Path == "/mine":
			fmt.Fprintf(w, `{"name":"mine","dist-tags":{"latest":%q},"versions":{%[1]q:{"name":"mine","version":%[1]q,
				"bin":{"mine-server":"index.js"},"dist":{"tarball":"http://%s/mine-%[1]s.tgz"}}}}`, version, req.Host)
		default:
			http.NotFound(w, req)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// publish replaces the version.
func (r *npmRegistry) publish(version string) { r.version.Store(&version) }

// realNPX is a place whose server the real npx or npm starts, by a Node of its own.
type realNPX struct {
	*launched

	t        *testing.T
	registry *npmRegistry
	argv     []string
	env      map[string]string
}

// newRealNPX makes the place. The Node that is used is that in the directory current, which is a link.
func newRealNPX(t *testing.T, argv ...string) *realNPX {
	t.Helper()
	e2eCache(t)
	p := newPlace(t)
	node, err := exec.LookPath("node")
	if err == nil {
		node, err = filepath.EvalSymlinks(node)
	}
	npx, nerr := exec.LookPath("npx")
	npm, merr := exec.LookPath("npm")
	if err != nil || nerr != nil || merr != nil {
		t.Skip("needs node, npm and npx")
	}
	n := &realNPX{launched: &launched{place: p}, t: t, registry: newRegistry(t), argv: argv}
	for _, dir := range []string{"node1", "node2"} {
		at := filepath.Join(p.dir, dir)
		if err := os.MkdirAll(at, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, path := range map[string]string{"npx": npx, "npm": npm} {
			to, err := filepath.EvalSymlinks(path)
			if err == nil {
				err = os.Symlink(to, filepath.Join(at, name))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := copyFile(node, filepath.Join(at, "node")); err != nil {
			t.Fatal(err)
		}
	}
	n.chooseNode("node1")
	n.write(filepath.Join(p.dir, "local"), mineFiles("local"))
	n.env = map[string]string{
		"PATH": filepath.Join(p.dir, "current") + ":/usr/bin:/bin", "HOME": filepath.Join(p.dir, "home"),
		"npm_config_registry": n.registry.URL, "npm_config_fetch_retries": "0", "npm_config_update_notifier": "false",
	}
	p.configure(map[string]any{"tools": map[string]any{
		"command": argv[0], "args": argv[1:], "env": n.env, "holdline": hosting{"scope": "project", "inherit_env": "none"},
	}})
	return n
}

// chooseNode makes a Node the current one.
func (n *realNPX) chooseNode(dir string) {
	n.t.Helper()
	link := filepath.Join(n.dir, "current")
	err := os.Symlink(filepath.Join(n.dir, dir), link+".new")
	if err == nil {
		err = os.Rename(link+".new", link)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// write puts files into a directory, each a new one.
func (n *realNPX) write(dir string, files map[string]string) {
	n.t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.WriteFile(path+".new", []byte(text), 0o700)
		}
		if err == nil {
			err = os.Rename(path+".new", path)
		}
		if err != nil {
			n.t.Fatal(err)
		}
	}
}

// shell runs a command as the server's environment has it.
func (n *realNPX) shell(script string) {
	n.t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Env, cmd.Dir = n.environ(), n.project
	if out, err := cmd.CombinedOutput(); err != nil {
		n.t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// environ returns the environment of the server.
func (n *realNPX) environ() (list []string) {
	for _, name := range slices.Sorted(maps.Keys(n.env)) {
		list = append(list, name+"="+n.env[name])
	}
	return list
}

// byItself starts the entry without Holdline, and returns what the server says of itself.
func (n *realNPX) byItself() map[string]any {
	n.t.Helper()
	cmd := exec.Command(filepath.Join(n.dir, "current", n.argv[0]), n.argv[1:]...)
	cmd.Env, cmd.Dir = n.environ(), realPath(n.t, n.project)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	in, err := cmd.StdinPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() {
		_ = in.Close()
		_ = cmd.Wait() // it ends with its input
	}()
	_, _ = io.WriteString(in, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"about"}}`+"\n")
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var m struct {
		Result struct{ Content []struct{ Text string } }
	}
	if err == nil {
		err = json.Unmarshal(line, &m)
	}
	if err != nil || len(m.Result.Content) != 1 {
		n.t.Fatalf("%v: %q, %v: %s", n.argv, line, err, &errs)
	}
	return n.about(m.Result.Content[0].Text)
}

// about parses what the server says of itself.
func (n *realNPX) about(text string) (about map[string]any) {
	n.t.Helper()
	if err := json.Unmarshal([]byte(text), &about); err != nil {
		n.t.Fatalf("%q: %v", text, err)
	}
	return about
}

// restarted ends the server's process as a crash does, and returns the next one and what that says of itself.
func (n *realNPX) restarted(a *agent) (pid int, about map[string]any) {
	n.t.Helper()
	old := n.untilReady("tools")
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		n.t.Fatal(err)
	}
	waitFor(n.t, "its successor", func() bool {
		next := child(n.status(), "tools")
		return next != 0 && next != old
	})
	return n.says(a)
}

// says returns the process of the server and what it says of itself.
func (n *realNPX) says(a *agent) (pid int, about map[string]any) {
	n.t.Helper()
	x := a.wait(a.call("tools__about", map[string]any{}))
	return n.untilReady("tools"), n.about(x.text())
}

// isDirect reports whether a process of the server runs without its launcher.
func (n *realNPX) isDirect(pid int) bool {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && filepath.Base(exe) == "node" && !strings.HasPrefix(strings.Join(process.Args(pid), " "), "npm ") &&
		leafOf(pid) == pid
}

// begin starts a daemon and an agent, and returns once the server runs without its launcher.
func (n *realNPX) begin() *agent {
	n.t.Helper()
	n.daemon()
	a := n.agent().shake()
	n.says(a)
	if why := n.untilRecorded(`"exe"`); why != "" {
		n.t.Fatal(why)
	}
	if pid, about := n.restarted(a); !n.isDirect(pid) {
		n.t.Fatalf("the second process is %q: %v", process.Args(pid), about)
	}
	return a
}

// same compares what the server says of itself with what it says without Holdline.
func (n *realNPX) same(when string, got map[string]any) {
	n.t.Helper()
	if got, want := mustJSON(n.t, got), mustJSON(n.t, n.byItself()); got != want {
		n.t.Errorf("%s: through Holdline\n%s\nby itself\n%s", when, got, want)
	}
}

// TestE2ERealNPX_StartsTheSameWithoutIt checks that a server which the real npx or npm starts, by whatever form of its command,
// has the same program, arguments, directory and variables without it.
func TestE2ERealNPX_StartsTheSameWithoutIt(t *testing.T) {
	for _, line := range []string{
		"npx -y mine a b", "npx mine@1.0.0", "npx -y mine@latest --x", "npx -y -p mine mine-server a", "npx -y --package=mine mine-server",
		"npm exec -y -- mine a", "npx -y ../local a", "npx -y -p ../local mine-server",
	} {
		t.Run(line, func(t *testing.T) {
			n := newRealNPX(t, strings.Fields(line)...)
			n.write(n.project, map[string]string{"package.json": `{"name":"own","version":"7.0.0"}`})
			a := n.begin()
			pid, about := n.says(a)
			n.same("without npx", about)
			if !n.isDirect(pid) {
				t.Errorf("it runs %q", process.Args(pid))
			}
			a.rest()
		})
	}
}

// TestE2ERealNPX_RightProgramAfterEachChange checks that after whatever changes what the real npx would start, that is
// started, and that a server goes on without a network.
func TestE2ERealNPX_RightProgramAfterEachChange(t *testing.T) {
	for name, change := range map[string]func(n *realNPX){
		"nothing":               nil,
		"the cache is cleaned":  func(n *realNPX) { n.shell("npm cache clean --force") },
		"_npx is removed":       func(n *realNPX) { n.shell(`rm -r "$HOME/.npm/_npx"`) },
		"another node":          func(n *realNPX) { n.chooseNode("node2") },
		"a package by its side": func(n *realNPX) { n.write(n.project, map[string]string{"package.json": `{"version":"3.0.0"}`}) },
		"settings of a project": func(n *realNPX) {
			n.write(n.project, map[string]string{".npmrc": "init-author-name=x\n", "package.json": "{}"})
		},
		"settings of the user": func(n *realNPX) {
			n.write(filepath.Join(n.dir, "home"), map[string]string{".npmrc": "init-author-name=y\n"})
		},
		"updated by hand":        func(n *realNPX) { n.registry.publish("1.1.0"); n.shell("npx -y mine </dev/null") },
		"installed by a project": func(n *realNPX) { n.registry.publish("0.9.0"); n.shell("npm install mine@0.9.0") },
		"installed above it": func(n *realNPX) {
			n.registry.publish("0.8.0")
			n.shell("cd .. && npm install mine@0.8.0")
		},
		"installed for all": func(n *realNPX) { n.registry.publish("0.7.0"); n.shell("npm install -g mine") },
	} {
		t.Run(name, func(t *testing.T) {
			n := newRealNPX(t, "npx", "-y", "mine", "a")
			a := n.begin()
			if change != nil {
				change(n)
			}
			_, about := n.restarted(a)
			n.same("after the change", about)
			if why := n.untilRecorded(`"exe"`); why != "" {
				t.Error(why)
			}
			_, about = n.restarted(a)
			n.same("and after another start", about)
			a.rest()
		})
	}
}

// TestE2ERealNPX_OfflineAndNewer checks that a newer version is used once its launcher looks again, and that a server whose
// launcher has no network runs in the version that ran last.
func TestE2ERealNPX_OfflineAndNewer(t *testing.T) {
	n := newRealNPX(t, "npx", "-y", "mine")
	a := n.begin()
	n.registry.publish("2.0.0")
	if _, about := n.restarted(a); about["version"] != "1.0.0" {
		t.Errorf("before the launcher looks again it is %v", about["version"])
	}
	n.must("servers", "restart", "tools", "--refresh")
	if pid, about := n.says(a); about["version"] != "2.0.0" || n.isDirect(pid) {
		t.Errorf("with --refresh it is %v", about["version"])
	}
	n.untilRecorded(`"exe"`)
	if pid, about := n.restarted(a); about["version"] != "2.0.0" || !n.isDirect(pid) {
		t.Errorf("after another start it is %v", about["version"])
	}
	n.untilRecorded(`"confirmed"`)
	n.age()
	n.registry.CloseClientConnections()
	n.registry.Close()
	n.shell("npm cache clean --force")
	n.must("servers", "restart", "tools")
	if pid, about := n.says(a); about["version"] != "2.0.0" || !n.isDirect(pid) {
		t.Errorf("without a network it is %v, %q", about["version"], process.Args(pid))
	}
	a.rest()
}
