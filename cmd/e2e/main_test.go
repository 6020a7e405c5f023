package e2e

import (
	"cmp"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"syscall"
	"testing"
	"time"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cli"
	"holdline/cmd/holdline/pair"
	"holdline/cmd/holdline/small"
	"holdline/cmd/holdline/top"
	"holdline/daemon/adapter/engine/acp/acptest"
	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/hosted/catalog"
	"holdline/daemon/hosted/upstream"
	machines "holdline/daemon/supervisor/far"
	"holdline/daemon/userenv"
	"holdline/protocol"
)

// withoutLandlock is the name under which the program is holdline in a system without Landlock.
const withoutLandlock = "withoutlandlock"

// loginShell is the login shell of the users of places. It reads the profile of the user alone: that
// of the system starts programs, and each daemon asks two shells.
const (
	loginShell     = "loginshell"
	loginShellText = `#!/bin/sh
[ ! -e "$HOME/.profile" ] || . "$HOME/.profile"
while [ "$1" != -c ]; do shift; done
eval "$2"
`
)

func TestMain(m *testing.M) {
	takeTestVariables()
	protocol.GreetingTimeout *= slowness
	attach.StartWait *= 3 * slowness
	// A profile takes longer on a busy machine. Tests of that time set it.
	if login, err := time.ParseDuration(cmp.Or(os.Getenv("HOLDLINE_TEST_LOGIN"), "30s")); err == nil {
		userenv.LoginTimeout = login
	}
	if by, err := strconv.Atoi(os.Getenv("HOLDLINE_TEST_WINDOWS")); err == nil {
		protocol.DivideWindows(by)
	}
	if stall, err := time.ParseDuration(os.Getenv("HOLDLINE_TEST_STALL")); err == nil {
		protocol.StallWindow = stall
	}
	// A server that starts late on a busy machine must not fail a call. Tests of that time set it.
	firstList := cmp.Or(os.Getenv("HOLDLINE_TEST_FIRST_LIST"), waitLimit.String())
	if wait, err := time.ParseDuration(firstList); err == nil {
		catalog.FirstList = wait
	}
	if most, err := strconv.ParseInt(os.Getenv("HOLDLINE_TEST_SPOOL"), 10, 64); err == nil {
		upstream.MaxSpooled = most
	}
	name := filepath.Base(os.Args[0])
	if speak() {
		name = pair.Whole
	}
	if exe, err := os.Executable(); err == nil && filepath.Base(exe) == pair.Small {
		name = pair.Small // executed by holdline, which keeps its own name
	}
	switch name {
	case pair.Small:
		installFaults(os.Args[1:])
		installBroken(os.Args[1:])
		leave(small.Main())
	case pair.Whole, "exe", machines.Program(): // as in /proc/self/exe, and as hosts add copies it
		installFaults(os.Args[1:])
		installBroken(os.Args[1:])
		leave(cli.Main())
	case pair.Top:
		leave(top.Main())
	case withoutLandlock:
		leave(withoutLandlockMain())
	case "shellserver":
		leave(shellServerMain(os.Stdin, os.Stdout))
	case "ssh":
		leave(sshMain(os.Args[1:]))
	case "echoserver":
		leave(echoServerMain(os.Stdin, os.Stdout))
	case "toolserver":
		leave(toolServerMain(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	case "heldserver":
		leave(heldServerMain(os.Args[1:], os.Stdin, os.Stdout))
	case "oddserver":
		leave(oddServerMain(os.Args[1:], os.Stdin, os.Stdout))
	case "wildserver":
		leave(wildServerMain(os.Args[1:], os.Stdin, os.Stdout))
	case "hostileserver":
		leave(hostileServerMain())
	case "eraserver":
		leave(eraServerMain(os.Args[1:], os.Stdin, os.Stdout))
	case "sdkserver":
		leave(sdkServerMain(os.Args[1:]))
	case "browser":
		leave(browserMain(os.Args[len(os.Args)-1]))
	case "conformant":
		leave(conformantMain(os.Args[len(os.Args)-1]))
	case "undiscovered":
		leave(undiscoveredMain(os.Args[1:]))
	case "fakeagent":
		leave(acptest.Main(os.Args[1:], os.Getenv("HOME"), os.Stdin, os.Stdout))
	case "claude":
		leave(claudetest.FakeMain(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
	}
	debug.SetGCPercent(400) // it starts thousands of processes, and has little to collect itself
	useMemory()
	os.Exit(func() int {
		var err error
		if programs, err = os.MkdirTemp("", "hlbin"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(programs)
		self, err := os.Executable()
		if err != nil {
			panic(err)
		}
		// holdline and holdline-stdio are this binary, and so of one build. Benchmarks run the
		// programs that were built for use, if they are named.
		binaries := map[string]string{pair.Whole: self, pair.Small: self}
		if bin := os.Getenv("HOLDLINE_BENCH_BIN"); bin != "" {
			binaries = map[string]string{pair.Whole: bin, pair.Small: filepath.Join(filepath.Dir(bin), pair.Small)}
		}
		for _, name := range []string{
			"claude", "toolserver", "hostileserver", "eraserver", "sdkserver", "oddserver", "wildserver", "undiscovered",
			"echoserver", "heldserver", "shellserver", "browser", "conformant", "fakeagent", pair.Top, withoutLandlock,
		} {
			binaries[name] = self
		}
		placed := map[string]string{} // where a binary is already
		for name, from := range binaries {
			// A hard link, because a program finds itself by its path.
			to := filepath.Join(programs, name)
			if err := os.Link(cmp.Or(placed[from], from), to); err != nil { // from is on another disk
				if err := copyFile(from, to); err != nil {
					panic(err)
				}
			}
			placed[from] = to
		}
		if err := os.WriteFile(filepath.Join(programs, loginShell), []byte(loginShellText), 0o700); err != nil {
			panic(err)
		}
		defer printTable(os.Stdout)
		return m.Run()
	}())
}

// leave ends a process that plays a part. Under the race detector os.Exit takes a second.
func leave(code int) {
	if raceEnabled {
		syscall.Exit(code)
	}
	os.Exit(code)
}

// copyFile copies a program.
func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	// No child may be forked meanwhile: it would inherit the file open for writing.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(to, b, 0o700)
}
