package importer

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdline/daemon/config"
)

// TestDifferences checks that two servers of one name differ by names that people know, and
// that no value is shown.
func TestDifferences(t *testing.T) {
	const other = `{"command": "npx", "args": ["-y", "a", "SECRET1"], "env": {"TOKEN": "SECRET2", "B": "1"}}`
	for _, c := range []struct{ entry, want string }{
		{
			`{"command": "uvx", "args": ["x"]}`,
			"other command, without variable B, without variable TOKEN",
		},
		{
			`{"command": "/opt/npx", "args": ["-y", "a", "SECRET3"], "env": {"TOKEN": "SECRET4", "B": "1"}}`,
			"command at another path, argument 3 differs, variable TOKEN differs",
		},
		{
			`{"command": "npx", "args": ["-y"], "env": {"TOKEN": "SECRET2", "B": "1", "C": "SECRET5"}}`,
			"2 fewer arguments, with variable C",
		},
		{
			`{"url": "https://SECRET6/", "headers": {"X": "SECRET7"}}`,
			"by its address, other address, without variable B, without variable TOKEN, with header X",
		},
		{strings.TrimSuffix(other, "}") + `, "holdline": {"lazy": true}}`, "other settings"},
	} {
		settings := func(text string) *config.Settings {
			c, err := config.Parse("", []byte(`{"mcpServers": {"x": `+text+`}}`))
			if err != nil {
				t.Fatal(err)
			}
			s, _ := c.Server("x")
			return &s
		}
		if got := strings.Join(differences(settings(c.entry), settings(other)), ", "); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.entry, got, c.want)
		}
	}
}

// TestSkip checks that a server stays if it is named as its client's file or as holdline's would
// have it, and that a name of no server is refused before any server starts.
func TestSkip(t *testing.T) {
	home := t.TempDir()
	o := options(home)
	write(t, filepath.Join(home, ".claude.json"), `{"mcpServers": {"a": {"command": "a"}}}`)
	write(t, filepath.Join(home, ".cursor/mcp.json"), `{"mcpServers": {"a": {"command": "b"}}}`)
	o.Skip = []string{"a-cursor"}
	if p := look(t, o); !slices.Equal(p.Servers, []string{"a"}) || p.Summary.Stay != 1 {
		t.Errorf("without a-cursor: %q, %+v", p.Servers, p.Summary)
	}
	o.Skip = []string{"a", "nope"}
	o.Try = func(context.Context, *config.Settings, string) Trial {
		t.Error("a server is started")
		return Trial{}
	}
	_, err := Look(t.Context(), o)
	if unknown, ok := errors.AsType[*SkipError](err); !ok || unknown.Name != "nope" ||
		!slices.Equal(unknown.Known, []string{"a"}) {
		t.Errorf("with nope: %v", err)
	}
}

