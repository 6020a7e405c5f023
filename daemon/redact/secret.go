package redact

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
)

// Secret is a string that printing, logging and encoding do not show. Reveal
// is the only way to it.
type Secret string

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return string(s) }

// String hides the secret and shows only whether there is one.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return Hidden
}

// Format hides the secret from every verb. Without it, a verb that does not fit a string,
// such as %d, would print the value.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return cmp.Or(s.String(), `""`) }

// LogValue hides the secret from logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText hides the secret from JSON.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Reveal returns env with its values in plain text, for the environment of a child.
func Reveal(env map[string]Secret) map[string]string {
	out := make(map[string]string, len(env))
	for name, value := range env {
		out[name] = value.Reveal()
	}
	return out
}
