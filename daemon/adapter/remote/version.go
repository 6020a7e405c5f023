package remote

import (
	"bytes"
	"net/http"
	"slices"
	"strings"

	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Some servers agree at initialize to each version that a client names, and then refuse all messages with that in
// their header: the parts that read the two know different versions. Such a server gets a new session, in
// the next version that it names in its refusal.

// versionError is the error of a message whose version the server refuses in the header, though it has agreed to
// it. err is the fault if nothing else helps.
type versionError struct {
	used string // version that is refused
	next string // version to speak instead
	err  error
}

// Error returns what the server has answered.
func (v *versionError) Error() string { return v.err.Error() }

// Unwrap returns the fault.
func (v *versionError) Unwrap() error { return v.err }

// otherVersion returns the version that is to be spoken instead, if an answer to m in session s refuses the version
// in its header, and else "". No version is tried twice. isOwn says that the answer has the id of m: then the server
// has read m, and may have carried it out, whatever its words are. Nor are the words about the header's version if
// the session has taken that before. Some servers take it in each notification, since they do not look: that counts
// only for what must not be sent twice.
func (c *Client) otherVersion(m *message, s session, code int, text []byte, isOwn bool) string {
	if code != http.StatusBadRequest || isOwn || !hasVersionHeader(m, s) {
		return ""
	}
	said := strings.NewReplacer("-", " ", "_", " ").Replace(strings.ToLower(string(text)))
	if !strings.Contains(said, "version") {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answeredIn == s.era || c.takenIn == s.era && !m.repeats {
		return ""
	}
	for _, version := range mcp.OtherVersions(text, mcp.Legacy(), s.version) {
		isNamed := bytes.Contains(text, []byte(version))
		if !slices.Contains(c.untaken, version) && (isNamed || strings.Contains(said, "protocol version")) {
			return version
		}
	}
	return ""
}

// hasVersionHeader reports whether m names the version of session s in its header alone.
func hasVersionHeader(m *message, s session) bool {
	return m.version == "" && m.Method != mcp.Initialize && s.version >= versionHeaderSince
}

// taken notes that the server has taken m in session s, and so the version in its header.
func (c *Client) taken(m *message, s session) {
	if !hasVersionHeader(m, s) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.takenIn = s.era
	if m.Kind == jsonrpc.Request {
		c.answeredIn = s.era
	}
}

// speak has the next session begin in the version that is named instead of a refused one.
func (c *Client) speak(v *versionError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.untaken = append(c.untaken, v.used)
	params, err := jsonrpc.Replace(jsonrpc.Field(c.hello, "params"), "protocolVersion", jsonrpc.Encode(v.next))
	if err != nil {
		return
	}
	if hello, err := jsonrpc.Replace(c.hello, "params", params); err == nil {
		c.hello = hello
	}
}

// isRefused reports whether the server refuses a version in the header.
func (c *Client) isRefused(version string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.untaken, version)
}

// askedVersion returns the version that an initialize names.
func askedVersion(hello []byte) string {
	version, _ := mcp.String(jsonrpc.Field(jsonrpc.Field(hello, "params"), "protocolVersion"))
	return version
}
