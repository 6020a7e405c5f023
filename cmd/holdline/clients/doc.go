// Package clients knows the programs that are MCP clients: where each keeps its
// configuration of MCP servers, how the entry of a server is written there, and
// which servers the client has logged in to.
//
// [Files] finds the configuration files of one user. [Client.Parse] reads one as a
// [Document], whose entries can be edited one by one. An edit changes the bytes of
// its entry and no others: comments, order, unknown keys and line ends stay.
// [Client.Swap] writes the result, if the file still has the bytes that were read.
//
// The package starts no goroutine and reads environment variables only through
// [Places]. Its errors contain no text of the files, which may be secret.
package clients
