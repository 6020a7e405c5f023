package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// hostileServer is an MCP server with one tool, misbehave. Its argument names one of
// [hostileWays]. A call made while another one misbehaves may be affected.
type hostileServer struct{ standIn }

// hostileCall has what a way needs: the call's id as it was written, and the token that a
// good answer has.
type hostileCall struct {
	id       json.RawMessage
	token    string
	progress json.RawMessage // the token for progress; of none if the client wants none
}

// hostileWays are the ways to misbehave, by name.
var hostileWays = map[string]func(*hostileServer, hostileCall){
	// Good behaviour, for comparison and so that some calls succeed.
	"answers": (*hostileServer).echo,

	// Too much output.
	"floods with notifications": func(s *hostileServer, c hostileCall) {
		for range 20_000 {
			s.line(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"emergency","data":"` +
				c.token + `"}}`)
		}
		s.echo(c)
	},
	"announces changes without end": func(s *hostileServer, c hostileCall) {
		s.echo(c)
		go func() { // as long as the process lives
			for range time.Tick(2 * time.Millisecond) {
				s.line(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			}
		}()
	},
	"floods with requests": func(s *hostileServer, c hostileCall) {
		for i := range 5_000 {
			s.line(fmt.Sprintf(`{"jsonrpc":"2.0","id":"q%d","method":"roots/list"}`, i))
		}
		s.echo(c)
	},
	"progress without end": func(s *hostileServer, c hostileCall) {
		for i := range 10_000 {
			s.line(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, c.progress, i))
		}
		s.echo(c)
	},
	"answers with a line over the limit": func(s *hostileServer, c hostileCall) {
		s.mu.Lock()
		defer s.mu.Unlock()
		fmt.Fprintf(s.out, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"`, c.id)
		s.fill(66 << 20)
		fmt.Fprint(s.out, "\"}]}}\n")
	},
	"never ends its line": func(s *hostileServer, c hostileCall) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fill(100 << 20)
		select {}
	},
	"floods stderr": func(s *hostileServer, c hostileCall) {
		_, _ = os.Stderr.Write(bytes.Repeat([]byte("no newline here "), 1<<18))
		s.echo(c)
	},

	// Wrong output.
	"prints garbage": func(s *hostileServer, c hostileCall) {
		b := make([]byte, 1<<16)
		for i := range b {
			b[i] = byte(rand.IntN(256))
		}
		s.line(string(b))
		s.line(`{"jsonrpc":"2.0","id":`)
		s.line(`[]`)
		s.line(`{"jsonrpc":"2.0"}`)
		s.echo(c)
	},
	"answers in latin-1": func(s *hostileServer, c hostileCall) {
		s.line(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"caf`+"\xe9"+`"}]}}`,
			c.id))
	},
	"answers with result and error": func(s *hostileServer, c hostileCall) {
		s.line(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{},"error":{"code":1,"message":"both"}}`, c.id))
	},
	"answers with neither": func(s *hostileServer, c hostileCall) {
		s.line(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s}`, c.id))
	},
	"answers twice": func(s *hostileServer, c hostileCall) {
		s.echo(c)
		s.echo(c)
	},
	"answers what nobody asked": func(s *hostileServer, c hostileCall) {
		for i := range 1000 {
			s.line(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}`, 1_000_000+i))
			s.line(fmt.Sprintf(`{"jsonrpc":"2.0","id":"w%d","result":{"content":[]}}`, i))
		}
		s.echo(c)
	},

	// No output.
	"closes stdout": func(s *hostileServer, c hostileCall) { _ = os.Stdout.Close() },
	"closes stdin":  func(s *hostileServer, c hostileCall) { _ = os.Stdin.Close() },
	"stops itself":  func(s *hostileServer, c hostileCall) { _ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) },
	"deadlocks":     func(s *hostileServer, c hostileCall) { s.mu.Lock() },
	"never answers": func(s *hostileServer, c hostileCall) {},

	// The process ends.
	"dies": func(s *hostileServer, c hostileCall) { syscall.Exit(9) },
	"dies in the middle of its line": func(s *hostileServer, c hostileCall) {
		s.mu.Lock()
		fmt.Fprintf(s.out, `{"jsonrpc":"2.0","id":%s,"resu`, c.id)
		syscall.Exit(9)
	},
	"ignores SIGTERM and hangs": func(s *hostileServer, c hostileCall) {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		s.mu.Lock()
	},
	"forks away": func(s *hostileServer, c hostileCall) {
		cmd := exec.Command("sh", "-c", "trap '' TERM INT HUP; exec sleep 600")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		cmd.Stdout, cmd.Stderr = s.out, os.Stderr // stay open after this process has ended
		_ = cmd.Start()
		syscall.Exit(3)
	},
}

// hostileNames are the names of the ways, sorted so that a seed always means the same ones.
var hostileNames = func() []string {
	names := make([]string, 0, len(hostileWays))
	for name := range hostileWays {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}()

// echo answers a call as a server should.
func (s *hostileServer) echo(c hostileCall) { s.answer(c.id, textResult(c.token)) }

// fill writes n bytes of one letter. The caller must hold s.mu.
func (s *hostileServer) fill(n int) {
	piece := bytes.Repeat([]byte("x"), 1<<20)
	for ; n > 0; n -= len(piece) {
		if _, err := s.out.Write(piece); err != nil {
			return
		}
	}
}

// hostileServerMain plays the server until the end of its input.
func hostileServerMain() int {
	s := &hostileServer{standIn{in: os.Stdin, out: os.Stdout, name: "hostile", tools: []string{"misbehave"}}}
	return s.serve(func(m *toolMessage) int {
		switch m.Method {
		case "initialize":
			s.answer(m.ID,
				fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{"tools":{"listChanged":true},"logging":{}},`+
					`"serverInfo":{"name":"hostile","version":"1"}}`, m.Params.Version))
		case "tools/call":
			c := hostileCall{id: m.ID, token: m.Params.Arguments.Token, progress: m.Params.Meta.Progress}
			if c.progress == nil {
				c.progress = m.ID
			}
			go hostileWays[m.Params.Arguments.Method](s, c) // ends with the process at the latest
		default:
			s.reply(m)
		}
		return goOn
	})
}
