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

// oddServer is an MCP server that says, byte for byte, what a test wants it to.
// It offers
//
//	say {text}   answers with text as the result, as it is
//	big {bytes}  answers with a text of so many bytes
//	keep {text}  notes the call and answers, after a while, with text as the result; it only reads
//	turn {}      offers its tools in other words from then on, and says so
//
// a prompt "greet" and a resource "mem://one", which name the server.
type oddServer struct {
	standIn
	turned int
}

// oddServerMain plays the server until the end of its input.
//
//	-name NAME    what its prompt and its resource say
//	-ledger FILE  where each method that it is told is noted, with its process
//	-silent       server/discover is not answered
//	-leaves       server/discover ends the process
//	-pages        the list of tools has no end
//	-mute METHOD  that method is not answered
//	-dies METHOD  that method ends the process
//	-last METHOD  when it has answered that method it kills itself
//	-hush METHOD  that method is not answered the first time
//	-once FILE    -mute, -dies and -last hold for the first process alone: it makes the file
//	-list LIST    what it answers to resources/list
//	-lists DIR    what it answers to tools/list is in the file tools-list there, if
//	              there is one; and so with all methods
//	-refuse WORDS initialize is refused so, and with -leaves that ends the process
//	-says WORDS   what it writes to stderr first
//	-late D       it reads nothing for that long
//	-modern FILE  while there is such a file it knows no initialize, and answers
//	              server/discover
func oddServerMain(args []string, stdin io.Reader, stdout io.Writer) int {
	if len(args) > 0 && args[0] == "stray" {
		return strayServerMain(args[1:])
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
