// Package sockettest stands in for the daemon at a socket.
package sockettest

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"holdline/protocol"
	"holdline/protocol/jsonrpc"
)

// Daemon makes a socket, and welcomes there one client for each serve, one after the other. It calls
// serve, in a goroutine that all of them share, with the connection and the lines behind the
// greeting; then the connection is closed. Once the last one returns nobody can connect any more.
// Daemon returns the path of the socket.
func Daemon(tb testing.TB, serve ...func(conn net.Conn, lines *jsonrpc.Lines)) (path string) {
	tb.Helper()
	dir, err := os.MkdirTemp("", "hl") // a socket's path has little room
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	path = filepath.Join(dir, "daemon.sock")
	ln, err := new(net.ListenConfig).Listen(tb.Context(), "unix", path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = ln.Close() })
	go func() { // it ends with the last connection, or with the listener
		defer ln.Close()
		for _, serve := range serve {
			if conn, err := ln.Accept(); err == nil {
				welcome(conn, serve)
			}
		}
	}()
	return path
}

// welcome reads the greeting of a client, answers it, calls serve and closes the connection.
func welcome(conn net.Conn, serve func(conn net.Conn, lines *jsonrpc.Lines)) {
	defer conn.Close()
	lines := jsonrpc.NewLines(conn, jsonrpc.MaxFrame)
	if _, err := lines.Next(); err == nil {
		_, _ = conn.Write(protocol.Append(nil, protocol.Welcome{Holdline: protocol.Version}))
		serve(conn, lines)
	}
}
