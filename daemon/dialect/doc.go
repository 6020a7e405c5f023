// Package dialect spells requests and answers for servers of the two eras of MCP, and
// reads what servers spell in ways of their own. A legacy server has one handshake,
// and sends requests to its client. A modern server gets the client's description
// with each request, and answers with its questions.
//
// The package works on raw bytes: a message is passed on as the client or server
// spelled it, except for the members named here.
package dialect
