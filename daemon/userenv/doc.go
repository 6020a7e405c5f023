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
// Asking a shell takes as long as the user's profile takes, and a profile may hang.
// So [Environ.Run] asks in the background, within bounds. Until a shell has
// answered, the PATH and locale that the previous daemon has kept stand in for the
// answer. Then the shell is asked a moment later: after the death of a daemon its
// sessions come first. What starts a program waits for the answer all the same.
// Only PATH and locale are kept in a file: a profile may export secrets.
//
// Relative directories are never searched: which program they lead to depends on
// the directory that a process runs in. Of the PATH with which the daemon was
// started, directories that other users can write are left out as well. Nothing
// comes from a client's greeting or request: an agent inside a sandbox must not
// choose what runs outside of it.
package userenv
