package redact

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/url"
	"slices"
	"strings"
)

// leastEncoded is the length in bytes from which on a secret is looked for in base64 and in hexadecimal: what
// these have of a shorter one may stand anywhere.
const leastEncoded = 8

// Forms returns secrets as they are, and as programs write them: in addresses, in pages, in JSON, which may be a
// string in JSON, in base64 and in hexadecimal. The longest are first, as [Mask] needs them. "" is no secret.
func Forms(secrets []string) []string {
	var words []string
	for _, secret := range secrets {
		if secret == "" {
			continue
		}
		words = append(words, secret, html.EscapeString(secret), strings.ReplaceAll(secret, "/", EscapedSlash))
		words = append(words, inJSON(secret, true), inJSON(secret, false))
		for _, form := range []string{url.QueryEscape(secret), url.PathEscape(secret)} {
			words = append(words, form, lowerEscapes(form))
		}
		if len(secret) >= leastEncoded {
			small := hex.EncodeToString([]byte(secret))
			words = append(append(words, small, strings.ToUpper(small)), base64s(secret)...)
		}
	}
	slices.SortFunc(words, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b)) })
	return slices.Compact(words)
}

// EscapedSlash is how many programs write a slash in JSON.
const EscapedSlash = `\/`

// base64s returns what base64 has of a text, wherever it stands in what is encoded: a header that a server
// encodes has more before and behind it. The characters at both ends depend on that, and are left out.
func base64s(text string) (all []string) {
	for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			first := (before*8 + 5) / 6         // the first character that the text alone decides
			end := (before + len(text)) * 8 / 6 // behind the last one
			encoded := alphabet.EncodeToString(append(make([]byte, before), text...))
			form := encoded[first:end]
			all = append(all, form, strings.ReplaceAll(form, "/", EscapedSlash), url.QueryEscape(form))
		}
	}
	return all
}

// inJSON returns a text as it stands in a string of JSON. With pages set, that may stand in a page.
func inJSON(text string, pages bool) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(pages)
	if e.Encode(text) != nil { // no string fails to encode
		return text
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(b.String(), "\n"), `"`), `"`)
}

// lowerEscapes returns a text with its percent escapes in lower case, as some programs write them.
func lowerEscapes(text string) string {
	b := []byte(text)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:i+3], bytes.ToLower(b[i+1:i+3]))
		}
	}
	return string(b)
}
