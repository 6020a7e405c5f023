package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"holdline/protocol/mcp"
)

// eraServer is a strict MCP server of one revision: what its revision does not know is an error,
// and so is what its revision wants and a client leaves out. It notes each of these errors. It offers
//
//	about {}          answers with the version that it speaks, and whether it was introduced
//	echo {text}       answers with the text
//	count {}          reports progress three times, then answers
//	wait {text}       reports progress once, and never answers; it notes if it is cancelled
//	cancelled {text}  answers whether the call of wait with this text was cancelled
//	log {}            logs a message of level info and one of level debug, if the client wants these
//	ask {}            asks the client's user, and answers with the answer
//
// and a prompt "greet" and a resource "mem://one".
type eraServer struct {
	name, revision string // the name is that of its log
	// sessions says that a remote server gives out ids of sessions. One of the modern
	// revision does so, too, as frameworks do that serve both eras; a client must not use it.
	sessions bool
	complain func(text string)

	mu        sync.Mutex
	talks     map[string]*talk            // by the id of a session; guarded by mu
	cancelled map[string]bool             // calls of wait, by their text; guarded by mu
	waiting   map[string]func()           // calls of wait, by id, with what ends them; guarded by mu
	asked     map[string]chan *eraMessage // open requests of the server, by id; guarded by mu
	next      int                         // number of the last session or request; guarded by mu
}

// talk is what a server knows of one client. The server's mutex guards it.
type talk struct {
	introduced  bool
	initialized bool
	level       string
	asks        bool // the client answers questions
}

// eraMessage is a JSON-RPC message.
type eraMessage struct {
	Version string                     `json:"jsonrpc"`
	ID      json.RawMessage            `json:"id"`
	Method  string                     `json:"method"`
	Params  map[string]json.RawMessage `json:"params"`
	Result  json.RawMessage            `json:"result"`
	Error   json.RawMessage            `json:"error"`
}

// text returns a param that is a string.
func (m *eraMessage) text(key string) (s string) {
	_ = json.Unmarshal(m.Params[key], &s)
	return s
}

// object returns a member of the params that is an object.
func (m *eraMessage) object(key string) (o map[string]json.RawMessage) {
	_ = json.Unmarshal(m.Params[key], &o)
	return o
}

// eraMethods has the messages that a client may send, each with its params besides _meta. The first
// word says which revisions know it: - those with a handshake, + the modern one, . all. A param behind
// a + is of the modern one alone; one with an exclamation mark must be there.
var eraMethods = map[string]string{
	"initialize":                       "- protocolVersion! capabilities! clientInfo!",
	"notifications/initialized":        "-",
	"ping":                             "-",
	"notifications/roots/list_changed": "-",
	"logging/setLevel":                 "- level!",
	"resources/subscribe":              "- uri!",
	"resources/unsubscribe":            "- uri!",
	"server/discover":                  "+",
	"subscriptions/listen":             "+ notifications!",
	"notifications/cancelled":          ". requestId! reason",
	"notifications/progress":           "- progressToken! progress! total message",
	"tools/list":                       ". cursor",
	"prompts/list":                     ". cursor",
	"resources/list":                   ". cursor",
	"resources/templates/list":         ". cursor",
	"tools/call":                       ". name! arguments +inputResponses +requestState",
	"prompts/get":                      ". name! arguments +inputResponses +requestState",
	"resources/read":                   ". uri! +inputResponses +requestState",
}

// isModern reports whether the server has no handshake.
func (s *eraServer) isModern() bool { return s.revision == mcp.Modern }

// asks reports whether the server's revision knows elicitation.
func (s *eraServer) asks() bool { return s.revision >= "2025-06-18" }

// mistake returns what is wrong with a message in this revision, or "".
func (s *eraServer) mistake(m *eraMessage, of talk) string {
	if m.Version != "2.0" {
		return "no JSON-RPC 2.0"
	}
	if m.Method == "" {
		return "" // an answer; see [eraServer.answered]
	}
	words := strings.Fields(eraMethods[m.Method])
	if len(words) == 0 || words[0] == "-" && s.isModern() || words[0] == "+" && !s.isModern() {
		return "no method of " + s.revision
	}
	known := map[string]bool{"_meta": true}
	for _, word := range words[1:] {
		word, ofModern := strings.CutPrefix(word, "+")
		word, must := strings.CutSuffix(word, "!")
		known[word] = !ofModern || s.isModern()
		if must && m.Params[word] == nil {
			return "no " + word
		}
	}
	for key := range m.Params {
		if !known[key] {
			return "no param of " + s.revision + ": " + key
		}
	}
	if why := s.metaMistake(m); why != "" {
		return why
	}
	if m.Method == "initialize" {
		return initializeMistake(m, of)
	}
	if !s.isModern() && (!of.introduced || !of.initialized && m.ID != nil && m.Method != "ping") {
		return "before the end of the handshake"
	}
	return ""
}

