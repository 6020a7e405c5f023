package runner_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/adapter/engine/messages"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
	"holdline/protocol/programtest"
)

func do(what string) string { return claudetest.Prompt("x", claudetest.Step{Do: what}) }

// slow returns a prompt whose answer takes long and comes in pieces.
func slow() string {
	return claudetest.Prompt("x", claudetest.Step{Text: new(strings.Repeat("word ", 1000)), Chunk: 5, ChunkDelay: 0.05})
}

// TestAnyClient runs an engine with the official SDK's client, which begins with
// initialize. It lists the one tool, calls it with progress and cancels a call; the process
// still answers afterwards.
func TestAnyClient(t *testing.T) {
	t.Parallel()
	progress := make(chan string, 1000)
	client := sdk.NewClient(&sdk.Implementation{Name: "any", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			progress <- r.Params.Message
		},
	})
	s, err := client.Connect(t.Context(), &sdk.CommandTransport{Command: command(t, "claude", "")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	list, err := s.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 1 || list.Tools[0].Name != engine.Tool {
		t.Fatalf("tools %+v, err %v", list, err)
	}
	call := func(ctx context.Context, args map[string]any) (*sdk.CallToolResult, error) {
		p := &sdk.CallToolParams{Name: engine.Tool, Arguments: args}
		p.SetProgressToken("p")
		return s.CallTool(ctx, p)
	}
	res, err := call(t.Context(), map[string]any{"prompt": "hello"})
	if err != nil || res.IsError || res.Content[0].(*sdk.TextContent).Text != "fake answer: hello" {
		t.Fatalf("result %+v, err %v", res, err)
	}
	if got := <-progress; got != "started" {
		t.Errorf("first progress %q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancelled := make(chan error, 1)
	go func() {
		_, err := call(ctx, map[string]any{"prompt": slow()})
		cancelled <- err
	}()
	for note := ""; !strings.HasPrefix(note, "writing"); note = <-progress {
	}
	cancel()
	if err := <-cancelled; !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled call: %v", err)
	}
	if res, err := call(t.Context(), map[string]any{"prompt": " "}); err != nil || !res.IsError {
		t.Errorf("a blank prompt: %+v, err %v", res, err)
	}
	if res, err := call(t.Context(), map[string]any{"prompt": "again"}); err != nil || res.IsError {
		t.Errorf("a further call: %+v, err %v", res, err)
	}
}

// TestModern speaks the protocol version that has no handshake.
func TestModern(t *testing.T) {
	t.Parallel()
	h := newHost(t, true, "claude", "")
	meta := map[string]any{"_meta": map[string]any{mcp.MetaVersion: mcp.Modern}}
	h.send(1, mcp.Discover, meta)
	if m := h.next(""); !slices.Contains(m.Result.Versions, mcp.Modern) || m.Result.ResultType != "complete" {
		t.Errorf("discover: %+v", m.Result)
	}
	h.send(2, mcp.ToolsList, meta)
	if m := h.next(""); len(m.Result.Tools) != 1 || m.Result.ResultType != "complete" {
		t.Errorf("tools: %+v", m.Result)
	}
	h.send(3, mcp.ToolsList, map[string]any{"_meta": map[string]any{mcp.MetaVersion: "2031-01-01"}})
	if m := h.next(""); m.Error == nil || m.Error.Code != mcp.CodeVersion {
		t.Errorf("another version: %+v", m)
	}
	h.send(4, "resources/list", meta)
	if m := h.next(""); m.Error == nil || m.Error.Code != -32601 {
		t.Errorf("an unknown method: %+v", m)
	}
	h.run(5, map[string]any{"prompt": "x", "dir": t.TempDir()})
	if m := h.next(""); m.Result.Outcome.Fault == nil || m.Result.Outcome.Fault.Fault.Code != fault.InvalidInput {
		t.Errorf("files without a worker: %+v", m.Result)
	}
	h.run(6, map[string]any{"prompt": "hello"})
	// The call in flight must be answered all the same.
	if err := h.in.Close(); err != nil {
		t.Fatal(err)
	}
	if m := h.next(""); m.Result.Outcome.Answer != "fake answer: hello" || m.Result.Outcome.State != engine.Done {
		t.Errorf("outcome %+v", m.Result.Outcome)
	}
	if left := h.wait(); len(left) != 0 {
		t.Errorf("further answers: %+v", left)
	}
}

// TestTemporaryDirectory checks that a run by hand removes the temporary directory that it has
// made, and leaves one alone that the call names.
func TestTemporaryDirectory(t *testing.T) {
	t.Parallel()
	made, named := t.TempDir(), t.TempDir()
	own := filepath.Join(named, "file")
	if err := os.WriteFile(own, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h := newHost(t, true, "claude", "", "TMPDIR="+made)
	for id, args := range []map[string]any{{"prompt": "hello"}, {"prompt": "hello", "temp": named}} {
		h.run(id+1, args)
		if m := h.next(""); m.Result.Outcome.State != engine.Done {
			t.Errorf("%v: %+v", args, m.Result)
		}
	}
	if err := h.in.Close(); err != nil {
		t.Fatal(err)
	}
	h.wait()
	if left, err := os.ReadDir(made); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, err := os.Stat(own); err != nil {
		t.Error(err)
	}
}

// TestJob runs jobs to each of their endings: outcome.json equals the result line, the
// transcript begins with its start line, and the process exits by itself after its one
// call.
func TestJob(t *testing.T) {
	t.Parallel()
	short := patient()
	short.Leave, short.Grace = time.Second, 100*time.Millisecond
	unanswered, unheeded := short, short
	unanswered.Best, unheeded.Interrupt = 300*time.Millisecond, 300*time.Millisecond
	for _, tt := range []struct {
		name   string
		prompt string
		args   map[string]any
		state  engine.State
		code   fault.Code
		answer string
		why    engine.Why
	}{
		{name: "an answer", prompt: "hello", state: engine.Done, answer: "fake answer: hello"},
		{
			name: "deadline, then the best answer", prompt: do("hang"), args: map[string]any{"timeout_ms": 500},
			state: engine.Done, answer: "fake answer: ", why: engine.Deadline,
		},
		{
			name: "deadline, and no best answer", prompt: do("stubborn"),
			args:  map[string]any{"timeout_ms": 500, "ladder": unanswered},
			state: engine.Failed, code: fault.Timeout, why: engine.Deadline,
		},
		{
			name: "deadline, and nothing heeded", prompt: do("deaf"),
			args:  map[string]any{"timeout_ms": 500, "ladder": unheeded},
			state: engine.Failed, code: fault.Timeout, why: engine.Deadline,
		},
		{name: "killed", prompt: do("die"), state: engine.Failed, code: fault.ProcessFailure},
		{name: "garbage", prompt: do("garbage"), state: engine.Failed, code: fault.DownstreamFailure},
		{name: "half a line", prompt: do("half"), state: engine.Failed, code: fault.DownstreamFailure},
		{
			name: "too much output", prompt: claudetest.Prompt("x", claudetest.Step{Do: "flood", N: 20}),
			state: engine.Failed, code: fault.DownstreamFailure, why: engine.Overflow,
		},
		{
			name: "too long a line", prompt: claudetest.Prompt("x", claudetest.Step{Do: "flood-line", N: 40}),
			state: engine.Failed, code: fault.DownstreamFailure, why: engine.Overflow,
		},
		{
			name:   "a process left behind",
			prompt: claudetest.Prompt("x", claudetest.Step{Do: "grandchild"}, claudetest.Say("done")),
			state:  engine.Done, answer: "done",
		},
		{
			name: "directory gone", prompt: "x", args: map[string]any{"cwd": "/no/such/directory"},
			state: engine.Failed, code: fault.InvalidInput,
		},
		{
			name: "no progress", prompt: do("hang"), args: map[string]any{"ladder": stalling(short)},
			state: engine.Done, answer: "fake answer: ", why: engine.Stalled,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			id := "job" + filepath.Base(filepath.Dir(dir))
			// In production the worker ends these.
			t.Cleanup(func() {
				for _, pid := range programsOf(t, id, 0) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			})
			h := newHost(t, true, "claude", id)
			args := map[string]any{"prompt": tt.prompt, "dir": dir, "ladder": short}
			maps.Copy(args, tt.args)
			h.run(1, args)
			answers := h.wait()
			if len(answers) != 1 {
				t.Fatalf("%d answers", len(answers))
			}
			line, file := answers[0].Result.Outcome, outcomeOf(t, dir)
			if string(jsonrpc.Encode(line)) != string(jsonrpc.Encode(file)) {
				t.Errorf("the line says %s\nthe file %s", jsonrpc.Encode(line), jsonrpc.Encode(file))
			}
			code := fault.Code("")
			if file.Fault != nil {
				code = file.Fault.Fault.Code
			}
			if file.State != tt.state || code != tt.code || !strings.HasPrefix(file.Answer, tt.answer) ||
				file.Why != tt.why {
				t.Errorf("outcome %s", jsonrpc.Encode(file))
			}
			if answers[0].Result.IsError != (file.Fault != nil) {
				t.Errorf("isError %t", answers[0].Result.IsError)
			}
			said, err := engine.ReadTranscript(dir)
			if err != nil || !said.Began || said.Start.Level == "" || len(said.Start.Argv) == 0 {
				t.Errorf("transcript %+v, err %v", said, err)
			}
		})
	}
}

// patient returns a ladder whose steps end with what the program does, however slow the
// machine is: a program reads its prompt before the interrupt that follows it.
func patient() engine.Ladder {
	l := engine.DefaultLadder()
	l.Interrupt, l.Best = waitLimit, waitLimit
	return l
}

// stalling returns a ladder for programs that make no progress.
func stalling(l engine.Ladder) engine.Ladder {
	l.Stall = 500 * time.Millisecond
	return l
}

// soFar is what programs say before the cancellation of TestCancelJob.
const soFar = "so far"

// saidThen returns a prompt whose program says [soFar], uses a tool and takes the steps.
func saidThen(steps ...claudetest.Step) string {
	return claudetest.Prompt("x", append([]claudetest.Step{
		{Text: new(soFar), Tool: claudetest.Tool{Name: "Read"}},
	}, steps...)...)
}

// cancelRow is a phase of a run in which a job is cancelled.
type cancelRow struct {
	prompt func(heard string) string // for a program that notes what it hears in that file
	ladder func(l *engine.Ladder)
	ms     int64 // the run's time; 0 for enough

	kind, text string // of the transcript line to wait for
	heard      string // what the program must have heard then; "" for nothing
	held       bool   // it has exited, and the engine process is held there until it is cancelled
	saysOther  bool   // the program has not said soFar yet
	leaves     bool   // it leaves a process behind, which the worker ends in production
}

// cancelRows are all phases of a run.
var cancelRows = map[string]cancelRow{
	"while the program begins": {
		prompt: func(string) string { return slow() }, kind: engine.KindStart, saysOther: true,
	},
	"while it writes": {prompt: func(string) string {
		return saidThen(claudetest.Step{Text: new(strings.Repeat("word ", 1000)), Chunk: 5, ChunkDelay: 0.05})
	}, kind: engine.KindPiece, text: "word"},
	"while it hangs": {
		prompt: func(string) string { return saidThen(claudetest.Step{Do: "hang"}) }, kind: engine.KindTool,
	},
	"while it heeds nothing": {
		prompt: func(string) string { return saidThen(claudetest.Step{Do: "deaf"}) }, kind: engine.KindTool,
	},
	"interrupting": {prompt: deafThen, ms: 3000, kind: engine.KindLadder, text: "time is up", heard: "interrupt"},
	"best": {
		prompt: func(string) string { return saidThen(claudetest.Step{Do: "stubborn"}) }, ms: 3000,
		kind: engine.KindLadder, text: "best answer",
	},
	"closing": {
		prompt: deafThen, ladder: func(l *engine.Ladder) { l.Interrupt, l.Grace = 1, waitLimit },
		ms: 3000, kind: engine.KindLadder, text: "ending the program", heard: "end",
	},
	"terminating": {
		// Without the cancellation SIGKILL would come as long after SIGTERM.
		prompt: deafThen, ladder: func(l *engine.Ladder) { l.Interrupt, l.Grace = 1, 2*waitLimit/3 },
		ms: 3000, kind: engine.KindLadder, text: "ending the program", heard: "SIGTERM",
	},
	"killing": {
		prompt: deafThen, ladder: func(l *engine.Ladder) { l.Interrupt, l.Grace = 1, 1 },
		ms: 3000, kind: engine.KindLadder, text: "ending the program", held: true,
	},
	"leaving": {
		prompt: func(string) string { return saidThen(claudetest.Step{Do: "linger"}, claudetest.Say(soFar)) },
		ladder: func(l *engine.Ladder) { l.Leave = waitLimit }, kind: engine.KindTurn,
	},
	"drained": {
		prompt: func(string) string { return saidThen(claudetest.Step{Do: "grandchild"}, claudetest.Say(soFar)) },
		kind:   engine.KindTurn, held: true, leaves: true,
	},
}

// deafThen returns the prompt of a program that says soFar and then heeds nothing.
func deafThen(heard string) string {
	return saidThen(claudetest.Step{Do: "hear", Message: heard}, claudetest.Step{Do: "deaf"})
}

// TestCancelJob cancels a job in each phase of its run. There is no result line, outcome.json
// has the text so far, and soon no process of the program is left.
func TestCancelJob(t *testing.T) {
	t.Parallel()
	slow := slowness(t)
	for name, row := range cancelRows {
		for _, how := range []string{"notification", "SIGTERM"} {
			if row.held && how == "SIGTERM" {
				continue // nothing tells when it has arrived
			}
			t.Run(name+" by "+how, func(t *testing.T) {
				t.Parallel()
				row.cancel(t, how, slow)
			})
		}
	}
}

// slowness returns by which factor this machine is slow now: an idle one has 1.
func slowness(t *testing.T) int {
	t.Helper()
	begin := time.Now()
	h := newHost(t, true, "claude", "")
	h.run(1, map[string]any{"prompt": "hello"})
	h.next("")
	return 1 + int(time.Since(begin)/(500*time.Millisecond))
}

// cancel cancels one job, by a notification or SIGTERM.
func (row cancelRow) cancel(t *testing.T, how string, slow int) {
	t.Helper()
	dir := t.TempDir()
	id := "cancel" + filepath.Base(filepath.Dir(dir))
	t.Cleanup(func() {
		for _, pid := range programsOf(t, id, 0) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	home, held := t.TempDir(), ""
	cwd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	heard := filepath.Join(claudetest.Writable(home, cwd), "heard") // where the program may write
	if row.held {
		held = filepath.Join(t.TempDir(), "held")
	}
	h := newHost(t, true, "claude", id, "HOME="+home, envHeld+"="+held)
	ladder := patient()
	if row.ladder != nil {
		row.ladder(&ladder)
	}
	args := map[string]any{"prompt": row.prompt(heard), "dir": dir, "ladder": ladder}
	if row.ms > 0 {
		args["timeout_ms"] = row.ms * int64(slow)
	}
	h.run(1, args)
	transcriptHas(t, dir, row.kind, row.text)
	await(t, "what the program hears: "+row.heard, func() bool {
		b, _ := os.ReadFile(heard)
		return row.heard == "" || strings.Contains(string(b), row.heard)
	})
	if row.held {
		await(t, "the program's exit", func() bool { _, err := os.Stat(held); return err == nil })
	}
	begin := time.Now()
	if how == "SIGTERM" {
		_ = h.cmd.Process.Signal(syscall.SIGTERM)
	} else {
		h.send(0, mcp.CancelledNote, map[string]any{"requestId": 1})
	}
	if row.held {
		h.send(2, mcp.Ping, map[string]any{})
		h.next("") // so the cancellation was read
		if err := os.Remove(held); err != nil {
			t.Fatal(err)
		}
	}
	if answers := h.wait(); len(answers) != 0 {
		t.Errorf("a cancelled call was answered: %+v", answers)
	}
	if took := time.Since(begin); took > waitLimit/2 { // the steps that are cancelled take longer
		t.Errorf("it took %v", took)
	}
	out := outcomeOf(t, dir)
	if out.State != engine.Aborted || out.Fault == nil || out.Fault.Fault.Code != fault.Cancelled ||
		!row.saysOther && !strings.Contains(out.Answer, soFar) {
		t.Errorf("outcome %s", jsonrpc.Encode(out))
	}
	if left := programsOf(t, id, 0); len(left) != 0 && !row.leaves {
		t.Errorf("processes left: %v", left)
	}
}

// TestKilled kills the engine process. The program gets its parent-death signal, there is
// no outcome, and the transcript has the text so far.
func TestKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	id := "killed" + filepath.Base(filepath.Dir(dir))
	h := newHost(t, true, "claude", id)
	h.run(1, map[string]any{"prompt": slow(), "dir": dir})
	transcriptHas(t, dir, engine.KindPiece, "word")
	if len(programsOf(t, id, h.cmd.Process.Pid)) == 0 {
		t.Error("no program runs")
	}
	_ = h.cmd.Process.Kill()
	h.wait()
	await(t, "the program's end", func() bool { return len(programsOf(t, id, 0)) == 0 })
	if _, err := os.Stat(filepath.Join(dir, engine.FileOutcome)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an outcome: %v", err)
	}
	said, err := engine.ReadTranscript(dir)
	if err != nil || !said.Began || said.Session == "" || !strings.Contains(said.Text, "word") {
		t.Errorf("transcript %+v, err %v", said, err)
	}
}

// TestParentLost kills the parent of an engine process, which is no worker, and closes its stdin. The
// run is cancelled, what was said is kept, and the program ends, also where no signal tells of the
// death of a parent.
func TestParentLost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	id := "lost" + filepath.Base(filepath.Dir(dir))
	cmd := command(t, "claude", id)
	cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `"$@"; :`, "sh", cmd.Path}, cmd.Args[1:]...)
	cmd.SysProcAttr, cmd.WaitDelay = &syscall.SysProcAttr{Setpgid: true}, waitLimit
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	h := &host{t: t, cmd: cmd, in: in}
	h.run(1, map[string]any{"prompt": saidThen(claudetest.Step{Do: "deaf"}), "dir": dir, "ladder": patient()})
	transcriptHas(t, dir, engine.KindTool, "")
	_ = cmd.Process.Kill()
	_ = in.Close()
	_ = cmd.Wait() // also until the engine process has closed its stderr, so it has ended
	if out := outcomeOf(t, dir); out.State != engine.Aborted || !strings.Contains(out.Answer, soFar) {
		t.Errorf("outcome %s", jsonrpc.Encode(out))
	}
	if left := programsOf(t, id, 0); len(left) != 0 {
		t.Errorf("processes left: %v", left)
	}
}

