package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// TestServerRefusesTheVersionItAgreedTo_NextCommonOne has servers that agree to a version at initialize and refuse
// it in the header of later messages, in several words. The client speaks the next version that the server
// names, and each message arrives once, in the header's version.
func TestServerRefusesTheVersionItAgreedTo_NextCommonOne(t *testing.T) {
	hello := strings.Replace(helloLine, "2025-06-18", "2025-11-25", 1)
	for name, x := range map[string]struct {
		takes    []string // versions in the header; "" for none
		says     string   // with the header's version for %s
		sessions bool
		insists  bool   // answers the newest version to each initialize
		want     string // version of the header with which the call arrives; "-" if it does not
	}{
		"names others": {
			[]string{"2025-06-18"}, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: ` +
				`Unsupported protocol version: %s (supported versions: 2025-06-18, 2025-03-26)"}}`, true, false, "2025-06-18",
		},
		"names others as text":    {[]string{"2025-06-18"}, "unsupported version %s, use 2025-06-18", true, false, "2025-06-18"},
		"names others as data":    {[]string{"2025-06-18"}, `{"error":"bad version","supported":["2025-06-18"]}`, true, false, "2025-06-18"},
		"names none":              {[]string{"2025-06-18"}, "Bad MCP-Protocol-Version", true, false, "2025-06-18"},
		"keeps no session":        {[]string{"2025-06-18"}, "unsupported version %s, use 2025-06-18", false, false, "2025-06-18"},
		"insists on its newest":   {[]string{"2025-06-18"}, "unsupported version %s, use 2025-06-18", true, true, "2025-06-18"},
		"knows no such header":    {[]string{""}, "unsupported protocol version %s", true, false, ""},
		"names one, takes others": {[]string{""}, "version: use 2025-06-18 or 2024-11-05, not %s", true, false, ""},
		"takes none":              {nil, "unsupported protocol version %s", true, false, "-"},
		"means another version":   {nil, "this version of the tool wants an id", true, false, "-"},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			n, arrived := 0, []string{}
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost {
					w.WriteHeader(http.StatusMethodNotAllowed)
					return
				}
				body, _ := io.ReadAll(r.Body)
				var m struct {
					ID     json.RawMessage
					Method string
					Params struct{ ProtocolVersion string }
				}
				if err := json.Unmarshal(body, &m); err != nil {
					t.Errorf("the server gets %s", body)
				}
				version := r.Header.Get(headerVersion)
				mu.Lock()
				defer mu.Unlock()
				if m.Method == "initialize" {
					if n++; x.sessions {
						w.Header().Set(headerSession, fmt.Sprint("s", n))
					}
					if x.insists {
						m.Params.ProtocolVersion = "2025-11-25"
					}
					answer(w, asJSON, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":%q,"capabilities":{}}}`,
						m.ID, m.Params.ProtocolVersion))
					return
				}
				if !slices.Contains(x.takes, version) {
					w.WriteHeader(http.StatusBadRequest)
					_, _ = io.WriteString(w, strings.ReplaceAll(x.says, "%s", version))
					return
				}
				if x.sessions && r.Header.Get(headerSession) != fmt.Sprint("s", n) {
					t.Errorf("%s in session %s of %d", m.Method, r.Header.Get(headerSession), n)
				}
				arrived = append(arrived, m.Method+" "+version)
				if m.ID == nil {
					w.WriteHeader(http.StatusAccepted)
					return
				}
				answer(w, asJSON, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID))
			})
			c := New(Options{Name: "far", URL: url})
			defer c.Close(t.Context())
			if _, err := send(t, c, hello); err != nil {
				t.Fatal(err)
			}
			_, readyErr := send(t, c, readyLine)
			got, err := send(t, c, callLine)
			mu.Lock()
			defer mu.Unlock()
			if x.want == "-" {
				if err == nil || len(arrived) > 0 {
					t.Errorf("answer %q, %v; arrived %q", got, err, arrived)
				}
				if words := fmt.Sprint(err); !strings.Contains(words, "400") || n > 6 {
					t.Errorf("after %d sessions: %v", n, err)
				}
				return
			}
			want := []string{strings.TrimSpace("notifications/initialized " + x.want), strings.TrimSpace("tools/call " + x.want)}
			for i := range arrived {
				arrived[i] = strings.TrimSpace(arrived[i])
			}
			if readyErr != nil || err != nil || len(got) != 1 || got[0] != callBack || !slices.Equal(arrived, want) {
				t.Errorf("answers %v, %q, %v; arrived %q, want %q", readyErr, got, err, arrived, want)
			}
		})
	}
}

