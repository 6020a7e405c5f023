package flow

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"holdline/daemon/login"
)

// site answers GETs by path with documents in which ORIGIN stands for its own origin. A
// document that is a number is a status.
type site struct {
	url   string
	docs  map[string]string
	serve http.HandlerFunc // answers in place of the documents

	mu    sync.Mutex
	asked []string // guarded by mu
}

// newSite starts a site.
func newSite(t *testing.T, docs map[string]string) *site {
	t.Helper()
	s := &site{docs: docs}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.serve != nil {
			s.serve(w, r)
			return
		}
		s.mu.Lock()
		s.asked = append(s.asked, r.URL.RequestURI())
		s.mu.Unlock()
		doc, ok := s.docs[r.URL.RequestURI()]
		if status, err := strconv.Atoi(doc); err == nil {
			w.WriteHeader(status)
		} else if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, strings.ReplaceAll(doc, "ORIGIN", s.url))
	}))
	t.Cleanup(srv.Close)
	s.url = srv.URL
	return s
}

// goodServer is metadata of an authorization server that has all that is needed.
const goodServer = `{"issuer": "ORIGIN", "authorization_endpoint": "ORIGIN/authorize", "token_endpoint": "ORIGIN/token",
	"response_types_supported": ["code"], "code_challenge_methods_supported": ["plain", "S256"]}`

// query returns a query for the server at a path of the site.
func (s *site) query(path string) *Query {
	q := &Query{Address: s.url + path, Known: func(string) bool { return false }}
	q.HTTP = login.NewClient(q.Address, "", "1")
	q.Usable = func(*Metadata) error { return nil }
	q.Way = func(*Metadata) Way { return Browser }
	return q
}

// Addresses of documents.
const (
	atRoot  = "/.well-known/oauth-protected-resource"
	atMCP   = "/.well-known/oauth-protected-resource/mcp"
	ofOAuth = "/.well-known/oauth-authorization-server"
	ofOpen  = "/.well-known/openid-configuration"
)

