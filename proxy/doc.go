// Package proxy carries one MCP client's stdio to the daemon and back.
//
// [Run] greets the daemon, then moves whole lines both ways and never changes
// a byte of one. It knows what the client still waits for: client lines are
// numbered from 1, a request is pending until its answer was copied or a
// cancellation named it, and an answer is copied if, and only if, its request
// is pending. The daemon says with each answer which line it is for: ids are
// the client's, which may use one again. So whatever becomes of the daemon,
// each request gets exactly one answer: the daemon's, or a fault that the proxy
// makes.
//
// Three goroutines work for a Run, and end with it: one reads the client's
// lines into the store, one writes them (and what the proxy itself has to
// say) to the daemon, one copies the daemon's lines to the client. The store
// is what a resume repeats after the daemon died; what it holds is bounded.
//
// The store also keeps a few short strings that the daemon tells for the next one. What they
// mean, the proxy does not know.
//
// A long line lies in a file of the daemon's runtime directory: proxy and daemon send each
// other its name (package bulk). The proxy removes that of a request once it is answered. It
// opens that of an answer before the answer counts as received.
//
// Many proxies run at once, so the package links little and keeps little.
//
// # Files
//
//	run.go      Options, the loop over connections, the end with its faults, output
//	connect.go  the search for a daemon: dials, starts of daemons, greeting and welcome
//	talk.go     one connection: lines in both directions, acknowledgements
//	store.go    the client's lines: unsent, pending, and those kept for a resume
//	recall.go   what a resume repeats, and what is answered when there is none
//	spill.go    the client's long lines, which lie in files
//	entry.go    what the proxy has to know of one line
//	watch.go    when a daemon was certainly still there
//	stream/     standard streams whose reads and writes can be ended
//
// # Locks
//
// Each of store, output, acks and watch has a mutex of its own. They are taken in
// the order watch, store and in the order output, acks. Only that of output is held
// while a line is written: the client may read slowly, and the acknowledgements
// that show the daemon that it does read need no other lock.
//
// Writing to the daemon needs the turn of the link, a token in a channel. The
// goroutine that reads the client takes it without waiting, and forwards its line at
// once if it gets it. Otherwise the goroutine that writes does so.
package proxy