// TestOwnErrorSpeaksOfVersions_CallIsMadeOnce has servers report the error of a tool with 400 or 404, the request's own
// id, and words that could be about the version of MCP, or the session. The call was made, so its answer is passed
// on, and the session stays.
func TestOwnErrorSpeaksOfVersions_CallIsMadeOnce(t *testing.T) {
	own := func(id, words string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":%q}}`, id, words)
	}
	for about, x := range map[string]struct {
		code          int
		kind, body    string
		isFirst       bool // no other message has shown before that the version is right
		isNotAnswered bool // the body is no JSON-RPC, and so a fault
	}{
		"another protocol":     {code: 400, kind: asJSON, body: own("7", "ssh: unsupported protocol version")},
		"a date":               {code: 400, kind: asJSON, body: own("7", "no version of 2025-03-26")},
		"a supported date":     {code: 400, kind: asJSON, body: own("7", "unsupported version; supported: 2025-03-26, 2024-11-05")},
		"the id as text":       {code: 400, kind: asJSON, body: own(`"7"`, "unsupported protocol version")},
		"an event":             {code: 400, kind: asEvents, body: "data: " + own("7", "unsupported protocol version") + "\n\n"},
		"an array":             {code: 400, kind: asJSON, body: "[" + own("7", "unsupported protocol version") + "]"},
		"a result":             {code: 400, kind: asJSON, body: `{"jsonrpc":"2.0","id":7,"result":{"isError":true,"content":[{"type":"text","text":"protocol version 2025-03-26"}]}}`},
		"without a handshake":  {code: 400, kind: asJSON, body: own("7", "unsupported protocol version"), isFirst: true},
		"a missing file":       {code: 404, kind: asJSON, body: own("7", "no such file")},
		"a missing version":    {code: 404, kind: asJSON, body: own("7", "no version of 2025-03-26")},
		"a session of a tool":  {code: 404, kind: asJSON, body: own("7", "the browser session is not known")},
		"words of a gateway":   {code: 400, kind: "text/plain", body: "ssh: unsupported protocol version", isNotAnswered: true},
		"an error for nobody":  {code: 400, kind: asJSON, body: strings.Replace(own("null", "ssh: unsupported protocol version"), "-32000", "-32600", 1)},
		"of the Python SDK":    {code: 400, kind: asJSON, body: own(`"server-error"`, "unsupported protocol version")},
		"JSON without version": {code: 400, kind: asJSON, body: `{"error":"no version of 2025-03-26"}`, isNotAnswered: true},
	} {
		t.Run(about, func(t *testing.T) {
			var hellos, runs atomic.Int32
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost {
					w.WriteHeader(http.StatusMethodNotAllowed)
					return
				}
				b, _ := io.ReadAll(r.Body)
				switch m, _ := jsonrpc.Parse(b); m.Method {
				case mcp.Initialize:
					w.Header().Set(headerSession, fmt.Sprint("s", hellos.Add(1)))
					answer(w, asJSON, helloBack)
				case mcp.Initialized:
					w.WriteHeader(http.StatusAccepted)
				case mcp.Ping:
					answer(w, asJSON, string(jsonrpc.AppendResult(nil, m.ID, []byte("{}"))))
				default:
					runs.Add(1)
					w.Header().Set("Content-Type", x.kind)
					w.WriteHeader(x.code)
					_, _ = io.WriteString(w, x.body)
				}
			})
			c := New(Options{Name: "far", URL: url})
			defer c.Close(t.Context())
			if _, err := send(t, c, helloLine); err != nil {
				t.Fatal(err)
			}
			if !x.isFirst {
				if _, err := send(t, c, readyLine); err != nil {
					t.Fatal(err)
				}
			}
			got, err := send(t, c, callLine)
			if runs.Load() != 1 || hellos.Load() != 1 {
				t.Errorf("made %d times in %d sessions", runs.Load(), hellos.Load())
			}
			if x.isNotAnswered {
				if _, ok := errors.AsType[*fault.Record](err); !ok || len(got) > 0 {
					t.Errorf("got %q, %v", got, err)
				}
			} else if err != nil || len(got) != 1 {
				t.Errorf("got %q, %v, want the server's answer", got, err)
			}
		})
	}
}

// TestVersionIsRefusedAfterNotifications_NextCommonOne has a server that takes each notification, and refuses the
// version in the header of requests. Lists and pings may be sent twice, so they find the next version.
func TestVersionIsRefusedAfterNotifications_NextCommonOne(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		switch m, _ := jsonrpc.Parse(b); {
		case m.Method == mcp.Initialize:
			version, _ := mcp.String(jsonrpc.Field(m.Params, "protocolVersion"))
			answer(w, asJSON, strings.Replace(helloBack, "2025-06-18", version, 1))
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
		case r.Header.Get(headerVersion) != "2025-06-18":
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, "unsupported version, use 2025-06-18")
		default:
			answer(w, asJSON, string(jsonrpc.AppendResult(nil, m.ID, []byte("{}"))))
		}
	})
	c := New(Options{Name: "far", URL: url})
	defer c.Close(t.Context())
	for _, line := range []string{
		strings.Replace(helloLine, "2025-06-18", "2025-11-25", 1), readyLine,
		`{"jsonrpc":"2.0","id":7,"method":"tools/list"}`, callLine,
	} {
		if got, err := send(t, c, line); err != nil || line != readyLine && (len(got) != 1 || strings.Contains(got[0], `"error"`)) {
			t.Errorf("%s: %q, %v", line, got, err)
		}
	}
}
