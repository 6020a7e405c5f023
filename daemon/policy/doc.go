// Package policy decides, for the part that hosts other MCP servers, whether a call may
// be made, when, and whether it has to be made at all. The caller asks in this order:
// [Rules], [Budget], [Cache], [Breaker] and [Restarts], and then, if a server must be
// asked, [Gate].
//
// All state is in memory and lives as long as the daemon. The package starts no
// goroutine, opens no file and logs nothing. Each refusal is a
// [holdline/protocol/fault.Record]. Every map and every queue is bounded; its type
// names the bound.
package policy
