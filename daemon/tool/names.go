package tool

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
)

// Anonymous is the identity of a client that sent no greeting. It may use
// those of holdline's own tools that run in the daemon, and no others.
const Anonymous = "anonymous"

// own are holdline's own tools, and where each runs.
var own = map[string]Dispatch{
	"consult": OnWorker, "consult_result": OnHost, "consult_control": OnHost,
	"health_snapshot": OnHost, "telemetry_snapshot": OnHost,
	FindTools: OnHost, CallTool: OnWorker,
}

// OwnDispatch returns where holdline's own tool of that name runs, and reports
// whether there is one.
func OwnDispatch(name string) (d Dispatch, ok bool) {
	d, ok = own[name]
	return d, ok
}

// OwnNames returns the names of holdline's own tools, sorted.
func OwnNames() []string { return slices.Sorted(maps.Keys(own)) }

// maxShown is the most characters of a name that sessions see. Claude Code shows
// a tool as mcp__ENTRY__NAME, ENTRY being what its configuration calls holdline,
// and APIs of models refuse the whole request for one name over 64 characters.
const maxShown = 64 - len("mcp__holdline__")

// maxAlone is the same for a session of one server, whose names stay as they are
// so that a client's own rules go on to name them. Over 128 characters no API
// takes one, so that no rule can name it.
func maxAlone(server string) int {
	return max(128-len("mcp__"+server+"__"), 2*hashLength)
}

// separator stands between a server's name and its own name of a tool. No
// server has it in its name.
const separator = "__"

// hashLength is the characters of a hash at the end of a name that was altered,
// with the hyphen before it.
const hashLength = 9

// Shown returns the name under which sessions see a tool or a prompt of a
// server: SERVER__NAME. Characters that clients refuse are replaced. A name
// that is altered by that, or cut because it is too long, ends with a hash of
// what it was.
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

// ShownAlone returns the name under which a session of that server alone sees a
// tool or a prompt: the server's own, unless that is too long.
func ShownAlone(server, own string) string {
	most := maxAlone(server)
	if len(own) <= most {
		return own
	}
	return hashed(strings.ToValidUTF8(own[:most-hashLength], ""), own, most)
}

// hashed returns the beginning of a name with a hash of whole behind it, most
// bytes in all.
func hashed(name, whole string, most int) string {
	sum := sha256.Sum256([]byte(whole))
	return name[:min(len(name), most-hashLength)] + "-" + hex.EncodeToString(sum[:(hashLength-1)/2])
}

// MayBeOf reports whether sessions may see something of the server under a name.
func MayBeOf(server, shown string) bool {
	prefix := server + separator
	return strings.HasPrefix(shown, prefix[:min(len(prefix), maxShown-hashLength)])
}

// SplitShown splits SERVER__NAME. It reports whether the name has that form:
// that of a tool of a server with a very long name may be cut before NAME.
func SplitShown(shown string) (server, name string, ok bool) {
	return strings.Cut(shown, separator)
}

// MayBeAltered reports whether a name ends as those do that [Shown] and
// [ShownAlone] have altered: then the server's own name may be another.
func MayBeAltered(name string) bool {
	i := len(name) - hashLength
	return i >= 0 && name[i] == '-' && strings.Trim(name[i+1:], "0123456789abcdef") == ""
}
