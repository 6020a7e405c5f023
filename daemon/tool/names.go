package tool

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
)

// Anonymous is the identity of a client that sent no greeting. It may use only those of
// holdline's own tools that run in the daemon.
const Anonymous = "anonymous"

// own says where each of holdline's own tools runs.
var own = map[string]Dispatch{
	"consult": OnWorker, "consult_result": OnHost, "consult_control": OnHost, "consult_say": OnHost,
	"health_snapshot": OnHost, "telemetry_snapshot": OnHost,
	FindTools: OnHost, CallTool: OnWorker,
}

// OwnDispatch returns where holdline's own tool of that name runs, and false if there is
// none.
func OwnDispatch(name string) (d Dispatch, ok bool) {
	d, ok = own[name]
	return d, ok
}

// OwnNames returns the names of holdline's own tools, sorted.
func OwnNames() []string { return slices.Sorted(maps.Keys(own)) }

// maxShown bounds the names that sessions see, in characters. Claude Code shows a tool to
// the model as mcp__ENTRY__NAME, where ENTRY is the name of holdline in its configuration.
// The APIs of models refuse a request with a name of more than 64 characters.
const maxShown = 64 - len("mcp__holdline__")

// maxAlone returns the bound for the names in a session of one server, in characters. It
// is higher, since a user may have rules in the client for the server's own names: those
// should stay as they are. No API takes a name of more than 128 characters.
func maxAlone(server string) int {
	return max(128-len("mcp__"+server+"__"), 2*hashLength)
}

// separator stands between the name of a server and the server's own name of a tool. The
// name of a server cannot contain it.
const separator = "__"

// hashLength is the length of the hash at the end of a name that was altered, with the
// hyphen before it, in characters.
const hashLength = 9

// Shown returns the name under which sessions see a tool or a prompt of a server:
// SERVER__NAME. It replaces characters that clients refuse, and cuts names that are too
// long. A name that was altered in one of these ways ends with a hash of the original.
func Shown(server, own string) string {
	name := []byte(server + separator + own)
	altered := len(name) > maxShown
	for i, c := range name {
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_', c == '.', c == '-':
		default:
			name[i], altered = '_', true
		}
	}
	if !altered {
		return string(name)
	}
	return hashed(string(name), server+separator+own, maxShown)
}

// ShownAlone returns the name under which a session of that server alone sees a tool or a
// prompt: the server's own name, unless that is too long.
func ShownAlone(server, own string) string {
	most := maxAlone(server)
	if len(own) <= most {
		return own
	}
	return hashed(strings.ToValidUTF8(own[:most-hashLength], ""), own, most)
}

// hashed returns the beginning of a name followed by a hash of whole, together at most most
// bytes.
func hashed(name, whole string, most int) string {
	sum := sha256.Sum256([]byte(whole))
	return name[:min(len(name), most-hashLength)] + "-" + hex.EncodeToString(sum[:(hashLength-1)/2])
}

// MayBeOf reports whether a name that sessions see may be that of something of the server.
func MayBeOf(server, shown string) bool {
	prefix := server + separator
	return strings.HasPrefix(shown, prefix[:min(len(prefix), maxShown-hashLength)])
}

// SplitShown splits SERVER__NAME. It returns false if the name has not that form: if the
// name of the server is very long, the whole may be cut before NAME.
func SplitShown(shown string) (server, name string, ok bool) {
	return strings.Cut(shown, separator)
}

// MayBeAltered reports whether a name ends like the names that [Shown] and [ShownAlone]
// have altered. If so, the server's own name may be another.
func MayBeAltered(name string) bool {
	i := len(name) - hashLength
	return i >= 0 && name[i] == '-' && strings.Trim(name[i+1:], "0123456789abcdef") == ""
}