// TestNeverRead has a client that never reads stdout. The run's deadline and its outcome
// are on time nevertheless.
func TestNeverRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := newHost(t, false, "claude", "unread")
	h.run(1, map[string]any{
		"prompt": claudetest.Prompt("x",
			claudetest.Step{Text: new(strings.Repeat("x", 1<<20)), Tool: claudetest.Tool{Name: "Read"}},
			claudetest.Step{Do: "hang"}),
		"timeout_ms": 1500, "dir": dir, "ladder": patient(),
	})
	transcriptHas(t, dir, engine.KindLadder, "time is up")
	transcriptHas(t, dir, engine.KindEnd, "")
	await(t, "the outcome", func() bool {
		_, err := os.Stat(filepath.Join(dir, engine.FileOutcome))
		return err == nil
	})
	if out := outcomeOf(t, dir); out.State != engine.Done || !out.Partial {
		t.Errorf("outcome %s", jsonrpc.Encode(out))
	}
}

// TestFullDisk checks that without a transcript no program is started, and that the result
// line is complete even if outcome.json cannot be written.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	gone := filepath.Join(t.TempDir(), "gone")
	h := newHost(t, true, "claude", "disk1")
	h.run(1, map[string]any{"prompt": "x", "dir": gone})
	if a := h.wait(); len(a) != 1 || a[0].Result.Outcome.Fault == nil || a[0].Result.Outcome.Exit != "" {
		t.Errorf("without a transcript: %+v", a)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, engine.FileOutcome), 0o700); err != nil {
		t.Fatal(err)
	}
	h = newHost(t, true, "claude", "disk2")
	h.run(1, map[string]any{"prompt": "hello", "dir": dir})
	a := h.wait()
	if len(a) != 1 || a[0].Result.Outcome.Answer != "fake answer: hello" {
		t.Fatalf("without an outcome: %+v", a)
	}
	if got := a[0].Result.Outcome.Unwritten; !slices.Equal(got, []string{engine.FileOutcome}) {
		t.Errorf("unwritten %q, want the outcome", got)
	}
}

