package login

import (
	"net/http"
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

// Equal reports whether two challenges ask for the same.
func (c Challenge) Equal(other Challenge) bool {
	return c.Bearer == other.Bearer && c.DPoP == other.DPoP && c.Metadata == other.Metadata &&
		c.Error == other.Error && c.Description == other.Description && slices.Equal(c.Scopes, other.Scopes)
}

// ParseChallenge reads the WWW-Authenticate headers of an answer. It skips challenges that
// it cannot read.
func ParseChallenge(header http.Header) Challenge {
	left, dpop := maxChallenge, false
	for _, value := range header.Values("WWW-Authenticate") {
		value = value[:min(len(value), left)]
		left -= len(value)
		p := &challenges{rest: value}
		for p.next() {
			switch {
			case strings.EqualFold(p.scheme, "dpop"):
				dpop = true
			case strings.EqualFold(p.scheme, "bearer"):
				metadata := p.params["resource_metadata"]
				if len(metadata) > maxURL {
					metadata = ""
				}
				return Challenge{
					Bearer: true, Metadata: metadata, Scopes: ParseScopes(p.params["scope"]),
					Error: Clean(p.params["error"]), Description: Clean(p.params["error_description"]),
				}
			}
		}
	}
	return Challenge{DPoP: dpop}
}

// challenges reads the challenges of one header (RFC 9110, 11.3), also from servers that
// forget spaces or quotes.
type challenges struct {
	rest   string
	scheme string
	params map[string]string // by name in lower case; of one name the first counts
}

// next reads the next challenge, and reports whether there is one.
func (p *challenges) next() bool {
	p.scheme, p.params = "", map[string]string{}
	for p.skip(); p.rest != ""; p.skip() {
		begin := p.rest
		name := p.token()
		if name == "" { // something strange: the next comma begins anew
			p.drop()
			continue
		}
		rest := strings.TrimLeft(p.rest, " \t")
		value, ok := strings.CutPrefix(rest, "=")
		if ok && p.scheme != "" && !strings.HasPrefix(value, "=") {
			p.rest = strings.TrimLeft(value, " \t")
			text, ok := p.value()
			if _, twice := p.params[strings.ToLower(name)]; ok && !twice {
				p.params[strings.ToLower(name)] = text
			}
			continue
		}
		if ok { // a parameter of no scheme, or a token68 with = at its end
			p.drop()
			continue
		}
		if p.scheme != "" {
			p.rest = begin // it begins the next challenge
			return true
		}
		p.scheme = name
		p.token68()
	}
	return p.scheme != ""
}

// skip drops spaces and commas.
func (p *challenges) skip() { p.rest = strings.TrimLeft(p.rest, " \t,") }

// drop leaves out what follows, up to the next comma that is in no quoted string.
func (p *challenges) drop() {
	for p.rest != "" && p.rest[0] != ',' {
		if p.rest[0] == '"' {
			_, _ = p.value()
			continue
		}
		p.rest = p.rest[1:]
	}
}

// token reads a token, or nothing.
func (p *challenges) token() string {
	n := 0
	for n < len(p.rest) && isToken(p.rest[n]) {
		n++
	}
	out := p.rest[:n]
	p.rest = p.rest[n:]
	return out
}

// token68 drops the credentials that may follow a scheme in place of parameters.
func (p *challenges) token68() {
	rest := strings.TrimLeft(p.rest, " \t")
	n := 0
	for n < len(rest) && (isToken(rest[n]) || rest[n] == '/') {
		n++
	}
	end := strings.TrimLeft(rest[n:], "=")
	if n > 0 && (strings.TrimLeft(end, " \t") == "" || strings.TrimLeft(end, " \t")[0] == ',') {
		p.rest = end
	}
}

// value reads a quoted string, or all up to the next comma or space.
func (p *challenges) value() (string, bool) {
	if !strings.HasPrefix(p.rest, `"`) {
		n := strings.IndexAny(p.rest, ", \t")
		if n < 0 {
			n = len(p.rest)
		}
		out := p.rest[:n]
		p.rest = p.rest[n:]
		return out, true
	}
	var out strings.Builder
	for i := 1; i < len(p.rest); i++ {
		switch p.rest[i] {
		case '"':
			p.rest = p.rest[i+1:]
			return out.String(), true
		case '\\':
			if i++; i == len(p.rest) {
				continue
			}
		}
		out.WriteByte(p.rest[i])
	}
	p.rest = "" // the string never ends
	return "", false
}

// isToken reports whether a byte may be in a token (RFC 9110, 5.6.2).
func isToken(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
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
