package login

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of what is kept of a server's words.
const (
	maxChallenge = 16 << 10 // bytes of all WWW-Authenticate headers
	maxScopes    = 100
	maxScope     = 256 // bytes
	maxWords     = 300 // characters
)

// Challenge is what a server asks for when it refuses a request: the first challenge
// Bearer of its WWW-Authenticate headers.
type Challenge struct {
	Bearer      bool     `json:"bearer,omitempty"`            // there is one
	DPoP        bool     `json:"dpop,omitempty"`              // there is none, but one DPoP
	Metadata    string   `json:"resource_metadata,omitempty"` // URL, not checked
	Scopes      []string `json:"scopes,omitempty"`
	Error       string   `json:"error,omitempty"`
	Description string   `json:"error_description,omitempty"` // cleaned
}

// challengePart matches a quoted string that stands alone, or a word and the value that it may
// have: of a header WWW-Authenticate (RFC 9110, 11.6.1), also from servers that forget commas,
// quotes or spaces. A word without a value is a scheme; so is bearer, which is no parameter's name.
const challengePart = `(?s)"(?:[^"\\]|\\.)*"?|` +
	"([-!#$%&'*+.^_`|~0-9A-Za-z]+)" + `[ \t]*(?:=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^,\s"]*)))?`

// ParseChallenge reads the WWW-Authenticate headers of an answer. It skips what it cannot read.
func ParseChallenge(header http.Header) (c Challenge) {
	part, left, dpop := regexp.MustCompile(challengePart), maxChallenge, false
	params := map[string]string{} // of the challenge Bearer; of one name the first counts
	for _, value := range header.Values("WWW-Authenticate") {
		value = value[:min(len(value), left)]
		left -= len(value)
		inBearer := false
		for _, m := range part.FindAllStringSubmatchIndex(value, -1) {
			if m[2] < 0 {
				continue
			}
			name := strings.ToLower(value[m[2]:m[3]])
			_, twice := params[name]
			switch isParam := (m[4] >= 0 || m[6] >= 0) && name != "bearer"; {
			case isParam && (!inBearer || twice):
			case isParam && m[4] >= 0:
				params[name] = unquote(value[m[4]:m[5]])
			case isParam:
				params[name] = value[m[6]:m[7]]
			default:
				inBearer = name == "bearer" && !c.Bearer
				c.Bearer = c.Bearer || inBearer
				dpop = dpop || name == "dpop"
			}
		}
	}
	if c.Metadata = params["resource_metadata"]; len(c.Metadata) > maxURL {
		c.Metadata = ""
	}
	c.DPoP, c.Scopes = dpop && !c.Bearer, ParseScopes(params["scope"])
	c.Error, c.Description = Clean(params["error"]), Clean(params["error_description"])
	return c
}

// unquote returns the inside of a quoted string without its escapes.
func unquote(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// ParseScopes returns the scopes of a list with spaces: at most 100 of at most 256 bytes,
// each once, in their order. Those that no request may have are left out (RFC 6749, 3.3).
func ParseScopes(list string) []string { return JoinScopes(strings.Fields(list)) }

// JoinScopes returns the scopes of all lists, as [ParseScopes] does.
func JoinScopes(lists ...[]string) []string {
	var out []string
	for _, scope := range slices.Concat(lists...) {
		bad := scope == "" || len(scope) > maxScope || strings.ContainsFunc(scope, func(r rune) bool {
			return r <= ' ' || r > '~' || r == '"' || r == '\\'
		})
		if !bad && len(out) < maxScopes && !slices.Contains(out, scope) {
			out = append(out, scope)
		}
	}
	return out
}

// Clean returns words of a server as they may be shown: at most 300 characters, on one
// line, without control characters and those that change the direction of text.
func Clean(s string) string {
	var out []rune
	for _, r := range s {
		switch {
		case len(out) == maxWords:
			return string(out)
		case unicode.IsSpace(r):
			r = ' '
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs), r == utf8.RuneError:
			continue
		}
		out = append(out, r)
	}
	return strings.TrimSpace(string(out))
}
