// Package leaf starts servers without the programs that only launch them.
//
// A launcher, such as npx, looks for the program of a server, starts it, and stays beside it for as long as it
// runs: one more Node process for each server, and most of the time of a start. Once a server that was started
// as its entry says has answered, [Launch.Observe] looks for its program among the processes below the launcher,
// and keeps a record of how that was started: the leaf. The next start uses the record.
//
// A record holds for the launcher, the arguments, the directory and the environment with which it was made, and
// for as long as the files that decide which program the launcher finds are what they were: see [Launch.Direct].
// It has no value of the environment that the launcher was given, only what the launcher has changed. The program
// may need what a record cannot have, so the first start by a record is compared with the one behind the launcher
// (see [Launch.Said]). Whatever is not clear is started as its entry says, and the record says why.
//
// # Files
//
//	doc.go         this page
//	launch.go      how one server is started
//	record.go      records on disk
//	launcher.go    which programs are launchers
//	files.go       the files on which a record depends
//	find_linux.go  the leaf among processes
//	find_other.go  systems on which it is not looked for
//
// Goroutines: none. A [Store] is safe for concurrent use.
package leaf
