package returning

import (
	"encoding/json"

	"holdline/daemon/calls"
	"holdline/protocol/fault"
	"holdline/protocol/mcp"
)

// lostWords describe a call whose record may have been lost.
const lostWords = "the daemon ended, and its records were lost or given up before the client was back: " +
	"whether the call had its effect is not known"

// LostAnswer is the JSON-RPC error that a server gets in place of an answer that no longer exists.
var LostAnswer = json.RawMessage(`{"code":-32603,"message":"the daemon ended, and the client's answer ` +
	`was too large to be kept for the next one"}`)

// LostRecord returns an outcome_unknown fault for a call that an earlier daemon may have begun,
// and of which no record is left. why says which file is damaged, and server whose; without why all
// records are lost.
func LostRecord(operation, server, why string) *fault.Record {
	if why == "" {
		return fault.New(fault.OutcomeUnknown, fault.Host, operation, lostWords)
	}
	return fault.New(fault.OutcomeUnknown, fault.Host, operation, "the daemon ended, and records of %s cannot be "+
		"believed: %s: whether the call had its effect is not known", serverWords(server), why)
}

// LostLine returns the fault of a request whose line was too large to be kept. recorded reports
// whether there is a record that the request had been begun, uncertain whether such a record may
// be lost. The fault is outcome_unknown if either is true. Else it is resource_exhausted, and
// says that the request was not begun.
func LostLine(recorded, uncertain bool) *fault.Record {
	switch {
	case recorded:
		return fault.New(fault.OutcomeUnknown, fault.Host, mcp.ToolsCall,
			"the daemon ended, and the request was too large to be kept for the next one; it had been begun")
	case uncertain:
		return fault.New(fault.OutcomeUnknown, fault.Host, mcp.ToolsCall,
			"%s, and the request was too large to be kept", lostWords)
	}
	return fault.New(fault.ResourceExhausted, fault.Host, mcp.ToolsCall,
		"the request was too large to be kept in memory, and its bytes are lost: it was not begun, ask again")
}

// serverWords names a server in a sentence.
func serverWords(server string) string {
	if server == calls.AnyServer {
		return "a server"
	}
	return "server " + server
}
