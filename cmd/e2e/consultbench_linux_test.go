package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/claude"
	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/protocol/control"
)

// BenchmarkConsult measures a consult whose model answers at once, from the call to its answer,
// beside its program alone, and the memory of the processes of a consult whose program works.
func BenchmarkConsult(b *testing.B) {
	const rounds, rest = 60, 8 * time.Second
	p := newPlace(b)
	p.configure(map[string]any{"e": map[string]any{"command": filepath.Join(programs, "echoserver")}}).daemon()
	a := p.agent().shake()
	prompt := claudetest.Prompt("x", claudetest.Say("an opinion"))
	consult := func() answer {
		x := a.wait(a.call("consult", map[string]any{"prompt": prompt, "render": "json"}))
		if x.Result.IsError || !strings.Contains(x.text(), "an opinion") {
			b.Fatalf("consult: %s", x.raw)
		}
		return x
	}
	argv := p.argvOf(b, consultID(b, consult()))
	alone := func() {
		cmd := p.program("claude", argv[1:]...)
		stdin, err := cmd.StdinPipe()
		if err != nil {
			b.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		run := claude.New(claude.Options{}).NewRun(engine.Request{Prompt: prompt}, engine.Info{})
		_, _ = stdin.Write(run.Begin())
		lines := bufio.NewScanner(stdout)
		for lines.Scan() && !bytes.Contains(lines.Bytes(), []byte(`"type":"result"`)) {
		}
		_ = stdin.Close()
		if err := cmd.Wait(); err != nil || !bytes.Contains(lines.Bytes(), []byte("an opinion")) {
			b.Fatalf("the program alone: %v: %s", err, lines.Bytes())
		}
	}
	var bare, ours, added []float64
	for range rounds {
		begin := time.Now()
		alone()
		between := time.Now()
		consult()
		bare = append(bare, between.Sub(begin).Seconds()*1000)
		ours = append(ours, time.Since(between).Seconds()*1000)
		added = append(added, ours[len(ours)-1]-bare[len(bare)-1])
	}
	record(b, line{
		load: "consult with a model that answers at once, p50", unit: "ms", beside: "the program alone",
		chain: medianOf(bare), holdline: medianOf(ours), ratio: medianOf(quotients(ours, bare)),
	})
	record(b, line{
		load: "what Holdline adds to that, p50", unit: "ms", beside: "the program alone",
		holdline: medianOf(added), goal: goal{most: 30},
	})

	if x := a.wait(a.call("e__echo", map[string]any{"text": "hello"})); x.text() != "hello" {
		b.Fatalf("echo: %s", x.raw)
	}
	hold, open := p.hold(b, "held")
	held := a.call("consult", map[string]any{"prompt": claudetest.Prompt("x", claudetest.Step{
		Text: new("So far so good."), Tool: claudetest.Tool{Name: "Read", Input: map[string]any{"file_path": "main.go"}},
	}, hold, claudetest.Say("an opinion"))})
	p.untilConsultSays(b, "So far so good.")
	worker := map[string]control.Worker{}
	for _, w := range p.status().Workers {
		worker[w.Name] = w
	}
	time.Sleep(rest) // what the start has left over is given back
	record(b, line{
		load: "memory of the adapter of a consult whose program works", unit: "MiB", beside: "a hosted server",
		holdline: meanMiB(b, "Pss", worker["claude"].ChildPID), goal: goal{most: 4},
	})
	record(b, line{
		load: "memory of the worker of that consult", unit: "MiB", beside: "a hosted server",
		chain: meanMiB(b, "Pss", worker["e"].PID), holdline: meanMiB(b, "Pss", worker["claude"].PID), goal: goal{ratio: 1.1},
	})
	b.ReportMetric(meanMiB(b, "Pss_Anon", worker["claude"].ChildPID), "MiB-anonymous/adapter")
	b.ReportMetric(meanMiB(b, "Pss_Anon", worker["claude"].PID), "MiB-anonymous/worker")
	open()
	a.wait(held)
	b.ReportMetric(0, "ns/op")
}

// argvOf returns the command line of the program of a consult.
func (p *place) argvOf(b *testing.B, id string) []string {
	b.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, "home/.local/state/holdline/consults", id, engine.FileTranscript))
	if err != nil {
		b.Fatal(err)
	}
	first, _, _ := bytes.Cut(text, []byte("\n"))
	var start engine.Entry
	if err := json.Unmarshal(first, &start); err != nil || len(start.Argv) == 0 {
		b.Fatalf("no command line in %s: %v", first, err)
	}
	return start.Argv
}