// metaMistake is [eraServer.mistake] for the _meta of a message.
func (s *eraServer) metaMistake(m *eraMessage) string {
	meta := m.object("_meta")
	if !s.isModern() {
		for key := range meta {
			if strings.HasPrefix(key, "io.modelcontextprotocol/") {
				return "no key of " + s.revision + " in _meta: " + key
			}
		}
		return ""
	}
	if m.ID == nil {
		return ""
	}
	for _, key := range []string{mcp.MetaVersion, mcp.MetaCapabilities, mcp.MetaClient} {
		if meta[key] == nil {
			return "lacks in _meta: " + key
		}
	}
	if string(meta[mcp.MetaVersion]) != `"`+mcp.Modern+`"` {
		return "another version in _meta: " + string(meta[mcp.MetaVersion])
	}
	return ""
}

// initializeMistake is [eraServer.mistake] for an initialize: what it declares has to be known in the
// version that it asks for.
func initializeMistake(m *eraMessage, of talk) string {
	version := m.text("protocolVersion")
	known := map[string]string{
		"experimental": "2024-11-05", "roots": "2024-11-05", "sampling": "2024-11-05",
		"elicitation": "2025-06-18", "tasks": "2025-11-25",
	}
	for key := range m.object("capabilities") {
		if since := known[key]; since == "" || since > version {
			return "no capability of " + version + ": " + key
		}
	}
	if !slices.Contains(mcp.Legacy(), version) && version != "2025-03-26" {
		return "asks for the version " + version
	}
	if of.introduced {
		return "a second initialize"
	}
	return ""
}

// handle carries out one message of a client, and returns when it is done with it. done is closed when
// the client has gone away from a request. out writes a message to that client; it is not called for a
// request that was cancelled.
func (s *eraServer) handle(m *eraMessage, of *talk, done <-chan struct{}, out func(line string)) {
	s.mu.Lock()
	now := *of
	s.mu.Unlock()
	learn := func(what func()) {
		s.mu.Lock()
		defer s.mu.Unlock()
		what()
	}
	if why := s.mistake(m, now); why != "" {
		if m.Method != "server/discover" && (m.Method != "initialize" || !s.isModern()) { // questions for the era
			s.complain(m.Method + ": " + why)
		}
		if m.ID != nil {
			out(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":%q}}`, m.ID, why))
		}
		return
	}
	answer := func(result string) {
		if s.isModern() && !strings.Contains(result, `"resultType"`) {
			result = `{"resultType":"complete",` + result[1:]
		}
		out(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result))
	}
	list := func(result string) {
		if s.isModern() {
			result = `{"ttlMs":0,"cacheScope":"private",` + result[1:]
		}
		answer(result)
	}
	const capabilities = `{"tools":{},"prompts":{},"resources":{},"logging":{}}`
	const info = `{"name":"eraserver","version":"1"}`
	switch m.Method {
	case "":
		s.answered(m)
	case "server/discover":
		list(fmt.Sprintf(`{"supportedVersions":[%q],"capabilities":%s,"serverInfo":%s}`, s.revision, capabilities, info))
	case "initialize":
		learn(func() { of.introduced, of.asks = true, m.object("capabilities")["elicitation"] != nil })
		answer(fmt.Sprintf(`{"protocolVersion":%q,"capabilities":%s,"serverInfo":%s}`, s.revision, capabilities, info))
	case "notifications/initialized":
		learn(func() { of.initialized = true })
	case "notifications/cancelled":
		s.cancel(string(m.Params["requestId"]))
	case "ping", "resources/subscribe", "resources/unsubscribe":
		answer(`{}`)
	case "logging/setLevel":
		learn(func() { of.level = m.text("level") })
		answer(`{}`)
	case "subscriptions/listen":
		out(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{},`+
			`"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, m.ID))
		<-done
	case "tools/list":
		var tools []string
		for _, name := range []string{"echo", "count", "wait", "cancelled", "log", "ask"} {
			tools = append(tools, fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, name))
		}
		tools = append(tools, `{"name":"about","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`)
		list(`{"tools":[` + strings.Join(tools, ",") + `]}`)
	case "prompts/list":
		list(`{"prompts":[{"name":"greet"}]}`)
	case "prompts/get":
		answer(`{"messages":[{"role":"user","content":{"type":"text","text":"prompt of ` + s.revision + `"}}]}`)
	case "resources/list":
		list(`{"resources":[{"name":"one","uri":"mem://one"}]}`)
	case "resources/templates/list":
		list(`{"resourceTemplates":[]}`)
	case "resources/read":
		list(`{"contents":[{"uri":"mem://one","text":"resource of ` + s.revision + `"}]}`)
	case "tools/call":
		s.call(m, now, done, out, answer)
	}
}

