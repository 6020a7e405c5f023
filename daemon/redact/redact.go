// Package redact hides what seems to be a secret: in the arguments and addresses of
// configured servers, where it errs on the side of hiding, and in what a server says,
// where it hides only what is clearly one.
package redact

import (
	"slices"
	"strings"
	"unicode"

	"holdline/daemon/lazyregexp"
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
		switch {
		case i > 0 && !strings.HasPrefix(arg, "-") && isFlag(args[i-1]) && isSecret(args[i-1], arg):
			out = append(out, h.value(arg))
		case withPassword().MatchString(arg) && isSecret(arg[:2], arg[2:]):
			out = append(out, arg[:2]+h.value(arg[2:]))
		default:
			out = append(out, h.arg(arg))
		}
	}
	return out
}

// isFlag reports whether an argument is an option whose value is the next one.
func isFlag(arg string) bool { return strings.HasPrefix(arg, "-") && !strings.ContainsAny(arg, "=: ") }

// withPassword matches a flag of one letter and its value in one argument: mysql -phunter2.
var withPassword = lazyregexp.New(`^-[pktPKT][^=:-][^=:]*$`)

// arg hides the secrets in one argument: in NAME=VALUE, in a header such as NAME:
// VALUE, or in other text.
func (h *hider) arg(arg string) string {
	if i := strings.IndexAny(arg, "=:"); i > 0 && isSecret(arg[:i], arg[i+1:]) && !strings.HasPrefix(arg[i:], "://") {
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
	if isReference(value) {
		return value
	}
	word := scheme().FindString(value)
	h.found = append(h.found, value, value[len(word):])
	return word + Hidden
}

// isReference reports whether a value is only a reference such as ${TOKEN}, after a scheme or
// not, or empty.
func isReference(value string) bool {
	bare := reference().ReplaceAllString(value, "")
	return strings.Trim(scheme().ReplaceAllString(bare, ""), " ") == ""
}

// reference is ${NAME}; one with a default may hold a secret.
var reference = lazyregexp.New(`\$\{[A-Za-z0-9_]+(:-)?\}`)

// scheme is how the value of an Authorization header begins.
var scheme = lazyregexp.New(`^(?i:bearer|basic|token)\b *`)

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
			if name, value, _ := strings.Cut(pair, "="); isSecret("-"+name, value) {
				pairs[i] = name + "=" + h.value(value)
			} else {
				pairs[i] = h.arg(pair)
			}
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

// tokenForms matches how secrets of well-known services begin.
const tokenForms = `\b(gh[pousr]_|github_pat_|glpat-|sk-|sk_|pk_|rk_|xox[a-z]-|xapp-|AKIA|ASIA|AIza|ya29\.|eyJ|npm_|` +
	`pypi-|hf_|figd_|lin_api_|ntn_|secret_|dop_v1_|shpat_|SG\.|tvly-|fc-|phx_)[A-Za-z0-9_.-]{8}`

// tokens is [tokenForms].
var tokens = lazyregexp.New(tokenForms)

// run is a row of characters as long as that of a key.
var run = lazyregexp.New(`[A-Za-z0-9+]{20,}`)

// bearer is a token behind the scheme of an Authorization header.
var bearer = lazyregexp.New(`(?i)\b(bearer +)([A-Za-z0-9._~+/=-]{8,})`)

// clearToken is [tokens] as far as the token goes.
var clearToken = lazyregexp.New(tokenForms + `[A-Za-z0-9_.-]*`)

// named is NAME=VALUE within a text.
var named = lazyregexp.New(`([\w-]+)=("[^"]+"|'[^']+'|[^\s"',;&)]+)`)

// address is an address within a text.
var address = lazyregexp.New(`\b[a-z][a-z0-9+.-]*://[^\s"'<>()]+`)

// Text returns what a server says as it may be shown: without tokens of well-known services,
// tokens behind Bearer, values with a name such as api_key, and the secrets in addresses. Other words
// stay, however long: they may be what the reader looks for.
func Text(s string) string {
	if !strings.ContainsAny(s, "0123456789=@") { // most lines: a token has a digit
		return s
	}
	s = address().ReplaceAllStringFunc(s, URL)
	s = named().ReplaceAllStringFunc(s, func(pair string) string {
		name, value, _ := strings.Cut(pair, "=")
		if bare := strings.Trim(value, `"'`); NamesSecret(name) && !isReference(bare) {
			return name + "=" + strings.Replace(value, bare, Hidden, 1)
		}
		return pair
	})
	s = bearer().ReplaceAllStringFunc(s, func(words string) string {
		m := bearer().FindStringSubmatch(words)
		if !digit().MatchString(m[2]) {
			return words
		}
		return m[1] + Hidden
	})
	return clearToken().ReplaceAllStringFunc(s, func(word string) string {
		if !digit().MatchString(word) && len(word) < 24 { // npm_config_registry
			return word
		}
		return Hidden
	})
}

// digit is one digit. A run counts as a key only if some of its characters are digits.
var digit = lazyregexp.New(`[0-9]`)

// isToken reports whether a text looks like a key or a token: it begins like one,
// or has a long row of letters and digits.
func isToken(s string) bool {
	if s = reference().ReplaceAllString(s, "-"); tokens().MatchString(s) {
		return true
	}
	return slices.ContainsFunc(run().FindAllString(s, -1), func(row string) bool {
		digits := len(digit().FindAllString(row, -1))
		return digits >= 3 && len(row)-digits >= 3
	})
}

// isSecret reports whether the value of a flag, variable or header of that name is
// probably a secret. A flag of one letter may mean anything, so its value decides, too:
// one of -p, -k and -t hides what is neither a number nor a plain word or name, and any
// other one hides a row of letters and digits as in a key.
func isSecret(name, value string) bool {
	if NamesSecret(name) {
		return true
	}
	if len(name) != 2 || name[0] != '-' {
		return false
	}
	if strings.Contains("pkt", strings.ToLower(name[1:])) && len(value) >= 6 && !ordinary().MatchString(value) {
		return true
	}
	return slices.ContainsFunc(shortRun().FindAllString(value, -1), func(row string) bool {
		return strings.ContainsAny(row, "0123456789") && strings.ToLower(row) != row && strings.ToUpper(row) != row
	})
}

// ordinary matches what flags such as -p have besides secrets: numbers, ports and times;
// words, which punctuation may join; paths and files; images, and packages with a version.
var ordinary = lazyregexp.New(`^([0-9][0-9.:,-]*(/?[a-z]{1,3})?|[A-Za-z]?[a-z]*([-_.:=,][a-z]+)*|` +
	`[\w-]+\.(json|ya?ml|toml|[jt]s|py)|(/|\.\.?/|~/|@?[a-z][a-z0-9._-]*/|https?://|\$\{).*|` +
	`[a-z][a-z0-9._-]*[@:][v^~]?([0-9][0-9a-z.-]*|latest|next))$`)

// shortRun is a row of characters that may be a short key.
var shortRun = lazyregexp.New(`[A-Za-z0-9+]{12,}`)

// Parts of names that say that the value is a secret: long ones wherever they
// stand, short ones as a word.
var (
	secretParts = []string{
		"token", "secret", "passw", "passphrase", "apikey", "accesskey", "privatekey", "authkey", "signingkey",
		"authorization", "credential", "cookie", "bearer", "signature", "connectionstring",
	}
	secretWords = []string{"key", "pass", "pwd", "pw", "pat", "auth", "sig", "dsn", "tok", "jwt"}
)

// NamesSecret reports whether the value of that name is probably a secret. That of
// TOKEN_FILE is none: it says where one is.
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
	if words[len(words)-1] == "file" {
		return false
	}
	whole := strings.Join(words, "")
	return slices.ContainsFunc(secretParts, func(part string) bool { return strings.Contains(whole, part) }) ||
		slices.ContainsFunc(secretWords, func(w string) bool { return slices.Contains(words, w) })
}

