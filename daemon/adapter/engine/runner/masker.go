package runner

import (
	"slices"
	"strings"

	"holdline/daemon/redact"
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
