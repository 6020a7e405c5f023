package notify_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"holdline/daemon/notify"
	"holdline/protocol/control"
	"holdline/protocol/programtest"
)

// TestNotifications checks which events are shown by the program on the PATH, that two about
// the same thing at once are one, and that a program which is missing is one line of the log.
func TestNotifications(t *testing.T) {
	events := []control.Event{
		{Kind: control.Answered, Subject: "c1", Text: "done", Background: true},
		{Kind: control.Answered, Subject: "c1", Text: "done again", Background: true},
		{Kind: control.Answered, Subject: "c2", Text: "somebody waits for it"},
		{Kind: control.Crashed, Subject: "s", Text: "crashed"},
		{Kind: control.Ejected, Subject: "s", Text: "given up"},
		{Kind: control.Changed, Subject: "s", Text: "1 tool"},
		{Kind: control.Changed, Subject: "other", Text: "2 tools"},
	}
	name := map[string]string{"linux": "notify-send", "darwin": "osascript"}[runtime.GOOS]
	for _, x := range []struct {
		name      string
		kinds     []string
		installed bool
		shown     []string
		lines     int // of the log
	}{
		{
			"all",
			[]string{"consults", "servers", "tools"},
			true,
			[]string{"To read it: holdline consult show c1", "given up", "1 tool", "2 tools"},
			0,
		},
		{"some", []string{"servers"}, true, []string{"given up"}, 0},
		{"none", nil, true, nil, 0},
		{"no program", []string{"consults", "tools"}, false, nil, 1},
	} {
		t.Run(x.name, func(t *testing.T) {
			dir := t.TempDir()
			shown := filepath.Join(dir, "shown")
			if x.installed {
				script := "#!/bin/sh\necho $@ >>" + shown + "\n" // the shell makes one line of it
				programtest.Write(t, filepath.Join(dir, name), script)
			}
			var log strings.Builder
			n := &notify.Notifier{
				Log:     slog.New(slog.NewTextHandler(&log, nil)),
				Environ: func() []string { return []string{"PATH=" + dir} },
				Kinds:   func() []string { return x.kinds },
				Follow: func(ctx context.Context, show func(control.Event)) error {
					for _, e := range events {
						show(e)
					}
					return context.Cause(ctx)
				},
			}
			_ = n.Run(t.Context())
			got, _ := os.ReadFile(shown)
			lines := strings.Split(strings.TrimSpace(string(got)), "\n")
			if len(got) == 0 {
				lines = nil
			}
			if len(lines) != len(x.shown) || strings.Count(log.String(), "\n") != x.lines {
				t.Fatalf("shown %q, log %q; want %q", lines, log.String(), x.shown)
			}
			for i, want := range x.shown {
				if !strings.Contains(lines[i], want) {
					t.Errorf("shown %q, want %q", lines[i], want)
				}
			}
		})
	}
}
