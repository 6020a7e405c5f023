package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"holdline/daemon/redact"
)

// OAuth is how people, or machines, log in to a remote server. Several keys have two
// spellings, since other clients write either; [Settings] has the first of each alone.
type OAuth struct {
	ClientID     string        `json:"clientId"`
	ClientIDToo  string        `json:"client_id"`
	ClientSecret redact.Secret `json:"clientSecret"`
	SecretToo    redact.Secret `json:"client_secret"`
	CallbackPort int           `json:"callbackPort"`
	RedirectURI  string        `json:"redirectUri"` // in [Settings] also that of CallbackPort
	Scopes       []string      `json:"scopes"`      // nil for those that the server asks for
	Scope        string        `json:"scope"`       // the same, with spaces between them
	Issuer       string        `json:"issuer"`
	Resource     *string       `json:"resource"` // nil for that of the server; "" sends none
	Account      string        `json:"account"`
	AuthMethod   string        `json:"authMethod"`
	AssumePKCE   bool          `json:"assumePkce"`
	Grant        string        `json:"grant"` // GrantMachine, or "" if a person logs in
	PrivateKey   string        `json:"privateKeyFile"`
	KeyID        string        `json:"keyId"`
	Alg          string        `json:"alg"`
}

// GrantMachine is the grant of servers to which no person logs in.
const GrantMachine = "client_credentials"

// Logins is what is the same for the logins of all servers.
type Logins struct {
	KeyCommand  []string `json:"key_command"`
	MetadataURL string   `json:"client_metadata_url"`
	Ports       []int    `json:"ports"` // see [Logins.CallbackPorts]
	Browser     string   `json:"browser"`
}

// CallbackPorts returns the ports at which a browser may come back, at least one. The
// default ones are below those that systems give out.
func (l Logins) CallbackPorts() []int {
	if len(l.Ports) > 0 {
		return l.Ports
	}
	return []int{28123, 28124, 28125}
}

// effective returns the object in one spelling.
func (o OAuth) effective() OAuth {
	o.ClientID, o.ClientIDToo = cmp.Or(o.ClientID, o.ClientIDToo), ""
	o.ClientSecret, o.SecretToo = cmp.Or(o.ClientSecret, o.SecretToo), ""
	if o.CallbackPort > 0 {
		o.RedirectURI, o.CallbackPort = fmt.Sprintf("http://localhost:%d/callback", o.CallbackPort), 0
	}
	if o.Scope != "" {
		o.Scopes, o.Scope = strings.Fields(o.Scope), ""
	}
	return o
}

// LogsIn reports whether requests to the server carry the token of a login. They do not if
// the entry has an Authorization header of its own.
func (s Settings) LogsIn() bool {
	for name := range s.Headers {
		if strings.EqualFold(name, "Authorization") {
			return false
		}
	}
	return s.Transport == HTTP
}

// oauth checks the oauth object of a server.
func (d *decoder) oauth(at string, s Server) {
	o := s.OAuth
	if s.transport() == Stdio && len(d.below(at)) > 0 {
		d.wrong(at, "is for servers with a url: a program logs in by itself")
	}
	twice := func(a, b bool, one, other string) {
		if a && b {
			d.wrong(at+"."+other, "%s is there, too", one)
		}
	}
	twice(o.ClientID != "", o.ClientIDToo != "", "clientId", "client_id")
	twice(o.ClientSecret != "", o.SecretToo != "", "clientSecret", "client_secret")
	twice(o.Scopes != nil, o.Scope != "", "scopes", "scope")
	twice(o.CallbackPort != 0, o.RedirectURI != "", "callbackPort", "redirectUri")
	o = o.effective()
	d.expands(at+".clientId", o.ClientID)
	d.expands(at+".clientSecret", o.ClientSecret.Reveal())
	for i, scope := range o.Scopes {
		if scope == "" || strings.ContainsAny(scope, " \"\\") {
			d.wrong(fmt.Sprintf("%s.scopes[%d]", at, i), "is no scope")
		}
	}
	if o.RedirectURI != "" && !callback(o.RedirectURI) {
		d.wrong(at+".redirectUri",
			"wants an http address on loopback with a port other than 80, such as http://127.0.0.1:28123/callback")
	}
	if o.Issuer != "" && CheckURL(o.Issuer) != nil {
		d.wrong(at+".issuer", "wants an https address")
	}
	key := o.PrivateKey != ""
	switch {
	case o.Grant != "" && o.Grant != GrantMachine:
		d.wrong(at+".grant", "wants %s, or nothing if a person logs in", GrantMachine)
	case o.AuthMethod == "private_key_jwt" && !key, !key && (o.KeyID != "" || o.Alg != ""):
		d.wrong(at, "wants privateKeyFile as well")
	case o.Grant == GrantMachine && o.ClientID == "":
		d.wrong(at, "wants clientId as well: nobody logs in")
	case o.Grant == GrantMachine && !key && o.ClientSecret == "":
		d.wrong(at, "wants clientSecret or privateKeyFile as well: nobody logs in")
	}
}

// below returns the paths of the values in the object at a path.
func (d *decoder) below(at string) []string {
	return slices.DeleteFunc(sorted(d.at), func(path string) bool { return !strings.HasPrefix(path, at+".") })
}

// callback reports whether a browser on this machine can come back to an address: one that it
// sends just as it is spelt, since the answer counts only if it came for that host.
func callback(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" || u.Port() == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return false
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || port == 80 || strconv.FormatUint(port, 10) != u.Port() {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.IsLoopback() && !ip.Is4In6() && ip.String() == u.Hostname()
}

// logins checks what is the same for all logins.
func (d *decoder) logins(l Logins) {
	for i, port := range l.Ports {
		if port < 1 || port > 65535 {
			d.wrong(fmt.Sprintf("logins.ports[%d]", i), "wants 1 to 65535")
		}
	}
	u, err := url.Parse(l.MetadataURL)
	if l.MetadataURL != "" && (err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") == "") {
		d.wrong("logins.client_metadata_url", "wants an https address with a path")
	}
	if len(l.KeyCommand) > 0 {
		d.program("logins.key_command[0]", l.KeyCommand[0])
	}
}
