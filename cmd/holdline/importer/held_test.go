package importer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// elsewhere are entries that start a holdline which may be another one than this, for a server that this one does not
// have.
var elsewhere = map[string]string{
	"another machine":    `{"command": "ssh", "args": ["box", "holdline", "mcp-stdio", "--server", "x"]}`,
	"another system":     `{"command": "wsl.exe", "args": ["holdline", "mcp-stdio", "--server", "x"]}`,
	"a container":        `{"command": "docker", "args": ["exec", "-i", "c", "holdline", "mcp-stdio", "--server=x"]}`,
	"a shell":            `{"command": "sh", "args": ["-c", "ssh box holdline mcp-stdio --server x"]}`,
	"one line":           `{"command": "ssh box holdline mcp-stdio --server x"}`,
	"a guest":            `{"command": "holdline", "args": ["mcp-stdio", "--guest", "/g", "--server", "x"]}`,
	"a guest with =":     `{"command": "holdline-stdio", "args": ["--guest=/g", "--server", "x"]}`,
	"another socket":     `{"command": "holdline", "args": ["--socket", "/s", "mcp-stdio", "--server", "x"]}`,
	"a socket with =":    `{"command": "holdline", "args": ["mcp-stdio", "--socket=/s", "--server", "x"]}`,
	"another file":       `{"command": "holdline", "args": ["mcp-stdio", "--config", "/c", "--server", "x"]}`,
	"file of variable":   `{"command": "holdline", "args": ["mcp-stdio", "--server", "x"], "env": {"HOLDLINE_CONFIG": "/c"}}`,
	"socket of variable": `{"command": "holdline", "args": ["mcp-stdio", "--server", "x"], "env": {"HOLDLINE_SOCKET": "/s"}}`,
	"another directory":  `{"command": "holdline", "args": ["mcp-stdio", "--server", "x"], "env": {"XDG_CONFIG_HOME": "/c"}}`,
	"another home":       `{"command": "holdline", "args": ["mcp-stdio", "--server", "x"], "env": {"HOME": "/h"}}`,
}

// TestEntriesOfAnotherHoldline_StayWhereTheyAre checks that neither an import nor whoever looks for entries of this
// holdline takes those for its own that may start another one.
func TestEntriesOfAnotherHoldline_StayWhereTheyAre(t *testing.T) {
	t.Parallel()
	for name, entry := range elsewhere {
		home := t.TempDir()
		o := options(home)
		path := filepath.Join(home, ".cursor/mcp.json")
		write(t, path, `{"mcpServers": {"x": `+entry+`}}`)
		p := look(t, o)
		if s := p.Files[0].Servers[0]; s.Verdict != Ours || s.Dangling {
			t.Errorf("%s: %+v", name, s)
		}
		carryOut(t, p)
		if text := read(t, path); !strings.Contains(text, entry) {
			t.Errorf("%s: the import leaves %s", name, text)
		}
		held, _, err := FindHeld(o)
		if err != nil || !slices.ContainsFunc(held, func(h Held) bool { return h.Name == "x" && h.Elsewhere && !h.Written }) {
			t.Errorf("%s: %+v, %v", name, held, err)
		}
	}
}

// TestEntriesOfThisHoldline_AreTheirOwn checks that an entry which says in its own words what is so anyway is one of
// this holdline, and that an import drops it if its server is gone.
func TestEntriesOfThisHoldline_AreTheirOwn(t *testing.T) {
	t.Parallel()
	for _, entry := range []string{
		`{"command": "holdline", "args": ["mcp-stdio", "--server", "x"]}`,
		`{"command": "holdline mcp-stdio --server x"}`,
		`{"command": "/opt/my programs/holdline", "args": ["mcp-stdio", "--server", "x"]}`,
		`{"command": "/usr/libexec/holdline-stdio", "args": ["--server", "x"]}`,
		`{"command": "holdline", "args": ["mcp-stdio", "--socket", "/s", "--server", "x"], "env": {"HOLDLINE_SOCKET": "/s", "A": "1"}}`,
	} {
		home := t.TempDir()
		o := options(home)
		o.Getenv = func(name string) string { return map[string]string{"HOLDLINE_SOCKET": "/s"}[name] }
		path := filepath.Join(home, ".cursor/mcp.json")
		write(t, path, `{"mcpServers": {"x": `+entry+`}}`)
		held, _, err := FindHeld(o)
		if err != nil || len(held) != 1 || held[0].Elsewhere {
			t.Errorf("%s: %+v, %v", entry, held, err)
		}
		carryOut(t, look(t, o))
		if text := read(t, path); strings.Contains(text, entry) {
			t.Errorf("%s: the import leaves %s", entry, text)
		}
		undo(t, o)
		if text := read(t, path); !strings.Contains(text, entry) {
			t.Errorf("%s: after the undo %s", entry, text)
		}
	}
}

