// Package dispatch takes the calls of sessions to processes of servers, and their answers
// back. A call is checked against a budget, the cache, the breaker and the queue of its
// server; then [calls.Decide] says step by step what becomes of it, over any number of
// processes and daemons.
//
//	dispatch  the Dispatcher, and a request from its dispatch to its answer
//	guard     what is checked before
//	bound     the time that a request may take
//	rounds    a modern server asks a legacy client, in one more round of the call
//	detach    a call that takes long becomes a task of package detached
//	loadtasks continue the tasks of earlier daemons
//	taskinput a server asks the client of a task
//
// The state of calls is that of package upstream, under the hub's mutex.
package dispatch