// TestUnknownVersion checks that a call of a version that this program does not know is
// refused by its number. No program is started, nothing is written, and the process ends: its
// daemon would wait for it.
func TestUnknownVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := newHost(t, true, "claude", "version")
	h.run(1, map[string]any{"version": 99, "prompt": "x", "dir": dir})
	a := h.wait()
	if len(a) != 1 || a[0].Result.Outcome.Fault == nil {
		t.Fatalf("answers %+v, want a fault", a)
	}
	f := a[0].Result.Outcome.Fault.Fault
	if f.Code != fault.InvalidInput || !strings.Contains(f.Detail, "version: 99 is not known") {
		t.Errorf("fault %+v, want one that names the version", f)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it wrote %v, %v", left, err)
	}
}

// TestSecrets checks that values set in the configuration appear in no answer, no file, no progress
// and no fault.
func TestSecrets(t *testing.T) {
	t.Parallel()
	const secret = "planted-secret-value"
	dir := t.TempDir()
	h := newHost(t, true, "claude", "secrets", "PLANTED="+secret)
	h.run(1, map[string]any{
		"prompt": claudetest.Prompt("x",
			claudetest.Step{
				Text: new("it is " + secret),
				Tool: claudetest.Tool{Name: "Read", Input: map[string]any{"file_path": secret}},
			},
			claudetest.Step{Do: "exit", N: 3}),
		"dir": dir, "mask": []string{"PLANTED"},
	})
	progress := h.next(mcp.ProgressNote)
	answers := h.wait()
	if len(answers) != 1 || !strings.Contains(answers[0].Result.Outcome.Answer, "it is ***") ||
		strings.Contains(string(jsonrpc.Encode(answers[0].Result.Outcome)), secret) {
		t.Errorf("the answer is not masked: %+v", answers)
	}
	b, err := os.ReadFile(filepath.Join(dir, engine.FileTranscript))
	if err != nil || strings.Contains(string(b), secret) || !strings.Contains(string(b), "it is ***") {
		t.Errorf("transcript %s, err %v", b, err)
	}
	if strings.Contains(progress.Params.Message, secret) {
		t.Errorf("progress %+v", progress)
	}
}

