package consultcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/ttytest"
	"holdline/daemon/adapter/engine"
	"holdline/daemon/consult/jobdir"
	"holdline/protocol/bootclock"
	"holdline/protocol/bulk"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/process"
)

const liveID = "159788036b8d"

// jobFiles makes the directory of a job without a daemon, with these files, and returns how to
// show it live.
func jobFiles(
	t *testing.T, files map[string]string,
) func(ctx context.Context, out, errs io.Writer, flags ...string) error {
	t.Helper()
	state, run := t.TempDir(), t.TempDir()
	dir := filepath.Join(state, "holdline/consults", liveID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	rec := jobdir.Record{Version: jobdir.Version, ID: liveID, Engine: "claude", BootID: bootclock.ID()}
	if err := rec.Write(dir); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if name == engine.FileOutcome {
			content = string(bulk.Seal(engine.SealName(dir, name), []byte(content)))
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := map[string]string{"XDG_STATE_HOME": state, "XDG_RUNTIME_DIR": run, "HOME": state}
	return func(ctx context.Context, out, errs io.Writer, flags ...string) error {
		cmd := NewCommand(&cmdenv.Process{Getenv: func(name string) string { return env[name] }})
		cmd.PersistentFlags().String("socket", filepath.Join(run, "none"), "")
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetOut(out)
		cmd.SetErr(errs)
		cmd.SetArgs(append([]string{"show", "-f", liveID}, flags...))
		return cmd.ExecuteContext(ctx)
	}
}

// transcript returns lines of a transcript, a second apart.
func transcript(entries ...engine.Entry) string {
	var b strings.Builder
	for i, e := range entries {
		e.Seq, e.UnixMS = int64(i+1), int64(1_772_625_600_000+1000*i)
		b.Write(append(jsonrpc.Encode(e), '\n'))
	}
	return b.String()
}

// TestLiveFrame checks what the live view shows on a terminal of 80 columns and in a pipe. It
// lets nothing of the program or its model control the terminal, not even through a pipe.
func TestLiveFrame(t *testing.T) {
	local := time.Local
	time.Local = time.UTC
	t.Cleanup(func() { time.Local = local })
	cost := 0.3141
	said := strings.Repeat("The retry is not safe if the server answers twice. ", 3)
	show := jobFiles(t, map[string]string{
		engine.FileTranscript: transcript(
			engine.Entry{Kind: engine.KindStart, Level: "read", EnforcedBy: "landlock", Notes: []string{
				"this version has no --restricted, so a setting of the project could allow more than this",
			}},
			engine.Entry{Kind: engine.KindSession, Model: "claude-opus-4-5-20251101", Session: "0b51b9d4"},
			engine.Entry{Kind: engine.KindPiece, Text: said[:40]},
			engine.Entry{Kind: engine.KindPiece, Text: said[40:70]},
			engine.Entry{Kind: engine.KindText, Text: said + "\n\n- an item " + ttytest.Hostile + " of a list\n\tcode"},
			engine.Entry{Kind: engine.KindTool, Text: "Read /home/user/" + strings.Repeat("a-long-name/", 4) + "client.go"},
			engine.Entry{Kind: engine.KindNote, Text: "the API is overloaded, try 2 of 10 in 4 s" + ttytest.Hostile},
			engine.Entry{Kind: engine.KindStderr, Text: "warning: " + ttytest.Hostile},
			engine.Entry{Kind: engine.KindLadder, Text: "time is up, asked for the best answer so far"},
			engine.Entry{Kind: engine.KindPiece, Text: "弱いテスト"},
			engine.Entry{Kind: engine.KindText, Text: "弱いテストは一つだけです。"},
			engine.Entry{Kind: engine.KindTurn, CostUSD: &cost},
			engine.Entry{Kind: engine.KindEnd, Text: "done"},
		),
		engine.FileOutcome: string(jsonrpc.Encode(engine.Outcome{
			Version: engine.Version, State: engine.Done, Partial: true, CostUSD: &cost,
			Answer: "弱いテストは一つだけです。", Models: []string{"claude-opus-4-5-20251101"}, DurationMS: 12_300, Session: "0b51b9d4",
		})),
	})
	compareFrame(t, "live", func(out io.Writer) {
		if err := show(t.Context(), out, out); err != nil {
			t.Error(err)
		}
	})
	var piped, events bytes.Buffer
	for out, flags := range map[*bytes.Buffer][]string{&piped: nil, &events: {"--json"}} {
		if err := show(t.Context(), console.NewOutput(out), io.Discard, flags...); err != nil {
			t.Error(err)
		}
	}
	ttytest.WantHarmless(t, "the pipe", piped.String())
	if !strings.Contains(piped.String(), strings.TrimSpace(said)) {
		t.Errorf("in a pipe lines are wrapped:\n%s", &piped)
	}
	for i, line := range strings.Split(strings.TrimSuffix(events.String(), "\n"), "\n") {
		var e engine.Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Seq != int64(i+1) {
			t.Errorf("line %d of --json is %q: %v", i+1, line, err)
		}
	}
}

// TestLiveEnds checks how a view ends without a daemon: as the consult did, by what its files
// say.
func TestLiveEnds(t *testing.T) {
	outcome := func(out engine.Outcome) string {
		out.Version = engine.Version
		return string(jsonrpc.Encode(out))
	}
	said := transcript(engine.Entry{Kind: engine.KindStart}, engine.Entry{Kind: engine.KindText, Text: "So far."},
		engine.Entry{Kind: engine.KindTool, Text: "Read x"})
	failed := fault.New(fault.Timeout, fault.Engine, engine.Operation, "time was up")
	for name, tt := range map[string]struct {
		files     map[string]string
		out, fail string // are in it
		not       string // is not in out
		code      int
	}{
		"an answer that is no text": {
			files: map[string]string{
				engine.FileTranscript: said,
				engine.FileOutcome:    outcome(engine.Outcome{State: engine.Done, Answer: `{"safe":false}`}),
			},
			out: "Read x\n{\"safe\":false}\n",
		},
		"a fault": {
			files: map[string]string{
				engine.FileTranscript: said,
				engine.FileOutcome:    outcome(engine.Outcome{State: engine.Failed, Answer: "So far.", Fault: failed}),
			},
			out: "So far.\n", not: "Read x\nSo far.", fail: "time was up", code: cmdenv.ExitFailure,
		},
		"a worker that is gone": {
			files: map[string]string{
				engine.FileTranscript: said, process.FileState: "{}",
				process.FileSpec: string(jsonrpc.Encode(process.Spec{Version: process.Version})),
			},
			out: "So far.\n", fail: "hint: holdline consult wait " + liveID, code: cmdenv.ExitFailure,
		},
		"files of another version": {
			files: map[string]string{engine.FileOutcome: `{"version":99}`},
			fail:  "another version of Holdline wrote it", code: cmdenv.ExitFailure,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out, report bytes.Buffer
			err := jobFiles(t, tt.files)(t.Context(), &out, io.Discard)
			code := cmdenv.Report(&report, err)
			shown, errs := out.String(), report.String()
			if code != tt.code || !strings.Contains(shown, tt.out) || !strings.Contains(errs, tt.fail) ||
				tt.not != "" && strings.Contains(shown, tt.not) {
				t.Errorf("exit %d, %q\n%s", code, shown, errs)
			}
		})
	}
}

// TestLiveQueued checks that the view of a queued consult says why nothing happens, and that an
// interrupt ends it.
func TestLiveQueued(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	done, show := make(chan error, 1), jobFiles(t, nil)
	go func() { done <- show(ctx, w, io.Discard) }()
	line := make([]byte, 200)
	n, err := r.Read(line)
	if want := "queued; Holdline is not running, and starts it when it runs: holdline start\n"; err != nil ||
		!strings.HasSuffix(string(line[:n]), want) {
		t.Errorf("%q, %v", line[:n], err)
	}
	cancel()
	if err := <-done; err == nil || !strings.Contains(err.Error(), fmt.Sprintf("consult %s goes on", liveID)) {
		t.Errorf("interrupted: %v", err)
	}
}