// TestTakeAway_KeepsTheTextOfOwnEntries checks that what no import wrote is kept for this user alone before it is
// removed, and what an import wrote is not.
func TestTakeAway_KeepsTheTextOfOwnEntries(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	o := options(home)
	path := filepath.Join(home, ".cursor/mcp.json")
	write(t, path, `{"mcpServers": {"b": {"command": "b"}}}`)
	carryOut(t, look(t, o))
	entry := `{"command": "holdline", "args": ["mcp-stdio", "--server", "x"], "disabled": true}`
	write(t, path, strings.Replace(read(t, path), `"mcpServers": {`, `"mcpServers": {"x": `+entry+`, `, 1))
	held, _, err := FindHeld(o)
	if err != nil || len(held) != 3 {
		t.Fatalf("%+v, %v", held, err)
	}
	d, err := TakeAway(t.Context(), o, held, true)
	if err != nil || len(d.Left) > 0 || strings.Contains(read(t, path), "holdline") {
		t.Fatalf("%+v, %v: %s", d, err, read(t, path))
	}
	var kept []removedEntry
	if err := json.Unmarshal([]byte(read(t, d.Kept)), &kept); err != nil || len(kept) != 1 || kept[0].Text != entry ||
		kept[0].File != path || !slices.Equal(kept[0].Path, []string{"mcpServers", "x"}) {
		t.Errorf("%v: %+v", err, kept)
	}
	if info, err := os.Stat(d.Kept); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	undo(t, o) // the server of holdline's file
	if more, left, err := Pending(o.State); more || left != nil || err != nil || !exists(d.Kept) {
		t.Errorf("pending %v, left %v, %v; %s is there: %t", more, left, err, d.Kept, exists(d.Kept))
	}
}

// TestTakeAway_WhatCannotBeKeptStays checks that an entry whose text cannot be kept is not removed.
func TestTakeAway_WhatCannotBeKeptStays(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	o := options(home)
	path := filepath.Join(home, ".cursor/mcp.json")
	write(t, path, `{"mcpServers": {"x": {"command": "holdline", "args": ["mcp-stdio", "--server", "x"]}}}`)
	held, _, err := FindHeld(o)
	if err != nil {
		t.Fatal(err)
	}
	was := read(t, path)
	write(t, o.State, "this is no directory")
	o.State = filepath.Join(o.State, "state")
	d, err := TakeAway(t.Context(), o, held, true)
	if err == nil && len(d.Left) != 1 || d.Kept != "" || read(t, path) != was {
		t.Errorf("%+v, %v: %s", d, err, read(t, path))
	}
}

// TestFilesThatCannotBeRead_AreNamedIfTheyMayStartHoldline checks which files may have entries of holdline.
func TestFilesThatCannotBeRead_AreNamedIfTheyMayStartHoldline(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`{"mcpServers": {"x": {"command": "holdline", "args": ["mcp-stdio"]}}`: true,
		`{"mcpServers": {"x": {"command": "/l/holdline-stdio"}}`:               true,
		`{"projects": {"/home/me/holdline": {}}`:                               false,
		``:                                                                     false,
	} {
		home := t.TempDir()
		o := options(home)
		path := filepath.Join(home, ".claude.json")
		write(t, path, text)
		if _, unread, err := FindHeld(o); err != nil || len(unread) > 0 != want || want && unread[0].Path != path {
			t.Errorf("%s: %v, %v", text, unread, err)
		}
	}
	home := t.TempDir()
	path := filepath.Join(home, ".claude.json")
	if err := os.Mkdir(path, 0o700); err != nil { // its bytes say nothing
		t.Fatal(err)
	}
	if _, unread, err := FindHeld(options(home)); err != nil || len(unread) != 1 {
		t.Errorf("no file: %v, %v", unread, err)
	}
}
