package importer

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdline/daemon/config"
	"holdline/daemon/servertable"
)

// program writes a program into the home, and returns its path.
func program(t *testing.T, home, name string) string {
	t.Helper()
	path := filepath.Join(home, "bin", name)
	write(t, path, "#!/bin/sh\n")
	if err := os.Chmod(path, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestEntriesWrittenDifferently_OfOneProcess checks that two clients' entries are one server if the process sees the same
// by both, and two if it can tell them apart. HOME stands for the home.
func TestEntriesWrittenDifferently_OfOneProcess(t *testing.T) {
	for name, c := range map[string]struct {
		one, other string
		same       bool
	}{
		"a path in the home": {`"command": "${HOME}/s", "args": ["${HOME}/d"]`, `"command": "HOME/s", "args": ["HOME/d"]`, true},
		"a variable with a value": {
			`"command": "npx", "args": ["x"], "env": {"LEVEL": "${SET}", "B": "2"}`, `"command": "npx", "args": ["x"], "env": {"B": "2", "LEVEL": "1"}`, true,
		},
		"a secret with the value of today": {
			`"command": "npx", "args": ["x"], "env": {"KEY": "${SET}"}`, `"command": "npx", "args": ["x"], "env": {"KEY": "1"}`, false,
		},
		"an account with the value of today": {
			`"command": "npx", "args": ["x"], "env": {"AWS_PROFILE": "${SET}"}`, `"command": "npx", "args": ["x"], "env": {"AWS_PROFILE": "1"}`, false,
		},
		"a token with the value of today": {
			`"command": "npx", "args": ["x", "${THE_TOKEN}"]`, `"command": "npx", "args": ["x", "secret"]`, false,
		},
		"a header with the value of today": {
			`"type": "http", "url": "https://x/", "headers": {"Authorization": "Bearer ${SET}"}`,
			`"url": "https://x/", "headers": {"Authorization": "Bearer 1"}`, false,
		},
		"the same token of the environment": {
			`"command": "npx", "args": ["x"], "env": {"KEY": "${THE_TOKEN}"}`, `"command": "npx", "args": ["x"], "env": {"KEY": "${THE_TOKEN:-}"}`, true,
		},
		"the same token of the entry": {
			`"command": "npx", "args": ["x", "${KEY}"], "env": {"KEY": "k"}`, `"command": "npx", "args": ["x", "k"], "env": {"KEY": "k"}`, true,
		},
		"a token that need not be set": {
			`"command": "npx", "args": ["x"], "env": {"KEY": "${NO_TOKEN:-}"}`, `"command": "npx", "args": ["x"]`, true,
		},
		"a default that counts": {`"command": "npx", "args": ["${NOT:-x}"]`, `"command": "npx", "args": ["x"]`, true},
		"a variable without a value": {
			`"command": "npx", "args": ["x", "${NOT}"]`, `"command": "npx", "args": ["x", ""]`, false,
		},
		"one that need not be set":   {`"command": "npx", "args": ["x"], "env": {"K": "${NOT:-}"}`, `"command": "npx", "args": ["x"]`, true},
		"one that is inherited":      {`"command": "npx", "args": ["x"], "env": {"HOME": "HOME"}`, `"command": "npx", "args": ["x"]`, true},
		"one that is another":        {`"command": "npx", "args": ["x"], "env": {"HOME": "/other"}`, `"command": "npx", "args": ["x"]`, false},
		"on the PATH":                {`"command": "npx", "args": ["x"]`, `"command": "HOME/bin/npx", "args": ["x"]`, true},
		"not on the PATH":            {`"command": "npx", "args": ["x"]`, `"command": "/opt/npx", "args": ["x"]`, false},
		"with and without -y":        {`"command": "npx", "args": ["-y", "x", "a"]`, `"command": "npx", "args": ["x", "a"]`, true},
		"-y and --yes":               {`"command": "npx", "args": ["-y", "x"]`, `"command": "npx", "args": ["--yes", "--", "x"]`, true},
		"a version that is there":    {`"command": "npx", "args": ["--offline", "x"]`, `"command": "npx", "args": ["x"]`, false},
		"-y behind the package":      {`"command": "npx", "args": ["x", "-y"]`, `"command": "npx", "args": ["x"]`, false},
		"another package":            {`"command": "npx", "args": ["-y", "x"]`, `"command": "npx", "args": ["-y", "y"]`, false},
		"the latest version":         {`"command": "npx", "args": ["-y", "x"]`, `"command": "npx", "args": ["-y", "x@latest"]`, false},
		"npm, and npm exec":          {`"command": "npm", "args": ["exec", "x"]`, `"command": "npm", "args": ["x"]`, false},
		"-y of something else":       {`"command": "s", "args": ["-y", "x"]`, `"command": "s", "args": ["x"]`, false},
		"a tilde, which no one sees": {`"command": "npx", "args": ["x", "~/d"]`, `"command": "npx", "args": ["x", "HOME/d"]`, false},
		"an address with a variable": {`"url": "https://x/${SET}"`, `"url": "https://x/1"`, true},
		"another value":              {`"command": "npx", "args": ["x"], "env": {"K": "${SET}"}`, `"command": "npx", "args": ["x"], "env": {"K": "2"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			o := options(home)
			program(t, home, "npx")
			o.Environ = append(o.Environ, "THE_TOKEN=secret", "PATH="+filepath.Join(home, "bin"))
			o.Daemon = o.Environ
			for path, text := range map[string]string{".claude.json": c.one, ".cursor/mcp.json": c.other} {
				// Cursor writes ${env:NAME}.
				text = strings.ReplaceAll(text, "HOME/", home+"/")
				text = strings.ReplaceAll(text, `"HOME": "HOME"`, `"HOME": "`+home+`"`)
				if path == ".cursor/mcp.json" {
					text = strings.ReplaceAll(text, "${", "${env:")
				}
				write(t, filepath.Join(home, path), `{"mcpServers": {"a": {`+text+`}}}`)
			}
			want := []string{"a"}
			if !c.same {
				want = []string{"a", "a-cursor"}
			}
			p := look(t, o)
			if !slices.Equal(p.Servers, want) {
				t.Errorf("servers %q, want %q: %q", p.Servers, want, p.Files[1].Servers[0].Differs)
			}
		})
	}
}

// TestEntriesWrittenDifferently_ByTheEnvironmentOfServers checks that entries are compared by the environment that servers
// will have, and not by that of this shell. If it is not known, a reference and a value are two.
func TestEntriesWrittenDifferently_ByTheEnvironmentOfServers(t *testing.T) {
	for name, c := range map[string]struct {
		daemon []string
		one    string
		want   int // how many servers
	}{
		"as this shell":               {[]string{"SET=1"}, `"env": {"LEVEL": "${SET}"}`, 1},
		"another value":               {[]string{"SET=2"}, `"env": {"LEVEL": "${SET}"}`, 2},
		"no such variable":            {[]string{}, `"env": {"LEVEL": "${SET}"}`, 2},
		"not known":                   {nil, `"env": {"LEVEL": "${SET}"}`, 2},
		"not known, and nothing else": {nil, `"env": {"LEVEL": "1"}`, 1},
		"not known, with a default":   {nil, `"env": {"LEVEL": "1", "MORE": "${NOT:-}"}`, 2},
		"not known, in the home":      {nil, `"env": {"LEVEL": "1"}, "args": ["${HOME}/d"]`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			o := options(home)
			o.Daemon = c.daemon
			other := `"env": {"LEVEL": "1"}`
			if strings.Contains(c.one, "args") {
				other += `, "args": ["` + home + `/d"]`
			}
			write(t, filepath.Join(home, ".claude.json"), `{"mcpServers": {"a": {"command": "/bin/s", `+c.one+`}}}`)
			write(t, filepath.Join(home, ".cursor/mcp.json"), `{"mcpServers": {"a": {"command": "/bin/s", `+other+`}}}`)
			if p := look(t, o); len(p.Servers) != c.want {
				t.Errorf("servers %q, want %d: %q", p.Servers, c.want, p.Files[1].Servers[0].Differs)
			}
		})
	}
}

// TestEntriesWrittenDifferently_InHoldlinesFile checks that a server which Holdline's file has is taken for a client's if
// the process sees the same, that it keeps its scope, and that nothing is written for it.
func TestEntriesWrittenDifferently_InHoldlinesFile(t *testing.T) {
	home := t.TempDir()
	o := options(home)
	o.Environ = append(o.Environ, "PATH="+filepath.Dir(program(t, home, "npx")))
	o.Daemon = o.Environ
	own := `{"mcpServers": {"a": {"command": "npx", "args": ["@modelcontextprotocol/server-memory"], "holdline": {"scope": "session"}}}}`
	write(t, o.Config, own)
	write(t, filepath.Join(home, ".claude.json"),
		`{"mcpServers": {"a": {"command": "`+filepath.Join(home, "bin/npx")+`", "args": ["-y", "@modelcontextprotocol/server-memory"]}}}`)
	p := look(t, o)
	if s := p.Files[0].Servers[0]; len(p.Servers) != 0 || s.As != "a" || s.Scope != "session" {
		t.Errorf("servers %q, and it moves as %s with the scope %s: %q", p.Servers, s.As, s.Scope, s.Differs)
	}
	carryOut(t, p)
	if got := read(t, o.Config); got != own {
		t.Errorf("holdline's file: %s", got)
	}
	o.Scope = "shared" // what the user asks for counts
	undo(t, o)
	if p := look(t, o); !slices.Equal(p.Servers, []string{"a-claude"}) {
		t.Errorf("with --scope shared: %q", p.Servers)
	}
	// A scope that was chosen and not compared is no difference.
	o.Scope = ""
	write(t, filepath.Join(home, ".claude.json"), `{"mcpServers": {"a": {"command": "npx", "args": ["other"]}}}`)
	if s := look(t, o).Files[0].Servers[0]; s.As != "a-claude" || !slices.Equal(s.Differs, []string{"argument 1 differs"}) {
		t.Errorf("another package is %s: %q", s.As, s.Differs)
	}
}

// TestEntriesWrittenDifferently_OfAnotherScope checks that entries which start the same are one server even if one of them
// may be shared by more agents: the narrower scope counts for both, in whatever order they are found.
func TestEntriesWrittenDifferently_OfAnotherScope(t *testing.T) {
	const memory = "@modelcontextprotocol/server-memory"
	for _, brought := range []string{"one", "two"} {
		home := t.TempDir()
		o := options(home)
		entry := `{"mcpServers": {"a": {"command": "npx", "args": ["-y", "` + memory + `"]}}}`
		write(t, filepath.Join(home, ".claude.json"), `{"projects": {"`+home+`/one": `+entry+`, "`+home+`/two": `+entry+`}}`)
		write(t, filepath.Join(home, brought, "node_modules", memory, "package.json"), "{}")
		p := look(t, o)
		if !slices.Equal(p.Servers, []string{"a"}) {
			t.Errorf("servers %q: %q", p.Servers, p.Files[0].Servers[1].Differs)
		}
		for _, s := range p.Files[0].Servers {
			if s.As != "a" || s.Scope != "project" || !strings.Contains(s.ScopeWhy, "its own copy") {
				t.Errorf("%s brings its own: %s of %s is %s: %s", brought, s.As, s.Project, s.Scope, s.ScopeWhy)
			}
		}
		carryOut(t, p)
		if text := read(t, o.Config); strings.Contains(text, `"shared"`) {
			t.Errorf("%s brings its own: %s", brought, text)
		}
	}
}

// TestScopeOfWhatMoves checks which scope the plan has for servers, why, and what is written.
func TestScopeOfWhatMoves(t *testing.T) {
	home := t.TempDir()
	o := options(home)
	o.Environ = append(o.Environ, "PATH="+filepath.Dir(program(t, home, "npx")))
	const official = "@modelcontextprotocol/server-"
	write(t, filepath.Join(home, ".claude.json"), `{"mcpServers": {
		"memory": {"command": "npx", "args": ["-y", "`+official+`memory"]},
		"thinking": {"command": "npx", "args": ["-y", "`+official+`sequential-thinking"]},
		"files": {"command": "npx", "args": ["-y", "`+official+`filesystem", "/srv"]},
		"unknown": {"command": "npx", "args": ["-y", "no-such-server"]},
		"far": {"type": "http", "url": "https://x/mcp"}},
		"projects": {"`+home+`/w": {"mcpServers": {"own": {"command": "npx", "args": ["`+official+`memory", "x"]},
			"brought": {"command": "npx", "args": ["-y", "-q", "`+official+`memory"], "env": {"LOG_LEVEL": "debug"}}}}}}`)
	write(t, filepath.Join(home, "w/node_modules", official+"memory/package.json"), "{}")
	p := look(t, o)
	got := map[string]string{}
	for _, s := range p.Files[0].Servers {
		got[s.Name] = s.Scope
		if s.ScopeWhy == "" {
			t.Errorf("%s: nothing says why it is %s", s.Name, s.Scope)
		}
	}
	for name, want := range map[string]string{
		"memory": "shared", "thinking": "session", "files": "project", "unknown": "project", "far": "shared", "own": "project",
		"brought": "project",
	} {
		if got[name] != want {
			t.Errorf("%s: %s, want %s", name, got[name], want)
		}
	}
	carryOut(t, p)
	text := read(t, o.Config)
	if strings.Count(text, `"shared"`) != 2 || strings.Count(text, `"session"`) != 1 || strings.Contains(text, `"scope": "project"`) {
		t.Errorf("holdline's file: %s", text)
	}

	undo(t, o)
	o.Scope = "session"
	for _, s := range look(t, o).Files[0].Servers {
		if s.Scope != "session" || !strings.Contains(s.ScopeWhy, "--scope") {
			t.Errorf("%s with --scope session: %s, %s", s.Name, s.Scope, s.ScopeWhy)
		}
	}
}

// TestScopeOfWhatMoves_VariablesThatTheClientPassesOnDoNotCount checks that a server is shared although its client passes
// variables of the user's environment on, which are the same in each project.
func TestScopeOfWhatMoves_VariablesThatTheClientPassesOnDoNotCount(t *testing.T) {
	home := t.TempDir()
	o := options(home)
	o.Environ = append(o.Environ, "TEAM_KEY=k")
	write(t, filepath.Join(home, ".claude.json"),
		`{"mcpServers": {"a": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"]}}}`)
	if s := look(t, o).Files[0].Servers[0]; s.Scope != "shared" {
		t.Errorf("%s: %s", s.Scope, s.ScopeWhy)
	}
}

// TestScopeOfWhatMoves_FollowsTheVersionThatStarts checks that an entry without a version is taken for the version that its
// launcher has started: a newer major version than the table knows is kept apart for each project. npx starts a link in
// .bin, and so do pnpm's scripts, by a path with dots.
func TestScopeOfWhatMoves_FollowsTheVersionThatStarts(t *testing.T) {
	const name = "@modelcontextprotocol/server-memory"
	r, ok := servertable.Find(name)
	if !ok {
		t.Fatal("the table does not know " + name)
	}
	for version, want := range map[string]string{r.Version: "shared", "9999.1.0": "project", "": "shared"} {
		for _, script := range []string{name + "/dist/index.js", ".bin/server-memory", ".bin/../" + name + "/dist/index.js"} {
			home := t.TempDir()
			o := options(home)
			o.Environ = append(o.Environ, "PATH="+filepath.Dir(program(t, home, "npx")))
			write(t, filepath.Join(home, ".claude.json"), `{"mcpServers": {"a": {"command": "npx", "args": ["-y", "`+name+`"]}}}`)
			modules := filepath.Join(home, "cache/node_modules")
			o.Try = func(context.Context, *config.Settings, string) Trial {
				return Trial{Tools: []string{"x"}, Runs: []string{"/usr/bin/node", modules + "/" + script}}
			}
			if version != "" { // else the package is gone
				write(t, filepath.Join(modules, name, "package.json"), `{"version": "`+version+`"}`)
				write(t, filepath.Join(modules, name, "dist/index.js"), "")
				link := filepath.Join(modules, ".bin/server-memory")
				if err := os.Mkdir(filepath.Dir(link), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink("../"+name+"/dist/index.js", link); err != nil {
					t.Fatal(err)
				}
			}
			p := look(t, o)
			if s := p.Files[0].Servers[0]; s.Scope != want || s.Verdict != Moves {
				t.Errorf("version %q by %s: %s, %s: %s, want %s", version, script, s.Verdict, s.Scope, s.ScopeWhy, want)
			}
			carryOut(t, p)
			if got := strings.Contains(read(t, o.Config), `"shared"`); got != (want == "shared") {
				t.Errorf("version %q by %s: holdline's file: %s", version, script, read(t, o.Config))
			}
		}
	}
}
