package remote

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"holdline/daemon/redact"
	"holdline/protocol/jsonrpc"
)

// oneToken is a login with one token.
type oneToken string

func (o oneToken) Token(context.Context, bool) (redact.Secret, error) { return redact.Secret(o), nil }

func (o oneToken) Refused(
	context.Context, redact.Secret, int, http.Header, bool,
) (redact.Secret, error) {
	return "", nil
}

func (o oneToken) Answered(context.Context) {}

// escapes are ways in which a server can write a text in JSON.
var escapes = map[string]func(s string) string{
	"as it is": func(s string) string { return s },
	"\\u00xx": func(s string) string {
		var out strings.Builder
		for i := range len(s) {
			fmt.Fprintf(&out, `\u%04X`, s[i])
		}
		return out.String()
	},
	"\\/":          func(s string) string { return strings.ReplaceAll(s, "/", `\/`) },
	"+ as \\u002b": func(s string) string { return strings.ReplaceAll(s, "+", `\u002b`) },
	"in a query":   url.QueryEscape,
	"in a query, in lower case": func(s string) string {
		return strings.NewReplacer("%2F", "%2f", "%2B", "%2b", "%3D", "%3d", "%26", "%26").Replace(url.QueryEscape(s))
	},
	"in a page":                 html.EscapeString,
	"in base64":                 func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"in base64 of addresses":    func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte("x" + s)) },
	"in base64, behind another": func(s string) string { return base64.StdEncoding.EncodeToString([]byte("Bearer " + s)) },
	"in hexadecimal":            func(s string) string { return hex.EncodeToString([]byte(s)) },
	"in JSON in a text":         func(s string) string { return strings.ReplaceAll(s, "/", `\\\/`) },
}

// resultBegin is how a result begins whose end has secrets.
const resultBegin = `{"n":1.0,"content":[{"type":"text","text":"a\n`

