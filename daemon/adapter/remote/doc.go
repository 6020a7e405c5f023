// Package remote speaks with an MCP server that is reached by an address, over
// the transport "Streamable HTTP" of the versions from 2025-03-26 on. Messages
// stay raw bytes, each of them one line of JSON.
//
// [Client.Send] posts one message and hands over what comes back for it, as
// JSON or as an event stream; a stream that breaks is taken up again where the
// server allows it. [Client.Listen] hands over what the server says unasked.
// [Serve] puts a client behind a reader and a writer, so that such a server
// looks like one that is a process of ours.
//
// A server that has forgotten the session (404) is given a new one, once for
// each message, with the handshake that the session began with. What a server
// did to a message that was sent and not answered nobody knows: the fault says
// outcome_unknown then, and the caller has to know whether it may ask again.
// Redirects are refused, since they could take credentials elsewhere.
//
// Goroutines: those of [Serve], which waits for them, and net/http's.
package remote