// TestResourceMetadata checks in which order the server's metadata is looked for, and that
// nothing is asked once it is there.
func TestResourceMetadata(t *testing.T) {
	const doc = `{"resource": "ORIGIN/mcp", "authorization_servers": ["ORIGIN"], "scopes_supported": ["a"]}`
	for name, test := range map[string]struct {
		path, challenge string
		docs            map[string]string
		asked           []string // of the server's own metadata
	}{
		"the challenge names it": {
			"/mcp", "/meta", map[string]string{"/meta": doc, atMCP: "500", atRoot: "500"}, []string{"/meta"},
		},
		"the challenge names none": {"/mcp", "", map[string]string{atMCP: doc}, []string{atMCP}},
		"the address has a query": {
			"/mcp?team=1", "", map[string]string{atMCP + "?team=1": doc}, []string{atMCP + "?team=1"},
		},
		"it is at the root":         {"/mcp", "", map[string]string{atRoot: doc}, []string{atMCP, atRoot}},
		"one is refused":            {"/mcp", "", map[string]string{atMCP: "403", atRoot: doc}, []string{atMCP, atRoot}},
		"one is broken":             {"/mcp", "", map[string]string{atMCP: "500", atRoot: doc}, []string{atMCP, atRoot}},
		"one is a page":             {"/mcp", "", map[string]string{atMCP: "<html>", atRoot: doc}, []string{atMCP, atRoot}},
		"one is half a document":    {"/mcp", "", map[string]string{atMCP: `{"a":`, atRoot: doc}, []string{atMCP, atRoot}},
		"the challenge's is absent": {"/mcp", "/gone", map[string]string{atMCP: doc}, []string{"/gone", atMCP}},
	} {
		t.Run(name, func(t *testing.T) {
			test.docs[ofOAuth] = goodServer
			s := newSite(t, test.docs)
			q := s.query(test.path)
			if test.challenge != "" {
				q.Metadata = s.url + test.challenge
			}
			got, err := Find(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if got.Resource != s.url+"/mcp" || got.Audience != s.url+"/mcp" || !slices.Equal(got.Scopes, []string{"a"}) {
				t.Errorf("got %+v", got)
			}
			if want := append(test.asked, ofOAuth); !slices.Equal(s.asked, want) {
				t.Errorf("asked for %q, want %q", s.asked, want)
			}
		})
	}
}

// TestResourceOfAnother checks that metadata of another resource ends the login: it could
// have a token for that resource sent here.
func TestResourceOfAnother(t *testing.T) {
	for resource, fits := range map[string]bool{
		"ORIGIN": true, "ORIGIN/": true, "ORIGIN/a": true, "ORIGIN/a/": true, "ORIGIN/a/mcp": true, "ORIGIN/a/mcp/": true,
		"ORIGIN/a/mcp?x=1": true,
		"ORIGIN/a/mc":      false, "ORIGIN/a/mcp/more": false, "ORIGIN/b": false, "ORIGIN/a/mcp#x": false, "": false,
		"https://example.com/a/mcp": false, "http://127.0.0.1:1/a/mcp": false, "ftp://example.com": false,
		"/a/mcp": false, "ORIGIN.example.com/a": false, "http://user@127.0.0.1/a": false, "javascript:alert(1)": false,
	} {
		s := newSite(t, map[string]string{
			ofOAuth: goodServer, atRoot: `{"resource": "` + resource + `", "authorization_servers": ["ORIGIN"]}`,
		})
		got, err := Find(t.Context(), s.query("/a/mcp"))
		switch resource := strings.ReplaceAll(resource, "ORIGIN", s.url); {
		case fits && (err != nil || got.Resource != resource):
			t.Errorf("%s: %v, %+v, want that resource byte for byte", resource, err, got)
		case !fits && (err == nil || !strings.Contains(err.Error(), "of another resource")):
			t.Errorf("%s: %v, want an error", resource, err)
		case !fits && slices.Contains(s.asked, ofOAuth):
			t.Errorf("%s: the authorization server is asked all the same", resource)
		}
	}
}

// TestResourceParameter checks what is sent as resource, byte for byte.
func TestResourceParameter(t *testing.T) {
	doc := `{"resource": "ORIGIN/", "authorization_servers": ["ORIGIN"]}`
	for _, test := range []struct {
		path, doc  string
		configured *string
		want       string
	}{
		{"/mcp", doc, nil, "ORIGIN/"},
		{"/mcp", doc, new(""), ""},
		{"/mcp", doc, new("api://x"), "api://x"},
		{"/mcp/?q=1", "404", nil, "ORIGIN/mcp/"},
		{"/", "404", nil, "ORIGIN"},
		{"", "404", nil, "ORIGIN"},
	} {
		s := newSite(t, map[string]string{ofOAuth: goodServer, atRoot: test.doc})
		q := s.query(test.path)
		q.Resource = test.configured
		got, err := Find(t.Context(), q)
		if want := strings.ReplaceAll(test.want, "ORIGIN", s.url); err != nil || got.Resource != want {
			t.Errorf("%+v: %v, %+v, want %s", test, err, got, want)
		}
	}
}

// TestServerMetadata checks where the metadata of an authorization server is looked for.
func TestServerMetadata(t *testing.T) {
	for _, test := range []struct {
		issuer string
		asked  []string // the last one has it
	}{
		{"ORIGIN", []string{ofOAuth}},
		{"ORIGIN", []string{ofOAuth, ofOpen}},
		{"ORIGIN/", []string{ofOAuth, ofOpen}},
		{"ORIGIN/t/1", []string{ofOAuth + "/t/1"}},
		{"ORIGIN/t/1", []string{ofOAuth + "/t/1", ofOpen + "/t/1"}},
		{"ORIGIN/t/1", []string{ofOAuth + "/t/1", ofOpen + "/t/1", "/t/1" + ofOpen}},
		{"ORIGIN/t/1/", []string{ofOAuth + "/t/1", ofOpen + "/t/1", "/t/1" + ofOpen}},
		{"ORIGIN/t/1", []string{ofOAuth + "/t/1", ofOpen + "/t/1", "/t/1" + ofOpen, "/t/1" + ofOAuth}},
		// and never at the root
		{"ORIGIN/t/1", []string{ofOAuth + "/t/1", ofOpen + "/t/1", "/t/1" + ofOpen, "/t/1" + ofOAuth, ""}},
	} {
		s := newSite(t, map[string]string{atRoot: `{"resource": "ORIGIN", "authorization_servers": ["` + test.issuer + `"]}`})
		last := test.asked[len(test.asked)-1]
		s.docs[last] = strings.Replace(goodServer, "ORIGIN", test.issuer, 1)
		if last == "" {
			s.docs[ofOAuth], s.docs[ofOpen] = s.docs[""], s.docs[""]
			test.asked = test.asked[:len(test.asked)-1]
		}
		got, err := Find(t.Context(), s.query("/"))
		if want := append([]string{atRoot}, test.asked...); !slices.Equal(s.asked, want) {
			t.Errorf("%s: asked for %q, want %q", test.issuer, s.asked, want)
		}
		switch want := strings.ReplaceAll(test.issuer, "ORIGIN", s.url); {
		case last == "" && (err == nil || !strings.Contains(err.Error(), "has no metadata")):
			t.Errorf("%s: %v", test.issuer, err)
		case last != "" && (err != nil || got.Server.Issuer != want):
			t.Errorf("%s: %v, %+v", test.issuer, err, got)
		}
	}
}

// TestServerRefused checks what an authorization server must say of itself. None of it is
// guessed.
func TestServerRefused(t *testing.T) {
	const issuer, endpoints = `"issuer": "ORIGIN"`, `"authorization_endpoint": "ORIGIN/a", "token_endpoint": "ORIGIN/t"`
	const pkce = `"code_challenge_methods_supported": ["S256"]`
	for doc, want := range map[string]string{
		issuer + `,` + endpoints + `,` + pkce:                                                               "",
		issuer + `,` + endpoints:                                                                            "does not say that it does PKCE",
		issuer + `,` + endpoints + `, "code_challenge_methods_supported": []`:                               "does not say that it does PKCE",
		issuer + `,` + endpoints + `, "code_challenge_methods_supported": "S256"`:                           "does not say that it does PKCE",
		issuer + `,` + endpoints + `, "code_challenge_methods_supported": ["plain"]`:                        "does not do PKCE with S256",
		issuer + `,` + endpoints + `,` + pkce + `, "response_types_supported": ["token"]`:                   "gives out no codes",
		issuer + `,` + endpoints + `,` + pkce + `, "require_pushed_authorization_requests": true`:           "PAR",
		issuer + `, "token_endpoint": "ORIGIN/t",` + pkce:                                                   "names no address to log in",
		issuer + `, "authorization_endpoint": "ORIGIN/a",` + pkce:                                           "names no address to get a token",
		issuer + `, "authorization_endpoint": "javascript:alert(1)", "token_endpoint": "ORIGIN/t",` + pkce:  "to log in",
		issuer + `, "authorization_endpoint": "ORIGIN/a", "token_endpoint": "http://example.com/t",` + pkce: "to get a token",
		`"issuer": "ORIGIN/",` + endpoints + `,` + pkce:                                                     "",
		`"issuer": "ORIGIN/t",` + endpoints + `,` + pkce:                                                    "is of another one",
		`"issuer": "ORIGIN//",` + endpoints + `,` + pkce:                                                    "is of another one",
		`"issuer": "https://example.com",` + endpoints + `,` + pkce:                                         "is of another one",
		endpoints + `,` + pkce: "is of another one",
	} {
		s := newSite(t, map[string]string{
			atRoot: `{"resource": "ORIGIN", "authorization_servers": ["ORIGIN"]}`, ofOAuth: `{` + doc + `}`,
			ofOpen: goodServer, // which the first document leaves no need for
		})
		_, err := Find(t.Context(), s.query("/"))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", doc, err, want)
		}
		q := s.query("/")
		q.AssumePKCE = true
		if _, err := Find(t.Context(), q); err != nil && want == "does not say that it does PKCE" {
			t.Errorf("%s with assumePkce: %v", doc, err)
		}
	}
}

