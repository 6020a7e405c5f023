package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// conformanceServer is the SDK's server for the suite, with the tools that the suite needs.
// It is built from the module's source.
const conformanceServer = "github.com/modelcontextprotocol/go-sdk/conformance/everything-server"

// undiscoveredMain runs another server, and refuses server/discover in its name: a server
// of the legacy eras.
func undiscoveredMain(args []string) int {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil || cmd.Start() != nil {
		return 1
	}
	lines := jsonrpc.NewLines(os.Stdin, jsonrpc.MaxFrame)
	for line, err := lines.Next(); err == nil; line, err = lines.Next() {
		if msg, bad := jsonrpc.Parse(line); bad == nil && msg.Method == mcp.Discover {
			refusal := jsonrpc.AppendError(nil, msg.ID, jsonrpc.CodeUnknownMethod, "unknown method", nil)
			_, _ = os.Stdout.Write(append(refusal, '\n'))
			continue
		}
		_, _ = in.Write(append(line, '\n')) // if the server has ended, its output ends, too
	}
	_ = in.Close()
	if cmd.Wait() != nil {
		return 1
	}
	return 0
}

// builtServer builds the suite's server, and returns the path of its program.
func builtServer(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "everything-server")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", path,
		conformanceServer).CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", conformanceServer, err, out)
	}
	return path
}

// check is the suite's result for one of its checks.
type check struct {
	ID, Status, ErrorMessage string
}

// conform runs the scenarios of a version of the protocol against the server at a URL. It
// returns by scenario the checks of those that the version requires of a server, and of
// those that the suite's own server does not pass yet. The other scenarios are about
// extensions and HTTP headers.
func conform(t *testing.T, p *place, version, url string) map[string][]check {
	t.Helper()
	node, root, results := newNode(t), conformanceSuite(t, conformVersion), t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), e2eLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, filepath.Join(root, "dist", "index.js"),
		"server", "--url", url, "--requirements", version, "--output-dir", results)
	cmd.Env, cmd.Dir, cmd.WaitDelay = p.env, p.project, 5*time.Second
	out, err := cmd.CombinedOutput() // an error if any check fails
	if ctx.Err() != nil {
		t.Fatalf("the suite did not end: %v\n%s", err, clip(string(out)))
	}
	if strings.Contains(string(out), "Scenario timed out") { // whether or not it is required
		t.Errorf("a scenario did not end:\n%s", out)
	}
	found := map[string][]check{}
	for _, scenario := range append(required(t, root, version), "json-schema-2020-12") {
		dirs, err := filepath.Glob(filepath.Join(results, "server-"+scenario+"-2[0-9][0-9][0-9]-*", "checks.json"))
		if err != nil || len(dirs) != 1 {
			t.Fatalf("results of %s: %q, %v\n%s", scenario, dirs, err, clip(string(out)))
		}
		b, err := os.ReadFile(dirs[0])
		if err != nil {
			t.Fatal(err)
		}
		var checks []check
		decode(t, string(b), &checks)
		found[scenario] = checks
	}
	return found
}

// conformanceSuite installs a version of the suite's package, and returns its directory.
func conformanceSuite(t *testing.T, version string) string {
	t.Helper()
	root := npmInstall(t, "conformance-"+version, "@modelcontextprotocol/conformance@"+version)
	return filepath.Join(root, "node_modules", "@modelcontextprotocol", "conformance")
}

// required returns the scenarios that a version requires of a server, as a file of the
// suite says.
func required(t *testing.T, root, version string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "requirements", version+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(b), "\nserver:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	var names []string
	for line := range strings.Lines(list) {
		names = append(names, strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "- ")))
	}
	if len(names) < 30 {
		t.Fatalf("%s requires of servers: %q", version, names)
	}
	return names
}

// Reasons why checks of the suite do not pass.
const (
	noAsking = "the server asks by a request of its own, which it cannot in the modern version that holdline speaks with it"
	noKeys   = "a legacy server gives what it asks no name, and the suite wants its own server's"
	oneByOne = "a legacy server asks for one thing after the other, and the client is asked as soon as there is any"
	sameList = "the tool that the server adds is there since an earlier check: the list is the same, and holdline says nothing"
)

