package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/config"
	"holdline/daemon/servertable"
)

// ownServers are four servers of npm, by name, each with a call that changes nothing.
var ownServers = []struct{ name, tool, args string }{
	{"memory", "read_graph", `{}`},
	{"everything", "echo", `{"message":"x"}`},
	{"sequential-thinking", "sequentialthinking", `{"thought":"x","nextThoughtNeeded":false,"thoughtNumber":1,"totalThoughts":1}`},
	{"filesystem", "list_allowed_directories", `{}`},
}

// household is a place whose agents have those servers, as people write them: by npx -y.
type household struct {
	*place
	projects []string
}

// newHousehold makes one with two projects. npm has its packages in the cache of the tests.
func newHousehold(b *testing.B) *household {
	b.Helper()
	cache := filepath.Join(e2eCache(b), "npm-of-bench")
	if err := os.MkdirAll(cache, 0o700); err != nil {
		b.Fatal(err)
	}
	h := &household{place: newPlace(b)}
	h.env = append(h.env, "npm_config_cache="+cache, "npm_config_update_notifier=false", "npm_config_prefer_offline=true")
	for _, name := range []string{"a", "b"} {
		dir := filepath.Join(h.dir, name)
		if err := os.MkdirAll(filepath.Join(dir, ".git"), 0o700); err != nil {
			b.Fatal(err)
		}
		h.projects = append(h.projects, dir)
	}
	return h
}

// npxArgs are the arguments of npx that start a server.
func (h *household) npxArgs(name string) []string {
	args := []string{"-y", "@modelcontextprotocol/server-" + name + "@" + referenceVersion}
	if name == "filesystem" {
		args = append(args, h.dir)
	}
	return args
}

// in is a program of an agent that works in a project.
func (h *household) in(project int, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(h.t.Context(), name, args...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = h.env, h.projects[project], 5*time.Second
	return cmd
}

// byItself starts an agent's own servers, and returns once each has answered a call.
func (h *household) byItself(project int) (servers []*agent) {
	for _, s := range ownServers {
		servers = append(servers, h.agentOf(h.in(project, "npx", h.npxArgs(s.name)...)))
	}
	for i, s := range ownServers {
		servers[i].shakeAs("claude-code").ask("tools/list", map[string]any{})
		servers[i].ask("tools/call", map[string]any{"name": s.tool, "arguments": json.RawMessage(s.args)})
	}
	return servers
}

// through starts an agent that has the servers through Holdline, and returns once each has answered a call.
func (h *household) through(project int, client string) *agent {
	a := h.agentOf(h.in(project, filepath.Join(programs, "holdline"), "mcp-stdio"))
	a.shakeAs(client).ask("tools/list", map[string]any{})
	var ids []int
	for _, s := range ownServers {
		ids = append(ids, a.begin("tools/call", map[string]any{"name": s.name + "__" + s.tool, "arguments": json.RawMessage(s.args)}))
	}
	for range ids {
		a.read()
	}
	return a
}

// memory is what all processes of the place take together, in MiB.
func (h *household) memory() (total float64) {
	time.Sleep(6 * time.Second) // what the start has left over is given back
	for pid := range h.processes() {
		total += pss(h.t, pid) / 1024
	}
	return total
}

// BenchmarkDefault measures what one agent and three agents with four servers of npm take and wait for, by
// themselves, and through Holdline with the configuration that setup writes, when they have run in their projects once.
func BenchmarkDefault(b *testing.B) {
	b.ReportMetric(0, "ns/op")
	agents := []struct {
		project int
		client  string
	}{{0, "claude-code"}, {1, "claude-code"}, {0, "codex-mcp-client"}}

	h := newHousehold(b)
	end(h.byItself(0)) // fills npm's cache
	var starts []float64
	own := map[int]float64{} // by how many agents
	var all []*agent
	for i, a := range agents {
		begin := time.Now()
		all = append(all, h.byItself(a.project)...)
		starts = append(starts, time.Since(begin).Seconds())
		own[i+1] = h.memory()
	}
	alone := starts[0]
	end(all)

	for _, shared := range []bool{false, true} {
		h := newHousehold(b)
		servers := map[string]any{}
		for _, s := range ownServers {
			args := h.npxArgs(s.name)
			scope, _ := servertable.Choose(servertable.Entry{Command: "npx", Args: args}) // as setup does
			if shared {
				scope = config.ScopeShared
			}
			entry := map[string]any{"command": "npx", "args": args}
			if scope != config.ScopeProject {
				entry["holdline"] = hosting{"scope": scope, "keep_alive": "10m"} // which is the default
			}
			servers[s.name] = entry
		}
		h.configure(servers)
		// What npx starts in a directory is known once it has run there.
		warm := []*agent{h.through(0, "claude-code"), h.through(1, "claude-code")}
		time.Sleep(5 * time.Second) // it is looked for in the background
		end(warm)
		h.stopForNow("--all")
		var all []*agent
		for i, a := range agents {
			all = append(all, h.through(a.project, a.client))
			words := map[int]string{1: "one agent, memory of everything", 3: "three agents in two projects, memory of everything"}[i+1]
			goals := map[int]float64{1: 0.55, 3: 0.35}
			if shared && i == 2 {
				words, goals[3] = "three agents in two projects, every server shared, memory of everything", 0.22
			} else if shared {
				words = ""
			}
			if words != "" {
				record(b, line{
					load: words, unit: "MiB", beside: "their own servers", chain: own[i+1], holdline: h.memory(), goal: goal{ratio: goals[i+1]},
				})
			}
		}
		if shared {
			end(all)
			h.stopForNow("--all")
			continue
		}
		h.afterCrash(b, all[0])
		end(all)
		time.Sleep(20 * time.Second)
		h.startOf(b, "20 s after its last run", alone, 0.10)
		for pid := range h.processes() {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended with another one
		}
		waitFor(b, "the end of everything", func() bool { return len(h.processes()) == 0 })
		h.startOf(b, "nothing running", alone, 0.70)
		h.stopForNow("--all")
	}
}

// startOf records how long an agent waits until its servers have answered, and ends it.
func (h *household) startOf(b *testing.B, when string, alone, ratio float64) {
	b.Helper()
	begin := time.Now()
	a := h.through(0, "claude-code")
	record(b, line{
		load: "start of an agent until its four servers have answered, " + when, unit: "s", beside: "its own servers", chain: alone,
		holdline: time.Since(begin).Seconds(), goal: goal{ratio: ratio},
	})
	end([]*agent{a})
}

// memoryServer returns the pid of the server of that name, which all projects share, or 0.
func (h *household) memoryServer() int {
	for _, w := range h.status().Workers {
		if w.Name == "memory" && w.State == "ready" {
			return w.ChildPID
		}
	}
	return 0
}

// afterCrash records how long a crashed server takes to answer again.
func (h *household) afterCrash(b *testing.B, a *agent) {
	b.Helper()
	var took []float64
	for range 3 {
		pid := h.memoryServer()
		if pid == 0 {
			b.Fatal("the server does not run")
		}
		begin := time.Now()
		kill9(b, pid)
		waitFor(b, "an answer of the next process", func() bool {
			next := h.memoryServer()
			x := a.ask("tools/call", map[string]any{"name": "memory__read_graph", "arguments": map[string]any{}})
			return next != 0 && next != pid && strings.Contains(x.raw, "entities")
		})
		took = append(took, time.Since(begin).Seconds())
	}
	record(b, line{load: "a crashed npx server serves again", unit: "s", holdline: medianOf(took), goal: goal{most: 0.35}})
}
