// Package assertion makes the JWTs by which clients show who they are, without a secret that
// travels (RFC 7523).
package assertion

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"time"

	"holdline/daemon/redact"
)

// life is how long an assertion is good.
const life = time.Minute

// errKey reports a private key that cannot sign. It shows nothing of the key.
var errKey = errors.New("oauth.privateKeyFile is no PEM key for ES256 (P-256) or RS256")

// A Client is who makes assertions.
type Client struct {
	ID    string
	Key   redact.Secret // PEM
	KeyID string        // "" is none
	Alg   string        // ES256 or RS256; "" is that of the key
}

// Assert returns an assertion for the authorization server with that issuer. The error shows
// nothing of the key.
func (c Client) Assert(issuer string, now time.Time) (string, error) {
	key, alg, err := parseKey(c.Key)
	if err != nil || c.Alg != "" && c.Alg != alg {
		return "", errKey
	}
	head := map[string]string{"alg": alg, "typ": "JWT"}
	if c.KeyID != "" {
		head["kid"] = c.KeyID
	}
	claims := map[string]any{
		"iss": c.ID, "sub": c.ID, "aud": issuer, "jti": rand.Text(),
		"iat": now.Unix(), "exp": now.Add(life).Unix(),
	}
	var text string
	for _, part := range []any{head, claims} {
		b, err := json.Marshal(part)
		if err != nil {
			return "", err
		}
		text += base64.RawURLEncoding.EncodeToString(b) + "."
	}
	text = text[:len(text)-1]
	signature, err := sign(key, sha256.Sum256([]byte(text)))
	if err != nil {
		return "", errKey
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}

// sign signs a hash. A JWT has the two numbers of an ECDSA signature side by side.
func sign(key crypto.Signer, hash [sha256.Size]byte) ([]byte, error) {
	if k, ok := key.(*ecdsa.PrivateKey); ok {
		r, s, err := ecdsa.Sign(rand.Reader, k, hash[:])
		if err != nil {
			return nil, err
		}
		out := make([]byte, 64)
		r.FillBytes(out[:32])
		s.FillBytes(out[32:])
		return out, nil
	}
	return key.Sign(rand.Reader, hash[:], crypto.SHA256)
}

// parseKey reads a PEM key of any of the three usual forms, and returns what it signs with.
func parseKey(text redact.Secret) (key crypto.Signer, alg string, err error) {
	block, _ := pem.Decode([]byte(text.Reveal()))
	if block == nil {
		return nil, "", errKey
	}
	for _, parse := range []func([]byte) (any, error){
		x509.ParsePKCS8PrivateKey,
		func(b []byte) (any, error) { return x509.ParseECPrivateKey(b) },
		func(b []byte) (any, error) { return x509.ParsePKCS1PrivateKey(b) },
	} {
		parsed, err := parse(block.Bytes)
		if err != nil {
			continue
		}
		switch k := parsed.(type) {
		case *ecdsa.PrivateKey:
			if k.Curve == elliptic.P256() {
				return k, "ES256", nil
			}
		case *rsa.PrivateKey:
			return k, "RS256", nil
		}
	}
	return nil, "", errKey
}
