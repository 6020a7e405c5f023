package login_test

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"holdline/daemon/login"
)

// TestChallenge reads headers of real servers, and of careless ones.
func TestChallenge(t *testing.T) {
	for name, tt := range map[string]struct {
		header []string
		want   login.Challenge
	}{
		"none": {nil, login.Challenge{}},
		"usual": {
			[]string{`Bearer realm="OAuth", resource_metadata="https://h/.well-known/x", error="invalid_token", ` +
				`error_description="Missing \"token\""`},
			login.Challenge{
				Bearer: true, Metadata: "https://h/.well-known/x", Error: "invalid_token", Description: `Missing "token"`,
			},
		},
		"case, and no spaces": {
			[]string{`BEARER Scope="a b",RESOURCE_METADATA=https://h/m`},
			login.Challenge{Bearer: true, Metadata: "https://h/m", Scopes: []string{"a", "b"}},
		},
		"spaces around =":    {[]string{`Bearer scope = "a"`}, login.Challenge{Bearer: true, Scopes: []string{"a"}}},
		"no commas":          {[]string{`Bearer scope="a" error="x"`}, login.Challenge{Bearer: true, Scopes: []string{"a"}, Error: "x"}},
		"after Basic":        {[]string{`Basic realm="x", Bearer scope="a"`}, login.Challenge{Bearer: true, Scopes: []string{"a"}}},
		"after token68":      {[]string{`Negotiate YII/x==, Bearer scope="a"`}, login.Challenge{Bearer: true, Scopes: []string{"a"}}},
		"in a second header": {[]string{`Basic`, `Bearer scope=a`}, login.Challenge{Bearer: true, Scopes: []string{"a"}}},
		"without parameters": {[]string{`Bearer`}, login.Challenge{Bearer: true}},
		"the first counts":   {[]string{`Bearer scope=a, Bearer scope=b`}, login.Challenge{Bearer: true, Scopes: []string{"a"}}},
		"twice the same":     {[]string{`Bearer scope=a, scope=b`}, login.Challenge{Bearer: true, Scopes: []string{"a"}}},
		"DPoP alone":         {[]string{`DPoP algs="ES256"`}, login.Challenge{DPoP: true}},
		"DPoP and Bearer":    {[]string{`DPoP algs="ES256", Bearer error="x"`}, login.Challenge{Bearer: true, Error: "x"}},
		"a strange one first": {
			[]string{`(strange "quoted, Bearer scope=no" ), Bearer scope=a`},
			login.Challenge{Bearer: true, Scopes: []string{"a"}},
		},
		"never ending string": {[]string{`Bearer error="x`}, login.Challenge{Bearer: true}},
		"comma in a string":   {[]string{`Basic realm="a, Bearer scope=b"`}, login.Challenge{}},
		"control characters": {
			[]string{"Bearer error_description=\"a\u202eb\x1b[2Jc\nd\""},
			login.Challenge{Bearer: true, Description: "ab[2Jc d"},
		},
		"too long":     {[]string{strings.Repeat("x", 16<<10) + ", Bearer scope=a"}, login.Challenge{}},
		"bad scopes":   {[]string{"Bearer scope=\"a é a \\\\ b\""}, login.Challenge{Bearer: true, Scopes: []string{"a", "b"}}},
		"stray sign":   {[]string{`Bearer  =x"`}, login.Challenge{Bearer: true}},
		"empty header": {[]string{"", " , ,"}, login.Challenge{}},
	} {
		got := login.ParseChallenge(http.Header{"Www-Authenticate": tt.header})
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, tt.want)
		}
	}
}

// FuzzChallenge checks that no header stops or confuses the reader: what it returns is
// bounded and clean, and where another reader finds a Bearer challenge, so does it.
func FuzzChallenge(f *testing.F) {
	for _, seed := range []string{
		`Bearer realm="x", scope="a b", error="insufficient_scope"`, `Basic realm="x", Bearer resource_metadata="https://h/m"`,
		`Negotiate YII==, DPoP algs=ES256`, `Bearer`, `, ,`, `Bearer a="\"`, `x=y, Bearer`, `Bearer =,=`, "Bearer scope=\"\u202e\"",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		h := http.Header{"Www-Authenticate": {header}}
		got := login.ParseChallenge(h)
		if len(got.Scopes) > 100 || utf8.RuneCountInString(got.Description) > 300 || len(got.Metadata) > 8<<10 {
			t.Errorf("not bounded: %d scopes, %d bytes of text", len(got.Scopes), len(got.Description))
		}
		if strings.ContainsFunc(got.Description+got.Error, func(r rune) bool { return r < ' ' || r == '\u202e' }) {
			t.Errorf("not clean: %q", got.Description)
		}
		if got.Bearer && got.DPoP {
			t.Error("both")
		}
		theirs, err := oauthex.ParseWWWAuthenticate(h.Values("WWW-Authenticate"))
		odd := strings.ContainsFunc(header, func(r rune) bool { return r < ' ' && r != '\t' || r > '~' })
		if err != nil || odd || len(header) > 16<<10 { // net/http lets no control character through
			return
		}
		for _, c := range theirs {
			if c.Scheme == "bearer" {
				if !got.Bearer {
					t.Errorf("%q: no Bearer challenge, but the SDK finds %v", header, c)
				}
				return
			}
		}
	})
}