// TestServersOf2025 checks servers that have no metadata of their own: their origin is the
// authorization server, if it says so.
func TestServersOf2025(t *testing.T) {
	for _, issuer := range []string{"ORIGIN", "ORIGIN/"} {
		s := newSite(t, map[string]string{ofOAuth: strings.Replace(goodServer, "ORIGIN", issuer, 1)})
		got, err := Find(t.Context(), s.query("/mcp"))
		if err != nil || got.Server.Issuer != strings.ReplaceAll(issuer, "ORIGIN", s.url) || got.Resource != s.url+"/mcp" {
			t.Errorf("%s: %v, %+v", issuer, err, got)
		}
	}
	for _, doc := range []string{`{"resource": "ORIGIN"}`, "\ufeff" + `{"resource": "ORIGIN", "authorization_servers": null}`} {
		s := newSite(t, map[string]string{atRoot: doc, ofOAuth: "\ufeff" + goodServer})
		got, err := Find(t.Context(), s.query("/mcp"))
		if err != nil || got.Server.Issuer != s.url || got.Resource != s.url {
			t.Errorf("%s: %v, %+v", doc, err, got)
		}
	}
	for docs, want := range map[string]string{
		`{"resource": "ORIGIN"}`:                              "names no authorization server",
		`{"resource": "ORIGIN", "authorization_servers": []}`: "names no authorization server",
		"404": "does not say where",
		"500": atRoot,
	} {
		s := newSite(t, map[string]string{atRoot: docs})
		if _, err := Find(t.Context(), s.query("/mcp")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", docs, err, want)
		}
	}
	// A server that cannot say at the moment whether it has metadata may be one of today.
	for _, status := range []string{"500", "503", "429"} {
		s := newSite(t, map[string]string{atMCP: status, ofOAuth: goodServer})
		if got, err := Find(t.Context(), s.query("/mcp")); err == nil || !strings.Contains(err.Error(), atMCP) {
			t.Errorf("%s: %v, %+v", status, err, got)
		}
	}
	q := newSite(t, nil).query("/mcp")
	q.Unasked = true
	if _, err := Find(t.Context(), q); err == nil || !strings.Contains(err.Error(), "asks for no login") {
		t.Errorf("a server that asks for no login: %v", err)
	}
}