// TestTries checks what the starts of servers make of a plan: a server that does not start
// stays, and one that needs a login moves with the command for that. Equal servers are started once, and each start is
// reported when it begins and when it ends.
func TestTries(t *testing.T) {
	home := t.TempDir()
	o := options(home)
	write(t, filepath.Join(home, ".claude.json"), `{"mcpServers": {"works": {"command": "a"}, "fails": {"command": "b"},
		"far": {"url": "https://x/mcp"}, "kept": {"command": "c"}}}`)
	write(t, filepath.Join(home, ".cursor/mcp.json"), `{"mcpServers": {"works": {"type": "stdio", "command": "a", "timeout": 900000}, "mine":
		{"command": "holdline", "args": ["mcp-stdio"]}}}`)
	write(t, filepath.Join(home, ".codex/config.toml"), "x = 1\ny = [\n")
	o.Skip = []string{"kept"}
	o.Try = func(_ context.Context, s *config.Settings, _ string) Trial {
		switch {
		case s.Transport == config.HTTP:
			return Trial{Err: errors.New("it needs a login"), Login: true}
		case s.Command == "b":
			return Trial{Err: errors.New("no such thing")}
		}
		return Trial{Tools: []string{"read"}}
	}
	var events []string
	o.Trying = func(e TryEvent) {
		event := "begin " + e.Name
		if e.Trial != nil {
			event = "end " + e.Name
		}
		events = append(events, event)
		if e.Of != 3 {
			t.Errorf("%s of %d", event, e.Of)
		}
	}
	p := look(t, o)
	slices.Sort(events)
	if want := []string{
		"begin fails", "begin far", "begin works", "end fails", "end far", "end works",
	}; !slices.Equal(events, want) {
		t.Errorf("events %q", events)
	}
	want := Summary{
		Entries: 5, Clients: 2, Ours: 1, Servers: 4, Move: 1, Started: true, Login: 1, Stay: 2, Fail: 1, Broken: 1,
	}
	if p.Summary != want {
		t.Errorf("summary %+v, want %+v", p.Summary, want)
	}
	if got := p.Summary.String(); got != "4 servers (2 clients, 5 entries): 1 starts, 1 needs a login, 1 does not start, 1 stays." {
		t.Error(got)
	}
	why := map[string]string{}
	for _, f := range p.Files {
		if f.Broken && (f.Client != "codex" || !strings.HasPrefix(f.Why, "line 2, column ")) {
			t.Errorf("%s: %s", f.Client, f.Why)
		}
		for _, s := range f.Servers {
			why[f.Client+" "+s.Name] = string(s.Verdict) + ": " + s.Why
			if s.Login != (s.Name == "far") || slices.Equal(s.Tools, []string{"read"}) != (s.Name == "works") {
				t.Errorf("%+v", s)
			}
		}
	}
	for server, want := range map[string]string{
		"claude works": "moves: ", "cursor works": "moves: ", "cursor mine": "ours: ",
		"claude kept":  "stays: it is to stay",
		"claude fails": "stays: it does not start: no such thing",
		"claude far":   "moves: ",
	} {
		if why[server] != want {
			t.Errorf("%s %q, want %q", server, why[server], want)
		}
	}
}

// TestTriesInterrupted checks that a plan ends when it is interrupted while servers start.
func TestTriesInterrupted(t *testing.T) {
	home := t.TempDir()
	o := options(home)
	write(t, filepath.Join(home, ".claude.json"), `{"mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}}`)
	errEnd := errors.New("the end")
	ctx, cancel := context.WithCancelCause(t.Context())
	o.Try = func(ctx context.Context, _ *config.Settings, _ string) Trial {
		cancel(errEnd)
		<-ctx.Done()
		return Trial{Err: context.Cause(ctx)}
	}
	if _, err := Look(ctx, o); !errors.Is(err, errEnd) {
		t.Errorf("Look = %v", err)
	}
}

// TestWritten checks which entries an import has written, with the tools that each is to list,
// and that the undo of one import leaves an earlier one.
func TestWritten(t *testing.T) {
	home := t.TempDir()
	o := options(home)
	write(t, filepath.Join(home, ".cursor/mcp.json"), `{"mcpServers": {"first": {"command": "x"}}}`)
	carryOut(t, look(t, o))
	imported := read(t, filepath.Join(home, ".cursor/mcp.json"))
	path := filepath.Join(home, ".claude.json")
	text := `{"mcpServers": {"a b": {"command": "a"}}, "projects": {"/p": {"mcpServers": {"c": {"command": "c"}}}}}`
	write(t, path, text)
	o.Try = func(context.Context, *config.Settings, string) Trial { return Trial{Tools: []string{"read"}} }
	for _, aggregate := range []bool{false, true} {
		o.Aggregate = aggregate
		o.From = []string{"claude"}
		p := look(t, o)
		d := carryOut(t, p)
		list, err := p.Written(d)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range list {
			words := slices.Concat([]string{e.Name, e.Project, e.Command}, e.Args, e.Tools)
			got = append(got, strings.Join(words, " "))
		}
		want := []string{
			"a b  " + command + " mcp-stdio --server a-b read", "c /p " + command + " mcp-stdio --server c read",
			"holdline  " + command + " mcp-stdio --server holdline",
		}
		if aggregate {
			want = []string{"holdline  " + command + " mcp-stdio a-b__read"}
		}
		if !slices.Equal(got, want) {
			t.Errorf("written %q, want %q", got, want)
		}
		if back, err := d.Undo(t.Context(), o); err != nil || len(back.Left) > 0 || read(t, path) != text ||
			read(t, filepath.Join(home, ".cursor/mcp.json")) != imported {
			t.Errorf("undo: %+v, %v: %s", back, err, read(t, path))
		}
	}
}
