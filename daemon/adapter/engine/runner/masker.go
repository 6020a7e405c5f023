package runner

import (
	"encoding/json"
	"slices"
	"strings"

	"holdline/protocol/jsonrpc"
)

// masker replaces secrets in what is written and reported.
type masker struct {
	*strings.Replacer

	secrets []string
}

// newMasker returns a masker of the values of the variables in names, which may be secrets. It
// leaves values of fewer than six bytes alone: they are words that occur by chance.
func newMasker(environ, names []string) *masker {
	var m masker
	for _, kv := range environ {
		if name, value, _ := strings.Cut(kv, "="); len(value) >= 6 && slices.Contains(names, name) {
			m.secrets = append(m.secrets, value)
		}
	}
	// The longest first: a secret may begin with another one.
	slices.SortStableFunc(m.secrets, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, secret := range m.secrets {
		pairs = append(pairs, secret, "***")
		quoted := strings.Trim(string(jsonrpc.Encode(secret)), `"`) // as it stands in JSON
		if plain, err := json.Marshal(secret); err == nil && quoted != secret {
			pairs = append(pairs, quoted, "***", strings.Trim(string(plain), `"`), "***")
		}
	}
	m.Replacer = strings.NewReplacer(pairs...)
	return &m
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
