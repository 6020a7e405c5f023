package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// echoServerMain is an MCP server with one tool, echo, which answers with the given text
// and this many further bytes. It is as fast as a server can be, so that the benchmarks
// measure what is in front of it.
func echoServerMain(stdin io.Reader, stdout io.Writer) int {
	lines := bufio.NewReaderSize(stdin, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return 0
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				ProtocolVersion string
				Arguments       struct {
					Text  string
					Bytes int
				}
			}
		}
		if json.Unmarshal(line, &m) != nil || m.ID == nil {
			continue
		}
		var result []byte
		switch m.Method {
		case "initialize":
			result = fmt.Appendf(nil,
				`{"protocolVersion":%q,"capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}}`,
				m.Params.ProtocolVersion)
		case "tools/list":
			result = []byte(`{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`)
		case "tools/call":
			text, _ := json.Marshal(m.Params.Arguments.Text)
			result = append([]byte(`{"content":[{"type":"text","text":`), text[:len(text)-1]...)
			result = append(result, bytes.Repeat([]byte("x"), m.Params.Arguments.Bytes)...)
			result = append(result, `"}]}`...)
		default:
			_, _ = fmt.Fprintf(stdout,
				`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"not here"}}`+"\n", m.ID)
			continue
		}
		answer := append([]byte(`{"jsonrpc":"2.0","id":`), m.ID...)
		answer = append(append(append(answer, `,"result":`...), result...), "}\n"...)
		if _, err := stdout.Write(answer); err != nil {
			return 1
		}
	}
}

// ways are the paths to the echo server that are compared.
var ways = []string{"direct", "chain", "holdline"}

// echoes returns a place in which the echo server can be reached in every way.
func echoes(b *testing.B) *place {
	b.Helper()
	if memory := "/dev/shm"; exists(memory) { // a user's XDG_RUNTIME_DIR is in memory, too
		b.Setenv("TMPDIR", memory)
	}
	p := newPlace(b)
	echo := filepath.Join(programs, "echoserver")
	p.configure(map[string]any{"e": map[string]any{"command": echo, "holdline": hosting{"scope": "shared"}}}).daemon()
	for _, args := range [][]string{
		{"serve", filepath.Join(p.dir, "worker"), echo},
		{"relay", filepath.Join(p.dir, "relay"), filepath.Join(p.dir, "worker")},
	} {
		cmd := exec.CommandContext(context.WithoutCancel(b.Context()), filepath.Join(programs, "floor"), args...)
		cmd.Env = p.env
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		for deadline := time.Now().Add(waitLimit); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(args[1]); err == nil {
				break
			}
			if time.Now().After(deadline) {
				b.Fatalf("%v does not listen", args)
			}
		}
	}
	return p
}

// echo returns a client of one of the ways, after its handshake and its first call.
func (p *place) echo(way string) (a *agent, tool string) {
	tool = "echo"
	switch way {
	case "direct":
		a = p.agentOf(p.program("echoserver"))
	case "chain":
		a = p.agentOf(p.program("floor", filepath.Join(p.dir, "relay")))
	case "holdline":
		a, tool = p.agent(), "e__echo"
	}
	a.shake()
	a.wait(a.begin("tools/call", map[string]any{"name": tool, "arguments": map[string]any{"text": "first"}}))
	return a, tool
}

// program returns one of the programs in this place's environment.
func (p *place) program(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.WithoutCancel(p.t.Context()), filepath.Join(programs, name), args...)
	cmd.Env = p.env
	return cmd
}

// BenchmarkHosted measures a call of a hosted server's tool, compared with the same server
// on direct stdio, and behind a chain of processes that only copy lines over the same four
// hops. The ways take turns.
func BenchmarkHosted(b *testing.B) {
	p := echoes(b)
	clients, tools := map[string]*agent{}, map[string]string{}
	for _, way := range ways {
		clients[way], tools[way] = p.echo(way)
	}
	ask := func(way string) {
		a := clients[way]
		a.next++
		a.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"text":"hello"}}}`, a.next, tools[way]))
		if line := a.read(); !strings.Contains(line, `"hello"`) {
			b.Fatal(line)
		}
	}
	for range 500 {
		for _, way := range ways {
			ask(way)
		}
	}
	before := p.status().Runtime
	took := map[string][]time.Duration{}
	b.ResetTimer()
	for range b.N {
		for _, way := range ways {
			begin := time.Now()
			ask(way)
			took[way] = append(took[way], time.Since(begin))
		}
	}
	b.StopTimer()
	after := p.status().Runtime
	mid := map[string]float64{}
	for _, way := range ways {
		mid[way] = middle(took[way])
		b.ReportMetric(mid[way], "µs/"+way)
	}
	b.ReportMetric((mid["holdline"]-mid["direct"])/(mid["chain"]-mid["direct"]), "×added/chain")
	b.ReportMetric(float64(after.Allocs-before.Allocs)/float64(b.N), "allocs/daemon")
	b.ReportMetric(float64(after.AllocBytes-before.AllocBytes)/float64(b.N), "B/daemon")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkHostedLarge measures a call whose result has 20 MiB.
func BenchmarkHostedLarge(b *testing.B) {
	p := echoes(b)
	clients, tools := map[string]*agent{}, map[string]string{}
	for _, way := range ways {
		clients[way], tools[way] = p.echo(way)
	}
	took := map[string][]time.Duration{}
	const rounds = 7
	for range rounds {
		for _, way := range ways {
			begin := time.Now()
			a := clients[way]
			a.begin("tools/call",
				map[string]any{"name": tools[way], "arguments": map[string]any{"text": "", "bytes": 20 << 20}})
			if n := len(a.read()); n < 20<<20 {
				b.Fatalf("%d bytes", n)
			}
			took[way] = append(took[way], time.Since(begin))
		}
	}
	mid := map[string]float64{}
	for _, way := range ways {
		mid[way] = middle(took[way])
		b.ReportMetric(mid[way]/1000, "ms/"+way)
	}
	b.ReportMetric(mid["holdline"]/mid["chain"], "×chain")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkHostedMany measures 16 sessions that call at the same time.
func BenchmarkHostedMany(b *testing.B) {
	const sessions = 16
	p := echoes(b)
	rate := map[string]float64{}
	for _, way := range ways {
		clients := make([]*agent, sessions)
		var tool string
		for i := range clients {
			clients[i], tool = p.echo(way)
		}
		var all sync.WaitGroup
		begin := time.Now()
		for _, a := range clients {
			all.Go(func() {
				for n := range b.N {
					fmt.Fprintf(a.stdin,
						`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"text":"hello"}}}`+"\n", n+100, tool)
					<-a.lines
				}
			})
		}
		all.Wait()
		rate[way] = float64(b.N*sessions) / time.Since(begin).Seconds()
		b.ReportMetric(rate[way], "calls/s/"+way)
	}
	b.ReportMetric(rate["holdline"]/rate["chain"], "×chain")
	b.ReportMetric(0, "ns/op")
}
