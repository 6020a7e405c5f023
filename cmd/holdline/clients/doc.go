// Package clients reads and edits other programs' configurations of MCP
// servers, so that what each agent starts for itself is hosted once.
//
// [Look] finds the configurations and says what is to become of each server,
// as a [Plan]; it changes nothing. [Plan.Write] moves the servers into
// holdline's configuration file and leaves in each client's an entry of the
// same name that starts `holdline mcp-stdio --server NAME`, so that rules that
// a user wrote for the server's tools go on holding. [Undo] takes back what
// Write did, and nothing else.
//
// Files are edited as they are spelled: comments, order, keys that are not
// known and line ends stay. Each edit is written into a journal first, with a
// copy of the file as it was, in the state directory (0600 in 0700: they hold
// what the files hold), and takes place by a rename, if the file is still what
// was read. Values of variables, headers and arguments never leave the package,
// neither in a plan nor in an error.
//
// It starts no goroutine. It reads no variable but by the functions that it is
// given.
package clients
