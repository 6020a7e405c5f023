package proxy

import (
	"bytes"
	"encoding/json"
	"os"
	"time"

	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// kind sorts the client's lines by what the store must remember of them.
type kind uint8

const (
	kindOther kind = iota // a notification, or a line that gets no answer
	kindRequest
	kindInitialize
	kindInitialized
	kindLevel
	kindSubscribe
	kindUnsubscribe
	kindListen // its answer comes when the stream ends: the proxy does not wait for it
	kindCancel
	kindResponse
)

// spill is the file in which a long line lies. The line that the daemon gets names it.
type spill struct {
	file *os.File // nil if the line is in memory
	dir  string   // the runtime directory in which it is
	sum  uint32   // of its bytes, see [bulk.Sum]
}

// entry is a line of the client, with what the proxy has to know of it.
type entry struct {
	n    int64         // ordinal, from 1
	came time.Duration // reading of the boot clock when the client had sent it
	kind kind
	line []byte // with its newline; nil once it is not needed any more
	size int    // bytes of line that count as held
	spill

	id  jsonrpc.ID // of a request, as spelled
	key string     // of id
	uri string     // of a subscription, or key of the request that a cancel names

	op     string // for the fault record: method, and name of the tool; see describe
	modern bool   // the request is of the modern era; see describe

	unclear  bool   // no message: by its id alone it is a request, or an answer to a server's one
	call     bool   // of a tool: it may have an effect
	calling  bool   // a call that was handed to a connection, and is pending
	sent     bool   // handed to a connection, perhaps not whole
	pending  bool   // the client waits for the answer
	standing bool   // replayed for its effect although answered
	ended    bool   // a subscribe: a later unsubscribe has succeeded
	unseen   bool   // a response that the daemon has not confirmed
	shared   bool   // used without the store's lock: it must not become another line's entry
	next     *entry // pending under the same id, younger
}

// key is equal for equal ids. Unlike [jsonrpc.ID.Key] it decodes only strings
// that have an escape in them.
func key(id jsonrpc.ID) string {
	if len(id) > 1 && id[0] == '"' && bytes.IndexByte(id, '\\') < 0 {
		return "s" + string(id[1:len(id)-1])
	}
	return id.Key()
}

// newEntry returns the entry of a line, which has its newline.
func newEntry(line []byte) *entry {
	e := &entry{line: line}
	_, _ = e.read()
	return e
}

// reset makes e, which nothing refers to, the entry of no line. It keeps what memory e has.
func (e *entry) reset() { *e = entry{line: e.line[:0], id: e.id[:0]} }

// read reads e's line as the daemon will read it. It returns the line's message.
func (e *entry) read() (m jsonrpc.Message, err error) {
	m, err = e.parse()
	if m.ID != nil {
		e.id = append(e.id, m.ID...)
	}
	switch {
	case m.Kind == jsonrpc.Response: // the server gets an error for one that cannot be read
		e.kind = kindResponse
		return m, err
	case err != nil && m.ID == nil:
	case err != nil: // the refusal bears the id
		e.kind, e.unclear = kindRequest, m.Kind == 0
	case m.Kind == jsonrpc.Request:
		e.kind, e.call = requestKind(m.Method), m.Method == mcp.ToolsCall
		if e.kind == kindSubscribe || e.kind == kindUnsubscribe {
			params, _ := mcp.ParseParams(m.Params) // the daemon refuses what cannot be read
			e.uri, _ = mcp.String(params.URI)
		}
	case m.Method == "notifications/initialized":
		e.kind = kindInitialized
	case m.Method == "notifications/cancelled":
		e.kind = kindCancel
		if id := jsonrpc.Field(m.Params, "requestId"); id != nil {
			e.uri = key(jsonrpc.ID(id))
		}
	}
	if m.ID != nil {
		e.key = key(m.ID)
	}
	return m, err
}

// parse returns the message of e's line.
func (e *entry) parse() (jsonrpc.Message, error) {
	return jsonrpc.Parse(bytes.TrimRight(e.line, "\r\n"))
}

// describe sets op and modern from e's line. It must be called before the line of a request is
// freed that may yet be answered with a fault.
func (e *entry) describe() {
	if e.op == "" && e.kind != kindResponse {
		e.describeAs(e.parse())
	}
}

// describeAs is describe with the result of parse. For a response neither is used.
func (e *entry) describeAs(m jsonrpc.Message, err error) {
	if err != nil {
		e.op = "jsonrpc.message"
		return
	}
	params, _ := mcp.ParseParams(m.Params)
	e.op, e.modern = operation(m.Method, params.Name), params.Meta.Version != nil
}

// requestKind returns the kind of a request. Kinds matter for what a resume repeats.
func requestKind(method string) kind {
	switch method {
	case "initialize":
		return kindInitialize
	case "logging/setLevel":
		return kindLevel
	case "resources/subscribe":
		return kindSubscribe
	case "resources/unsubscribe":
		return kindUnsubscribe
	case "subscriptions/listen":
		return kindListen
	}
	return kindRequest
}

// operation names a request in a fault record, within limits.
func operation(method string, name json.RawMessage) string {
	const most = 160
	op := method
	if op == mcp.ToolsCall {
		if name, _ := mcp.String(name); name != "" {
			op += ":" + name
		}
	}
	if len(op) > most {
		op = op[:most]
	}
	return op
}
