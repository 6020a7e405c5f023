package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
)

// A standIn is what the MCP servers of the tests share: the loop that reads messages, the
// usual answers, and the ledger in which a server notes what it does, with its pid.
type standIn struct {
	name, ledger string
	tools        []string // names that tools/list returns
	in           io.Reader

	mu  sync.Mutex // guards writes to out
	out io.Writer
}

// goOn is returned by a handler after which the server continues. Other numbers are exit
// codes.
const goOn = -1

// serve passes each message to handle until the end of the input, or until handle returns
// an exit code.
func (s *standIn) serve(handle func(*toolMessage) int) int {
	lines := bufio.NewReaderSize(s.in, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return 0
		}
		var m toolMessage
		if err := json.Unmarshal(line, &m); err != nil {
			return 1
		}
		if code := handle(&m); code != goOn {
			return code
		}
	}
}

// reply answers initialize, tools/list and ping, and refuses other requests.
func (s *standIn) reply(m *toolMessage) {
	switch m.Method {
	case "initialize":
		s.answer(m.ID,
			fmt.Sprintf(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":%q,"version":"1"}}`, s.name))
	case "tools/list":
		list := []any{}
		for _, name := range s.tools {
			list = append(list, map[string]any{"name": name, "inputSchema": map[string]any{"type": "object"}})
		}
		b, _ := json.Marshal(map[string]any{"tools": list}) // cannot fail: it has only strings
		s.answer(m.ID, string(b))
	case "ping":
		s.answer(m.ID, `{}`)
	default:
		if m.ID != nil && m.Method != "" {
			s.refuse(m.ID, -32601, "unknown method")
		}
	}
}

func (s *standIn) answer(id json.RawMessage, result string) {
	s.line(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result))
}

func (s *standIn) refuse(id json.RawMessage, code int, message string) {
	s.line(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, id, code, message))
}

// line writes text as a line.
func (s *standIn) line(text string) { s.write(text + "\n") }

// write writes text as it is, also part of a line.
func (s *standIn) write(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = io.WriteString(s.out, text)
}

// note appends a line to the ledger.
func (s *standIn) note(what string) {
	f, err := os.OpenFile(s.ledger, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	fmt.Fprintf(f, "%s %d\n", what, os.Getpid())
}

// isFirst reports whether this process is the first that makes the file at path. Without a
// path it returns true.
func isFirst(path string) bool {
	if path == "" {
		return true
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// textResult returns a result with this text.
func textResult(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return `{"content":[{"type":"text","text":` + string(b) + `}]}`
}
