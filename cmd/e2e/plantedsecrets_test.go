package e2e

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/login/logintest"
	"holdline/protocol/programtest"
)

// echoing is a remote server that repeats the headers that it was sent, in the way that a call names.
type echoing struct {
	net.Listener
	calls atomic.Int32
}

// startEchoing starts the server.
func startEchoing(t *testing.T) *echoing {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echoing{Listener: l}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go e.serve(conn)
		}
	}()
	return e
}

// jsonAnswer returns an answer of HTTP/1 with a JSON-RPC message.
func jsonAnswer(status, id, rest string) string {
	text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, id, rest)
	return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		status, len(text), text)
}

// repeatingWays are those in which the server repeats what it was sent. Each is a whole answer to the call of an id.
var repeatingWays = map[string]func(id, secrets string) string{
	"result": func(id, s string) string { return jsonAnswer("200 OK", id, echoed(s)) },
	"error": func(id, s string) string {
		return jsonAnswer("200 OK", id, `"error":{"code":-32000,"message":"`+s+`"}`)
	},
	"failure": func(id, s string) string {
		return jsonAnswer("500 "+s, id, `"error":{"code":-32000,"message":"`+s+`"}`)
	},
	"status": func(_, s string) string { return "HTTP/1.1 " + s + "\r\n\r\n" },
	"header": func(_, s string) string { return "HTTP/1.1 200 OK\r\n" + s + "\r\n\r\n" },
	"page":   func(_, s string) string { return "HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n" + s },
	"redirect": func(_, s string) string {
		return "HTTP/1.1 307 Moved\r\nConnection: close\r\nLocation: http://127.0.0.1:1/" + url.PathEscape(s) + "\r\n\r\n"
	},
	// Behind it stands what nobody has asked for: net/http writes how that begins into its log.
	"unasked": func(id, s string) string { return jsonAnswer("200 OK", id, echoed(s)) + s },
}

// echoed is the result of a call that repeats the secrets.
func echoed(secrets string) string {
	return `"result":{"content":[{"type":"text","text":"` + secrets + `"}]}`
}

// serve serves a connection.
func (e *echoing) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Arguments struct{ How string } }
		}
		_ = json.Unmarshal(body, &m) // a GET has none
		secrets := strings.Join([]string{
			strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer "), req.Header.Get("X-Api-Key"),
			req.URL.Query().Get("token"),
		}, " ")
		out := "HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n"
		switch id := string(m.ID); {
		case m.Method == "initialize":
			out = jsonAnswer("200 OK", id, `"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},`+
				`"serverInfo":{"name":"e","version":"`+secrets+`"}}`)
		case m.Method == "tools/list":
			out = jsonAnswer("200 OK", id, `"result":{"tools":[{"name":"echo","description":"knows `+secrets+
				`","inputSchema":{"type":"object"}}]}`)
		case m.Method == "tools/call":
			e.calls.Add(1)
			out = repeatingWays[m.Params.Arguments.How](id, secrets)
			if !strings.Contains(out, "Content-Length") {
				_, _ = io.WriteString(conn, out)
				return
			}
		case m.ID != nil:
			out = jsonAnswer("200 OK", id, `"error":{"code":-32601,"message":"no method for `+secrets+`"}`)
		case req.Method == http.MethodPost:
			out = "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
		}
		if _, err := io.WriteString(conn, out); err != nil {
			return
		}
	}
}

// keyForAssertions returns a private key as a file has it, and a part of it that must be nowhere else.
func keyForAssertions(t *testing.T) (text, part string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	return text, strings.Split(text, "\n")[2][:24] // behind 48 bytes, of which the first 36 say what it is
}

