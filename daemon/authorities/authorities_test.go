package authorities_test

import (
	"crypto/tls"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/daemon/authorities"
	"holdline/daemon/networds"
)

// TestExtraAuthority_ServerIsTrusted checks that a server whose certificate is from an authority of the
// user's network is trusted by the variable that Node.js reads, and that without it the message says
// which variables there are.
func TestExtraAuthority_ServerIsTrusted(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "bad.pem")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}
	for path, text := range map[string][]byte{good: pem.EncodeToMemory(block), bad: []byte("no certificate")} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	get := func() error {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities.Pool()}}
		defer transport.CloseIdleConnections()
		resp, err := (&http.Client{Transport: transport}).Get(server.URL)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	for _, path := range []string{"", filepath.Join(dir, "none.pem"), bad} {
		t.Setenv(authorities.Variable, path)
		err := get()
		if err == nil {
			t.Fatalf("%q: the server is trusted", path)
		}
		for _, want := range []string{"not trusted", "SSL_CERT_FILE", authorities.Variable} {
			if said := networds.Of(err); !strings.Contains(said, want) {
				t.Errorf("%q: %q does not name %s", path, said, want)
			}
		}
	}
	t.Setenv(authorities.Variable, good)
	if err := get(); err != nil {
		t.Errorf("with its authority the server is not trusted: %v", err)
	}
}
