// Package importer moves the MCP servers of other programs' configurations into
// holdline's, so that what each agent starts for itself is hosted once.
//
// [Look] says what is to become of each server, as a [Plan], and changes nothing.
// [Plan.Write] puts the servers into holdline's configuration and leaves in each
// client's file an entry of the same name that starts `holdline mcp-stdio --server
// NAME`, so that the user's rules for the server's tools still hold. [Undo] reverts
// what Write did, and nothing else.
//
// Each edit is recorded in a journal before it is made, with a copy of the file, in
// the state directory (0600 in 0700: the copies may hold secrets). Values of
// variables, headers and arguments never leave the package, neither in a plan nor in
// an error.
package importer
