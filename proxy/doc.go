// Package proxy carries one MCP client's stdio to the daemon and back.
//
// [Run] greets the daemon, then moves whole lines both ways and never changes
// a byte of one. It knows what the client still waits for: client lines are
// numbered from 1, a request is pending until its answer was copied or a
// cancellation named it, and an answer is copied if, and only if, its request
// is pending. So whatever becomes of the daemon, each request gets exactly
// one answer: the daemon's, or a fault that the proxy makes.
//
// Three goroutines work for a Run, and end with it: one reads the client's
// lines into the store, one writes them (and what the proxy itself has to
// say) to the daemon, one copies the daemon's lines to the client. The store
// is what a resume repeats after the daemon died; what it holds is bounded.
//
// Many proxies run at once, so the package links little and keeps little.
package proxy
