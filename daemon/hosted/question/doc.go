// Package question keeps the requests of one process of an MCP server to its client that
// have no answer yet. It knows no client and no process: a [Set] is state without a lock,
// which its owner guards, and the files of package question are those of requests that
// wait for long.
//
// The client sees a request under an id that is made of the request's place in the
// output of the process. So the next daemon, which reads that output again, gives it the
// same id, and the client is not asked twice.
//
// A request may wait for its answer for long, above all if a person is asked. What the
// server says after it must not wait that long. So a request that has no answer after
// [calls.SpoolAfter] is written to a file of the worker's directory, as answers are. Then
// its output can be acknowledged, and the next daemon reads it there.
package question
