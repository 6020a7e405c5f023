// Package hosted runs other MCP servers for all sessions: it starts them in
// workers, speaks with them, and takes each call to the one process that it
// belongs to and its answer back to the session that asked, on raw bytes.
//
// A [Manager] has the configured servers. A server has an instance for each scope that uses it (the
// machine, a project, a session), an instance has at most one process at a time, and a process is a
// worker of package supervisor, which outlives the daemon. All that a new daemon has to know lies
// in the worker's directory: each write to the child is on record before it is made, and the
// write's number is the JSON-RPC id and the progress token that the child sees. [Manager.Load]
// reads the records; then every call that a client still waits for is found again by session and
// line number, and [calls.Decide] says what becomes of it.
//
// An answer is kept by its worker (it is acked only afterwards), or else in a
// file of the worker's directory, until the client's proxy has confirmed it. A
// request of the server is kept in the same way until the server has its answer.
// The directory of a dead worker stays until every call in it was confirmed.
//
// What a process lists belongs to its instance: sessions see, and call, what the process that they
// share has listed. It is kept in the worker's directory, so that the next daemon goes on with it.
// What any process of a server listed last is remembered in a file of the server's, too, so that a
// list starts nothing: it stands for instances that have never listed. That file has a pin for each
// tool: how it was when it was first seen, whichever process listed it. A tool that differs is
// reported to the user, and offered as it is unless pins block it.
//
// Package upstream speaks with one process, and package dispatch takes calls to processes; this
// package decides which processes there are. Package entry has the configured servers, package
// verdict those that get no processes. Package private makes the one call of a process that no
// session shares. Calls run in the goroutines of their sessions. [Manager.Close] waits for all
// goroutines that are the manager's; the processes live on.
//
// Where to find what:
//
//	manager, lifecycle   sessions come and go; start, stop and configure servers
//	server, view         what packages catalog and dispatch need to know of the servers
//	succeed              an edited server is replaced once its successor works
//	instance             start a process; package startup says why it did not start
//	login                servers to which a user must log in first: see package signin
//	instancestate        the states of an instance, and what its processes tell it
//	offering             the handshake and lists of a process; files of offers and verdicts
//	adopt                continue the processes that package earlier has found
//	unread               what package earlier could not read at once; what waits for that
//	status               what users see
//
// Locks, in the order in which they are taken: Manager.careful, configuring and that of a
// [files.Files], each of which orders one sort of work on files; the mutex of the hub, which guards
// all state of servers, instances, processes and calls; then that of a [sight.Table], and those of sessions and of package supervisor. No file, socket or process is
// touched under one of the latter three: TestNothingBlocksUnderLock.
package hosted
