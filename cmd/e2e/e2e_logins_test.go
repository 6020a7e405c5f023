package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// mostLogins is how often the suite's client logs in before it gives up.
const mostLogins = 3

// conformantMain is the client that the suite starts with the address of its server. It does what a
// person with an agent does: add the server, let the agent call a tool, and log in if the answer says
// so. The agent stays connected all the time. It returns 0 if the call has worked at last.
func conformantMain(address string) int {
	ctx, cancel := context.WithTimeout(context.Background(), e2eLimit)
	defer cancel()
	if err := useConformant(ctx, address); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// useConformant is [conformantMain] with an error.
func useConformant(ctx context.Context, address string) error {
	holdline := func(args ...string) error {
		cmd := exec.CommandContext(ctx, "holdline", args...)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("holdline %s: %w", strings.Join(args[:2], " "), err)
		}
		return nil
	}
	if err := holdline("servers", "add", "fixture", address); err != nil {
		return err
	}
	if oauth, err := oauthOfContext(); err != nil {
		return err
	} else if oauth != "" {
		if err := holdline("config", "set", "mcpServers.fixture.oauth", oauth); err != nil {
			return err
		}
	}
	version := os.Getenv("MCP_CONFORMANCE_PROTOCOL_VERSION")
	if version == "" {
		version = "2025-11-25"
	}
	proxy := exec.CommandContext(ctx, "holdline", "mcp-stdio")
	session, err := mcp.NewClient(&mcp.Implementation{Name: "conformant", Version: "1"}, nil).Connect(ctx,
		&mcp.CommandTransport{Command: proxy}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		return err
	}
	defer session.Close()
	for logins := 0; ; logins++ {
		if _, err := session.ListTools(ctx, nil); err != nil {
			return err
		}
		res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "fixture__test-tool"})
		if err != nil || !res.IsError {
			return err
		}
		text, _ := json.Marshal(res)
		fmt.Fprintf(os.Stderr, "the call: %s\n", text)
		var failure struct {
			StructuredContent struct{ Cause struct{ Reason string } }
		}
		if err := json.Unmarshal(text, &failure); err != nil {
			return err
		}
		reason := failure.StructuredContent.Cause.Reason
		if reason != "not_logged_in" && reason != "insufficient_scope" || logins == mostLogins {
			return errors.New("no login helps")
		}
		if err := holdline("servers", "login", "fixture"); err != nil {
			return err
		}
	}
}

// oauthOfContext returns the oauth object for what the suite has registered for its client, "" for none.
func oauthOfContext() (string, error) {
	text := os.Getenv("MCP_CONFORMANCE_CONTEXT")
	if text == "" {
		return "", nil
	}
	var given struct {
		ID     string `json:"client_id"`
		Secret string `json:"client_secret"`
		PEM    string `json:"private_key_pem"`
		Alg    string `json:"signing_algorithm"`
	}
	if err := json.Unmarshal([]byte(text), &given); err != nil {
		return "", err
	}
	oauth := map[string]string{"clientId": given.ID}
	if given.Secret != "" {
		oauth["clientSecret"] = given.Secret
	}
	if strings.Contains(os.Getenv("MCP_CONFORMANCE_SCENARIO"), "/client-credentials-") {
		oauth["grant"] = "client_credentials"
	}
	if given.PEM != "" {
		key := filepath.Join(os.Getenv("HOME"), "client.pem")
		if err := os.WriteFile(key, []byte(given.PEM), 0o600); err != nil {
			return "", err
		}
		oauth["privateKeyFile"], oauth["alg"] = key, given.Alg
	}
	b, err := json.Marshal(oauth)
	return string(b), err
}

// loginsNotDone are the scenarios that Holdline does not do, with the reason.
var loginsNotDone = map[string]string{
	"2025-03-26-oauth-endpoint-fallback": "endpoints are never guessed: without metadata nobody can know whether a server does PKCE",
	"cross-app-access-complete-flow":     "Holdline does not speak this extension",
	"enterprise-managed-authorization":   "Holdline does not speak this extension",
	"dpop":                               "Holdline does not speak this extension",
	"dpop-nonce":                         "Holdline does not speak this extension",
	"wif-jwt-bearer":                     "Holdline does not speak this extension",
}

