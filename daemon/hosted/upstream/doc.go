// Package upstream speaks with the processes of MCP servers, on raw bytes. It knows no
// configuration: which process serves whom is up to its [Instance].
//
// A [Process] is one process in a worker. Each write to it is on record before it is made, and the
// write's number is the JSON-RPC id and the progress token that the server sees. A [Call] is a
// request of a client, with the process that has it. What the process asks its client is in a
// [question.Set]. What all processes share is in the [Hub]: the calls, and the clients of sessions.
//
// Three goroutines run for each process: run reads its events and settles what was
// confirmed, makeBackgroundWrites makes the writes that belong to no call, and package
// standing reconciles its log level and subscriptions.
//
// Where to find what:
//
//	hub             what processes share, and panics contained to one of them
//	state, process  the states of a process, and the reader of its events
//	request, peer   requests of the daemon's own, those of the handshake, other writes
//	restored        processes of an earlier daemon
//	end             a process hangs, or ends
//	call            a call with its process: its time, ids and tokens
//	badanswer       answers that cannot be read
//	input           a legacy server asks a modern client
//	relay           requests of servers to clients
//	notes           notifications between a server and its client
//	standing        log levels, subscriptions to resources, and what comes of them
//	settle          acknowledge output, write answers to files, drop records
//
// State without a lock is in packages of its own: questions, output, records, audience and
// subscriptions. Background writes have a lock of their own.
//
// The hub's mutex guards the fields of a [Hub] after Mu, [Guarded] and [Call]. Functions whose
// names end in Locked are called with it, and so are the methods of an [Instance]. Packages hosted
// and dispatch share it: they change hubs and calls, too, but only read a Guarded. TestLocks finds
// what breaks that in the source. No file, socket or process is touched under the mutex.
package upstream
