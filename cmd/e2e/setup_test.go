package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"holdline/cmd/holdline/importer"
	"holdline/protocol/mcp"
)

// setupAnswer has the members of the JSON of setup that tests read.
type setupAnswer struct {
	Files   []importer.File
	Summary importer.Summary
	Path    string
	Done    struct{ Files []string }
	Checked []struct {
		Clients []string
		Entry   string
		Tools   []string
		Called  []struct {
			Tool, Outcome string
			Failed        bool
		}
		Error string
	}
	Undone bool
}

// TestSetup_MovesWhatWorks checks setup with a server that starts and is in two clients, one
// that is missing, one that wants a login, and a file that cannot be parsed. Without --yes it
// changes nothing, with it the server that starts is moved and works from both clients, and the
// undo restores all files.
func TestSetup_MovesWhatWorks(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(far.Close)
	works := p.toolsEntry(nil)
	delete(works, "holdline")
	p.putHome(t, map[string]string{
		".claude.json": mustJSON(t, map[string]any{"mcpServers": map[string]any{
			"tools": works, "missing": map[string]any{"command": "no-such-program-anywhere"},
			"far": map[string]any{"type": "http", "url": far.URL},
		}}),
		".codex/config.toml": p.codexServers(t, "tools"),
		".cursor/mcp.json":   "{\n  \"mcpServers\": }\n",
	})
	before := p.home(t)
	_, errs, code := p.run("", "setup")
	if code != exitUsage || !strings.Contains(errs, "setup --yes") {
		t.Errorf("setup without a terminal: exit %d\n%s", code, errs)
	}
	out, errs, code := p.run("", "setup", "--dry-run")
	got := strings.Join(strings.Fields(out), " ")
	for _, want := range []string{
		"3 servers (2 clients, 4 entries): 1 starts, 1 needs a login, 1 does not start.",
		"moves tools Claude Code, Codex; 15 tools", "moves far Claude Code; log in once: holdline servers login far",
		"stays missing Claude Code: it does not start: no-such-program-anywhere was not found",
		"error cursor " + filepath.Join(p.dir, "home/.cursor/mcp.json") + ": line 2, column ",
		"Nothing was changed. To do this: holdline setup",
	} {
		if code != exitFailure || !strings.Contains(got, want) {
			t.Errorf("the plan has no %q: exit %d\n%s%s", want, code, out, errs)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Errorf("control codes in a pipe: %q", out)
	}
	if out, errs, code := p.run("", "setup", "--dry-run", "--from", "cursor", "--skip", "nope"); code != exitFailure ||
		strings.Contains(out, "all clients that were found") {
		t.Errorf("setup of a broken file: exit %d\n%s%s", code, out, errs)
	}
	_, errs, code = p.run("", "setup", "--dry-run", "--from", "claude", "--skip", "nope")
	if code != exitUsage || !strings.Contains(errs, `no server "nope" was found; these are: far, missing, tools`) {
		t.Errorf("setup that skips what is not there: exit %d\n%s", code, errs)
	}
	p.sameHome(t, before)

	p.putHome(t, map[string]string{".cursor/mcp.json": "{}\n"})
	files := []string{".claude.json", ".codex/config.toml", ".cursor/mcp.json"}
	texts := map[string]string{}
	for _, name := range files {
		texts[name] = p.read(t, name)
	}
	var answer setupAnswer
	decode(t, p.must("setup", "--yes", "--json"), &answer)
	if answer.Undone || len(answer.Done.Files) != 4 || answer.Summary.Move != 1 || answer.Path == "" {
		t.Errorf("setup: %+v", answer)
	}
	var checked []string
	for _, c := range answer.Checked {
		checked = append(checked, fmt.Sprint(c.Entry, c.Clients, c.Error, slices.Contains(c.Tools, "effect")))
	}
	slices.Sort(checked)
	if want := []string{
		"far[Claude Code]false", "holdline[Claude Code Codex Cursor]false", "tools[Claude Code Codex]true",
	}; !slices.Equal(checked, want) {
		t.Errorf("checked %q, want %q", checked, want)
	}
	a := p.agent("--server", "tools").shake()
	if x := a.wait(a.call("effect", map[string]any{"token": "t"})); x.text() != "t" {
		t.Errorf("effect: %s", x.raw)
	}
	a.leave()
	if out := p.must("setup", "--yes"); !strings.Contains(out, "Nothing to do: all clients that were found are") {
		t.Errorf("the second setup:\n%s", out)
	}
	// A shell inside of another one has the directories of its PATH in another order.
	dirs := filepath.SplitList(answer.Path)
	slices.Reverse(dirs)
	captured := filepath.Join(p.dir, "home/.local/state/holdline/path")
	if err := os.WriteFile(captured, []byte(strings.Join(dirs, ":")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := p.must("setup", "--dry-run"); !strings.Contains(out, "Nothing to do: all clients") ||
		strings.Contains(out, "captured") || strings.Contains(out, "Nothing was changed") {
		t.Errorf("setup to see whether anything is left to do:\n%s", out)
	}
	restored := func() {
		t.Helper()
		p.must("setup", "--undo")
		for _, name := range files {
			if got := p.read(t, name); got != texts[name] {
				t.Errorf("%s is after the undo\n%s\nwant\n%s", name, got, texts[name])
			}
		}
	}
	restored()
	// One entry for all servers has the tools under longer names.
	answer = setupAnswer{}
	decode(t, p.must("setup", "--yes", "--json", "--aggregate"), &answer)
	if len(answer.Checked) != 1 || !slices.Contains(answer.Checked[0].Tools, "tools__effect") {
		t.Errorf("setup --aggregate has checked %+v", answer.Checked)
	}
	restored()
	p.script("systemctl", "#!/bin/sh\necho 'Failed to connect to bus: No medium found' >&2\nexit 1\n")
	if out, errs, code := p.run("", "setup", "--yes", "--systemd"); code != exitFailure || out != "" ||
		p.read(t, files[0]) != texts[files[0]] {
		t.Errorf("setup without the service manager that it is to use: exit %d\n%s%s", code, out, errs)
	}
}

// TestSetup_EntriesWrittenDifferently_AreOneServer has three clients write one server in their own ways: by a path with a
// variable, by its path, and with its variables in another order. Setup makes one server of them, says in the
// plan which agents share it, and all three clients start that.
func TestSetup_EntriesWrittenDifferently_AreOneServer(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	home := filepath.Join(p.dir, "home")
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(programs, "toolserver"), filepath.Join(home, "toolserver")); err != nil {
		t.Fatal(err)
	}
	entry := func(command, effects string, env map[string]string) map[string]any {
		return map[string]any{"command": command, "args": []string{"-ledger", effects}, "env": env}
	}
	ledger := filepath.Join(home, "effects")
	p.putHome(t, map[string]string{
		".claude.json": mustJSON(t, map[string]any{"mcpServers": map[string]any{
			"tools": entry("${HOME}/toolserver", "${HOME}/effects", map[string]string{"A": "${HOME}/x", "B": "2"}),
		}}),
		".cursor/mcp.json": mustJSON(t, map[string]any{"mcpServers": map[string]any{
			"tools": entry(filepath.Join(home, "toolserver"), ledger, map[string]string{"B": "2", "A": filepath.Join(home, "x")}),
		}}),
		".codex/config.toml": "[mcp_servers.tools]\ncommand = " + mustJSON(t, filepath.Join(home, "toolserver")) + "\nargs = " +
			mustJSON(t, []string{"-ledger", ledger}) + "\nenv = {B = \"2\", A = " + mustJSON(t, filepath.Join(home, "x")) + "}\n",
	})
	out, errs, code := p.run("", "setup", "--dry-run")
	got := strings.Join(strings.Fields(out), " ")
	if want := "moves tools Claude Code, Codex, Cursor; 15 tools; one for each project"; code != exitOK || !strings.Contains(got, want) {
		t.Errorf("the plan has no %q: exit %d\n%s%s", want, code, out, errs)
	}
	var answer setupAnswer
	decode(t, p.must("setup", "--yes", "--json"), &answer)
	if answer.Undone || answer.Summary.Servers != 1 || answer.Summary.Entries != 3 {
		t.Errorf("setup: %+v", answer.Summary)
	}
	for _, f := range answer.Files {
		for _, s := range f.Servers {
			if s.As != "tools" || s.Scope != "project" || !strings.Contains(s.ScopeWhy, "does not know") {
				t.Errorf("%s: %s moves as %s, scope %q: %q", f.Client, s.Name, s.As, s.Scope, s.ScopeWhy)
			}
		}
	}
	for _, name := range []string{".claude.json", ".cursor/mcp.json", ".codex/config.toml"} {
		if text := p.read(t, name); !strings.Contains(text, "mcp-stdio") || strings.Contains(text, "effects") {
			t.Errorf("%s: %s", name, text)
		}
	}
	a := p.agent("--server", "tools").shake()
	if x := a.wait(a.call("effect", map[string]any{"token": "t"})); x.text() != "t" {
		t.Errorf("effect: %s", x.raw)
	}
	a.leave()
}

// TestSetup_CallsOneReadOnlyToolOfEachServer checks that setup calls the tool that its plan names, once for
// each server, through the entries of clients that speak different versions of MCP, to strict servers of
// others; that --no-call calls none; and that a server whose entry lists its tools, but does not get a call
// through, goes back to its client.
func TestSetup_CallsOneReadOnlyToolOfEachServer(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	works := p.toolsEntry(nil)
	delete(works, "holdline")
	servers := map[string]any{"tools": works}
	var refuse atomic.Bool
	for name, revision := range map[string]string{"old": "2025-06-18", "new": mcp.Modern, "lost": "2025-11-25"} {
		s := newEraServer(name, revision, name != "new", func(text string) { t.Errorf("%s: %s", name, text) })
		at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			if name == "lost" && refuse.Load() && bytes.Contains(b, []byte("tools/call")) {
				http.Error(w, "this gateway lets no call through", http.StatusUnprocessableEntity)
				return
			}
			if err != nil {
				t.Error(err)
			}
			r.Body = io.NopCloser(bytes.NewReader(b))
			s.ServeHTTP(w, r)
		}))
		t.Cleanup(at.Close)
		servers[name] = map[string]any{"type": "http", "url": at.URL}
	}
	p.putHome(t, map[string]string{
		".claude.json":       mustJSON(t, map[string]any{"mcpServers": servers}),
		".codex/config.toml": p.codexServers(t, "tools"),
	})
	looks := func() int {
		b, _ := os.ReadFile(p.effects()) // there is none before the first
		return strings.Count(string(b), "look")
	}
	out := strings.Join(strings.Fields(p.must("setup", "--dry-run")), " ")
	if !strings.Contains(out, "for 10s at most: about of lost, about of new, about of old, look of tools. --no-call") {
		t.Errorf("the plan is\n%s", out)
	}
	if out := p.must("setup", "--dry-run", "--no-call"); strings.Contains(out, "look") {
		t.Errorf("the plan with --no-call is\n%s", out)
	}
	check := func(want string, args ...string) {
		t.Helper()
		var answer setupAnswer
		decode(t, p.must(append([]string{"setup", "--yes", "--json"}, args...)...), &answer)
		var got []string
		for _, c := range answer.Checked {
			for _, one := range c.Called {
				got = append(got, fmt.Sprintf("%s: %s %s %v", c.Entry, one.Tool, one.Outcome, one.Failed))
			}
			if c.Error != "" {
				t.Errorf("%+v", c)
			}
		}
		slices.Sort(got)
		if got := strings.Join(got, ", "); got != want {
			t.Errorf("setup %v has called %q, want %q", args, got, want)
		}
	}
	check("", "--no-call")
	if n := looks(); n != 0 {
		t.Errorf("setup --no-call has called look %d times", n)
	}
	p.must("setup", "--undo")
	check("lost: about answers false, new: about answers false, old: about answers false, tools: look answers false")
	if n := looks(); n != 1 {
		t.Errorf("setup has called look %d times", n)
	}
	p.must("setup", "--undo")
	refuse.Store(true)
	out, errs, code := p.run("", "setup", "--yes")
	flat := strings.Join(strings.Fields(out), " ")
	if code != exitOK || !strings.Contains(flat, "fails lost Claude Code: its tool about, called without arguments, fails: ") ||
		!strings.Contains(flat, "lets no call through") || !strings.Contains(flat, "Done: 3 servers moved") {
		t.Errorf("setup: exit %d\n%s%s", code, out, errs)
	}
	if n := looks(); n != 2 {
		t.Errorf("setup, which has checked entries twice, has called look %d times", n-1)
	}
}

