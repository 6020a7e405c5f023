// Package flow logs a person in to a remote MCP server with OAuth, and out again.
//
// [Find] asks the server and its authorization server what they are: resource metadata
// (RFC 9728) and authorization server metadata (RFC 8414), with the rules of the MCP
// authorization text of 2025-11-25 and 2026-07-28. [Run] then chooses a client id,
// sends the person to the authorization server by one of three ways (a browser here, an
// address pasted back from a browser elsewhere, or a code for a device), exchanges the
// answer for tokens and stores them. [Logout] revokes and deletes them.
//
// Everything that the authorization server could be confused by is fixed before the
// person leaves: issuer, endpoints, client id and resource. Nothing that a web page
// can send ends a login: what has not the right state and cookie is only counted.
//
// Goroutines: that of the listener, which [Run] ends before it returns.
package flow
