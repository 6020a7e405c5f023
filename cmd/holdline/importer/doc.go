// Package importer moves the MCP servers of other programs' configurations into
// holdline's, so that what each agent starts for itself is hosted once.
//
// # Course
//
// [Look] says what is to become of each server, as a [Plan], and changes nothing. It
// reads the files of all clients, translates each entry into one of holdline's file, and
// starts each server once, if [Options.Try] is set, to see whether it works.
//
// [Plan.Write] puts the servers into holdline's configuration and leaves in each
// client's file an entry of the same name that starts `holdline mcp-stdio --server
// NAME`, so that the user's rules for the server's tools still hold. [Plan.Written] says
// which entries these are, so that setup can check them.
//
// [Undo] reverts what Write did, and nothing else; [Done.Undo] reverts one import.
//
// # Promises
//
//   - An edit changes the bytes of its entries and no others; package clients sees to
//     that.
//   - A file is replaced only if it still has the bytes that were read. If it has
//     changed meanwhile, the edit is planned again for the entries that are as they
//     were, and the others are left.
//   - Each edit is recorded in a journal before it is made, with a copy of the file, in
//     the state directory (0600 in 0700: the copies may hold secrets). So an import that
//     was interrupted at any point can be undone.
//   - Undo gives a file its old bytes if nothing else has changed it. Otherwise it gives
//     each entry its old text if the entry is as the import left it.
//   - Holdline's file is edited first and reverted last, since the entries of clients
//     need the servers in it.
//   - A server that holdline cannot host as its client does stays where it is, and the
//     plan says why.
//   - Values of variables, headers and arguments never leave the package, neither in a
//     plan nor in an error.
//
// # Files
//
//	plan.go       options, the plan, and holdline's own file
//	file.go       the plan for one file of a client
//	translate.go  what holdline's file says of a client's entry; variables.go: its ${…}
//	names.go      names of servers in holdline's file
//	same.go       whether two entries start the same, and which agents may share that
//	differ.go     in what two servers of one name differ
//	summary.go    what a plan counts; render.go: its details for people
//	write.go      carrying out a plan
//	journal.go    what was done, on disk; undo.go: reverting it
package importer