// call carries out a call of a tool.
func (s *eraServer) call(m *eraMessage, of talk, done <-chan struct{}, out, answer func(string)) {
	say := func(text string) { answer(fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, text)) }
	meta := m.object("_meta")
	var text string
	_ = json.Unmarshal(m.object("arguments")["text"], &text)
	switch m.text("name") {
	case "about":
		say(fmt.Sprintf("%s %v", s.revision, s.isModern() || of.initialized))
	case "echo":
		say(text)
	case "count":
		if meta["progressToken"] == nil {
			s.complain("count: no progressToken")
		}
		for i := 1; i <= 3; i++ {
			out(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":3}}`,
				meta["progressToken"], i))
		}
		say("counted")
	case "wait":
		end := make(chan struct{})
		s.mu.Lock()
		s.waiting[string(m.ID)] = sync.OnceFunc(func() { close(end) })
		s.mu.Unlock()
		out(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`,
			meta["progressToken"]))
		if !s.isModern() { // a connection that ends is no cancellation
			done = nil
		}
		select {
		case <-end:
		case <-done:
		}
		s.mu.Lock()
		s.cancelled[text] = true
		delete(s.waiting, string(m.ID))
		s.mu.Unlock()
	case "cancelled":
		s.mu.Lock()
		was := s.cancelled[text]
		s.mu.Unlock()
		say(fmt.Sprint(was))
	case "log":
		level := of.level
		if s.isModern() {
			_ = json.Unmarshal(meta[mcp.MetaLevel], &level)
		}
		for _, at := range []string{"info", "debug"} {
			if level == "debug" || level == at {
				out(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":%q,"logger":%q,"data":"said"}}`,
					at, s.name))
			}
		}
		say("logged at " + level)
	case "ask":
		s.ask(m, of, out, answer, say)
	default:
		s.complain("a call of " + m.text("name"))
	}
}

// question is what the server asks the user.
const question = `{"message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}`

