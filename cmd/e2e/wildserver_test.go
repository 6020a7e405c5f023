package e2e

import (
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
//	end {text}           answers with the text, without a newline, and exits
//	long {bytes, late}   answers with this many bytes; with late the id comes after them
//	half {bytes, late}   the same, but it writes the end of the line only when the file -gate is there
//	drown {count}        sends this many requests, and reads nothing any more
//	endless {}           writes a line that never ends
//
// With -listing LINE it answers tools/list with that line, as raw does. With -murmurs it answers
// a ping with a notification.
//
// In the file -ledger it notes, with its pid, when half has written its first part ("half"),
// and what drown has sent ("drowned").
type wildServer struct {
	standIn
	gate, listing string
	murmurs       bool
}

// wildServerMain plays the server until the end of its input.
func wildServerMain(args []string, stdin io.Reader, stdout io.Writer) int {
	f := flag.NewFlagSet("wildserver", flag.ContinueOnError)
	s := &wildServer{standIn: standIn{
		name: "wildserver", tools: []string{"echo", "raw", "end", "long", "half", "drown", "endless"}, in: stdin,
		out: stdout,
	}}
	f.StringVar(&s.ledger, "ledger", "", "")
	f.StringVar(&s.gate, "gate", "", "")
	f.StringVar(&s.listing, "listing", "", "")
	f.BoolVar(&s.murmurs, "murmurs", false, "")
	if err := f.Parse(args); err != nil {
		return 2
	}
	return s.serve(func(m *toolMessage) int {
		switch {
		case m.Method == "tools/list" && s.listing != "":
			s.raw(m.ID, s.listing)
		case m.Method == "ping" && s.murmurs:
			s.line(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`)
		case m.Method == "tools/call":
			return s.call(m)
		default:
			s.reply(m)
		}
		return goOn
	})
}

func (s *wildServer) raw(id json.RawMessage, text string) {
	s.line(strings.NewReplacer("$ID", string(id), "$FF", "\xff").Replace(text))
}

// call carries out a tool, and returns an exit code if the server ends.
func (s *wildServer) call(m *toolMessage) int {
	a := &m.Params.Arguments
	switch m.Params.Name {
	case "echo":
		s.answer(m.ID, textResult(a.Text))
	case "raw":
		s.raw(m.ID, a.Text)
	case "end":
		s.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, textResult(a.Text)))
		return 0
	case "long", "half":
		head, tail := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"`, m.ID),
			`"}]}}`
		if a.Late {
			head, tail = `{"result":{"content":[{"type":"text","text":"`,
				fmt.Sprintf(`"}]},"jsonrpc":"2.0","id":%s}`, m.ID)
		}
		piece := strings.Repeat("z", 1<<16)
		s.write(head)
		for left := a.Bytes; left > 0; left -= len(piece) {
			s.write(piece[:min(left, len(piece))])
		}
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
		time.Sleep(time.Hour) // select {} would end a process without other goroutines
	case "endless":
		s.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"res`, m.ID))
		piece := strings.Repeat("z", 1<<16)
		for {
			s.write(piece)
		}
	}
	return goOn
}

// wildEntry returns the wild server as an entry of the configuration.
func (p *place) wildEntry(h hosting, args ...string) map[string]any {
	return map[string]any{
		"command": filepath.Join(programs, "wildserver"),
		"args":    append([]string{"-ledger", p.effects(), "-gate", p.gate()}, args...), "holdline": h,
	}
}

// gate returns the path of the file that the tool half of the wild server waits for.
func (p *place) gate() string { return filepath.Join(p.dir, "gate") }

// wild returns two agents of a place whose daemon hosts the wild server for all sessions.
func (p *place) wild(h hosting) (a, b *agent) {
	p.t.Helper()
	h["scope"] = "shared"
	p.configure(map[string]any{"wild": p.wildEntry(h)}).daemon()
	return p.agent("--identity", "a").shake(), p.agent("--identity", "b").shake()
}

// echoes fails the test if the wild server does not answer the agent.
func (a *agent) echoes(text string) {
	a.t.Helper()
	if x := a.wait(a.call("wild__echo", map[string]any{"text": text})); x.text() != text {
		a.t.Errorf("echo %s: %.300s", text, x.raw)
	}
}
