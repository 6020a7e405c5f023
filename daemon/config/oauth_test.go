package config

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestClientMetadata checks that the document which users can publish has a redirect URI for each port at
// which a browser may come back, in both spellings of the host.
func TestClientMetadata(t *testing.T) {
	b, err := os.ReadFile("../../contrib/client-metadata.json")
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		RedirectURIs []string `json:"redirect_uris"`
	}
	if err := json.Unmarshal(b, &document); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, host := range []string{"127.0.0.1", "localhost"} {
		for _, port := range (Logins{}).CallbackPorts() {
			want = append(want, fmt.Sprintf("http://%s:%d/callback", host, port))
		}
	}
	if !slices.Equal(document.RedirectURIs, want) {
		t.Errorf("redirect URIs %q, want %q", document.RedirectURIs, want)
	}
}

// TestLogsIn checks which servers people log in to.
func TestLogsIn(t *testing.T) {
	c := parsed(t, `
		"plain": {"url": "https://x/mcp"},
		"header": {"url": "https://x/mcp", "headers": {"authorization": "Bearer x"}},
		"other": {"url": "https://x/mcp", "headers": {"X-Key": "x"}},
		"program": {"command": "x"}, "old": {"type": "sse", "url": "https://x/sse"}`)
	for name, want := range map[string]bool{
		"plain": true, "header": false, "other": true, "program": false, "old": false,
	} {
		s, _ := c.Server(name)
		if got := s.LogsIn(); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// TestOAuthRefuses checks the mistakes that a file can make with logins.
func TestOAuthRefuses(t *testing.T) {
	oauth := func(object string) string {
		return `{"mcpServers": {"a": {"url": "https://x/mcp", "oauth": ` + object + `}}}`
	}
	for in, want := range map[string]string{
		oauth(`{"clientId": "a", "client_id": "a"}`):                          "oauth.client_id: clientId is there, too",
		oauth(`{"clientSecret": "a", "client_secret": "a"}`):                  "oauth.client_secret: clientSecret is there, too",
		oauth(`{"scopes": [], "scope": "a"}`):                                 "oauth.scope: scopes is there, too",
		oauth(`{"callbackPort": 1, "redirectUri": "http://x"}`):               "oauth.redirectUri: callbackPort is there, too",
		oauth(`{"callbackPort": 65536}`):                                      "oauth.callbackPort: wants 1 to 65535",
		oauth(`{"redirectUri": "http://127.0.0.1/callback"}`):                 "oauth.redirectUri: wants an http address on loopback",
		oauth(`{"redirectUri": "http://example.com:1/callback"}`):             "oauth.redirectUri: wants an http address on loopback",
		oauth(`{"redirectUri": "https://127.0.0.1:1/callback"}`):              "oauth.redirectUri: wants an http address on loopback",
		oauth(`{"redirectUri": "http://127.0.0.1:80/callback"}`):              "oauth.redirectUri: wants an http address on loopback",
		oauth(`{"redirectUri": "http://127.0.0.1:08123/callback"}`):           "oauth.redirectUri: wants an http address on loopback",
		oauth(`{"redirectUri": "http://[::0:1]:28123/callback"}`):             "oauth.redirectUri: wants an http address on loopback",
		oauth(`{"scopes": ["a b"]}`):                                          "oauth.scopes[0]: is no scope",
		oauth(`{"issuer": "example.com"}`):                                    "oauth.issuer: wants an https address",
		oauth(`{"grant": "password"}`):                                        "oauth.grant: wants client_credentials",
		oauth(`{"grant": "client_credentials"}`):                              "oauth: wants clientId as well",
		oauth(`{"grant": "client_credentials", "clientId": "a"}`):             "oauth: wants clientSecret or privateKeyFile as well",
		oauth(`{"authMethod": "private_key_jwt"}`):                            "oauth: wants privateKeyFile as well",
		oauth(`{"authMethod": "tls_client_auth"}`):                            "oauth.authMethod: wants one of none,",
		oauth(`{"privateKeyFile": "key.pem"}`):                                "oauth.privateKeyFile: wants a path",
		oauth(`{"clientId": "${"}`):                                           "oauth.clientId:",
		oauth(`{"autoLogin": true}`):                                          `unknown key "mcpServers.a.oauth.autoLogin"`,
		`{"mcpServers": {"a": {"command": "x", "oauth": {"clientId": "a"}}}}`: "oauth: is for servers with a url",
		`{"logins": {"ports": [0]}}`:                                          "logins.ports[0]: wants 1 to 65535",
		`{"logins": {"client_metadata_url": "https://x/"}}`:                   "logins.client_metadata_url: wants an https address with a path",
		`{"logins": {"key_command": ["./key"]}}`:                              "logins.key_command[0]: wants a path",
	} {
		if _, err := Parse("c", []byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
}
