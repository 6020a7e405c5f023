package hosted

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdline/daemon/config/resolve"
	"holdline/daemon/hosted/entry"
	"holdline/daemon/hosted/startup"
	"holdline/daemon/tool"
	"holdline/protocol/process"
)

// TestRecall checks that a stopped server stays stopped whatever its configuration, also if its file is
// damaged, and
// that an ejected one stays ejected only while its configuration is unchanged.
func TestRecall(t *testing.T) {
	dir := t.TempDir()
	m := New(Options{Log: slog.New(slog.DiscardHandler), StateDir: dir, CatalogDir: t.TempDir()})
	for _, tc := range []struct {
		file    string
		ejected []string
	}{
		{`{"version":1,"stopped":true,"ejected":["p"]}`, []string{"p"}}, // written by an older daemon
		{`{"version":1,"key":"k","stopped":true,"ejected":["p"]}`, []string{"p"}},
		{`{"version":1,"key":"other","stopped":true,"ejected":["p"]}`, nil},
		{`{"version":1,"stopp`, nil}, // torn, so that nobody knows
		{"", nil},
		{"{}", nil},
		{"null", nil},
		{"[1]", nil},
	} {
		if err := os.WriteFile(filepath.Join(dir, "s.json"), []byte(tc.file), 0o600); err != nil {
			t.Fatal(err)
		}
		s := m.newServer(&entry.Server{Name: "s", Key: "k"})
		if s.read(); !s.verdict.Stopped || !slices.Equal(s.verdict.Ejected, tc.ejected) {
			t.Errorf("%s: stopped %v, ejected %v", tc.file, s.verdict.Stopped, s.verdict.Ejected)
		}
		if says := startup.Stopped("s", s.verdict.Damaged).Error(); strings.Contains(says, dir) != (len(tc.file) < 22) {
			t.Errorf("%s: %s", tc.file, says)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "s.json"), []byte(`{"version":1,"stopped":true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	// A server that was removed and is configured again is as the user left it.
	m.Configure([]entry.Server{{Name: "s", Key: "k", Lazy: true}})
	if s := m.servers["s"]; !s.verdict.Stopped || s.verdict.Ejected != nil {
		t.Errorf("configured again: stopped %v, ejected %v", s.verdict.Stopped, s.verdict.Ejected)
	}
}

// TestStartForCommand checks that a command that starts a server of scope session starts no
// process for its own session: no client has that session, so its end would end nothing.
func TestStartForCommand(t *testing.T) {
	m := New(Options{
		Log: slog.New(slog.DiscardHandler), StateDir: t.TempDir(),
		Servers: []entry.Server{{
			Name: "s", Scope: entry.Session, Key: "k", MaxConcurrent: 1,
			Process: func(context.Context, *process.Owner) (resolve.Process, error) {
				return resolve.Process{}, errors.New("it is started")
			},
		}},
	})
	for name, start := range map[string]func(context.Context, string, tool.Caller) (int, error){
		"start": m.Start, "restart": m.Restart,
	} {
		n, err := start(t.Context(), "s", tool.Caller{Session: "of the command"})
		if n != 0 || err != nil || len(m.instances) != 0 {
			t.Errorf("%s: %d processes, %d instances, %v", name, n, len(m.instances), err)
		}
	}
}

// TestStartOfRemovedServer checks that a command that waits, while the server is removed from the
// configuration, starts no process of it: no configuration would ever end that.
func TestStartOfRemovedServer(t *testing.T) {
	started := false
	m := New(Options{
		Log: slog.New(slog.DiscardHandler), StateDir: t.TempDir(), Watch: noWatch{},
		Servers: []entry.Server{{
			Name: "s", Scope: entry.Shared, Key: "k", MaxConcurrent: 1,
			Process: func(context.Context, *process.Owner) (resolve.Process, error) {
				started = true
				return resolve.Process{}, errors.New("it is started")
			},
		}},
	})
	s, c := m.servers["s"], &tool.Caller{}
	m.Configure(nil)
	if n, err := s.startAll(t.Context(), c); n != 0 || err == nil || started {
		t.Errorf("%d processes, %v; a start was tried: %t", n, err, started)
	}
	if s.Start(c); len(m.instances) != 0 {
		t.Errorf("%d instances of a server that is not configured", len(m.instances))
	}
}
