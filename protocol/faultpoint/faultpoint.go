// Package faultpoint names the moments at which a crash would be hardest to
// recover from, so that tests can make each of them happen. The code of the
// program says At where it passes such a moment; test binaries say Install.
// The program itself installs nothing, and there [At] does nothing: no
// variable, file or flag can make it do anything else.
//
// Names are lower case words with dots between them, the process or part
// first: consult.answer.kept. Each name stands in the code once.
package faultpoint

// hook is nil but in test binaries. It is written before anything else runs.
var hook func(name string)

// At tells a test that the code has come to the point of that name. It may be
// called with locks held.
func At(name string) {
	if hook != nil {
		hook(name)
	}
}

// Install makes every [At] call f, in its own goroutine; nil ends that. It is
// for test binaries, before they start goroutines.
func Install(f func(name string)) { hook = f }
