// Package policy decides, for the part that hosts other MCP servers, whether a
// call may be made, when, and whether it need be made at all. The order is the
// caller's: [Rules], [Budget], [Cache], [Breaker] and [Restarts], then, if a
// server has to be asked, [Gate].
//
// Everything here is memory of one daemon's life: it starts no goroutine,
// opens no file and logs nothing. What is refused is refused with a
// [holdline/protocol/fault.Record]. Every map and queue has a limit, which its
// type names.
package policy
