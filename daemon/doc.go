// Package daemon puts the parts together and fixes the order in which they
// stop. It is the only package that knows all of them; needs that point
// sideways or up are filled in here with small funcs.
//
// What runs, from the inside out:
//
//	supervisor   workers: processes that own one child each and outlive us
//	consult      jobs: one worker each, a fair queue, kept answers
//	catalog      the tools that sessions see: host tools and consult tools
//	session      MCP with one client; control: the command line's questions
//	listener     the socket, the greeting, one goroutine a connection
//	rollout      the hand-over to a newer binary, by exec
//
// Each long-running part is a named actor of an oklog/run group; when one
// ends, all end. Stopping goes the other way round than starting:
// the listener first, and with it every session and its calls, then consults,
// then the supervisor, then the files (pointer, socket, lock).
package daemon
