// Package session speaks MCP with one client: both eras on one connection kind,
// decided for each request by whether its params._meta names a protocol version.
//
// [Server.ServeConn] is the handler of role "mcp". The handler of a session's first
// connection serves the session: it is the reader, and owns a writer and the
// goroutines for its requests in flight; all have ended when it returns. A session
// whose connection breaks while its client's process lives is kept for
// [protocol.ResumeWindow]: its calls go on, and a later connection is handed to the
// handler of the first. Answers are kept until the client has confirmed them.
//
// A session owns its calls: it alone knows which answers its client still waits for.
// What answers them and keeps records of them, hosted servers and consults, are
// [Executor] values; the session says to them which answers the client holds, what it
// waits for when it is back, what it has cancelled, and when it is gone.
//
// # Bounds
//
// Everything that a client sends is bounded: the line, the calls in flight, the queue
// of answers. A large answer stays in the file of its executor until little else waits
// for the client (session.takeTurn). A client may read as slowly as it likes; one that
// takes no byte for [protocol.StallWindow], while answers wait for room, is ended.
//
// # The walk of a tools/call
//
// Each number is a goroutine that has to run. The hand-offs inside the daemon are from
// 2 to 3 on the way in, and from 7 over 8 to 9 on the way out. Whatever cannot be written
// at once, in 1, 6 and 9, is left to the goroutine that writes to that socket:
// proxy writeDaemon, worker conn.push, and the writer of the outbox.
//
//	 1 proxy     readClient: a line of the client's stdin goes into the store, and from
//	             there to the daemon's socket (forwardNow)
//	 2 daemon    session.read, message, request, call: parses, checks, session.start
//	 3 daemon    session.pursue, ask, then the Handle of a tool.Remote of package hosted,
//	             which records the call and writes it to the worker's socket
//	             (supervisor.Worker.WriteFunc)
//	 4 worker    conn.serve, takeLocked: the write is taken
//	 5 worker    feed: the write goes to the child's stdin
//	   child
//	 6 worker    readStdout: the child's line is retained, and goes to the daemon's socket
//	             (conn.sendNow)
//	 7 daemon    supervisor.Worker.receive, queueEvent: reads it, as an Event
//	 8 daemon    hosted upstream.run, event: finds the call, which is answered then
//	 9 daemon    the goroutine of 3 goes on: session.answerLine, deliver; Outbox.Put
//	             writes to the proxy's socket at once, if nothing else is queued
//	10 proxy     readDaemon, receive: the answer goes to the client's stdout
//
// The client's ack follows later: proxy writeAck, session.read, Outbox.Acknowledge,
// Executor.Confirmed; then the record of the call is dropped.
//
// # Packages below
//
//	link       one connection: reader, writer, the reason for its end
//	outbox     the lines that wait for a connection, and when a client is too slow
//	listen     what subscriptions/listen says on the wire
//	peer       the process at the other end, the client that started it, its project
//	returning  for how long sessions of an earlier daemon may come back
//	crew       goroutines that are used again
package session
