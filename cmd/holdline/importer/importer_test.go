package importer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/tailscale/hujson"

	"holdline/cmd/holdline/clients"
	"holdline/daemon/config"
	"holdline/daemon/jsonedit"
)

var update = flag.Bool("update", false, "write the golden files anew")

// command is the path of the program in these tests.
const command = "/opt/bin/holdline"

// options returns the options for a home directory with nothing set.
func options(home string) Options {
	return Options{
		Places:  clients.Places{Home: home, Cwd: home, Getenv: func(string) string { return "" }, System: "linux"},
		Command: command, Config: filepath.Join(home, ".config/holdline/config.json"),
		State:   filepath.Join(home, ".local/state/holdline"),
		Environ: []string{"SET=1", "HOME=" + home},
	}
}

// write writes a file, and makes its directory.
func write(tb testing.TB, path, text string) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func read(tb testing.TB, path string) string {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

// tree returns what a directory holds: the kind of each file, directory and link, and a
// hash of its content.
func tree(tb testing.TB, dir string) map[string]string {
	tb.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			text += fmt.Sprintf(" %x", sha256.Sum256([]byte(read(tb, path))))
		case info.Mode()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(path)
			text += " " + to
		}
		out[path] = text
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// sameTree fails the test if two trees differ, and names the files.
func sameTree(tb testing.TB, got, want map[string]string) {
	tb.Helper()
	for path, what := range want {
		if got[path] != what {
			tb.Errorf("%s is %q, was %q", path, got[path], what)
		}
	}
	for path := range got {
		if _, ok := want[path]; !ok {
			tb.Errorf("%s is there, and was not", path)
		}
	}
}

func look(tb testing.TB, o Options) *Plan {
	tb.Helper()
	p, err := Look(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func carryOut(tb testing.TB, p *Plan) Done {
	tb.Helper()
	d, err := p.Write(tb.Context(), time.Now())
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func undo(tb testing.TB, o Options) Done {
	tb.Helper()
	d, err := Undo(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// TestGolden imports the files of each archive, and compares the resulting files and the
// plan with those of the archive. A second import finds nothing to do, and undo restores
// everything.
func TestGolden(t *testing.T) {
	list, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(list) == 0 {
		t.Fatalf("archives %q, %v", list, err)
	}
	for _, path := range list {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) { golden(t, path) })
	}
}

// golden runs the import that one archive describes.
func golden(t *testing.T, path string) {
	t.Helper()
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	o := options(home)
	for line := range strings.Lines(string(archive.Comment)) {
		switch strings.TrimSpace(line) {
		case "aggregate":
			o.Aggregate = true
		case "project":
			o.Project, o.Cwd = true, filepath.Join(home, "project")
		case "darwin":
			o.System = "darwin"
		}
		if names, ok := strings.CutPrefix(strings.TrimSpace(line), "from "); ok {
			o.From = strings.Fields(names)
		}
	}
	in := slices.DeleteFunc(slices.Clone(archive.Files),
		func(f txtar.File) bool { return !strings.HasPrefix(f.Name, "in/") })
	for _, f := range in {
		write(t, filepath.Join(home, strings.TrimPrefix(f.Name, "in/")),
			strings.ReplaceAll(string(f.Data), "$HOME", home))
	}
	before := tree(t, home)
	p := look(t, o)
	sameTree(t, tree(t, home), before) // a plan changes no file
	var plan bytes.Buffer
	p.Print(&plan)
	if d := carryOut(t, p); len(d.Left) > 0 {
		t.Errorf("left %v", d.Left)
	}
	out := []txtar.File{{Name: "plan", Data: plan.Bytes()}}
	for _, name := range slices.Sorted(maps.Keys(tree(t, home))) {
		rel, _ := filepath.Rel(home, name)
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() &&
			!strings.Contains(rel, "state/holdline/import") {
			out = append(out, txtar.File{Name: "out/" + rel, Data: []byte(read(t, name))})
		}
	}
	for i := range out {
		out[i].Data = bytes.ReplaceAll(out[i].Data, []byte(home), []byte("$HOME"))
	}
	got := txtar.Format(&txtar.Archive{Comment: archive.Comment, Files: append(in, out...)})
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	written := tree(t, home)
	second := look(t, o)
	if d := carryOut(t, second); !second.Empty() || len(d.Files) > 0 {
		t.Errorf("the second import writes %q", d.Files)
	}
	sameTree(t, tree(t, home), written)
	if d := undo(t, o); len(d.Left) > 0 {
		t.Errorf("undo left %v", d.Left)
	}
	sameTree(t, tree(t, home), before)
	if d := undo(t, o); len(d.Left)+len(d.Files) > 0 {
		t.Errorf("the second undo did %v", d)
	}
}

// TestNoSecrets checks that no value of a variable, header or argument, and no part of an
// address but its host, appears in any output, also for servers that stay and files that
// are broken.
func TestNoSecrets(t *testing.T) {
	home := t.TempDir()
	o := options(home)
	write(t, filepath.Join(home, ".claude.json"), `{"mcpServers": {
		"a": {"command": "SECRET=1 npx", "args": ["SECRET2", "--key=SECRET3"], "env": {"NAME": "SECRET4"}},
		"b": {"url": "https://u:SECRET5@host/SECRET6?k=SECRET7", "headers": {"Head": "SECRET8"}},
		"c": {"command": "x", "args": ["${SECRET9:?}"], "env": {"N": "${SECRETa+x}"}},
		"d": {"type": "SECRETb", "command": "x"},
		"e": {"command": "x", "env": {"LD_PRELOAD": "SECRETc"}},
		"f": {"url": "SECRETd", "headersHelper": "SECRETe"},
		"g": {"command": "sub/program", "args": ["SECRETf"]}
	}}`)
	write(t, filepath.Join(home, ".codex/config.toml"), "[mcp_servers.x]\ncommand = \"x\"\nargs = [\"SECRETg\"\n")
	write(t, filepath.Join(home, ".cursor/mcp.json"),
		`{"mcpServers": {"i": {"command": "x", "env": {"K": "${input:SECRETh} SECRETi"}}, SECRETj`)
	write(t, filepath.Join(home, ".gemini/settings.json"),
		`{"mcpServers": {"i": {"command": "x", "args": ["$SECRETVAR ${input SECRETk}"]}}}`)
	p := look(t, o)
	var shown bytes.Buffer
	p.Print(&shown)
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	d := carryOut(t, p)
	shown.Write(text)
	fmt.Fprintf(&shown, "%+v", d)
	if i := strings.Index(shown.String(), "SECRET"); i >= 0 {
		t.Errorf("shown: %s", shown.String()[max(0, i-60):min(shown.Len(), i+60)])
	}
	for _, want := range []string{"NAME", "Head", "https://host", "npx"} {
		if want != "npx" && !strings.Contains(shown.String(), want) {
			t.Errorf("nothing shows %s", want)
		}
	}
}

// TestMarkerOfClient checks that what a client writes into its file after the import is
// there after the undo, and that its servers are as before.
func TestMarkerOfClient(t *testing.T) {
	for _, tt := range []struct{ path, before, mark, marked string }{
		{
			".claude.json",
			"{\n  \"n\": 1,\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"npx\", // why\n      \"env\": {\"K\": \"v\"}\n    }\n  }\n}\n", `"n": 1`, `"n": 2`,
		},
		{".claude.json", "{\n  \"n\": 1\n}\n", `"n": 1`, `"n": 2`}, // it had no servers: the object is removed
		{
			".codex/config.toml",
			"n = 1\n\n[mcp_servers.a]\ncommand = \"npx\"\nargs = [ \"x\" ] # y\n\n[mcp_servers.a.env]\nK = 'v'\n",
			"n = 1", "n = 2",
		},
	} {
		home := t.TempDir()
		o := options(home)
		path := filepath.Join(home, tt.path)
		write(t, path, tt.before)
		carryOut(t, look(t, o))
		write(t, path, strings.Replace(read(t, path), tt.mark, tt.marked, 1))
		if d := undo(t, o); len(d.Left) > 0 {
			t.Errorf("%s: left %v", tt.path, d.Left)
		}
		if got, want := read(t, path), strings.Replace(tt.before, tt.mark, tt.marked, 1); got != want {
			t.Errorf("%s is\n%s\nwant\n%s", tt.path, got, want)
		}
		if exists(o.Config) || exists(journalsDir(o.State)) {
			t.Error("holdline's file or the journal is there")
		}
	}
}

// TestDamagedCopy checks that a damaged backup copy is not restored. The entries are put
// back one by one.
func TestDamagedCopy(t *testing.T) {
	home := t.TempDir()
	o := options(home)
	path := filepath.Join(home, ".cursor/mcp.json")
	before := "{\n  // mine\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\"}\n  }\n}\n"
	write(t, path, before)
	d := carryOut(t, look(t, o))
	write(t, filepath.Join(d.Backup, "2"), "{}")
	if d := undo(t, o); len(d.Left) > 0 {
		t.Errorf("left %v", d.Left)
	}
	if got := read(t, path); got != before {
		t.Errorf("after the undo: %s", got)
	}
}

// TestChangedEntries checks that an entry that was changed after the import is left and
// named, with the server that it starts. Once it is as imported again, the next undo
// restores it.
func TestChangedEntries(t *testing.T) {
	home := t.TempDir()
	o := options(home)
	path := filepath.Join(home, ".cursor/mcp.json")
	before := `{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}, "c": {"command": "z"}}}`
	write(t, path, before)
	was := tree(t, home)
	carryOut(t, look(t, o))
	if more, left, err := Pending(o.State); !more || left != nil || err != nil {
		t.Errorf("before the undo: pending %v, left %v, %v", more, left, err)
	}
	imported := read(t, path)
	changed := strings.Replace(imported, `"a": {`, `"a": {"env": {"MINE": "1"}, `, 1)
	write(t, path, changed)
	doc, err := jsonedit.Parse(path, []byte(changed))
	if err != nil || !doc.Remove("mcpServers", "c") {
		t.Fatal("c is not there")
	}
	write(t, path, string(doc.Bytes()))

	d := undo(t, o)
	var left []string
	for _, l := range d.Left {
		left = append(left, filepath.Base(l.Path)+" "+l.Key+": "+l.Why)
	}
	want := []string{
		"mcp.json c: it was removed since", "mcp.json a: it was changed since",
		"config.json a: the entry a of " + path + " still starts it",
	}
	if !slices.Equal(left, want) {
		t.Errorf("left %q, want %q", left, want)
	}
	now := read(t, path)
	if !strings.Contains(now, "MINE") || !strings.Contains(now, `"b": {"command": "y"}`) ||
		strings.Contains(now, `"holdline"`) {
		t.Errorf("the file is %s", now)
	}
	cfg, err := config.Load(o.Config)
	if err != nil || len(cfg.Servers) != 1 || cfg.Servers["a"].Command != "x" {
		t.Errorf("servers %v, %v", slices.Collect(maps.Keys(cfg.Servers)), err)
	}
	more, pending, err := Pending(o.State)
	if more ||
		!slices.Equal(pending, []Left{{path, "a", "it was changed since"}, {path, "c", "it was removed since"}}) ||
		err != nil {
		t.Errorf("pending %v, left %v, %v", more, pending, err)
	}
	write(t, path, imported)
	if d := undo(t, o); len(d.Left) > 0 {
		t.Errorf("left %v", d.Left)
	}
	sameTree(t, tree(t, home), was)
}

// TestFileChangesMeanwhile has a client write its file between plan and edit, and between
// the last check and the write. What it wrote stays, and the entries that it left are
// imported.
func TestFileChangesMeanwhile(t *testing.T) {
	home := t.TempDir()
	o := options(home)
	path := filepath.Join(home, ".claude.json")
	write(t, path, `{"n": 1, "mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}`)
	before := read(t, path)
	p := look(t, o)
	n := 1
	t.Cleanup(func() { testOnlyBeforeSwap = func(string) {} })
	testOnlyBeforeSwap = func(at string) {
		if n++; n <= 3 {
			write(t, at,
				strings.Replace(strings.Replace(before, `"n": 1`, fmt.Sprintf(`"n": %d`, n), 1), `"y"`, `"changed"`, 1))
		}
	}
	d := carryOut(t, p)
	if len(d.Left) != 1 || d.Left[0].Key != "b" || !strings.Contains(d.Left[0].Why, "changed meanwhile") {
		t.Errorf("left %v, want b", d.Left)
	}
	for _, want := range []string{`"n": 3`, `"b": {"command": "changed"}`, `"--server", "a"`} {
		if !strings.Contains(read(t, path), want) {
			t.Errorf("no %s in %s", want, read(t, path))
		}
	}
	// The same while the import is undone.
	n = 1
	imported := read(t, path)
	testOnlyBeforeSwap = func(at string) {
		if n++; n <= 3 {
			write(t, at, strings.Replace(imported, `"n": 3`, fmt.Sprintf(`"n": %d`, n), 1))
		}
	}
	if d := undo(t, o); len(d.Left) > 0 || len(d.Files) == 0 {
		t.Errorf("the undo left %v", d.Left)
	}
	want := strings.Replace(strings.Replace(before, `"n": 1`, `"n": 3`, 1), `"y"`, `"changed"`, 1)
	if got := read(t, path); got != want {
		t.Errorf("after the undo the file is %s, want %s", got, want)
	}

	testOnlyBeforeSwap = func(at string) {
		n++
		write(t, at, fmt.Sprintf(`{"n": %d, "mcpServers": {"a": {"command": "x"}}}`, n))
	}
	d = carryOut(t, look(t, o))
	if n := len(d.Left); n == 0 || !strings.Contains(d.Left[n-1].Why, "keeps changing") ||
		strings.Contains(read(t, path), "holdline") {
		t.Errorf("left %v of a file that changes all the time: %s", d.Left, read(t, path))
	}
}

// TestFileMadeMeanwhile checks that a file that its client creates just before the import
// does is not lost.
func TestFileMadeMeanwhile(t *testing.T) {
	home := t.TempDir()
	o := options(home)
	o.From = []string{"cursor"}
	p := look(t, o)
	path := filepath.Join(home, ".cursor/mcp.json")
	write(t, path, `{"mcpServers": {"new": {"command": "x"}}}`)
	carryOut(t, p)
	if got := read(t, path); !strings.Contains(got, `"new": {"command": "x"}`) || !strings.Contains(got, `"holdline"`) {
		t.Errorf("the file is %s", got)
	}
	undo(t, o)
	if got := read(t, path); got != `{"mcpServers": {"new": {"command": "x"}}}` {
		t.Errorf("after the undo: %s", got)
	}
}

// TestInterrupted ends an import at each of its edits. Undo restores everything.
func TestInterrupted(t *testing.T) {
	t.Cleanup(func() { testOnlyBeforeSwap = func(string) {} })
	errEnd := errors.New("the end")
	for at := range 4 {
		home := t.TempDir()
		o := options(home)
		write(t, filepath.Join(home, ".claude.json"), `{"mcpServers": {"a": {"command": "x"}}}`)
		write(t, filepath.Join(home, ".codex/config.toml"), "[mcp_servers.b]\ncommand = \"x\"\n")
		write(t, filepath.Join(home, ".cursor/mcp.json"), `{"mcpServers": {"c": {"command": "x"}}}`)
		before := tree(t, home)
		n, ended := 0, false
		testOnlyBeforeSwap = func(string) {
			if n++; n > at {
				panic(errEnd)
			}
		}
		func() {
			defer func() { ended = recover() == any(errEnd) }()
			carryOut(t, look(t, o))
		}()
		if !ended && at < 3 {
			t.Fatalf("not interrupted at %d", at)
		}
		testOnlyBeforeSwap = func(string) {}
		write(t, filepath.Join(home, ".cursor/.mcp.json.holdline-1"), "half")
		if d := undo(t, o); len(d.Left) > 0 {
			t.Errorf("at %d: left %v", at, d.Left)
		}
		sameTree(t, tree(t, home), before)
	}
}

// TestLinksAndModes checks that a symbolic link stays one, and that its target keeps its
// mode. A file that cannot be written is left.
func TestLinksAndModes(t *testing.T) {
	home := t.TempDir()
	o := options(home)
	target := filepath.Join(home, "dotfiles/claude.json")
	write(t, target, `{"mcpServers": {"a": {"command": "x"}}}`)
	for path, mode := range map[string]fs.FileMode{target: 0o640, filepath.Join(home, ".cursor/mcp.json"): 0o440} {
		if path != target {
			write(t, path, `{"mcpServers": {"a": {"command": "x"}}}`)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("dotfiles/claude.json", filepath.Join(home, ".claude.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(home, ".gemini"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../dotfiles/claude.json", filepath.Join(home, ".gemini/settings.json")); err != nil {
		t.Fatal(err)
	}
	before := tree(t, home)
	p := look(t, o)
	why := map[string]string{}
	for _, f := range p.Files {
		why[f.Client] = f.Why
	}
	if !strings.Contains(why["cursor"], "read-only") || !strings.Contains(why["gemini"], "same file") {
		t.Errorf("not edited: %q", why)
	}
	carryOut(t, p)
	info, err := os.Lstat(target)
	if err != nil || info.Mode() != 0o640 || !strings.Contains(read(t, target), command) {
		t.Errorf("mode %v, %v: %s", info.Mode(), err, read(t, target))
	}
	if to, err := os.Readlink(filepath.Join(home, ".claude.json")); to != "dotfiles/claude.json" || err != nil {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	undo(t, o)
	sameTree(t, tree(t, home), before)
}

// TestWorkTree checks that files in a git work tree are edited only with Project, also
// through a link, and that a project's file names no path of this machine.
func TestWorkTree(t *testing.T) {
	home := t.TempDir()
	o := options(home)
	o.Cwd = filepath.Join(home, "src/sub")
	write(t, filepath.Join(home, "src/.git/HEAD"), "")
	write(t, filepath.Join(home, "src/sub/x"), "")
	write(t, filepath.Join(home, "src/.mcp.json"),
		`{"mcpServers": {"a": {"command": "./run", "args": ["${CLAUDE_PROJECT_DIR}/x"]}}}`)
	write(t, filepath.Join(home, "dotfiles/.git"), "")
	write(t, filepath.Join(home, "dotfiles/mcp.json"), `{"mcpServers": {"b": {"command": "x"}}}`)
	if err := os.MkdirAll(filepath.Join(home, ".cursor"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../dotfiles/mcp.json", filepath.Join(home, ".cursor/mcp.json")); err != nil {
		t.Fatal(err)
	}
	before := tree(t, home)
	p := look(t, o)
	if !p.Empty() || len(p.Files) != 2 || !strings.Contains(p.Files[0].Why, "project's file") ||
		!strings.Contains(p.Files[1].Why, "git work tree") {
		t.Errorf("files %+v", p.Files)
	}
	o.Project = true
	carryOut(t, look(t, o))
	got := read(t, filepath.Join(home, "src/.mcp.json"))
	if !strings.Contains(got, `"command": "holdline"`) || strings.Contains(got, command) ||
		strings.Contains(got, `"holdline": {`) {
		t.Errorf(".mcp.json is %s", got)
	}
	cfg, err := config.Load(o.Config)
	a := cfg.Servers["a"]
	src := filepath.Join(home, "src")
	if err != nil || a.Command != src+"/run" || !slices.Equal(a.Args, []string{src + "/x"}) ||
		!slices.Equal(a.Holdline.Projects, []string{src}) {
		t.Errorf("server %+v, %v", a, err)
	}
	undo(t, o)
	sameTree(t, tree(t, home), before)
}

// TestInsideWorkTree checks that a server for a directory inside a work tree is visible in
// the whole tree, because sessions belong to the whole, and runs in its old directory.
func TestInsideWorkTree(t *testing.T) {
	home := t.TempDir()
	o := options(home)
	src := filepath.Join(home, "src")
	write(t, filepath.Join(src, ".git/HEAD"), "")
	write(t, filepath.Join(src, "sub/x"), "")
	write(t, filepath.Join(home, ".claude.json"),
		fmt.Sprintf(`{"projects": {%q: {"mcpServers": {"a": {"command": "x"}}}}}`, filepath.Join(src, "sub")))
	carryOut(t, look(t, o))
	cfg, err := config.Load(o.Config)
	if a := cfg.Servers["a"]; err != nil || !slices.Equal(a.Holdline.Projects, []string{src}) ||
		a.Cwd != filepath.Join(src, "sub") {
		t.Errorf("server %+v, %v", a, err)
	}
}

// TestLockOfClaude checks that nothing is written while Claude Code holds its lock, and
// that an abandoned lock does not block import for ever.
func TestLockOfClaude(t *testing.T) {
	home := t.TempDir()
	o := options(home)
	path := filepath.Join(home, ".claude.json")
	write(t, path, `{"mcpServers": {"a": {"command": "x"}}}`)
	held := path + ".lock"
	if err := os.Mkdir(held, 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no longer"))
	d, err := look(t, o).Write(ctx, time.Now())
	if err != nil && !strings.Contains(err.Error(), "no longer") ||
		err == nil && (len(d.Left) != 1 || strings.Contains(read(t, path), command)) {
		t.Errorf("Write under a lock = %+v, %v", d, err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(held, old, old); err != nil {
		t.Fatal(err)
	}
	carryOut(t, look(t, o))
	if !strings.Contains(read(t, path), command) || exists(held) {
		t.Errorf("the file is %s, the lock is there: %v", read(t, path), exists(held))
	}
}

// memoryDir returns a new directory in memory, if the system has one. An import waits for
// the disk about forty times, which would leave a fuzz test with a few runs a minute.
func memoryDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "holdline-import-")
	if err != nil {
		return tb.TempDir()
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// FuzzRoundTrip imports arbitrary files. Undo restores them byte for byte, or, if something
// was added since, all but that.
func FuzzRoundTrip(f *testing.F) {
	f.Add(`{"mcpServers": {"a": {"command": "x"}}}`, "[mcp_servers.a]\ncommand = \"x\"\n", false)
	f.Add("\xef\xbb\xbf{\r\n\t// c\r\n\t\"mcpServers\": {\r\n\t\t\"a\": {\"command\": \"x\", \"k\": [1,], /* d */ },\r\n\t},\r\n}", "\xef\xbb\xbfx = 1\r\n[mcp_servers.\"a b\"]\r\nurl = 'http://x/y' # z\r\n[mcp_servers.\"a b\".http_headers]\r\nA = '''b'''", true)
	f.Add(`{"projects": {"/p": {"mcpServers": {"a": {"command": "x", "args": ["${A:-b}"]}, "a": 1}}}}`,
		"mcp_servers = {a = {command = \"x\"}}", false)
	f.Add(" ",
		"[mcp_servers]\na = {command = \"x\"}\n[mcp_servers.b]\nargs = [\n  'x', # y\n]\ncommand = \"\"\"\ny\"\"\"\nenv.A = '1'\nenabled_tools = ['t']\n[mcp_servers.b.tools.t]\nz = 1\n[[n]]", true)
	f.Add("{}", "", false)
	f.Add("{}", "[mcp_servers.a]\ncommand = \"x\"\nz = nan\n", false)
	f.Fuzz(func(t *testing.T, text, table string, aggregate bool) {
		home := memoryDir(t)
		o := options(home)
		o.Aggregate = aggregate
		write(t, filepath.Join(home, ".claude.json"), text)
		write(t, filepath.Join(home, ".cursor/mcp.json"), text)
		write(t, filepath.Join(home, ".codex/config.toml"), table)
		before := tree(t, home)
		p, err := Look(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if d := carryOut(t, p); len(d.Left) > 0 {
			t.Errorf("left %v", d.Left)
		}
		second := look(t, o)
		if !second.Empty() {
			var b bytes.Buffer
			second.Print(&b)
			t.Errorf("the second import has something to do:\n%s", b.String())
		}
		if d := undo(t, o); len(d.Left) > 0 {
			t.Errorf("undo left %v", d.Left)
		}
		sameTree(t, tree(t, home), before)

		carryOut(t, look(t, o))
		for _, path := range []string{".claude.json", ".cursor/mcp.json", ".codex/config.toml"} {
			path = filepath.Join(home, path)
			write(t, path, read(t, path)+"\n")
		}
		if d := undo(t, o); len(d.Left) > 0 {
			t.Errorf("undo entry by entry left %v", d.Left)
		}
		if !reflect.DeepEqual(meaning(t, home), meaningOf(text+"\n", table+"\n")) {
			t.Errorf("after an undo entry by entry the files are\n%s\n%s", read(t, filepath.Join(home, ".claude.json")),
				read(t, filepath.Join(home, ".codex/config.toml")))
		}
	})
}

func meaning(tb testing.TB, home string) [2]any {
	tb.Helper()
	return meaningOf(read(tb, filepath.Join(home, ".claude.json")), read(tb, filepath.Join(home, ".codex/config.toml")))
}

// meaningOf returns the meaning of the files, independent of their spelling.
func meaningOf(text, doc string) [2]any {
	var out [2]any
	if x, err := jsonedit.Parse("", []byte(text)); err == nil {
		out[0] = decode(bytes.TrimPrefix(x.Bytes(), []byte("\xef\xbb\xbf")))
	}
	var m map[string]any
	if toml.Unmarshal(bytes.TrimPrefix([]byte(doc), []byte("\xef\xbb\xbf")), &m) == nil {
		out[1] = fmt.Sprint(m) // as text, because NaN does not equal itself
	}
	return out
}

func decode(text []byte) any {
	plain, err := hujson.Standardize(text)
	if err != nil {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(plain))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}
