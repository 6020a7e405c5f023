// Package calls is the law of recovery: what is recorded of a call before its
// child can see it, and what becomes of the call when the daemon, the worker or
// the client dies. It knows nothing of MCP, servers or consults.
package calls