// IsPlace reports whether a value is a path, a list of paths, or an address without a password or a token: people need
// those to understand what a server says.
func IsPlace(value string) bool {
	if Text(value) != value {
		return false
	}
	if strings.Contains(value, "://") {
		return URL(value) == value
	}
	return paths().MatchString(value)
}

// paths are one or more paths, the first of at least two names, with : between them. Parts of a name may look like a
// key, as in /nix/store.
var paths = lazyregexp.New(`^(~|\.\.?)?(/[\w.@+,%= -]+){2,}/?(:(~|\.\.?)?(/[\w.@+,%= -]+)+/?)*$`)

// IsWords reports whether a value is nothing but words of one case and numbers, with punctuation between them:
// eu-west-1, read,write, db.internal:5432.
func IsWords(value string) bool { return Text(value) == value && plain().MatchString(value) }

// plain is what [IsWords] looks for.
var plain = lazyregexp.New(`^` + plainWord + `([-_.:/, ]+` + plainWord + `)*$`)

const plainWord = `([A-Z]?[a-z]+|[A-Z]+|[0-9]{1,6}|[a-z][0-9]{1,2})`

// Mask returns what a process says with [Hidden] in place of each of the secrets, which must be
// sorted longest first, and of tokens that it has from elsewhere: see [Text].
func Mask(s string, secrets []string) string {
	for _, secret := range secrets {
		s = strings.ReplaceAll(s, secret, Hidden)
	}
	return Text(s)
}
