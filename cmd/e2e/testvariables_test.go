package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// testVariablesFile is a file beside a place's home with variables of tests for the daemons
// that proxies start, which do not inherit them.
const testVariablesFile = "test-variables"

// testVariable adds a variable to that file.
func (p *place) testVariable(kv string) {
	p.t.Helper()
	f, err := os.OpenFile(filepath.Join(p.dir, testVariablesFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(kv + "\n")
		_ = f.Close()
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// takeTestVariables sets the variables of the place in whose home this daemon runs. For
// GORACE the daemon executes itself again, because the race detector reads it at the start.
func takeTestVariables() {
	if len(os.Args) < 2 || os.Args[1] != "daemon" {
		return
	}
	b, err := os.ReadFile(filepath.Join(filepath.Dir(os.Getenv("HOME")), testVariablesFile))
	if err != nil {
		return
	}
	again := false
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		again = again || raceEnabled && name == "GORACE" && os.Getenv(name) == ""
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	if again {
		if exe, err := os.Executable(); err == nil {
			err = syscall.Exec(exe, os.Args, os.Environ())
			panic(err)
		}
	}
	countStart()
}