// TestOnce checks that the process of a job refuses a second call.
func TestOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := newHost(t, true, "claude", "once")
	h.run(1, map[string]any{"prompt": do("hang"), "dir": dir})
	transcriptHas(t, dir, engine.KindSession, "")
	h.run(2, map[string]any{"prompt": "x", "dir": dir})
	if m := h.next(""); string(m.ID) != "2" || m.Error == nil {
		t.Errorf("a second call: %+v", m)
	}
	h.send(0, mcp.CancelledNote, map[string]any{"requestId": 1})
	if a := h.wait(); len(a) != 0 {
		t.Errorf("answers %+v", a)
	}
}

// TestCodex runs a program that reads its prompt to the end of its stdin, cannot
// be interrupted, and takes its schema from a file.
func TestCodex(t *testing.T) {
	t.Parallel()
	bin := filepath.Join(t.TempDir(), "codex")
	script := `#!/bin/sh
echo '{"type":"thread.started","thread_id":"T"}'
while [ "$1" ] && [ "$1" != --output-schema ]; do shift; done
read line
case $line in
hang) sleep 100;;
esac
printf '{"type":"item.completed","item":{"type":"agent_message","text":"{\\"said\\":\\"%s %s\\"}"}}\n' "$line" "$(wc -c <"$2")"
echo '{"type":"turn.completed","usage":{"input_tokens":3,"output_tokens":2}}'
`
	programtest.Write(t, bin, script)
	program := engine.Info{
		Path: bin, Version: "0.169.0", Levels: []engine.Level{{Name: engine.LevelRead, EnforcedBy: engine.BySandbox}},
	}
	h := newHost(t, true, "codex", "")
	begin := time.Now()
	h.run(1, map[string]any{"prompt": "hello\n", "program": program, "schema": map[string]any{"type": "object"}})
	if out := h.next("").Result.Outcome; out.State != engine.Done || out.Answer != `{"said":"hello 17"}` ||
		out.Session != "T" {
		t.Errorf("outcome %s", jsonrpc.Encode(out))
	}
	// The program must have told its session by then, also on a slow machine.
	timeout := 3000 + 10*time.Since(begin).Milliseconds()
	h.run(2, map[string]any{"prompt": "hang\n", "program": program, "timeout_ms": timeout})
	if out := h.next("").Result.Outcome; out.State != engine.Failed || out.Why != engine.Deadline ||
		out.Session != "T" {
		t.Errorf("outcome %s", jsonrpc.Encode(out))
	}
}

