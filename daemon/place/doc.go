// Package place makes a daemon the only one in its place. The place of a daemon
// is its runtime directory, which holds the socket, and its state directory.
//
// A daemon takes, in this order:
//
//  1. the lock of the runtime directory, which passes to the next image of the
//     program at a hand-over;
//  2. the lock of the state directory, which keeps daemons at different sockets
//     apart and is taken anew after a hand-over;
//  3. the next generation number: workers refuse a daemon of a lower one;
//  4. the store's id: records that bear another id belong to files that are lost;
//  5. the socket.
//
// The package also counts the crashes of the daemons before this one, and moves
// the directory of a worker aside over whose records several have crashed; see
// [CrashLoop]. It starts no goroutine but for the timer of a crash loop.
package place