// ask asks the user of the client, in the way of the server's revision.
func (s *eraServer) ask(m *eraMessage, of talk, out, answer, say func(string)) {
	var can map[string]json.RawMessage
	_ = json.Unmarshal(m.object("_meta")[mcp.MetaCapabilities], &can)
	responses := m.object("inputResponses")
	switch {
	case !s.asks():
		say("this revision knows no questions")
	case s.isModern() && responses["q"] != nil:
		say("asked: " + string(responses["q"]))
	case s.isModern() && can["elicitation"] != nil:
		answer(`{"resultType":"input_required","requestState":"s","inputRequests":{"q":{"method":"elicitation/create","params":` +
			question + `}}}`)
	case s.isModern() || !of.asks:
		say("the client has no user")
	default:
		heard := make(chan *eraMessage, 1)
		s.mu.Lock()
		s.next++
		id := fmt.Sprintf(`"ask-%d"`, s.next)
		s.asked[id] = heard
		s.mu.Unlock()
		out(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"elicitation/create","params":%s}`, id, question))
		select {
		case a := <-heard:
			if a.Error != nil && strings.Contains(string(a.Error), "-32601") {
				say("the client has no user")
				return
			}
			say("asked: " + string(a.Result) + string(a.Error))
		case <-time.After(waitLimit):
			say("nobody answered")
		}
	}
}

// answered takes the answer to a question.
func (s *eraServer) answered(m *eraMessage) {
	s.mu.Lock()
	heard := s.asked[string(m.ID)]
	delete(s.asked, string(m.ID))
	s.mu.Unlock()
	if heard == nil {
		s.complain("an answer to nothing: " + string(m.ID))
		return
	}
	heard <- m
}

// cancel ends a call of wait. Other calls may be over already.
func (s *eraServer) cancel(id string) {
	s.mu.Lock()
	end := s.waiting[id]
	s.mu.Unlock()
	if end != nil {
		end()
	}
}

// newEraServer returns a server that has heard nothing yet.
func newEraServer(name, revision string, sessions bool, complain func(text string)) *eraServer {
	return &eraServer{
		name: name, revision: revision, sessions: sessions, complain: complain,
		talks: map[string]*talk{}, cancelled: map[string]bool{}, waiting: map[string]func(){}, asked: map[string]chan *eraMessage{},
	}
}

// eraServerMain plays a server by stdio until the end of its input. The arguments are its name, its
// revision, and a directory in which it leaves a file for each mistake of its client.
func eraServerMain(args []string, stdin io.Reader, stdout io.Writer) int {
	var mu sync.Mutex
	mistakes := 0
	s := newEraServer(args[0], args[1], true, func(text string) {
		mu.Lock()
		defer mu.Unlock()
		mistakes++
		file := fmt.Sprintf("%d-%d", os.Getpid(), mistakes)
		_ = os.WriteFile(filepath.Join(args[2], file), []byte(args[0]+": "+text), 0o600)
	})
	of := &talk{}
	in := bufio.NewReader(stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return 0
		}
		var m eraMessage
		if err := json.Unmarshal(line, &m); err != nil {
			s.complain("no message: " + string(line))
			continue
		}
		out := func(line string) {
			if s.revision == "2025-03-26" { // which has batches
				line = "[" + line + "]"
			}
			mu.Lock()
			defer mu.Unlock()
			_, _ = io.WriteString(stdout, line+"\n")
		}
		if m.Method == "tools/call" { // all else is over at once
			go s.handle(&m, of, nil, out)
			continue
		}
		if m.Method == "subscriptions/listen" {
			go s.handle(&m, of, make(chan struct{}), out)
			continue
		}
		s.handle(&m, of, nil, out)
	}
}

// ServeHTTP plays the remote server.
func (s *eraServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	wrong := func(status int, text string) {
		s.complain(r.Method + ": " + text)
		http.Error(w, text, status)
	}
	switch r.Method {
	case http.MethodPost:
	case http.MethodDelete:
		if !s.sessions || s.isModern() {
			wrong(http.StatusMethodNotAllowed, "there is no session to end")
		}
		return
	default: // it says nothing unasked
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var m eraMessage
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		wrong(http.StatusBadRequest, "the body is no message: "+err.Error())
		return
	}
	if !s.isModern() && m.Method == "server/discover" { // a question for the era
		http.Error(w, "Bad Request: no valid session ID provided", http.StatusBadRequest)
		return
	}
	if s.isModern() && m.Method == "initialize" {
		http.Error(w, "Bad Request: unknown method", http.StatusBadRequest)
		return
	}
	of, err := s.talkOf(w, r, &m)
	if err != nil {
		wrong(http.StatusBadRequest, m.Method+": "+err.Error())
		return
	}
	if m.ID == nil || m.Method == "" {
		s.handle(&m, of, r.Context().Done(), func(string) {})
		w.WriteHeader(http.StatusAccepted)
		return
	}
	streams := m.Method == "tools/call" || m.Method == "subscriptions/listen"
	w.Header().Set("Content-Type", "application/json")
	if streams {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
	}
	s.handle(&m, of, r.Context().Done(), func(line string) {
		if s.revision == "2025-03-26" {
			line = "[" + line + "]"
		}
		if streams {
			line = "data: " + line + "\n\n"
		}
		_, _ = io.WriteString(w, line)
		_ = http.NewResponseController(w).Flush()
	})
}

// talkOf checks the headers of a request, and returns what the server knows of its client.
func (s *eraServer) talkOf(w http.ResponseWriter, r *http.Request, m *eraMessage) (*talk, error) {
	want := map[string]string{}
	version := func() {
		if s.revision >= "2025-06-18" { // which brought the header
			want["Mcp-Protocol-Version"] = s.revision
		}
	}
	of := &talk{introduced: true, initialized: true, asks: true} // without a session it can only believe
	switch {
	case s.isModern():
		version()
		want["Mcp-Method"] = m.Method
		if name := m.text("name") + m.text("uri"); name != "" {
			want["Mcp-Name"] = name
		}
		if s.sessions {
			w.Header().Set("Mcp-Session-Id", "not-for-clients-of-"+s.revision)
		}
	case m.Method == "initialize":
		of = &talk{}
		s.mu.Lock()
		s.next++
		if id := fmt.Sprintf("session-%d", s.next); s.sessions {
			s.talks[id] = of
			w.Header().Set("Mcp-Session-Id", id)
		}
		s.mu.Unlock()
	case s.sessions:
		version()
		id := r.Header.Get("Mcp-Session-Id")
		s.mu.Lock()
		of = s.talks[id]
		s.mu.Unlock()
		if of == nil {
			return nil, fmt.Errorf("no session %q", id)
		}
		want["Mcp-Session-Id"] = id
	default:
		version()
	}
	got := map[string]string{}
	for name := range r.Header {
		if strings.HasPrefix(name, "Mcp-") || name == "Last-Event-Id" {
			got[name] = r.Header.Get(name)
		}
	}
	accept := r.Header.Get("Accept")
	switch {
	case !maps.Equal(got, want):
		return nil, fmt.Errorf("headers %v, want %v", got, want)
	case !strings.Contains(accept, "application/json") || !strings.Contains(accept, "text/event-stream"):
		return nil, errors.New("Accept: " + accept)
	case r.Header.Get("Content-Type") != "application/json":
		return nil, errors.New("Content-Type: " + r.Header.Get("Content-Type"))
	}
	return of, nil
}
