// Package e2e tests holdline as whole processes. The test binary executes itself as the
// daemon, the proxy, the worker, the MCP servers and the clients, and kills any of them.
// The tests prove what contrib/doc/guarantees.md promises.
//
// It has no code but tests. Tests of functions are with their functions.
package e2e