// TestSetup_SaysThatConsultsLackALogin checks that setup ends with what to do if the program of
// consults is logged in by a variable of this shell only, that the command which it prints helps,
// and that it says nothing of it then. The value is never printed.
func TestSetup_SaysThatConsultsLackALogin(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	bin := filepath.Join(p.dir, "codex-elsewhere")
	p.fakeCodex(bin)
	if err := os.WriteFile(bin+".logged-out", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.env = append(p.env, "HOLDLINE_CODEX_BIN="+bin)
	p.must("config", "set", "consult.engine", "codex")
	p.daemon()
	p.env = append(p.env, "CODEX_API_KEY=secret")
	p.putHome(t, map[string]string{".cursor/mcp.json": "{}\n"})
	const want = "consult: Codex has no login that the daemon can see: only this shell has CODEX_API_KEY."
	out := p.must("setup", "--yes")
	_, advice, _ := strings.Cut(out, "you alone can read:\n\n    ")
	if !strings.Contains(out, want) || strings.Contains(out, "secret") || advice != "holdline env set CODEX_API_KEY\n" {
		t.Fatalf("setup without a login:\n%s", out)
	}
	sh := exec.CommandContext(t.Context(), "sh", "-ec", advice)
	sh.Env = append(without(p.env, "PATH"), "PATH="+programs+":/usr/bin:/bin")
	if said, err := sh.CombinedOutput(); err != nil || strings.Contains(string(said), "secret") {
		t.Fatalf("%s: %v\n%s", advice, err, said)
	}
	keys := filepath.Join(p.dir, "home/.config/holdline/env")
	text, err := os.ReadFile(keys)
	if info, serr := os.Stat(keys); err != nil || serr != nil || info.Mode().Perm() != 0o600 ||
		string(text) != "CODEX_API_KEY=secret\n" {
		t.Errorf("%s has %q, %v, mode %v", keys, text, err, info.Mode())
	}
	p.must("setup", "--undo")
	if out := p.must("setup", "--yes"); strings.Contains(out, "has no login") {
		t.Errorf("setup with a login:\n%s", out)
	}
}

// fickle returns the entry of a server that does something else when it is started for the
// second time: then the shell runs that script. The first time it lists one tool more than
// toolserver does.
func (p *place) fickle(script string) map[string]any {
	first := filepath.Join(p.dir, "first")
	serve := filepath.Join(programs, "toolserver") + " -ledger " + p.effects()
	return map[string]any{"command": "sh", "args": []string{
		"-c", fmt.Sprintf("if [ -e %s ]; then %s; fi; : > %s; exec %s -own", first,
			strings.ReplaceAll(script, "SERVE", "exec "+serve), first, serve),
	}}
}

// claudeEntries returns the servers of Claude Code's file.
func (p *place) claudeEntries(t *testing.T) map[string]any {
	t.Helper()
	var file struct {
		MCPServers map[string]any `json:"mcpServers"`
	}
	if err := json.Unmarshal([]byte(p.read(t, ".claude.json")), &file); err != nil {
		t.Fatal(err)
	}
	return file.MCPServers
}

// TestSetup_EntryFails_CostsItsServerAlone checks that a server whose entry does not offer what the server did
// before goes back to its client, as it was, while the others move. Setup says which, and why.
func TestSetup_EntryFails_CostsItsServerAlone(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login().windows(5)
	works := p.toolsEntry(nil)
	delete(works, "holdline")
	p.putHome(t, map[string]string{
		".claude.json": mustJSON(t, map[string]any{"mcpServers": map[string]any{
			"good": works, "fickle": p.fickle("SERVE"),
		}}),
		".codex/config.toml":   p.codexServers(t, "good"),
		".config/holdline/env": "A=1\n",
	})
	p.daemon()
	before := p.claudeEntries(t)
	out, errs, code := p.run("", "setup", "--yes")
	flat := strings.Join(strings.Fields(out), " ")
	if code != 0 || !strings.Contains(flat, "fails fickle Claude Code: it lists 15 of its 16 tools after 6s, and not: turn") ||
		!strings.Contains(flat, "1 server: as before with its client, and not moved. The others are.") ||
		!strings.Contains(flat, "Done: 1 server moved") {
		t.Errorf("setup: exit %d\n%s%s", code, out, errs)
	}
	after := p.claudeEntries(t)
	if !reflect.DeepEqual(after["fickle"], before["fickle"]) || reflect.DeepEqual(after["good"], before["good"]) {
		t.Errorf("fickle is %v, was %v; good is %v", after["fickle"], before["fickle"], after["good"])
	}
	if !strings.Contains(p.read(t, ".codex/config.toml"), `"--server", "good"`) {
		t.Errorf("the other client has\n%s", p.read(t, ".codex/config.toml"))
	}
	if s := p.status(); len(s.Servers) != 1 || s.Servers[0].Name != "good" {
		t.Errorf("the daemon hosts %+v, want good alone", s.Servers)
	}
	p.must("setup", "--undo")
	if back := p.claudeEntries(t); !reflect.DeepEqual(back, before) {
		t.Errorf("after --undo %v, want %v", back, before)
	}
}

// TestSetup_SaysWhyAnEntryFails checks that setup fails at once if a server dies when its entry is
// checked, and soon if one hangs, and that it quotes the line that says why.
func TestSetup_SaysWhyAnEntryFails(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"echo 'Error: no room left' >&2; echo 'Node.js v22.1.0' >&2; exit 3": `exit code 3, "Error: no room left"`,
		"echo 'ERROR: waits for the lock' >&2; exec sleep 600":               `; its last words: "ERROR: waits for the lock"`,
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).login()
			if strings.HasPrefix(want, ";") {
				p.windows(30)
			}
			p.putHome(t, map[string]string{
				".cursor/mcp.json": mustJSON(t, map[string]any{"mcpServers": map[string]any{"fickle": p.fickle(script)}}),
			})
			begin := time.Now()
			out, errs, code := p.run("", "setup", "--yes")
			if code != exitFailure || !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
				t.Errorf("setup: exit %d, want %q\n%s%s", code, want, out, errs)
			}
			if took := time.Since(begin); took > slowness*time.Minute {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// TestSetup_Interrupted checks that an interrupt while entries are checked undoes everything,
// and that no daemon is left.
func TestSetup_Interrupted(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	mark := filepath.Join(p.dir, "mark")
	p.putHome(t, map[string]string{
		".cursor/mcp.json": mustJSON(t, map[string]any{"mcpServers": map[string]any{
			"fickle": p.fickle(": > " + mark + "; exec sleep 600"),
		}}),
	})
	text := p.read(t, ".cursor/mcp.json")
	cmd := p.command("setup", "--yes", "--json")
	var out, errs words
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(mark); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the entry is not started: %s%s", out.String(), errs.String())
		}
	}
	if got := p.read(t, ".cursor/mcp.json"); !strings.Contains(got, "mcp-stdio") {
		t.Errorf("before the interrupt the file is\n%s", got)
	}
	_ = cmd.Process.Signal(syscall.SIGINT)
	if err := <-ended; err == nil || !strings.Contains(errs.String(), "interrupted; all that was changed is undone") {
		t.Errorf("setup: %v\n%s%s", err, out.String(), errs.String())
	}
	var answer setupAnswer
	if err := json.Unmarshal([]byte(out.String()), &answer); err != nil || !answer.Undone {
		t.Errorf("setup --json: %v\n%s", err, out.String())
	}
	if got := p.read(t, ".cursor/mcp.json"); got != text {
		t.Errorf("the file is\n%s\nwant\n%s", got, text)
	}
	// The daemon has waited for its worker's last word, which takes a moment more to end.
	left := p.processes()
	maps.DeleteFunc(left, func(_ int, command string) bool { return strings.HasPrefix(command, "holdline worker ") })
	if len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	p.untilEmpty(t)
}
