package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// wildServer is an MCP server whose output breaks rules. Its tools are
//
//	echo {text}          answers with the text
//	raw {text}           writes the text as a line, with the request's id for $ID and the byte 0xff for $FF
//	end {text}           answers with the text, without a newline, and ends
//	long {bytes, late}   answers with so many bytes; late puts the id behind them
//	half {bytes, late}   the same, but it stops before the end of the line until the file -gate is there
//	drown {count}        sends so many requests and reads nothing more
//	endless {}           writes a line that never ends
//
// With -listing LINE it answers tools/list as raw answers a call.
//
// It notes in -ledger, with its process, the end of what half writes first
// ("half"), and what drown has sent ("drowned").
type wildServer struct {
	ledger, gate, listing string

	in  *bufio.Reader
	out *bufio.Writer
}

// wildMessage is a line of the client.
type wildMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string `json:"name"`
		Arguments struct {
			Text  string `json:"text"`
			Bytes int    `json:"bytes"`
			Late  bool   `json:"late"`
			Count int    `json:"count"`
		} `json:"arguments"`
	} `json:"params"`
}

// wildServerMain plays the server until the end of its input.
func wildServerMain(args []string, stdin io.Reader, stdout io.Writer) int {
	f := flag.NewFlagSet("wildserver", flag.ContinueOnError)
	s := &wildServer{in: bufio.NewReader(stdin), out: bufio.NewWriterSize(stdout, 1<<16)}
	f.StringVar(&s.ledger, "ledger", "", "")
	f.StringVar(&s.gate, "gate", "", "")
	f.StringVar(&s.listing, "listing", "", "")
	if err := f.Parse(args); err != nil {
		return 2
	}
	for {
		line, err := s.in.ReadBytes('\n')
		if err != nil {
			return 0
		}
		var m wildMessage
		if err := json.Unmarshal(line, &m); err != nil {
			return 1
		}
		switch m.Method {
		case "": // an answer
		case "initialize":
			s.answer(m.ID, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"wildserver","version":"1"}}`)
		case "tools/list":
			if s.listing != "" {
				s.raw(m.ID, s.listing)
				continue
			}
			var tools []string
			for _, name := range []string{"echo", "raw", "end", "long", "half", "drown", "endless"} {
				tools = append(tools, fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, name))
			}
			s.answer(m.ID, `{"tools":[`+strings.Join(tools, ",")+`]}`)
		case "tools/call":
			if ends := s.call(&m); ends {
				return 0
			}
		case "ping":
			s.answer(m.ID, `{}`)
		default:
			if m.ID != nil {
				s.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown method"}}`+"\n", m.ID))
			}
		}
	}
}

func (s *wildServer) write(text string) {
	_, _ = s.out.WriteString(text)
	_ = s.out.Flush()
}

func (s *wildServer) answer(id json.RawMessage, result string) {
	s.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", id, result))
}

func (s *wildServer) raw(id json.RawMessage, text string) {
	s.write(strings.NewReplacer("$ID", string(id), "$FF", "\xff").Replace(text) + "\n")
}

// textResult is a result of that text.
func textResult(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return `{"content":[{"type":"text","text":` + string(b) + `}]}`
}

// call does what a tool does, and reports whether the server ends.
func (s *wildServer) call(m *wildMessage) (ends bool) {
	a := &m.Params.Arguments
	switch m.Params.Name {
	case "echo":
		s.answer(m.ID, textResult(a.Text))
	case "raw":
		s.raw(m.ID, a.Text)
	case "end":
		s.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, textResult(a.Text)))
		return true
	case "long", "half":
		head, tail := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"`, m.ID), `"}]}}`
		if a.Late {
			head, tail = `{"result":{"content":[{"type":"text","text":"`, fmt.Sprintf(`"}]},"jsonrpc":"2.0","id":%s}`, m.ID)
		}
		piece := bytes.Repeat([]byte("z"), 1<<16)
		_, _ = s.out.WriteString(head)
		for left := a.Bytes; left > 0; left -= len(piece) {
			_, _ = s.out.Write(piece[:min(left, len(piece))])
		}
		_ = s.out.Flush()
		if m.Params.Name == "half" {
			s.note("half")
			for {
				if _, err := os.Stat(s.gate); err == nil {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		s.write(tail + "\n")
	case "drown":
		for n := range a.Count {
			s.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":"w%d","method":"ping"}`+"\n", n))
		}
		s.note("drowned")
		select {}
	case "endless":
		s.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"res`, m.ID))
		piece := strings.Repeat("z", 1<<16)
		for {
			s.write(piece)
		}
	}
	return false
}

// note appends a line to the ledger.
func (s *wildServer) note(what string) {
	f, err := os.OpenFile(s.ledger, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	fmt.Fprintf(f, "%s %d\n", what, os.Getpid())
}

// wildEntry is the wild server as an entry of the configuration.
func (p *place) wildEntry(h hosting, args ...string) map[string]any {
	return map[string]any{
		"command": filepath.Join(programs, "wildserver"), "args": append([]string{"-ledger", p.effects(), "-gate", p.gate()}, args...), "holdline": h,
	}
}

// gate is the file for which the tool half of the wild server waits.
func (p *place) gate() string { return filepath.Join(p.dir, "gate") }

// wild is a place with a daemon that hosts the wild server for all, and two
// agents.
func (p *place) wild(h hosting) (a, b *agent) {
	p.t.Helper()
	h["scope"] = "shared"
	p.configure(map[string]any{"wild": p.wildEntry(h)}).daemon()
	return p.agent("--identity", "a").shake(), p.agent("--identity", "b").shake()
}

// echoes fails the test if the wild server does not answer an agent.
func (a *agent) echoes(text string) {
	a.t.Helper()
	if x := a.wait(a.call("wild__echo", map[string]any{"text": text})); x.text() != text {
		a.t.Errorf("echo %s: %.300s", text, x.raw)
	}
}
