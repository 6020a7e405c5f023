package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdline/cmd/holdline/codextest"
	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/protocol/control"
)

// Tests whose names begin with TestE2E run the real client programs, in exact versions from
// npm, against stand-ins of the models on loopback: no key, no cost. They run only if
// HOLDLINE_E2E is 1. The programs are kept in $HOLDLINE_E2E_CACHE, by default holdline-e2e
// in the user's cache directory.
const (
	codexVersion        = "0.169.0"
	inspectorVersion    = "2.12.0"
	conformVersion      = "0.2.0-alpha.12" // of the official conformance suite
	olderConformVersion = "0.1.16"         // of the same, made for the protocol of 2025-11-25
	providerVersion     = "9.13.3"         // of the identity provider
	referenceVersion    = "2026.8.31"      // of the reference servers
	nodeVersion         = "22.23.3"        // used if the installed one is too old
)

// nowhere is the address of a proxy that refuses every connection.
const nowhere = "http://127.0.0.1:1"

// e2eLimit is how long a client may run.
const e2eLimit = 60 * time.Second

// e2eCache skips the test unless it can run, and returns the directory that keeps the
// programs.
func e2eCache(tb testing.TB) string {
	tb.Helper()
	if os.Getenv("HOLDLINE_E2E") == "" {
		tb.Skip("HOLDLINE_E2E=1 is not set: it installs client programs from npm")
	}
	for _, name := range []string{"node", "npm"} {
		if _, err := exec.LookPath(name); err != nil {
			tb.Skipf("needs %s: %v", name, err)
		}
	}
	if dir := os.Getenv("HOLDLINE_E2E_CACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		tb.Fatal(err)
	}
	return filepath.Join(dir, "holdline-e2e")
}

// realClaude returns the path of the program of Claude Code.
func realClaude(t *testing.T, version string) string {
	t.Helper()
	cache := e2eCache(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	bin, err := claudetest.Install(ctx, cache, version)
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// realCodex returns the path of the program of Codex: the native one in the platform's
// package.
func realCodex(t *testing.T) string {
	t.Helper()
	root := npmInstall(t, "codex-"+codexVersion, "@openai/codex@"+codexVersion)
	pattern := filepath.Join(root, "node_modules", "@openai", "codex-*", "vendor", "*", "bin", "codex")
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("programs %q at %s, %v", found, pattern, err)
	}
	return found[0]
}

// realInspector returns the command line of the MCP Inspector.
func realInspector(t *testing.T) []string {
	t.Helper()
	root := npmInstall(t, "inspector-"+inspectorVersion, "@modelcontextprotocol/inspector@"+inspectorVersion)
	return []string{
		newNode(t),
		filepath.Join(root, "node_modules", "@modelcontextprotocol", "inspector", "clients", "launcher", "build",
			"index.js"),
		"--cli",
	}
}

// newNode returns the path of a node that can run the newer programs.
func newNode(t *testing.T) string {
	t.Helper()
	node := "node"
	out, err := exec.CommandContext(t.Context(), node, "--version").Output()
	if err != nil {
		t.Fatalf("node --version: %v", err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(out), "v%d.%d.", &major, &minor); err != nil {
		t.Fatalf("node --version says %q", out)
	}
	if major < 22 || major == 22 && minor < 19 {
		if runtime.GOOS != "linux" {
			t.Skipf("needs node 22.19, this is %s", out)
		}
		name := "node-linux-" + npmArch()
		node = filepath.Join(npmInstall(t, "node-"+nodeVersion, name+"@"+nodeVersion), "node_modules", name,
			"bin", "node")
	}
	return node
}

func npmArch() string {
	if runtime.GOARCH == "amd64" {
		return "x64"
	}
	return runtime.GOARCH
}

// npmInstalls is held while npm installs something for a test.
var npmInstalls sync.Mutex

// npmInstall is [claudetest.InstallPackages] into the cache.
func npmInstall(tb testing.TB, name string, specs ...string) string {
	tb.Helper()
	cache := e2eCache(tb)
	npmInstalls.Lock() // tests that need the same wait for each other
	defer npmInstalls.Unlock()
	ctx, cancel := context.WithTimeout(tb.Context(), 5*time.Minute)
	defer cancel()
	root, err := claudetest.InstallPackages(ctx, cache, name, specs...)
	if err != nil {
		tb.Fatal(err)
	}
	return root
}

// standIn starts the stand-in for Anthropic's API, and points the place's clients and its
// next daemon at it.
func (p *place) standIn(t *testing.T) *claudetest.API {
	t.Helper()
	api, err := claudetest.StartAPI()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := api.Close(); err != nil {
			t.Errorf("closing the stand-in: %v", err)
		}
	})
	p.env = append(p.env, api.Env()...)
	return api
}

