// Package standing keeps one process of an MCP server doing what its sessions
// want of it until they want something else: sending log messages from a level
// on, and notifying of changed resources.
//
// A [Requests] reconciles. It reads the desired state from its [Process], knows
// from its own fields what the process was asked, and makes one request after the
// other until the two agree. The records of these requests stay in the worker's
// journal, and [Requests.Restore] reads there what an earlier daemon has told
// the process.
//
// Servers of the legacy era are asked with logging/setLevel and
// resources/subscribe. Those of the modern era get the log level with each call
// and a subscriptions/listen request per resource, which stays open; one more
// such request, with the URI "", is for changes of their lists.
package standing