// TestServerRepeatsSecrets_NobodySeesThem checks that a server which repeats the secrets that it was sent, wherever
// it can, gets none of them into a message or a line of the log, and that the rest of a message arrives as it is.
func TestServerRepeatsSecrets_NobodySeesThem(t *testing.T) {
	const token, key, password = "tok/en+0123456789==", "key-of&the-header-1", "pass-word-of-basic"
	basic := base64.StdEncoding.EncodeToString([]byte("me:" + password))
	secrets := []string{token, key, password, basic}
	all := strings.Join(secrets, " ")
	asHTTP := func(head, body string) string {
		return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s", head, len(body), body)
	}
	const ok = "200 OK\r\nContent-Type: application/json"
	answers := map[string]string{
		"status line":      "HTTP/1.1 " + all + "\r\n\r\n",
		"no HTTP":          all + "\r\n\r\n",
		"header line":      "HTTP/1.1 200 OK\r\n" + all + "\r\n\r\n",
		"header name":      "HTTP/1.1 200 OK\r\n" + token + " x: y\r\n\r\n",
		"length":           "HTTP/1.1 200 OK\r\nContent-Length: " + all + "\r\n\r\n",
		"encoding":         "HTTP/1.1 200 OK\r\nTransfer-Encoding: " + all + "\r\n\r\n",
		"chunk":            "HTTP/1.1 " + ok + "\r\nTransfer-Encoding: chunked\r\n\r\n" + all + "\r\n",
		"reason":           asHTTP("500 "+all, all),
		"www-authenticate": asHTTP("401 Unauthorized\r\nWWW-Authenticate: Bearer error=\""+token+"\"", all),
		"redirect":         asHTTP("302 Found\r\nLocation: https://"+key+".example/"+url.PathEscape(token), all),
		"bad redirect":     asHTTP("302 Found\r\nLocation: :"+all, all),
		"type":             asHTTP("200 OK\r\nContent-Type: text/"+key, all),
		"page":             asHTTP("200 OK\r\nContent-Type: text/html", all),
		"no JSON":          asHTTP(ok, all),
		"another id":       asHTTP(ok, `{"jsonrpc":"2.0","id":"`+all+`","result":{}}`),
		"session":          asHTTP(ok+"\r\nMcp-Session-Id: "+key, `{"jsonrpc":"2.0","id":7,"result":{"s":"`+key+`"}}`),
		"trailer":          "HTTP/1.1 " + ok + "\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n0\r\nX: " + all + "\r\n" + token + "\r\n\r\n",
		"early hints":      "HTTP/1.1 103 " + all + "\r\nLink: " + all + "\r\n\r\n" + asHTTP("500 no", "no"),
		"proxy":            asHTTP("407 "+all+"\r\nProxy-Authenticate: Basic realm=\""+all+"\"", all),
		"too often":        asHTTP("429 "+all+"\r\nRetry-After: "+all, all),
		"compressed":       asHTTP("200 OK\r\nContent-Type: application/json\r\nContent-Encoding: "+key, all),
		"session lost":     asHTTP("404 "+all+"\r\nMcp-Session-Id: "+key, all),
		"version":          asHTTP("400 Bad Request", `{"error":{"code":-32022,"message":"`+all+`","data":{"supported":["`+key+`"]}}}`),
		"name of an event": asHTTP("200 OK\r\nContent-Type: text/event-stream", "event: "+all+"\ndata: {}\n\nretry: "+key+"\n\n: "+all+"\n\n"),
		"bad event":        asHTTP("200 OK\r\nContent-Type: text/event-stream", "data: "+all+"\n\n"),
	}
	for how, escape := range escapes {
		for kind, text := range map[string]string{
			"error":  `{"code":1,"message":"%s","data":{"%s":["%s"]}}`,
			"result": resultBegin + `%s"}],"%s":"%s"}`,
		} {
			text = `{"jsonrpc":"2.0","id":7,"` + kind + `":` + strings.ReplaceAll(text, "%s", escape(all)) + `}`
			answers[kind+" "+how] = asHTTP(ok, text)
			answers[kind+" of a bad request "+how] = asHTTP("400 Bad Request", text)
			answers[kind+" of a server that fails "+how] = asHTTP("500 Internal Server Error", text)
			note := `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"` + escape(all) + `"}}`
			answers[kind+" as event "+how] = asHTTP("200 OK\r\nContent-Type: text/event-stream",
				"data: "+note+"\n\ndata: "+text+"\n\n")
		}
	}
	for name, text := range answers {
		s := &standIn{}
		s.listen(t, func(conn net.Conn, _ int) {
			_, _ = conn.Read(make([]byte, 64<<10)) // what is asked does not matter
			_, _ = io.WriteString(conn, text)
		})
		var log lockedBuffer
		in, say := io.Pipe()
		to, from := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			err := Serve(t.Context(), in, from, slog.New(slog.NewTextHandler(&log, nil)), Options{
				Name: "s", URL: "http://" + s.Addr().String(), Login: oneToken(token), Secrets: []string{key, basic},
				Headers: map[string]string{"X-Key": key, "Proxy-Authorization": "Basic " + basic},
			})
			_ = from.Close()
			ended <- err
		}()
		if _, err := io.WriteString(say, callLine+"\n"); err != nil {
			t.Fatal(err)
		}
		said, decoded := "", ""
		for lines, told := bufio.NewScanner(to), false; lines.Scan(); {
			said += lines.Text() + "\n"
			var v any
			if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
				t.Errorf("%s: %s is no JSON: %v", name, lines.Text(), err)
			}
			decoded += fmt.Sprintln(v)
			if m, err := jsonrpc.Parse(lines.Bytes()); err == nil && string(m.ID) == "7" && !told {
				told = true
				_ = say.Close()
				if strings.HasPrefix(name, "result") && !strings.Contains(lines.Text(), resultBegin) {
					t.Errorf("%s: the rest of the answer is changed: %s", name, lines.Text())
				}
			}
		}
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		s.end()
		said += log.String()
		decoded += decodings(said)
		for _, secret := range secrets {
			for _, form := range []string{
				secret, url.QueryEscape(secret), url.PathEscape(secret), html.EscapeString(secret),
				strings.ToLower(url.QueryEscape(secret)), strings.ReplaceAll(secret, "/", `\/`),
			} {
				if strings.Contains(said, form) || strings.Contains(decoded, form) {
					t.Errorf("%s shows %s:\n%s", name, secret, said)
				}
			}
		}
	}
}

