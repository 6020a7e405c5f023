//go:build !linux || !(amd64 || arm64)

package rawio

import "net"

// Quiet returns conn: only Linux has what it needs.
func Quiet(conn *net.UnixConn) Socket { return conn }
