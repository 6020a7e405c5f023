// Package session speaks MCP with one client: both eras on one connection kind, decided for each
// request by whether its params._meta names a protocol version.
//
// [Server.ServeConn] is the handler of role "mcp". The handler of a session's first connection
// serves the session: it is the reader, and owns a writer and the goroutines for its requests in
// flight; all have ended when it returns. A session whose connection breaks while its client's
// process lives is kept for [protocol.ResumeWindow]: its calls go on, and a later connection is
// handed to the handler of the first. Answers are kept until the client has confirmed them.
//
// A session owns its calls: it alone knows which answers its client still waits for. The hosted
// servers and the consults, [executor.Executor] values, answer them and keep records. The session
// tells them which answers the client holds, awaits or has cancelled, and that it is gone.
//
// What the client was last given and told of its lists outlives the daemon, too: the proxy keeps
// digests of that, which it gets behind each list and each notification (Control.Keep), and says
// them in its greeting. So a session announces a change if, and only if, the client would be given
// another list now: when it is back, and whenever a server or the configuration may have changed
// something ([session.ListChanged]).
//
// # Bounds
//
// Everything that a client sends is bounded: the line, the calls in flight, the queue of answers. A
// large answer stays in the file of its executor: the proxy gets its name, or the bytes once little
// else waits (session.takeTurn). A client that takes no byte for [protocol.StallWindow] while
// answers wait for room is ended, and so is one of whose answers too much lies in files
// ([session.Full]).
//
// # Packages below
//
//	link       one connection: reader, writer, the reason for its end
//	outbox     the lines that wait for a connection, and when a client is too slow
//	listen     what subscriptions/listen says on the wire
//	profile    the client: its greeting, name, era and capabilities
//	reply      answers, in the form of the request's era
//	peer       the process at the other end, the client that started it, its project
//	returning  for how long sessions of an earlier daemon may come back
//	held       the lists that the client was given, and the changes of which it was told
//	agents     what a client uses in all its sessions
//	crew       goroutines that are used again
//	flight     the requests that are not answered yet
package session