// TestServerChoice checks which of several authorization servers is taken.
func TestServerChoice(t *testing.T) {
	good := func(name string) string { return strings.Replace(goodServer, "ORIGIN", "ORIGIN/"+name, 1) }
	s := newSite(t, map[string]string{
		atRoot:         `{"resource": "ORIGIN", "authorization_servers": ["ORIGIN/gone", "http://example.com", "ORIGIN/a", "ORIGIN/b"]}`,
		ofOAuth + "/a": good("a"), ofOAuth + "/b": good("b"), ofOAuth + "/c": good("c"),
	})
	closed := errors.New("it is closed")
	for name, test := range map[string]struct {
		change func(*Query)
		want   string
	}{
		"the first good one":          {func(*Query) {}, "/a"},
		"the one that is known":       {func(q *Query) { q.Known = func(i string) bool { return i == s.url+"/b" } }, "/b"},
		"the one that is wanted":      {func(q *Query) { q.Issuer = s.url + "/b" }, "/b"},
		"one that is not there":       {func(q *Query) { q.Issuer = s.url + "/c" }, `"` + s.url + `/a", "` + s.url + `/b"`},
		"wanted, in another spelling": {func(q *Query) { q.Issuer = s.url + "/b/" }, "does not use the authorization server"},
		"the first that can be used": {func(q *Query) {
			q.Usable = func(m *Metadata) error {
				if strings.HasSuffix(m.Issuer, "/a") {
					return closed
				}
				return nil
			}
		}, "/b"},
		"none that can be used": {func(q *Query) { q.Usable = func(*Metadata) error { return closed } }, "it is closed"},
	} {
		q := s.query("/")
		test.change(q)
		got, err := Find(t.Context(), q)
		if err != nil && !strings.Contains(err.Error(), test.want) || err == nil && got.Server.Issuer != s.url+test.want {
			t.Errorf("%s: %v, %+v, want %s", name, err, got, test.want)
		}
	}
	many := `{"resource": "ORIGIN", "authorization_servers": ["` + strings.Repeat(`ORIGIN/gone", "`, maxServers) + `ORIGIN/a"]}`
	s.docs[atRoot] = many
	if got, err := Find(t.Context(), s.query("/")); err == nil {
		t.Errorf("the ninth is looked at: %+v", got)
	}
}

