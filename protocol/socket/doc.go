// Package socket knows where a user's daemon listens, how it is found, and
// who may connect to it.
//
// A path is explicit (a flag or HOLDLINE_SOCKET: then nothing else counts) or
// a default. The defaults are tried in this order:
//
//  1. where the daemon of this home listened last, if that was in this boot, and the
//     directory is still there and still this home's
//  2. $XDG_RUNTIME_DIR/holdline/daemon.sock
//  3. what the pointer files in the state directory name: a running daemon
//     writes its path there, since some clients start a proxy with an empty
//     environment but HOME
//  4. /run/user/UID/holdline/daemon.sock
//  5. /tmp/holdline-UID/daemon.sock (on macOS $TMPDIR/holdline/daemon.sock)
//
// A variable or directory that does not exist, is not absolute or belongs to another
// user is passed over. The first path at which a process listens wins. If there is
// none, a daemon is started at the first of 1, 2, 4, 5.
//
// A daemon serves one home, which its state directory identifies. 3 to 5 are passed over
// if the daemon there serves another home. At 1, 2 and an explicit path, that daemon refuses
// whoever greets it with another state directory, and names both.
//
// The package reads no environment of its own: callers pass a lookup. It
// starts no goroutine.
package socket
