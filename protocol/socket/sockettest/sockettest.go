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

// Daemon makes a socket, and welcomes there one client for each of serves, one after the other. It
// calls that, in a goroutine that all of them share, with the connection and the lines behind the
// greeting; then it closes the connection. Once the last one has returned nobody can connect any
// more, before the connection is closed. Daemon returns the path of the socket.
func Daemon(tb testing.TB, serves ...func(conn net.Conn, lines *jsonrpc.Lines)) (path string) {
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
		for i, serve := range serves {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			lines := jsonrpc.NewLines(conn, jsonrpc.MaxFrame)
			if _, err := lines.Next(); err == nil {
				_, _ = conn.Write(protocol.Append(nil, protocol.Welcome{Holdline: protocol.Version}))
				serve(conn, lines)
			}
			if i == len(serves)-1 {
				_ = ln.Close()
			}
			_ = conn.Close()
		}
	}()
	return path
}