// TestE2EConformance has the official suite test a server through holdline, at each
// version, with the same server in each era. All checks pass but the listed ones.
func TestE2EConformance(t *testing.T) {
	t.Parallel()
	conformanceSuite(t, conformVersion)
	modernServer := []string{builtServer(t)}
	legacyServer := append([]string{filepath.Join(programs, "undiscovered")}, modernServer...)
	for _, test := range []struct {
		name, version string
		server        []string
		scope         string
		fails         map[string]string // reason by check
	}{
		{"legacy", "2025-11-25", legacyServer, "session", map[string]string{}},
		{"modern", "2026-07-28", modernServer, "project", map[string]string{
			"server-stateless:sep-2575-server-sends-tools-list-changed-on-subscription": sameList,
		}},
		{"legacy client of a modern server", "2025-11-25", modernServer, "session", map[string]string{
			"elicitation-sep1034-defaults:elicitation-sep1034-general": noAsking,
			"elicitation-sep1330-enums:elicitation-sep1330-general":    noAsking,
			"tools-call-elicitation:tools-call-elicitation":            noAsking,
			"tools-call-sampling:tools-call-sampling":                  noAsking,
		}},
		{"modern client of a legacy server", "2026-07-28", legacyServer, "session", map[string]string{
			"input-required-result-basic-elicitation:sep-2322-elicitation-incomplete":           noKeys,
			"input-required-result-ignore-extra-params:sep-2322-ignore-unexpected-params":       "answers without a state are not of any call that was begun",
			"input-required-result-multi-round:sep-2322-multi-round-r2":                         "the state names the call, which is the same in each round",
			"input-required-result-multiple-input-requests:sep-2322-multiple-inputs-incomplete": oneByOne,
			"server-stateless:sep-2575-server-sends-tools-list-changed-on-subscription":         sameList,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newPlace(t)
			p.configure(map[string]any{"fixture": map[string]any{
				"command": test.server[0], "args": test.server[1:], "holdline": hosting{"scope": test.scope},
			}}).daemon()
			url := newBridge(t, p, "--server", "fixture")
			if test.version == mcp.Modern {
				warmUp(t, url)
			}
			conforms(t, conform(t, p, test.version, url), test.fails)
		})
	}
}

// warmUp makes the bridge know the two modern clients that the suite plays, each with a
// running server. The suite waits only 600 ms for some answers, and a busy machine cannot
// start a proxy and a server in that time.
func warmUp(t *testing.T, url string) {
	t.Helper()
	for _, can := range []string{`{}`, `{"elicitation":{}}`} {
		listed := func() bool {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"_meta":{%q:%q,%q:%s,%q:{"name":"test","version":"1"}}}}`,
				mcp.ToolsList, mcp.MetaVersion, mcp.Modern, mcp.MetaCapabilities, can, mcp.MetaClient)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Mcp-Protocol-Version", mcp.Modern)
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			var x struct {
				Result struct{ Tools []json.RawMessage }
			}
			if err := json.NewDecoder(res.Body).Decode(&x); err != nil {
				t.Fatal(err)
			}
			return len(x.Result.Tools) > 0
		}
		waitFor(t, "the server to list its tools", listed)
	}
}

// conforms compares the results of the suite with the known failures.
func conforms(t *testing.T, found map[string][]check, fails map[string]string) {
	t.Helper()
	passed, failed := 0, map[string]bool{}
	for scenario, checks := range found {
		good := 0
		for _, c := range checks {
			name := scenario + ":" + c.ID
			switch c.Status {
			case "SUCCESS":
				good++
				continue
			case "INFO":
				continue
			}
			if failed[name] = true; fails[name] == "" {
				t.Errorf("%s: %s: %s", name, c.Status, c.ErrorMessage)
			} else {
				t.Logf("%s: %s: %s, since %s", name, c.Status, c.ErrorMessage, fails[name])
			}
		}
		passed += good
		if good == 0 && !slices.ContainsFunc(checks, func(c check) bool { return failed[scenario+":"+c.ID] }) {
			t.Errorf("%s has no result: %+v", scenario, checks)
		}
	}
	for name, why := range fails {
		if !failed[name] && why != oneByOne { // it may pass if the server was quick
			t.Errorf("%s passes now, though %q", name, why)
		}
	}
	t.Logf("%d scenarios, %d checks pass, %d do not", len(found), passed, len(failed))
}
