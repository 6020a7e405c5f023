// Package faultpoint names the moments at which a crash would be hardest to
// recover from, so that tests can make each of them happen. The program calls
// At where it passes one of them; test binaries call Install. The program
// itself installs nothing: there [At] does nothing, and no variable, file or
// flag can change that.
//
// In the same way it names the rules that recovery depends on. Where the code
// keeps a rule it calls Broken; test binaries call Break to check that a test
// fails if the rule is not kept.
//
// Names are lower case words with dots between them, the process or part
// first: consult.kept. Each name stands in the code once.
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

// opening is nil but in test binaries. It is written before anything else runs.
var opening func(path string) error

// Opening tells a test that the file at path is to be opened next. An error that it returns stands
// for the one with which the file cannot be opened. It may be called with locks held.
func Opening(path string) error {
	if opening == nil {
		return nil
	}
	return opening(path)
}

// InstallOpening makes every [Opening] call f, in its own goroutine; nil ends that. It is for test
// binaries, before they start goroutines.
func InstallOpening(f func(path string) error) { opening = f }

// broken is nil but in test binaries. It is written before anything else runs.
var broken func(name string) bool

// Broken reports whether the rule of that name is not to be kept, which only a
// test can want. It may be called with locks held.
func Broken(name string) bool { return broken != nil && broken(name) }

// Break lets f answer for [Broken]; nil ends that. It is for test binaries,
// before they start goroutines.
func Break(f func(name string) bool) { broken = f }
