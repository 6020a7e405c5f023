package e2e

import (
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

var floorBuilt sync.Once

// copier returns the program of cmd/e2e/floor, which only copies or answers lines. It is
// built when it is first needed, as a program of its own: the size and the start of this
// test binary are no measure for anything.
func (p *place) copier(args ...string) *exec.Cmd {
	p.t.Helper()
	floorBuilt.Do(func() {
		cmd := exec.CommandContext(p.t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w",
			"-o", filepath.Join(programs, "floor"), "./floor")
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			p.t.Fatalf("building what only copies: %v\n%s", err, out)
		}
	})
	return p.program("floor", args...)
}

// floor starts a proxy that only copies, before a process that answers each line.
func (p *place) floor(b *testing.B) *agent {
	b.Helper()
	path := filepath.Join(p.dir, "floor")
	if !exists(path) {
		cmd := p.copier("answer", path)
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		p.untilExists(path)
	}
	return p.agentOf(p.copier(path))
}

// untilExists waits for a socket.
func (p *place) untilExists(path string) {
	p.t.Helper()
	for deadline := time.Now().Add(waitLimit); !exists(path); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("nothing listens at %s", path)
		}
	}
}

// middle sorts took and returns its median, in microseconds.
func middle(took []time.Duration) float64 {
	slices.Sort(took)
	return float64(took[len(took)/2].Nanoseconds()) / 1000
}

// BenchmarkPing measures a request that the daemon answers itself, beside a copying proxy
// before a process that answers each line.
func BenchmarkPing(b *testing.B) {
	const rounds, calls = 40, 50
	p := newPlace(b)
	p.daemon()
	floor, proxy := p.floor(b), p.agent().shake()
	took := map[*agent][]float64{}
	for range rounds {
		for _, a := range []*agent{floor, proxy} {
			var round []time.Duration
			for range calls {
				begin := time.Now()
				a.begin("ping", map[string]any{})
				a.read()
				round = append(round, time.Since(begin))
			}
			took[a] = append(took[a], middle(round))
		}
	}
	record(b, line{
		load: "ping, p50", unit: "µs", chain: medianOf(took[floor]), holdline: medianOf(took[proxy]),
		ratio: medianOf(quotients(took[proxy], took[floor])),
	})
}

// BenchmarkStart measures mcp-stdio from its start to its first answer, beside the start of
// a copying proxy, and a command from its start to its end, beside a program that does
// nothing.
func BenchmarkStart(b *testing.B) {
	const rounds = 100
	p := newPlace(b)
	p.daemon()
	took := map[string][]float64{}
	for range rounds {
		for name, start := range map[string]func(){
			"floor": func() { p.firstAnswer(p.floor(b)) }, "mcp-stdio": func() { p.firstAnswer(p.agent()) },
			"nothing": func() { _ = p.copier("nothing").Run() }, "--version": func() { _ = p.command("--version").Run() },
		} {
			begin := time.Now()
			start()
			took[name] = append(took[name], time.Since(begin).Seconds()*1000)
		}
	}
	for _, row := range []struct{ words, floor, ours string }{
		{"start of `mcp-stdio` to its first answer, p50", "floor", "mcp-stdio"},
		{"`holdline --version` from start to end, p50", "nothing", "--version"},
	} {
		record(b, line{
			load: row.words, unit: "ms", chain: medianOf(took[row.floor]), holdline: medianOf(took[row.ours]),
			ratio: medianOf(quotients(took[row.ours], took[row.floor])),
		})
	}
}

// firstAnswer asks a proxy that has just started, and kills it after its answer.
func (p *place) firstAnswer(a *agent) {
	a.begin("ping", map[string]any{})
	a.read()
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait()
}

// BenchmarkLogin measures a call of a remote server with a login, beside one whose token is a
// header of the configuration. Both are the same server.
func BenchmarkLogin(b *testing.B) {
	const rounds, calls = 40, 50
	p, _ := withAndWithoutLogin(b)
	p.daemon()
	a := p.agent().shake()
	took := map[string][]float64{}
	for n := range rounds + 1 {
		for _, server := range []string{"header", "far"} {
			var round []time.Duration
			for range calls {
				begin := time.Now()
				if x := a.wait(a.call(server+"__echo", map[string]any{})); x.text() != "done" {
					b.Fatalf("%s: %s", server, x.raw)
				}
				round = append(round, time.Since(begin))
			}
			if n > 0 { // the first calls begin the sessions with the server
				took[server] = append(took[server], middle(round))
			}
		}
	}
	record(b, line{
		load: "call of a remote server with a login, p50", unit: "µs", beside: "without a login",
		chain: medianOf(took["header"]), holdline: medianOf(took["far"]),
		ratio: medianOf(quotients(took["far"], took["header"])), goal: goal{ratio: 1.1},
	})
}
