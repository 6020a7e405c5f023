// Package authorities says which certificate authorities the remote servers and their
// authorization servers may have their certificates from. Networks of companies often have one of
// their own.
package authorities

import (
	"crypto/x509"
	"os"
)

// Variable names a file with certificates of further authorities, beside those of the system.
// Programs of Node.js read it, so many a user has set it already. SSL_CERT_FILE and SSL_CERT_DIR,
// which name those of the system, crypto/x509 reads itself.
const Variable = "NODE_EXTRA_CA_CERTS"

// Pool returns the authorities of the system and those of [Variable]. It returns nil, which stands for
// those of the system alone, if that is not set, or if its file has no certificate that can be read:
// Node.js then goes on without it, too.
func Pool() *x509.CertPool {
	path := os.Getenv(Variable) //nolint:forbidigo // as crypto/x509 reads SSL_CERT_FILE
	if path == "" {
		return nil
	}
	extra, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(extra) {
		return nil
	}
	return pool
}
