// Package redact hides what seems to be a secret in the arguments and addresses of
// configured servers. It errs on the side of hiding.
package redact

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Hidden stands for a secret.
const Hidden = "***"

// Args returns arguments of a command as they may be shown: [Hidden] stands for what
// seems to be a secret that was written there in full. A reference such as ${TOKEN}
// stays.
func Args(args []string) []string {
	var h hider
	return h.args(args)
}

// URL returns an address as it may be shown; see [Args].
func URL(address string) string {
	var h hider
	return h.text(address)
}

// Secrets returns what [Args] hides.
func Secrets(args []string) []string {
	var h hider
	h.args(args)
	return h.found
}

// hider replaces what seems to be a secret by ***. It errs on the side of hiding.
type hider struct {
	found []string // what was replaced
}

// args hides the secrets in the arguments of a command.
func (h *hider) args(args []string) []string {
	out := make([]string, 0, len(args))
	for i, arg := range args {
		if i > 0 && !strings.HasPrefix(arg, "-") && isFlag(args[i-1]) && NamesSecret(args[i-1]) {
			out = append(out, h.value(arg))
			continue
		}
		out = append(out, h.arg(arg))
	}
	return out
}

// isFlag reports whether an argument is an option whose value is the next one.
func isFlag(arg string) bool { return strings.HasPrefix(arg, "-") && !strings.ContainsAny(arg, "=: ") }

// arg hides the secrets in one argument: in NAME=VALUE, in a header such as NAME:
// VALUE, or in other text.
func (h *hider) arg(arg string) string {
	if i := strings.IndexAny(arg, "=:"); i > 0 && NamesSecret(arg[:i]) && !strings.HasPrefix(arg[i:], "://") {
		rest := arg[i+1:]
		value := strings.TrimLeft(rest, " ")
		return arg[:i+1] + rest[:len(rest)-len(value)] + h.value(value)
	}
	if name, value, ok := strings.Cut(arg, "="); ok && !strings.ContainsAny(name, ":/?") {
		return name + "=" + h.text(value)
	}
	return h.text(arg)
}

// value hides a value whose name says that it is a secret, and records it. The scheme
// of an Authorization header stays, and so does a value that is only a reference such
// as ${TOKEN}.
func (h *hider) value(value string) string {
	if bare := reference.ReplaceAllString(value, ""); strings.Trim(scheme.ReplaceAllString(bare, ""), " ") == "" {
		return value
	}
	word := scheme.FindString(value)
	h.found = append(h.found, value, value[len(word):])
	return word + Hidden
}

// reference is ${NAME}; one with a default may hold a secret.
var reference = regexp.MustCompile(`\$\{[A-Za-z0-9_]+(:-)?\}`)

// scheme is how the value of an Authorization header begins.
var scheme = regexp.MustCompile(`^(?i:bearer|basic|token)\b *`)

// text hides the secrets in any other text: in an address the password, the token in a
// path, and the values of a query; elsewhere each part that looks like a token.
func (h *hider) text(s string) string {
	before, rest, ok := strings.Cut(s, "://")
	if !ok {
		return h.words(s, "/")
	}
	rest, fragment, hasFragment := strings.Cut(rest, "#")
	rest, query, hasQuery := strings.Cut(rest, "?")
	authority, path, hasPath := strings.Cut(rest, "/")
	out := before + "://"
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		name, password, ok := strings.Cut(authority[:i], ":")
		if ok {
			out += h.words(name, "") + ":" + h.value(password) + "@"
		} else {
			out += h.value(name) + "@"
		}
		authority = authority[i+1:]
	}
	out += authority
	if hasPath {
		out += "/" + h.words(path, "/")
	}
	if hasQuery {
		pairs := strings.Split(query, "&")
		for i, pair := range pairs {
			pairs[i] = h.arg(pair)
		}
		out += "?" + strings.Join(pairs, "&")
	}
	if hasFragment {
		out += "#" + h.arg(fragment)
	}
	return out
}

// words hides the parts of a text, split at separator, that look like a token. With ""
// the text is one part.
func (h *hider) words(s, separator string) string {
	parts := []string{s}
	if separator != "" {
		parts = strings.Split(s, separator)
	}
	for i, part := range parts {
		if isToken(part) {
			parts[i] = h.value(part)
		}
	}
	return strings.Join(parts, separator)
}

// tokens are how secrets of well-known services begin.
var tokens = regexp.MustCompile(
	`\b(gh[pousr]_|github_pat_|glpat-|sk-|sk_|pk_|rk_|xox[a-z]-|xapp-|AKIA|ASIA|AIza|ya29\.|eyJ|npm_|pypi-|hf_|` +
		`figd_|lin_api_|ntn_|secret_|dop_v1_|shpat_|SG\.|tvly-|fc-|phx_)[A-Za-z0-9_.-]{8}`)

// run is a row of characters as long as that of a key.
var run = regexp.MustCompile(`[A-Za-z0-9+]{20,}`)

// digit is one digit. A run counts as a key only if some of its characters are digits.
var digit = regexp.MustCompile(`[0-9]`)

// isToken reports whether a text looks like a key or a token: it begins like one,
// or has a long row of letters and digits.
func isToken(s string) bool {
	if s = reference.ReplaceAllString(s, "-"); tokens.MatchString(s) {
		return true
	}
	return slices.ContainsFunc(run.FindAllString(s, -1), func(row string) bool {
		digits := len(digit.FindAllString(row, -1))
		return digits >= 3 && len(row)-digits >= 3
	})
}

// Parts of names that say that the value is a secret: long ones wherever they
// stand, short ones as a word.
var (
	secretParts = []string{
		"token", "secret", "passw", "passphrase", "apikey", "accesskey", "privatekey", "authkey", "signingkey",
		"authorization", "credential", "cookie", "bearer", "signature", "connectionstring",
	}
	secretWords = []string{"key", "pass", "pwd", "pat", "auth", "sig", "dsn"}
)

// NamesSecret reports whether the value of that name is probably a secret.
func NamesSecret(name string) bool {
	var words []string
	word := ""
	for _, r := range name {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			words, word = append(words, word), ""
		case unicode.IsUpper(r) && word != "" && strings.ToLower(word) == word:
			words, word = append(words, word), string(r)
		default:
			word += string(r)
		}
	}
	words = append(words, word)
	for i := range words {
		words[i] = strings.ToLower(words[i])
	}
	whole := strings.Join(words, "")
	return slices.ContainsFunc(secretParts, func(part string) bool { return strings.Contains(whole, part) }) ||
		slices.ContainsFunc(secretWords, func(w string) bool { return slices.Contains(words, w) })
}
