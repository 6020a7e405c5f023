package rawio

import (
	"net"
	"syscall"
)

// Socket is a connection of a unix socket, such as a [*net.UnixConn].
type Socket interface {
	net.Conn
	syscall.Conn
	CloseRead() error
	CloseWrite() error
}
