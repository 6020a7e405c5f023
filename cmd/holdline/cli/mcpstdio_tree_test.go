package cli

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/stdio"
)

// TestMCPStdioInTree checks that help, completions and man pages have the flags of the
// proxy, and that flags in front of its name work.
func TestMCPStdioInTree(t *testing.T) {
	if one, other := printed(t, "mcp-stdio", "--help"), printed(t, "help", "mcp-stdio"); one != other {
		t.Errorf("mcp-stdio --help says\n%s\nhelp mcp-stdio says\n%s", one, other)
	}
	help, completed := printed(t, "mcp-stdio", "--help"), printed(t, "__complete", "mcp-stdio", "--")
	flags, _ := stdio.Flags(&stdio.Options{}, func(string) string { return "" })
	flags.VisitAll(func(f *flag.Flag) {
		if f.Usage == "" || !strings.Contains(help, "      --"+f.Name+" ") ||
			!strings.Contains(completed, "--"+f.Name+"\t") {
			t.Errorf("--%s is not known:\n%s\n%s", f.Name, help, completed)
		}
	})
	path := filepath.Join(t.TempDir(), "s")
	_, errs, code := runInProcess("", "--socket", path, "mcp-stdio", "--no-autostart", "--reconnect-timeout", "0s")
	if code != cmdenv.ExitNoDaemon || !strings.Contains(errs, path) {
		t.Errorf("behind a flag: exit %d\n%s", code, errs)
	}
	if _, errs, code := runInProcess("", "--socket", path, "mcp-stdio", "--drain=x"); code != cmdenv.ExitUsage ||
		!strings.Contains(errs, "--drain") {
		t.Errorf("a wrong flag: exit %d\n%s", code, errs)
	}
}

// runInProcess runs a command in this process with an empty environment, and returns its
// output and exit code.
func runInProcess(stdin string, args ...string) (stdout, stderr string, code int) {
	var out, errs strings.Builder
	code = runProcess(context.Background(), cmdenv.Process{
		Args: args, Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs,
		Getenv: func(string) string { return "" }, Environ: func() []string { return nil },
	})
	return out.String(), errs.String(), code
}

// printed returns what a command prints.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	out, errs, code := runInProcess("", args...)
	if code != cmdenv.ExitOK {
		t.Fatalf("holdline %q: exit %d\n%s", args, code, errs)
	}
	return out
}

// TestMain lets the test binary be holdline where a test starts a daemon: the proxy asks that
// why there is none.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "daemon" {
		os.Exit(Main())
	}
	os.Exit(m.Run())
}
