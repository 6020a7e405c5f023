// Package userenv finds the environment in which a user's programs run, for a
// daemon that was started outside of it.
//
// A program is looked for in this order:
//
//  1. the PATH that `holdline install` captured
//  2. the PATH of the user's login shell
//  3. the PATH of the same shell when it is interactive
//  4. the PATH of the process that started the daemon
//
// Asking a shell takes as long as the user's profile takes, which may be for
// ever. So [Environ.Run] asks in the background, within bounds; until a shell
// has answered, the PATH and locale of the daemon before stand in for the
// answer. Only these are kept in a file: a profile may export secrets.
//
// No relative directory is ever searched: the program that it leads to is that
// of whichever directory a process runs in. Of the PATH that the daemon was
// started with, directories that other users can write are left out as well.
// Nothing comes from a client's greeting or request: an agent inside a sandbox
// must not choose what runs outside of it.
package userenv
