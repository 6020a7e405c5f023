package runner

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"holdline/daemon/redact"
	"holdline/protocol/jsonrpc"
)

// masker replaces secrets in what is written and reported.
type masker struct {
	*strings.Replacer

	secrets []string
}

// newMasker returns a masker of the values of the variables in names, which may be secrets, in all forms of
// [redact.Forms]. It leaves values of fewer than six bytes alone: they are words that occur by chance.
func newMasker(environ, names []string) *masker {
	var values []string
	for _, kv := range environ {
		if name, value, _ := strings.Cut(kv, "="); len(value) >= 6 && slices.Contains(names, name) {
			values = append(values, value)
			if bare := strings.Trim(value, `"`); len(bare) >= 6 { // as programs read it
				values = append(values, bare)
			}
		}
	}
	m := masker{secrets: redact.Forms(values)}
	var pairs []string
	for _, secret := range m.secrets {
		pairs = append(pairs, secret, redact.Hidden)
	}
	m.Replacer = strings.NewReplacer(pairs...)
	return &m
}

// inJSON returns a JSON text with secrets replaced, which stays JSON. With numbers set, a number that has a secret in
// it becomes a string; else numbers stay.
func (m *masker) inJSON(raw json.RawMessage, numbers bool) json.RawMessage {
	if len(raw) == 0 {
		return raw
	}
	masked := json.RawMessage(m.Replace(string(raw)))
	if json.Valid(masked) {
		return masked
	}
	// Something else than the text in a string has what is replaced: most variables have no secret, but a number.
	var value any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if d.Decode(&value) != nil { // it was no JSON before
		return nil
	}
	return jsonrpc.Encode(m.value(value, numbers))
}

// value is [masker.inJSON] for a value that is decoded.
func (m *masker) value(value any, numbers bool) any {
	switch v := value.(type) {
	case string:
		return m.Replace(v)
	case json.Number:
		if text := m.Replace(v.String()); numbers && text != v.String() {
			return text
		}
	case []any:
		for i := range v {
			v[i] = m.value(v[i], numbers)
		}
	case map[string]any:
		all := make(map[string]any, len(v))
		for key, one := range v {
			all[m.Replace(key)] = m.value(one, numbers)
		}
		return all
	}
	return value
}

// begun returns how many bytes at the end of text may be the beginning of a secret.
func (m *masker) begun(text string) int {
	most := 0
	for _, secret := range m.secrets {
		for n := min(len(secret)-1, len(text)); n > most; n-- {
			if strings.HasSuffix(text, secret[:n]) {
				most = n
			}
		}
	}
	return most
}
