// Package standing makes the requests to one process of an MCP server whose effect lasts:
// for log messages of a level, and for notifications of changed resources. Together they
// are what the sessions of the process want at the moment.
//
// A [Requests] is a reconcile loop. It reads the desired state from its [Process], keeps in
// its own fields what the process was asked for, and makes one request after the other
// until the two agree. The records of these requests stay in the worker's journal.
// [Requests.Restore] reads there what an earlier daemon has asked for.
//
// A legacy server gets the requests logging/setLevel and resources/subscribe. A modern one
// gets the log level with each call, and for each resource a subscriptions/listen request,
// which stays open. One more such request, with the URI "", is for changes of its lists.
package standing