// TestFindOverHTTP checks that no token is asked for that would be sent in clear text.
func TestFindOverHTTP(t *testing.T) {
	for _, address := range []string{"http://example.com/mcp", "ftp://example.com", "https://", "https://u:p@example.com"} {
		q := newSite(t, nil).query("")
		q.Address, q.HTTP = address, login.NewClient(address, "", "1")
		if _, err := Find(t.Context(), q); err == nil || !strings.Contains(err.Error(), "https") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestDocumentOfOddTypes checks that a member of the wrong type is as if it were not there.
func TestDocumentOfOddTypes(t *testing.T) {
	s := newSite(t, map[string]string{ofOAuth: strings.Replace(goodServer, "{", `{"scopes_supported": "all",`, 1)})
	got, err := Find(t.Context(), s.query("/"))
	if err != nil || got.Server.Scopes != nil {
		t.Errorf("%v, %+v", err, got)
	}
}

// FuzzMetadata checks that no document leads to an address that may not be asked or opened,
// or to another issuer than the one that was asked.
func FuzzMetadata(f *testing.F) {
	f.Add(`{"resource": "ORIGIN", "authorization_servers": ["ORIGIN"]}`, goodServer)
	f.Add(`{"resource": "ORIGIN/", "authorization_servers": ["ORIGIN/t"]}`, strings.Replace(goodServer, "ORIGIN", "ORIGIN/t", 1))
	f.Add("404", goodServer)
	f.Add(`{"resource": 1, "authorization_servers": {}}`, `{"issuer": []}`)
	f.Fuzz(func(t *testing.T, resource, server string) {
		const address = "https://example.com/mcp"
		docs := map[string]string{}
		f := &finder{Query: &Query{
			HTTP: login.NewClient(address, "", "1"), Address: address, Known: func(string) bool { return false },
			Usable: func(*Metadata) error { return nil }, Way: func(*Metadata) Way { return Browser },
		}}
		f.read = func(at string) (*login.Answer, error) {
			text := server
			if strings.Contains(at, "/oauth-protected-resource") {
				text = resource
			}
			docs[at] = text
			text = strings.ReplaceAll(text, "ORIGIN", "https://example.com")
			return &login.Answer{Status: http.StatusOK, Body: []byte(text)}, nil
		}
		got, err := f.find(t.Context())
		for at := range docs {
			if !strings.HasPrefix(at, "https://") {
				t.Errorf("asked for %q", at)
			}
		}
		if err != nil {
			if text := err.Error(); strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
				t.Errorf("an error with control characters: %q", text)
			}
			return
		}
		for _, at := range []string{got.Server.AuthorizationEndpoint, got.Server.TokenEndpoint, got.Audience} {
			if f.HTTP.Check(at) != nil {
				t.Errorf("%q is taken", at)
			}
		}
		if !login.Covers(got.Audience, address) || got.Resource != got.Audience {
			t.Errorf("the resource is %q", got.Resource)
		}
		var d resourceMetadata
		if decode([]byte(strings.ReplaceAll(resource, "ORIGIN", "https://example.com")), &d) &&
			!slices.Contains(d.Servers, got.Server.Issuer) {
			t.Errorf("the issuer %q is not one of %q", got.Server.Issuer, d.Servers)
		}
	})
}
