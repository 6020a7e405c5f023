// Package e2e tests holdline as whole processes: the test binary executes
// itself again as the daemon, the proxy, the worker, the MCP servers behind them
// and the clients before them, and kills each of them at will. What the README
// promises under "What holds" is proved here.
//
// It has no code but tests. Tests of functions stand with their functions.
package e2e
