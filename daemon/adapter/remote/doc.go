// Package remote speaks with an MCP server that has an address, over the transport
// "Streamable HTTP" of the MCP versions from 2025-03-26 on. Messages stay raw bytes,
// each of them one line of JSON.
//
// [Client.Send] posts one message and passes on what comes back for it, as JSON or as
// an event stream. It resumes a stream that breaks where the server allows that.
// [Client.Listen] passes on what the server sends unasked. [Serve] puts a client behind
// a reader and a writer, so that the server looks like a local process.
//
// If a server has forgotten the session (404), the client begins a new one, once for
// each message, with the handshake that the old session began with. If a request was
// sent and its answer is lost, no one can know what the server did with it. The fault
// is then outcome_unknown, and the caller decides whether it may ask again. The client
// follows redirects to another path of the same origin. It refuses all others, since they
// could carry credentials elsewhere.
//
// Goroutines: those of [Serve], which waits for them, and those of net/http.
package remote