// otherIssuer is why a scenario of the older suite ends before the browser opens.
const otherIssuer = "its metadata names another issuer than that it was asked for, which the newer suite corrects"

// TestE2ELoginConformance has the official suite play servers that want a login, and authorization
// servers, for holdline as their client: all scenarios of logins but those that are listed. No check
// may fail, warn or be skipped.
func TestE2ELoginConformance(t *testing.T) {
	t.Parallel()
	e2eCache(t)
	node := newNode(t)
	listed := regexp.MustCompile(`(?m)^ +- auth/(\S+) \[(\S+)\]$`)
	remark := regexp.MustCompile(`^(incoming|outgoing)-|^scope-retry-auth-attempt$`)
	for _, test := range []struct {
		suite, version string
		number         int // of scenarios, with those that are not done
		fails          map[string]string
	}{
		{olderConformVersion, "2025-03-26", 2, map[string]string{
			"2025-03-26-oauth-metadata-backcompat:client-registration":   otherIssuer,
			"2025-03-26-oauth-metadata-backcompat:authorization-request": otherIssuer,
			"2025-03-26-oauth-metadata-backcompat:token-request":         otherIssuer,
		}},
		{olderConformVersion, "2025-11-25", 17, nil},
		{conformVersion, "2025-03-26", 2, nil},
		{conformVersion, "2025-11-25", 20, nil},
		{conformVersion, "2026-07-28", 31, nil},
	} {
		suite := filepath.Join(conformanceSuite(t, test.suite), "dist", "index.js")
		list, err := exec.CommandContext(t.Context(), node, suite, "list", "--client").CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, list)
		}
		number := 0
		for _, one := range listed.FindAllStringSubmatch(string(list), -1) {
			name, versions := one[1], strings.Split(one[2], ",")
			flags := []string{"--spec-version", test.version}
			switch extension := versions[0] == "extension"; {
			case extension && test.version == "2025-03-26", !extension && !slices.Contains(versions, test.version):
				continue
			case extension && test.suite == conformVersion:
				flags = append(flags, "--force") // extensions belong to no version
			}
			number++
			fails := map[string]string{}
			for check, why := range test.fails {
				if strings.HasPrefix(check, name+":") {
					fails[check] = why
				}
			}
			t.Run(test.suite+" "+test.version+"/"+name, func(t *testing.T) {
				if why := loginsNotDone[name]; why != "" {
					t.Skip(why)
				}
				t.Parallel()
				checks, err := conformLogin(t, node, suite, name, flags...)
				if err != nil && len(fails) == 0 {
					t.Error(err)
				}
				for _, c := range checks { // other remarks are of what the suite could not look at
					if c.Status == "INFO" && !remark.MatchString(c.ID) {
						t.Errorf("%s was not checked", c.ID)
					}
				}
				conforms(t, map[string][]check{name: checks}, fails)
			})
		}
		if number != test.number {
			t.Errorf("%s has %d scenarios of logins for %s, want %d:\n%s", test.suite, number, test.version, test.number, list)
		}
	}
}

// conformLogin runs one scenario, and returns what the suite has checked. The error is that of the
// suite, if it is not content.
func conformLogin(t *testing.T, node, suite, name string, flags ...string) ([]check, error) {
	t.Helper()
	p, results := newPlace(t).login().withBrowser(), t.TempDir()
	p.loginPort(t)
	if name != "offline-access-scope" { // it looks at the registration, which nobody makes with a document
		p.must("config", "set", "logins.client_metadata_url", "https://conformance-test.local/client-metadata.json")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*e2eLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, append([]string{
		suite, "client", "--command", filepath.Join(programs, "conformant"), "--scenario", "auth/" + name,
		"--output-dir", results, "--timeout", strconv.FormatInt(e2eLimit.Milliseconds(), 10),
	}, flags...)...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = p.env, p.project, 5*time.Second
	out, wrong := cmd.CombinedOutput()
	files, _ := filepath.Glob(filepath.Join(results, "auth", "*", "checks.json"))
	if len(files) != 1 {
		t.Fatalf("results: %q, %v\n%s", files, wrong, out)
	}
	if wrong != nil {
		wrong = fmt.Errorf("the suite: %w\n%s", wrong, out)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var checks []check
	decode(t, string(b), &checks)
	return checks, wrong
}
