// Package dialect spells requests and answers for servers of the two eras of
// MCP, and reads what servers spell in ways of their own. A legacy server is
// introduced once and asks its client by requests; a modern server is told with
// each request who asks, and answers with what it wants to know.
//
// All of it works on raw bytes: what a client or a server says is passed on as it
// was spelled, except for the members named here.
package dialect
