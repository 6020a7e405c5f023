package e2e

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// oddServer is an MCP server that answers with exactly the bytes that a test gives it. It
// offers
//
//	say {text}   answers with text as the result, unchanged
//	big {bytes}  answers with a text of this many bytes
//	keep {text}  notes the call and answers, after a while, with text as the result; it is read-only
//	turn {}      from then on lists its tools with another text, and notifies the client
//
// and a prompt "greet" and a resource "mem://one", which have the server's name in them.
type oddServer struct {
	standIn
	turned int
}

// oddServerMain plays the server until the end of its input.
//
//	-name NAME    name in its prompt and its resource
//	-ledger FILE  file in which it notes each method that it gets, with its pid
//	-silent       does not answer server/discover
//	-leaves       exits at server/discover
//	-pages        its list of tools has no end
//	-mute METHOD  does not answer this method
//	-dies METHOD  exits at this method
//	-last METHOD  kills itself after it has answered this method
//	-hush METHOD  does not answer this method the first time
//	-once FILE    -mute, -dies and -last apply only to the first process, which makes the file
//	-list LIST    answer to resources/list
//	-lists DIR    directory of files with answers: tools-list for tools/list, and so on
//	-refuse WORDS refuses initialize with these words, and with -leaves exits then
//	-says WORDS   writes this to stderr first
//	-late D       reads nothing for this time
//	-modern FILE  while there is such a file, knows no initialize, and answers server/discover
func oddServerMain(args []string, stdin io.Reader, stdout io.Writer) int {
	if len(args) > 0 && args[0] == "stray" {
		return strayServerMain(args[1:])
	}
	if len(args) > 0 && args[0] == "case" {
		return caseServerMain(args[1:], stdin, stdout)
	}
	f := flag.NewFlagSet("oddserver", flag.ContinueOnError)
	s := &oddServer{standIn: standIn{in: stdin, out: stdout}}
	f.StringVar(&s.name, "name", "odd", "")
	f.StringVar(&s.ledger, "ledger", "", "")
	silent, leaves, pages := f.Bool("silent", false, ""), f.Bool("leaves", false, ""), f.Bool("pages", false, "")
	mute, list, lists := f.String("mute", "", ""), f.String("list", "", ""), f.String("lists", "", "")
	dies, once := f.String("dies", "", ""), f.String("once", "", "")
	last, hush := f.String("last", "", ""), f.String("hush", "", "")
	late, modern := f.Duration("late", 0, ""), f.String("modern", "", "")
	refuse, says := f.String("refuse", "", ""), f.String("says", "", "")
	if err := f.Parse(args); err != nil {
		return 2
	}
	fmt.Fprint(os.Stderr, *says)
	time.Sleep(*late)
	_, err := os.Stat(*modern)
	isModern := err == nil
	if !isFirst(*once) {
		*mute, *dies, *last = "", "", ""
	}
	page := 0
	return s.serve(func(m *toolMessage) int {
		s.note(m.Method)
		switch {
		case m.Method == *dies:
			fmt.Fprintln(os.Stderr, "Traceback of odd\nOddError: out of paper")
			return 9
		case m.ID == nil, m.Method == *mute:
		case m.Method == *hush:
			*hush = ""
		case m.Method == "resources/list" && *list != "":
			s.answer(m.ID, *list)
		case prepared(*lists, m.Method) != "":
			s.answer(m.ID, prepared(*lists, m.Method))
		case m.Method == "server/discover" && isModern:
			s.answer(m.ID,
				`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"serverInfo":{"name":"oddserver","version":"2"},"ttlMs":0,"cacheScope":"private"}`)
		case m.Method == "initialize" && *refuse != "":
			s.refuse(m.ID, -32000, *refuse)
			if *leaves {
				return 0
			}
		case m.Method == "initialize" && isModern:
			s.refuse(m.ID, -32601, "what?")
		case m.Method == "server/discover" && *silent:
		case m.Method == "server/discover" && *leaves && *refuse == "":
			return 9
		case m.Method == "tools/list" && *pages:
			page++
			s.answer(m.ID,
				fmt.Sprintf(`{"tools":[{"name":"t%d","inputSchema":{"type":"object"}}],"nextCursor":"%d"}`, page, page))
		case m.Method == "tools/call":
			s.call(m)
		default:
			s.tell(m)
		}
		if m.Method == *last {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return goOn
	})
}

// prepared returns the answer to a method that is in a directory; "" if there is none.
func prepared(dir, method string) string {
	b, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(method, "/", "-")))
	if dir == "" || err != nil {
		return ""
	}
	return string(b)
}

// tell handles all messages but calls.
func (s *oddServer) tell(m *toolMessage) {
	results := map[string]string{
		"initialize": `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"prompts":{},"resources":{}},` +
			`"serverInfo":{"name":"oddserver","version":"1"}}`,
		"tools/list": fmt.Sprintf(`{"tools":[{"name":"say","inputSchema":{"type":"object"}},{"name":"big","inputSchema":{"type":"object"}},`+
			`{"name":"keep","description":"turned %d","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},`+
			`{"name":"turn","inputSchema":{"type":"object"}}]}`, s.turned),
		"prompts/list":             `{"prompts":[{"name":"greet"}]}`,
		"prompts/get":              fmt.Sprintf(`{"messages":[{"role":"user","content":{"type":"text","text":"prompt of %s"}}]}`, s.name),
		"resources/list":           `{"resources":[{"name":"one","uri":"mem://one"}]}`,
		"resources/templates/list": `{"resourceTemplates":[]}`,
		"resources/read":           fmt.Sprintf(`{"contents":[{"uri":"mem://one","text":"resource of %s"}]}`, s.name),
	}
	if r := results[m.Method]; r != "" {
		s.answer(m.ID, r)
		return
	}
	s.reply(m)
}

// call carries out a tool call.
func (s *oddServer) call(m *toolMessage) {
	a := &m.Params.Arguments
	switch m.Params.Name {
	case "say":
		s.answer(m.ID, a.Text)
	case "big":
		s.answer(m.ID, `{"content":[{"type":"text","text":"`+strings.Repeat("y", a.Bytes)+`"}]}`)
	case "keep":
		s.note("keep")
		time.Sleep(200 * time.Millisecond) // so that equal calls overlap
		s.answer(m.ID, a.Text)
	case "turn":
		s.turned++
		s.line(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		s.answer(m.ID, `{"content":[]}`)
	}
}
