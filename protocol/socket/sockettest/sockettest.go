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

// Daemon makes a socket, welcomes one client there and calls serve, in a goroutine of its own, with
// the connection and the lines behind the greeting. Once serve returns nobody can connect any more,
// and the connection is closed. Daemon returns the path of the socket.
func Daemon(tb testing.TB, serve func(conn net.Conn, lines *jsonrpc.Lines)) (path string) {
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
	go func() { // it ends with the connection, or with the listener
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		defer ln.Close()
		lines := jsonrpc.NewLines(conn, jsonrpc.MaxFrame)
		if _, err := lines.Next(); err != nil {
			return
		}
		_, _ = conn.Write(protocol.Append(nil, protocol.Welcome{Holdline: protocol.Version}))
		serve(conn, lines)
	}()
	return path
}
