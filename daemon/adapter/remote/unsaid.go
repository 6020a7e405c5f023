package remote

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"holdline/daemon/redact"
)

// Limits of what is hidden in the messages of a server.
const (
	maxTokens = 16 // of a login: the server may repeat one that it was sent earlier
	// leastToken is the length in bytes from which on a secret is hidden. A shorter one may be a
	// common word, and messages must arrive as they are.
	leastToken = 8
)

// unsaid hides in all that a server says the secrets that it was sent: servers repeat them in errors, and some in
// results. It is safe for concurrent use.
type unsaid struct {
	fixed []string // secrets of the configuration

	mu     sync.Mutex
	tokens []redact.Secret // of the login, the last ones that were sent; guarded by mu
	words  []string        // all forms in which secrets turn up, the longest first; replaced, never changed; guarded by mu
}

// newUnsaid returns what hides these secrets, and tokens that are sent later.
func newUnsaid(secrets []string) *unsaid {
	u := &unsaid{}
	for _, secret := range secrets {
		u.fixed = append(u.fixed, secret)
		if bare := strings.Trim(secret, `"`); bare != secret { // as a server reads it
			u.fixed = append(u.fixed, bare)
		}
		// A server knows the two parts of "user:password".
		if pair, err := base64.StdEncoding.DecodeString(secret); err == nil {
			if _, password, ok := strings.Cut(string(pair), ":"); ok {
				u.fixed = append(u.fixed, string(pair), password)
			}
		}
	}
	u.words = forms(u.fixed)
	return u
}

// sent notes that the server gets a token.
func (u *unsaid) sent(token redact.Secret) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if token == "" || slices.Contains(u.tokens, token) {
		return
	}
	u.tokens = append(slices.Clip(u.tokens[max(0, len(u.tokens)+1-maxTokens):]), token)
	all := slices.Clone(u.fixed)
	for _, token := range u.tokens {
		all = append(all, token.Reveal())
	}
	u.words = forms(all)
}

// forms returns the secrets that are long enough in all forms of [redact.Forms].
func forms(secrets []string) []string {
	return redact.Forms(slices.DeleteFunc(slices.Clone(secrets), func(secret string) bool { return len(secret) < leastToken }))
}

// known returns the forms of all secrets, the longest first.
func (u *unsaid) known() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.words
}

// text returns a text without the secrets.
func (u *unsaid) text(s string) string { return hide(s, u.known()) }

// hide returns s without the words.
func hide(s string, words []string) string {
	for _, word := range words {
		s = strings.ReplaceAll(s, word, redact.Hidden)
	}
	return s
}

// line returns a message without the secrets, also where the server has escaped characters of them. Nothing else
// changes, and a message without secrets is returned as it is.
func (u *unsaid) line(line []byte) []byte {
	words := u.known()
	if len(words) == 0 || !mayHave(line, words) {
		return line
	}
	out := make([]byte, 0, len(line))
	for rest := line; ; {
		begin := bytes.IndexByte(rest, '"')
		if begin < 0 {
			return append(out, rest...)
		}
		end := endOfString(rest, begin)
		out = append(out, rest[:begin]...)
		out = appendHidden(out, rest[begin:end], words)
		rest = rest[end:]
	}
}

// mayHave reports whether a message may have one of the words in a string. Of the many escaped characters that
// messages have only those count that a word can have.
func mayHave(line []byte, words []string) bool {
	for _, word := range words {
		if bytes.Contains(line, []byte(word)) {
			return true
		}
		if strings.ContainsFunc(strings.ReplaceAll(word, redact.EscapedSlash, ""), isEscaped) && bytes.IndexByte(line, '\\') >= 0 {
			return true
		}
	}
	if bytes.Contains(line, []byte(redact.EscapedSlash)) {
		return true
	}
	for rest := line; ; {
		i := bytes.Index(rest, []byte(`\u00`))
		if i < 0 || i+4 >= len(rest) {
			return false
		}
		if rest = rest[i+4:]; rest[0] >= '2' && rest[0] <= '7' {
			return true
		}
	}
}

// isEscaped reports whether JSON escapes a character, or may.
func isEscaped(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }

// endOfString returns where the string that begins at begin ends, behind its quote.
func endOfString(line []byte, begin int) int {
	for i := begin + 1; i < len(line); i++ {
		switch line[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(line)
}

// appendHidden appends a JSON string without the words.
func appendHidden(out, text []byte, words []string) []byte {
	if bytes.IndexByte(text, '\\') < 0 {
		inner, closed := bytes.CutSuffix(text[1:], []byte{'"'}) // a secret may begin or end with a quote, too
		for _, word := range words {
			inner = bytes.ReplaceAll(inner, []byte(word), []byte(redact.Hidden))
		}
		if out = append(append(out, '"'), inner...); closed {
			out = append(out, '"')
		}
		return out
	}
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return append(out, text...)
	}
	hidden := hide(s, words)
	if hidden == s {
		return append(out, text...)
	}
	encoded, err := json.Marshal(hidden)
	if err != nil { // strings always encode
		return append(out, `"`+redact.Hidden+`"`...)
	}
	return append(out, encoded...)
}

// log returns a logger that writes to log without the secrets.
func (u *unsaid) log(log *slog.Logger) *slog.Logger {
	return slog.New(&hidingHandler{log.Handler(), u})
}

// hidingHandler is a handler of records without secrets.
type hidingHandler struct {
	slog.Handler
	u *unsaid
}

// Handle passes on a record whose message and values have no secrets.
func (h *hidingHandler) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, r.Level, h.u.text(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(h.attr(a))
		return true
	})
	return h.Handler.Handle(ctx, out)
}

// attr returns an attribute without secrets.
func (h *hidingHandler) attr(a slog.Attr) slog.Attr {
	switch v := a.Value.Resolve(); v.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(h.u.text(v.String()))
	case slog.KindAny:
		a.Value = slog.StringValue(h.u.text(v.String())) // an error, or what prints itself
	case slog.KindGroup:
		var all []slog.Attr
		for _, one := range v.Group() {
			all = append(all, h.attr(one))
		}
		a.Value = slog.GroupValue(all...)
	case slog.KindBool, slog.KindDuration, slog.KindFloat64, slog.KindInt64, slog.KindTime, slog.KindUint64,
		slog.KindLogValuer: // numbers; and a resolved value is no LogValuer
	}
	return a
}

// WithAttrs returns a handler with more attributes.
func (h *hidingHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	all := make([]slog.Attr, 0, len(attrs))
	for _, a := range attrs {
		all = append(all, h.attr(a))
	}
	return &hidingHandler{h.Handler.WithAttrs(all), h.u}
}

// WithGroup returns a handler whose attributes are in a group.
func (h *hidingHandler) WithGroup(name string) slog.Handler {
	return &hidingHandler{h.Handler.WithGroup(name), h.u}
}
