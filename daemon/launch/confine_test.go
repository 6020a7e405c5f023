package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdline/daemon/config"
	"holdline/daemon/config/resolve"
	"holdline/daemon/redact"
	"holdline/daemon/sandbox"
	"holdline/protocol/process"
)

// TestWritable checks what a confined server may be allowed to write to, and that no link which
// it could change leads out of that.
func TestWritable(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, d := range []string{
		"home/.config/holdline", "home/.cache/holdline/a", "home/dotfiles", "home/src/p/sub", "home/notes", "state/logs",
	} {
		if err := os.MkdirAll(at(d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"home/src/p/out": "home/notes", "home/src/p/in": "home/src/p/sub", "home/my": "home/notes",
		"home/.config/holdline/config.json": "home/dotfiles/holdline.json",
	} {
		if err := os.Symlink(at(to), at(link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"home/dotfiles/holdline.json", "home/notes/a.txt"} {
		if err := os.WriteFile(at(file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := &Start{Home: at("home"), Config: at("home/.config/holdline/config.json"), Guarded: []string{at("state")}}
	for _, c := range []struct{ paths, want string }{
		{"home/src/p", "home/src/p"},
		{"home/notes home/src/p", "home/notes home/src/p"},
		{"home/src/p/sub home/src/p", "home/src/p"}, // else the server could replace the former
		{"home/src/p home/src/p/in", "home/src/p"},
		{"home/my home/src/p", "home/notes home/src/p"},
		{"home/notes/a.txt", "home/notes/a.txt"},
		{"home/src/p home/src/p/out", "a link that a confined server could change"},
		{"home/src/p/out", "home/notes"},
		{"home/nothing", "is not there"},
		{"home", "your home directory"},
		{"", "your home directory"},
		{"home/.config/holdline", "Holdline's own files"},
		{"home/.config", "Holdline's own files"},
		{"home/dotfiles", "Holdline's own files"},
		{"home/dotfiles/holdline.json", "Holdline's own files"},
		{"home/.cache/holdline", "Holdline's own files"},
		{"home/.cache/holdline/a", "Holdline's own files"},
		{"state/logs", "Holdline's own files"},
	} {
		var paths, want []string
		for name := range strings.SplitSeq(c.paths, " ") {
			paths = append(paths, at(name))
		}
		for name := range strings.FieldsSeq(c.want) {
			want = append(want, at(name))
		}
		got, err := l.resolveWritable(paths)
		if err != nil && strings.Contains(err.Error(), c.want) || err == nil && slices.Equal(got, want) {
			continue
		}
		t.Errorf("%q: got %q, %v, want %s", c.paths, got, err, c.want)
	}
}

// TestCache checks that the cache of a confined server is made, that old files of its temporary
// directory are removed, and that a link which the server has put there leads nowhere else.
func TestCache(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := &Start{Home: dir, Environ: []string{"XDG_CACHE_HOME=" + filepath.Join(dir, "cache")}}
	cache, err := l.makeCache("a", "w")
	if err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-2 * tempAge)
	elsewhere := filepath.Join(dir, "elsewhere")
	file := func(path string, at time.Time) {
		t.Helper()
		_ = os.MkdirAll(filepath.Dir(path), 0o700)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	file(filepath.Join(cache, "tmp/old"), past)
	file(filepath.Join(cache, "tmp/new"), time.Now())
	file(filepath.Join(cache, "npm/old"), past)
	file(filepath.Join(elsewhere, "old"), past)
	look := func() string {
		var there []string
		for _, path := range []string{"tmp/old", "tmp/new", "npm/old", "../../../../elsewhere/old"} {
			if _, err := os.Stat(filepath.Join(cache, path)); err == nil {
				there = append(there, path)
			}
		}
		return fmt.Sprint(there)
	}
	if _, err := l.makeCache("a", "w"); err != nil {
		t.Fatal(err)
	}
	if got, want := look(), "[tmp/new npm/old ../../../../elsewhere/old]"; got != want {
		t.Errorf("there is %s, want %s", got, want)
	}
	if err := os.RemoveAll(filepath.Join(cache, "tmp")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(cache, "tmp")); err != nil {
		t.Fatal(err)
	}
	_, err = l.makeCache("a", "w")
	if got, want := look(), "[tmp/old npm/old ../../../../elsewhere/old]"; got != want {
		t.Errorf("with a link: err %v, there is %s, want %s", err, got, want)
	}
}

// TestOwnCaches checks which variables a confined server gets.
func TestOwnCaches(t *testing.T) {
	t.Parallel()
	env := []string{"TMPDIR=/tmp", "PATH=/bin", "UV_CACHE_DIR=/mine"}
	s := config.Settings{Env: map[string]redact.Secret{"UV_CACHE_DIR": "/mine"}}
	want := []string{
		"PATH=/bin", "UV_CACHE_DIR=/mine", "TMPDIR=/c/tmp", "UV_PYTHON_INSTALL_DIR=/c/uv/python",
		"UV_TOOL_DIR=/c/uv/tools", "npm_config_cache=/c/npm",
	}
	if got := ownCaches(env, &s, "/c"); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	s.Network = config.Network{}
	got := ownCaches(env, &s, "/c")
	for _, one := range []string{"npm_config_offline=true", "UV_OFFLINE=1"} {
		if !slices.Contains(got, one) {
			t.Errorf("without a network: %q, want %s in it", got, one)
		}
	}
}

// TestLinkOfAnotherConfinedServer_IsNotFollowed checks that a confined server cannot choose what
// another one, or its own next process, may write, by a link that it puts into its project.
func TestLinkOfAnotherConfinedServer_IsNotFollowed(t *testing.T) {
	t.Parallel()
	if err := sandbox.Refusal(false); err != nil {
		t.Skip("nothing can be confined here: " + err.Error())
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, d := range []string{"home", "p/sub", "p/out", "private", "workers"} {
		if err := os.MkdirAll(at(d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	start := func(grants *Grants, owner process.Owner, write ...string) (*process.Confine, error) {
		l := &Start{Home: at("home"), Config: at("home/config.json"), Grants: grants}
		s := &config.Settings{Name: "s"}
		s.Confine, s.Write = config.ConfineRead, write
		if owner.Root != "" {
			s.Confine = config.ConfineProject
		}
		var p resolve.Process
		err := l.confine(s, &owner, &p)
		return p.Confine, err
	}
	grants := NewGrants(at("workers"))
	c, err := start(grants, process.Owner{Root: at("p"), Project: "p"})
	if err != nil || !c.NoLinks {
		t.Fatalf("the first server: %+v, %v", c, err)
	}
	for _, name := range []string{"p/sub", "p/out"} {
		if err := errors.Join(os.Remove(at(name)), os.Symlink(at("private"), at(name))); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := start(grants, process.Owner{Root: at("p/sub"), Project: "sub"}); err == nil ||
		!strings.Contains(err.Error(), at("private")) {
		t.Errorf("a project that is a link now: %+v, %v", c, err)
	}
	// A client that comes to a project by such a link knows only where that leads.
	private := process.Owner{Root: at("private"), Project: "private"}
	grants.Came(at("private"), at("p/sub"))
	if c, err := start(grants, private); err == nil || !strings.Contains(err.Error(), "was reached as "+at("p/sub")) {
		t.Errorf("a project to which a link of another server led: %+v, %v", c, err)
	}
	grants.Came(at("private"), at("private")) // by the user's own way
	if c, err := start(grants, private); err != nil {
		t.Errorf("the same project without that link: %+v, %v", c, err)
	}
	if c, err := start(grants, process.Owner{}, at("p/out")); err == nil || !strings.Contains(err.Error(), "could change") {
		t.Errorf("a directory of write that is a link of another server: %+v, %v", c, err)
	}
	// The user's own link leads to what the server has made a link since.
	if err := os.Symlink(at("p/out"), at("mine")); err != nil {
		t.Fatal(err)
	}
	if c, err := start(grants, process.Owner{}, at("mine")); err == nil || !strings.Contains(err.Error(), "could change") {
		t.Errorf("a link of the user's to a link of another server: %+v, %v", c, err)
	}
	grants.Came(at("private"), at("mine"))
	if c, err := start(grants, private); err == nil || !strings.Contains(err.Error(), "was reached as "+at("mine")) {
		t.Errorf("a project to which the user's link and one of another server led: %+v, %v", c, err)
	}
	// The same for a server that an earlier daemon started.
	data, err := json.Marshal(process.Spec{ID: "s-1", Confine: &process.Confine{Dirs: []string{at("p")}}})
	if err == nil {
		err = errors.Join(os.Mkdir(at("workers/s-1"), 0o700),
			os.WriteFile(filepath.Join(at("workers/s-1"), process.FileSpec), data, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	if c, err := start(NewGrants(at("workers")), process.Owner{}, at("p/out")); err == nil {
		t.Errorf("with the server of an earlier daemon: %+v", c)
	}
	if c, err := start(NewGrants(at("home")), process.Owner{}, at("p/out")); err != nil ||
		!slices.Contains(c.Dirs, at("private")) {
		t.Errorf("a link that no confined server could make: %+v, %v", c, err)
	}
}

// TestWalls checks that processes share a cache only if they may do the same for the same project:
// npx and uvx run what the others have put there.
func TestWalls(t *testing.T) {
	t.Parallel()
	settings := func(confine string, network config.Network, write ...string) *config.Settings {
		s := &config.Settings{Name: "s"}
		s.Confine, s.Network, s.Write = confine, network, write
		return s
	}
	one := settings(config.ConfineProject, nil)
	owner := process.Owner{Project: "p", Root: "/p"}
	same := process.Owner{Project: "p", Root: "/p", Session: "another", Identity: "x"}
	if wall(one, &owner) != wall(one, &same) {
		t.Error("two sessions of a project have two caches")
	}
	seen := map[string]string{wall(one, &owner): "the project"}
	for about, c := range map[string]struct {
		s *config.Settings
		o process.Owner
	}{
		"another project":   {one, process.Owner{Project: "q", Root: "/p"}}, // as guests have of the same directory
		"no project":        {one, process.Owner{}},
		"another level":     {settings(config.ConfineRead, nil), owner},
		"without a network": {settings(config.ConfineProject, config.Network{}), owner},
		"one port":          {settings(config.ConfineProject, config.Network{443}), owner},
		"more to write":     {settings(config.ConfineProject, nil, "/x"), owner},
	} {
		w := wall(c.s, &c.o)
		if other, there := seen[w]; there {
			t.Errorf("%s and %s share a cache", about, other)
		}
		seen[w] = about
	}
}