// codexStandIn starts the stand-in for OpenAI's API, whose model follows a script.
func codexStandIn(t *testing.T, steps ...codextest.Step) *codextest.API {
	t.Helper()
	api, err := codextest.StartAPI(steps...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := api.Close(); err != nil {
			t.Errorf("closing the stand-in: %v", err)
		}
	})
	return api
}

// client is a running client program with its processes.
type client struct {
	cmd       *exec.Cmd
	out, errs bytes.Buffer
	done      chan struct{} // closed when it has ended
	err       error         // of the run; read it after done
}

// client starts a client program with an empty stdin; see clientOn.
func (p *place) client(t *testing.T, env []string, argv ...string) *client {
	t.Helper()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	return p.clientOn(t, null, env, argv...)
}

// clientOn starts a client program in the project, with the place's home, so that what it
// leaves behind is found like everything else. It closes stdin.
func (p *place) clientOn(t *testing.T, stdin *os.File, env []string, argv ...string) *client {
	t.Helper()
	defer stdin.Close()
	ctx, cancel := context.WithTimeout(t.Context(), e2eLimit)
	temp := filepath.Join(p.dir, "t")
	if err := os.MkdirAll(temp, 0o700); err != nil {
		t.Fatal(err)
	}
	c := &client{cmd: exec.CommandContext(ctx, argv[0], argv[1:]...), done: make(chan struct{})}
	c.cmd.Env = append(slices.Clone(env), "TMPDIR="+temp, "CLAUDE_CODE_TMPDIR="+temp)
	// Everything that a client would fetch from elsewhere goes to a loopback port on which
	// no process listens.
	c.cmd.Env = append(c.cmd.Env, "HTTP_PROXY="+nowhere, "HTTPS_PROXY="+nowhere, "NO_PROXY=127.0.0.1,localhost")
	c.cmd.Dir = p.project
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = stdin, &c.out, &c.errs
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.cmd.Cancel = func() error { return syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) }
	c.cmd.WaitDelay = 5 * time.Second
	if err := c.cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	go func() {
		defer close(c.done)
		defer cancel()
		c.err = c.cmd.Wait()
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.err = errors.Join(fmt.Errorf("the client ran for %v", e2eLimit), c.err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-c.done
		if t.Failed() {
			t.Logf("%s: %v\nstdout:\n%s\nstderr:\n%s", filepath.Base(argv[0]), c.err, clip(c.out.String()),
				clip(c.errs.String()))
		}
	})
	return c
}

// wait waits for the end of the client, which must succeed, and returns its output.
func (c *client) wait(t *testing.T) string {
	t.Helper()
	<-c.done
	if c.err != nil {
		t.Fatalf("the client ended with %v", c.err)
	}
	return c.out.String()
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func clip(s string) string {
	const most = 3 << 10
	if len(s) <= most {
		return s
	}
	return "[…]" + strings.ToValidUTF8(s[len(s)-most:], "")
}

// without returns an environment without some variables.
func without(env []string, names ...string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(names, name)
	})
}

// calling waits until a client's consult runs, and returns the client's session. The call need
// not be in flight: a client may take tasks, as the modern Inspector does.
func (p *place) calling(t *testing.T) control.Session {
	t.Helper()
	s := p.until("a consult of a client", func(s control.StatusAnswer) bool {
		return s.Consults.Running == 1 && len(s.Sessions) == 1
	})
	return s.Sessions[0]
}

// faultless checks that no request of any client failed, and returns the methods and calls
// that were made.
func (p *place) faultless(t *testing.T) []string {
	t.Helper()
	out, errs, code := p.run("", "telemetry", "--json")
	var v struct {
		Telemetry struct {
			Methods []struct {
				Method          string `json:"method"`
				ResponseErrors  int    `json:"response_error_count"`
				TransportFaults int    `json:"transport_fault_count"`
				LastError       any    `json:"last_error"`
			} `json:"methods"`
			LastFault json.RawMessage `json:"last_fault"`
		} `json:"telemetry"`
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != 0 || len(v.Telemetry.Methods) == 0 {
		t.Fatalf("telemetry: exit %d, %v\n%s%s", code, err, out, errs)
	}
	var names []string
	for _, m := range v.Telemetry.Methods {
		names = append(names, m.Method)
		if m.ResponseErrors+m.TransportFaults != 0 {
			t.Errorf("%s failed: %+v", m.Method, m)
		}
	}
	if f := v.Telemetry.LastFault; f != nil && string(f) != "null" {
		t.Errorf("last fault: %s", f)
	}
	return names
}
