package remote

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
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