// decodings returns what the words of a text are in base64 and in hexadecimal, wherever that begins in them.
func decodings(text string) string {
	var all strings.Builder
	for _, word := range regexp.MustCompile(`[A-Za-z0-9+/_-]{8,}`).FindAllString(text, -1) {
		if b, err := hex.DecodeString(word[:len(word)/2*2]); err == nil {
			all.Write(append(b, '\n'))
		}
		word = strings.NewReplacer("-", "+", "_", "/").Replace(word)
		for from := range min(4, len(word)) {
			part := word[from:]
			if len(part)%4 == 1 {
				part = part[:len(part)-1]
			}
			if b, err := base64.RawStdEncoding.DecodeString(part); err == nil {
				all.Write(append(b, '\n'))
			}
		}
	}
	return all.String()
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestMessageWithoutSecrets_ArrivesAsItIs checks that a message keeps its spelling, and is not even copied, if none
// of the secrets is in it, and that short words and numbers stay.
func TestMessageWithoutSecrets_ArrivesAsItIs(t *testing.T) {
	u := newUnsaid([]string{"secret-token/1", "12345678", "short"})
	for _, text := range []string{
		`{"a":12345678,"b":"short \u0027\/ \ud83d","c":[1.0,1e3]}`, `{"a":"secret-token/2"}`, `{"a":"secret-\u0000token"}`,
		`{"a\"b":"x\\"}`, `[]`, `{"a":"\u00`, `"`, `{"a":"\`,
	} {
		if got := u.line([]byte(text)); string(got) != text {
			t.Errorf("%s became %s", text, got)
		}
	}
	text := []byte(`{"a":"secret-token"}`)
	if got := u.line(text); &got[0] != &text[0] {
		t.Error("a message without secrets was copied")
	}
	for text, want := range map[string]string{
		`{"secret-token\/1":"12345678 é \u00e9"}`:    `{"***":"*** é é"}`,
		`{"a":"\u0073ecret-token/1\n","b":"\u0027"}`: `{"a":"***\n","b":"\u0027"}`,
	} {
		if got := string(u.line([]byte(text))); got != want {
			t.Errorf("%s became %s, want %s", text, got, want)
		}
	}
	for i := range 3 * maxTokens {
		u.sent(redact.Secret(fmt.Sprintf("token-number-%04d", i)))
	}
	if n := len(u.known()); n > 6*(maxTokens+2) {
		t.Errorf("%d words are kept", n)
	}
	if got := u.text("token-number-0047 secret-token/1"); got != "*** ***" {
		t.Errorf("got %s", got)
	}
}

// TestSecretInQuotes_MessageStaysJSON checks that a secret which was configured with quotes around it is hidden with
// and without them, and that the quotes of JSON stay.
func TestSecretInQuotes_MessageStaysJSON(t *testing.T) {
	u := newUnsaid([]string{`"in-quotes-1"`, `behind-one-2"`, `"before-one-3`})
	for text, want := range map[string]string{
		`{"a":"in-quotes-1","in-quotes-1":1}`:       `{"a":"***","***":1}`,
		`{"a":"x behind-one-2","b":"before-one-3"}`: `{"a":"x ***","b":"***"}`,
		`{"a":"\"in-quotes-1\" x"}`:                 `{"a":"*** x"}`,
		`{"a":"behind-one-2`:                        `{"a":"***`,
	} {
		if got := string(u.line([]byte(text))); got != want {
			t.Errorf("%s became %s, want %s", text, got, want)
		}
	}
}
