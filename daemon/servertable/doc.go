// Package servertable has one table of servers that people start from npm: what each was seen to do, and which agents
// may therefore share a process of it.
//
// A row is written only for a package that was tried in that version: see TestE2ETable_EachRowIsAsItWasTried of
// cmd/e2e, which starts each of them under strace, answers its requests, and lets two clients use one process. What is
// not in the table, or differs from what was tried, keeps a process for each project: see [Choose].
//
// # Files
//
//	doc.go     this page
//	rows.go    the table
//	scope.go   the scope of an entry
//	version.go which versions are like the one that was tried
package servertable
