package config

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"

	"holdline/protocol"
)

// Authorise decides whether a client that presents token may call itself
// identity. A name with a token is for those who present it; a name without
// is for any client that presents none: a token that nothing asks for is a
// mistake, which is said aloud rather than taken for a permission. The error
// is a [*protocol.Refusal] for the client to read, and names no secret.
func (c Config) Authorise(identity, token string) error {
	refuse := func(format string, args ...any) error {
		return &protocol.Refusal{Code: protocol.RefusedIdentity, Message: fmt.Sprintf(format, args...)}
	}
	want := c.Identities[identity].Token
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
func (c Config) Reserved(identity string) bool { return c.Identities[identity].Token != "" }

// Searches reports whether identity finds the tools of hosted servers by words
// instead of in its list of tools.
func (c Config) Searches(identity string) bool {
	return c.Identities[identity].Expose == ExposeSearch
}

// equal compares in a time that depends on neither content nor length.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