// TestPlantedSecrets_AreOnlyWhereTheyBelong plants a secret of each kind in a session in which servers, programs and
// authorization servers repeat and fail what they can, also over a kill of the daemon. Then it looks for each one in
// all files, in all answers and outputs, and in the arguments and environments of all processes. It is only in the
// user's own files, in the daemon's copy of the configuration, and in the process that has to send it.
func TestPlantedSecrets_AreOnlyWhereTheyBelong(t *testing.T) {
	t.Parallel()
	planted := map[string]string{
		"token in a variable": "planted-bearer-0123456789", "header value": "planted-api-key-0123456789",
		"token in an address": "planted-in-address-0123456789", "consult key": "planted-consult-key-0123456789",
		"identity token": "planted-identity-0123456789", "client secret": "client-secret-" + marked,
		"tokens of logins": marked, "key file": strings.Repeat("5a", 32), "server's variable": "planted-variable-0123456789",
	}
	// Which processes need a secret, by what their command line has. Others have none.
	belongs := map[string]string{
		"token in a variable": " remote ", "header value": " remote ", "token in an address": " remote ",
		"consult key": "leaky", "identity token": "--identity known", "server's variable": "leaky-server",
	}
	pemText, pemPart := keyForAssertions(t)
	planted["private key of a client"] = pemPart
	far := startEchoing(t)
	asserting := logintest.Start(t, logintest.Options{Life: time.Hour})
	person := logintest.Start(t, logintest.Options{Life: time.Hour})
	machine := logintest.Start(t, logintest.Options{Life: time.Hour})
	machine.AddClient("build", planted["client secret"])

	p := newPlace(t).login().withBrowser()
	key, home := filepath.Join(p.dir, "key"), filepath.Join(p.dir, "home/.config/holdline")
	leaky, server := filepath.Join(p.dir, "leaky-claude"), filepath.Join(p.dir, "leaky-server")
	programtest.Write(t, leaky, `#!/bin/sh
case "$*" in *--input-format*) echo "$CONSULT_KEY"; echo "$CONSULT_KEY" >&2;; esac
exec `+programs+`/claude "$@"
`)
	programtest.Write(t, server, "#!/bin/sh\nread line\necho \"no: $SERVER_KEY\" >&2\nsleep 0.1\nexit 3\n")
	p.configure(map[string]any{
		"far": map[string]any{
			"url":     "http://" + far.Addr().String() + "/mcp?token=" + planted["token in an address"],
			"headers": map[string]any{"Authorization": "Bearer ${FAR_TOKEN}", "X-Api-Key": planted["header value"]},
		},
		"person": map[string]any{"url": person.URL},
		"machine": map[string]any{"url": machine.URL, "oauth": map[string]any{
			"clientId": "build", "clientSecret": "${BUILD_SECRET}", "grant": "client_credentials",
		}},
		"asserting": map[string]any{"url": asserting.URL, "oauth": map[string]any{
			"clientId": "me", "privateKeyFile": filepath.Join(home, "client.pem"), "grant": "client_credentials",
		}},
		"leaky": map[string]any{"command": server, "env": map[string]any{"SERVER_KEY": planted["server's variable"]}},
	},
		"logins", map[string]any{"key_command": []string{"/bin/cat", key}},
		"identities", map[string]any{"known": map[string]any{"token": planted["identity token"]}},
		"consult", map[string]any{"env": map[string]any{"CONSULT_KEY": planted["consult key"]}, "claude_bin": leaky},
	)
	variables := filepath.Join(home, "env")
	for path, text := range map[string]string{
		key:                               planted["key file"],
		filepath.Join(home, "client.pem"): pemText,
		variables:                         "FAR_TOKEN=" + planted["token in a variable"] + "\nBUILD_SECRET=" + planted["client secret"] + "\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.loginPort(t)
	person.LogIn(t, p.logins())

	var said strings.Builder
	bare := p.env
	p.env = append(slices.Clip(bare), "HOLDLINE_TOKEN="+planted["identity token"])
	a := p.agent("--identity", "known").shake()
	p.env = bare
	call := func(tool string, args map[string]any) answer {
		t.Helper()
		x := a.wait(a.call(tool, args))
		said.WriteString(x.raw + "\n")
		return x
	}
	said.WriteString(a.ask("tools/list", map[string]any{}).raw)
	p.untilReady("far")
	p.untilReady("person")
	said.WriteString(a.ask("tools/list", map[string]any{}).raw)
	repeat := func() {
		for _, how := range slices.Sorted(maps.Keys(repeatingWays)) {
			before := far.calls.Load()
			if x := call("far__echo", map[string]any{"how": how}); far.calls.Load() != before+1 {
				t.Errorf("%s: the server was asked %d times: %s", how, far.calls.Load()-before, x.raw)
			}
			if x := call("far__echo", map[string]any{"how": "result"}); !strings.Contains(x.text(), "*** *** ***") {
				t.Errorf("after %s: the server repeats nothing: %s", how, x.raw) // and the circuit is closed
			}
		}
	}
	repeat()
	call("leaky__x", map[string]any{})
	call("machine__echo", map[string]any{})
	if x := call("asserting__echo", map[string]any{}); x.code() != "" {
		t.Errorf("a client that shows by its key who it is: %s", x.raw)
	}
	call("person__echo", map[string]any{})
	for _, srv := range []*logintest.Server{person, machine, asserting} {
		srv.Set(func(o *logintest.Options) { o.Token = repeats("invalid_target", 400) })
		srv.Expire()
	}
	call("person__echo", map[string]any{})
	call("machine__echo", map[string]any{})
	call("asserting__echo", map[string]any{})
	for i, form := range asserting.Forms() { // who has one is the client, as long as it holds
		planted[fmt.Sprintf("assertion %d", i)] = form.Get("client_assertion")
	}
	if len(asserting.Forms()) < 2 {
		t.Errorf("the client has shown %d times who it is, want it twice at least", len(asserting.Forms()))
	}
	consult := call("consult", map[string]any{
		"prompt": claudetest.Prompt("x", claudetest.Step{Do: "die"}),
	})
	if consult.raw == "" {
		t.Error("the consult is not answered")
	}
	look := func() {
		t.Helper()
		for _, args := range [][]string{
			{"status"},
			{"status", "--json"},
			{"servers"},
			{"servers", "--json"},
			{"servers", "get", "far"},
			{"servers", "get", "far", "--json"},
			{"servers", "get", "machine", "--json"},
			{"servers", "get", "leaky", "--json"},
			{"servers", "tools"},
			{"servers", "test", "far"},
			{"servers", "test", "leaky"},
			{"doctor"},
			{"doctor", "--json"},
			{"config", "explain"},
			{"config", "get"},
			{"config", "get", "--json"},
			{"logs"},
			{"logs", "far"},
			{"logs", "leaky"},
			{"logs", "person"},
			{"consult", "list", "--json"},
			{"consult", "show", "last"},
			{"consult", "show", "--json", "last"},
			{"metrics"},
			{"telemetry", "--json"},
		} {
			out, errs, _ := p.run("", args...) // some of these start processes of their own
			fmt.Fprintln(&said, "holdline", args, out, errs)
		}
		p.onlyWhereTheyBelong(t, planted, belongs, home, key)
	}
	look()
	kill9(t, p.pid(0))
	said.WriteString(a.ask("tools/list", map[string]any{}).raw)
	repeat()
	look()
	for kind, value := range planted {
		if i := strings.Index(said.String(), value); i >= 0 {
			t.Errorf("the %s is shown: %.400s", kind, said.String()[max(0, i-300):])
		}
	}
	a.rest()
}

// onlyWhereTheyBelong fails the test for each file of the place, and each process, that has one of the secrets and
// need not.
func (p *place) onlyWhereTheyBelong(t *testing.T, planted, belongs map[string]string, own, key string) {
	t.Helper()
	err := filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		isOwn := strings.HasPrefix(path, own) || path == key
		// The copy of the user's configuration is as secret as that is.
		isCopy := filepath.Base(filepath.Dir(path)) == "config"
		if err != nil || !d.Type().IsRegular() || isOwn || isCopy {
			return nil //nolint:nilerr // files come and go while the place lives
		}
		b, _ := os.ReadFile(path)
		for kind, value := range planted {
			if strings.Contains(string(b), value) {
				t.Errorf("the %s is in %s", kind, path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for pid, cmd := range p.processes() {
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		for kind, value := range planted {
			if strings.Contains(cmd, value) {
				t.Errorf("the %s is in the command line of process %d: %s", kind, pid, cmd)
			}
			if at := belongs[kind]; strings.Contains(string(env), value) && (at == "" || !strings.Contains(cmd, at)) {
				t.Errorf("the %s is in the environment of process %d: %s", kind, pid, cmd)
			}
		}
	}
}
