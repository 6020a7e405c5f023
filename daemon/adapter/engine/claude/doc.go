// Package claude knows Claude Code as a consult program: where it is found and
// whether it can be used ([Claude.Check]), its command line and environment
// for a run that can read and not write ([Claude.Command]), and its stream of
// JSON lines ([Run]).
//
// It starts the program only for the short questions of a check, which it
// waits for; the runs themselves are started by others. It reads no
// environment of its own, that is given to it, and no file but the user's own
// settings, for how the program logs in: a run looks at no settings itself.
//
// What a run's ending means is decided by fields of the stream (subtype,
// terminal_reason, api_error_status, stop_reason, the error of a synthetic
// message) and by how the process ended, never by the text of a message.
package claude
