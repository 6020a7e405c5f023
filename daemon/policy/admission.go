package policy

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"maps"
	"slices"
	"strings"

	"holdline/protocol"
)

// Authorise decides whether a client that presents token may call itself
// identity. A name with a token is for those who present it; a name without
// is for any client that presents none: a token that nothing asks for is a
// mistake, which is said aloud rather than taken for a permission. The error
// is a [*protocol.Refusal] for the client to read, and names no secret.
func (r Rules) Authorise(identity, token string) error {
	refuse := func(format string, args ...any) error {
		return &protocol.Refusal{Code: protocol.RefusedIdentity, Message: fmt.Sprintf(format, args...)}
	}
	want := r.current().Identities[identity].Token
	switch {
	case want == "" && token == "":
		return nil
	case identity == "":
		return refuse("a token was given, but no identity that it is for")
	case want == "":
		return refuse("identity %q has no token in the configuration, but one was given", identity)
	case token == "":
		return refuse("identity %q needs its token", identity)
	case !equal(want.Reveal(), token):
		return refuse("the token is not that of identity %q", identity)
	}
	return nil
}

// Reserved reports whether identity needs a token, so that no client can become
// it by a name alone.
func (r Rules) Reserved(identity string) bool { return r.current().Identities[identity].Token != "" }

// equal compares in a time that depends on neither content nor length.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// CheckView returns a [*protocol.Refusal] if there is no view of that name; "" is none. It names
// those that there are.
func (r Rules) CheckView(name string) error {
	c := r.current()
	if _, ok := c.Views[name]; ok || name == "" {
		return nil
	}
	there := "the configuration has none"
	if len(c.Views) > 0 {
		there = "those that there are: " + strings.Join(slices.Sorted(maps.Keys(c.Views)), ", ")
	}
	return &protocol.Refusal{
		Code: protocol.RefusedView, Message: fmt.Sprintf("there is no view %q; %s", name, there),
	}
}
