// Package socket knows where a user's daemon listens, how it is found, and
// who may connect to it.
//
// A path is explicit (a flag or HOLDLINE_SOCKET: then nothing else counts) or
// a default. The defaults are tried in this order:
//
//  1. $XDG_RUNTIME_DIR/holdline/daemon.sock
//  2. what the pointer files in the state directory name: a running daemon
//     writes its path there, since some clients start a proxy with an empty
//     environment but HOME
//  3. /run/user/UID/holdline/daemon.sock
//  4. /tmp/holdline-UID/daemon.sock (on macOS $TMPDIR/holdline/daemon.sock)
//
// A variable or directory that does not exist, is not absolute or belongs to another
// user is passed over. The first path at which a process listens wins. If there is
// none, a daemon is started at the first of 1, 3, 4.
//
// The package reads no environment of its own: callers pass a lookup. It
// starts no goroutine.
package socket