// TestMessageJustBeforeProgramEnds_NextStartHasIt says something to a program that reads no messages just
// before it ends. Its last output comes behind its end, as it may with any program.
func TestMessageJustBeforeProgramEnds_NextStartHasIt(t *testing.T) {
	t.Parallel()
	dir, open := t.TempDir(), filepath.Join(t.TempDir(), "open")
	bin := filepath.Join(t.TempDir(), "codex")
	programtest.Write(t, bin, `#!/bin/sh
echo '{"type":"thread.started","thread_id":"T"}'
read line
while [ ! -e '`+open+`' ]; do sleep 0.01; done
(
	sleep 0.3
	printf '{"type":"item.completed","item":{"type":"agent_message","text":"to %s"}}\n' "$line"
	echo '{"type":"turn.completed","usage":{"input_tokens":3,"output_tokens":2}}'
) &
`)
	program := engine.Info{
		Path: bin, Version: "0.169.0", Levels: []engine.Level{{Name: engine.LevelRead, EnforcedBy: engine.BySandbox}},
	}
	h := newHost(t, true, "codex", "once", envLinger+"="+waitLimit.String())
	h.run(1, map[string]any{"prompt": "first\n", "program": program, "dir": dir})
	transcriptHas(t, dir, engine.KindSession, "")
	if err := messages.Add(dir, messages.Message{ID: "m", Text: "second\n"}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(open, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.wait()
	if out := outcomeOf(t, dir); out.State != engine.Done || out.Answer != "to second" {
		t.Errorf("outcome %s", jsonrpc.Encode(out))
	}
	transcriptHas(t, dir, engine.KindHeard, "")
}

// TestRepositoryNamesAFilter_ProgramsGitDoesNotRunIt has a program that asks git what has changed,
// as Codex does at its start, in a repository whose configuration names a filter.
func TestRepositoryNamesAFilter_ProgramsGitDoesNotRunIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ran, trap, bin := filepath.Join(dir, "ran"), filepath.Join(dir, "trap"), filepath.Join(dir, "codex")
	programtest.Write(t, trap, "#!/bin/sh\n: >"+ran+"\nexit 1\n")
	programtest.Write(t, bin, `#!/bin/sh
git status >/dev/null 2>&1
printf '{"type":"thread.started","thread_id":"T"}\n{"type":"item.completed","item":{"type":"agent_message","text":"%s"}}\n' \
	"$(git status --porcelain | tr -d '\n')"
echo '{"type":"turn.completed","usage":{}}'
`)
	project := filepath.Join(dir, "project")
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", project}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b",
			"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %s %v", args, out, err)
		}
	}
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	if err := os.Mkdir(project, 0o700); err != nil {
		t.Fatal(err)
	}
	git("init", "-q")
	for _, text := range []string{"first\n", "third\n"} { // of one length: git reads the file
		if err := os.WriteFile(filepath.Join(project, "one"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if text == "first\n" {
			git("add", ".")
			git("commit", "-q", "-m", "one")
		}
	}
	if err := os.WriteFile(filepath.Join(project, ".git/info/attributes"), []byte("* filter=x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	git("config", "filter.x.clean", trap)
	program := engine.Info{
		Path: bin, Version: "0.171.0", Levels: []engine.Level{{Name: engine.LevelRead, EnforcedBy: engine.BySandbox}},
	}
	h := newHost(t, true, "codex", "")
	h.run(1, map[string]any{"prompt": "hello\n", "program": program, "cwd": project})
	if out := h.next("").Result.Outcome; out.State != engine.Done || !strings.Contains(out.Answer, "M one") {
		t.Errorf("outcome %s", jsonrpc.Encode(out))
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the filter ran")
	}
	git("status")
	if _, err := os.Stat(ran); err != nil {
		t.Error("control: the filter does not run without the guard either")
	}
}

// TestDirectoryBecameALink_ProgramIsNotStartedThere has a job whose directory was replaced by a link
// while it was queued.
func TestDirectoryBecameALink_ProgramIsNotStartedThere(t *testing.T) {
	t.Parallel()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(base+"/home", 0o700), os.Symlink("home", base+"/project")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(base+"/other", 0o700); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(base + "/other")
	if err != nil {
		t.Fatal(err)
	}
	other := engine.DirectoryOf(info)
	for _, dirs := range []map[string]any{
		{"cwd": base + "/project"},
		{"cwd": base + "/home", "add_dirs": []string{base + "/project"}},
		{"cwd": base + "/home", "held": []engine.Directory{other}},
		{"cwd": base + "/other", "add_dirs": []string{base + "/home"}, "held": []engine.Directory{other, other}},
		{"cwd": base + "/project/../home/../project"},
	} {
		h := newHost(t, true, "claude", "swapped")
		dirs["prompt"], dirs["dir"] = "hello", t.TempDir()
		h.run(1, dirs)
		if f := h.next("").Result.Outcome.Fault; f == nil || f.Fault.Code != fault.Denied {
			t.Errorf("%v: fault %+v, want denied", dirs, f)
		}
	}
}

// TestLevelByNothing checks that a run is refused, and its program not started, if the
// engine does not say what enforces its level.
func TestLevelByNothing(t *testing.T) {
	t.Parallel()
	bin, mark := filepath.Join(t.TempDir(), "claude"), filepath.Join(t.TempDir(), "ran")
	programtest.Write(t, bin, "#!/bin/sh\n: >"+mark+"\n")
	program := engine.Info{Path: bin, Version: "2.1.329", Levels: []engine.Level{{Name: engine.LevelRead}}}
	h := newHost(t, true, "claude", "")
	h.run(1, map[string]any{"prompt": "hello\n", "program": program})
	if f := h.next("").Result.Outcome.Fault; f == nil || f.Fault.Code != fault.Denied {
		t.Errorf("fault %+v, want denied", f)
	}
	if _, err := os.Stat(mark); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the program ran: %v", err)
	}
}
