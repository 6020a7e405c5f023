package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// mostLogins is how often the suite's client logs in before it gives up.
const mostLogins = 3

// placesVariable names the directory that has, for each scenario, the environment of its place.
const placesVariable = "HOLDLINE_TEST_PLACES"

// conformantMain is the client that the suite starts with the address of its server, for all its
// scenarios at once: they take turns, each in a place of its own. It does what a person with an agent
// does: add the server, let the agent call a tool, and log in if the answer says so. The agent stays
// connected all the time. It returns 0 if the call has worked at last, and leaves the error in a file
// otherwise.
func conformantMain(address string) int {
	file := filepath.Join(os.Getenv(placesVariable), filepath.Base(os.Getenv("MCP_CONFORMANCE_SCENARIO")))
	err := enterPlace(file)
	if err == nil {
		err = takeTurn(filepath.Join(filepath.Dir(file), "turn"))
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), e2eLimit)
		defer cancel()
		err = useConformant(ctx, address)
	}
	if err != nil {
		_ = os.WriteFile(file+clientFailed, []byte(err.Error()), 0o600)
		return 1
	}
	return 0
}

// clientFailed is what the names of the files end with that say why the client has failed.
const clientFailed = ".failed"

// enterPlace makes this process one of the place that a file describes: see [place.writeTo].
func enterPlace(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for kv := range strings.SplitSeq(string(b), "\x00") {
		name, value, _ := strings.Cut(kv, "=")
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return os.Chdir(os.Getenv("PWD"))
}

// takeTurn waits until no other process has its turn. The turn ends with this process.
func takeTurn(file string) error {
	fd, err := syscall.Open(file, syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err == nil {
		err = syscall.Flock(fd, syscall.LOCK_EX)
	}
	return err
}

// writeTo writes the environment of the place into a file.
func (p *place) writeTo(file string) {
	p.t.Helper()
	env := append(slices.Clone(p.env), "PWD="+p.project)
	if err := os.WriteFile(file, []byte(strings.Join(env, "\x00")), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// useConformant is [conformantMain] with an error.
func useConformant(ctx context.Context, address string) error {
	holdline := func(args ...string) error {
		if out, err := exec.CommandContext(ctx, "holdline", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("holdline %s: %w: %s", strings.Join(args[:2], " "), err, out)
		}
		return nil
	}
	if err := holdline("servers", "add", "fixture", "--no-check", address); err != nil {
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
		var failure struct {
			StructuredContent struct{ Cause struct{ Reason string } }
		}
		if err := json.Unmarshal(text, &failure); err != nil {
			return err
		}
		reason := failure.StructuredContent.Cause.Reason
		if reason != "not_logged_in" && reason != "insufficient_scope" || logins == mostLogins {
			return fmt.Errorf("no login helps: %s", text)
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

// refusedLogins are the scenarios in which a login has to be refused: the call cannot have worked.
var refusedLogins = []string{
	"iss-normalized", "iss-supported-missing", "iss-unexpected", "iss-wrong-issuer", "metadata-issuer-mismatch",
	"resource-mismatch", "scope-retry-limit",
}

// TestE2ELoginConformance has the official suite play servers that want a login, and authorization
// servers, for holdline as their client: all scenarios of logins but those that are listed. No check
// may fail, warn or be skipped.
func TestE2ELoginConformance(t *testing.T) {
	t.Parallel()
	e2eCache(t)
	node := newNode(t)
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
		t.Run(test.suite+" "+test.version, func(t *testing.T) {
			t.Parallel()
			found := conformLogins(t, node, test.suite, test.version)
			if len(found) != test.number {
				t.Errorf("there are %d scenarios of logins, want %d", len(found), test.number)
			}
			for name, of := range found {
				t.Run(name, func(t *testing.T) { of.check(t, name, test.fails) })
			}
		})
	}
}

// A conformed scenario of logins is one that the suite has run.
type conformed struct {
	checks []check
	client string // why the client failed, "" if it did not
}

// check compares a scenario's results with what is known to fail.
func (c conformed) check(t *testing.T, name string, fails map[string]string) {
	t.Helper()
	if why := loginsNotDone[name]; why != "" {
		t.Skip(why)
	}
	known := map[string]string{}
	for check, why := range fails {
		if strings.HasPrefix(check, name+":") {
			known[check] = why
		}
	}
	if failed := c.client != ""; failed != (len(known) > 0 || slices.Contains(refusedLogins, name)) {
		t.Errorf("the client: %q", c.client)
	}
	remark := regexp.MustCompile(`^(incoming|outgoing)-|^scope-retry-auth-attempt$`)
	for _, check := range c.checks { // other remarks are of what the suite could not look at
		if check.Status == "INFO" && !remark.MatchString(check.ID) {
			t.Errorf("%s was not checked", check.ID)
		}
	}
	conforms(t, map[string][]check{name: c.checks}, known)
}

// conformLogins runs a suite's scenarios of logins for a version of the protocol all at once,
// and returns what came of each.
func conformLogins(t *testing.T, node, suite, version string) map[string]conformed {
	t.Helper()
	program := filepath.Join(conformanceSuite(t, suite), "dist", "index.js")
	list, err := exec.CommandContext(t.Context(), node, program, "list", "--client").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, list)
	}
	limit := 5 * e2eLimit // all that wait for their turn have begun
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	places, results := t.TempDir(), t.TempDir()
	env := append(newPlace(t).env, placesVariable+"="+places)
	conform := func(flags ...string) {
		cmd := exec.CommandContext(ctx, node, append([]string{
			program, "client", "--command", filepath.Join(programs, "conformant"), "--spec-version", version,
			"--output-dir", results, "--timeout", strconv.FormatInt(limit.Milliseconds(), 10),
		}, flags...)...)
		cmd.Env, cmd.WaitDelay = env, 5*time.Second
		out, err := cmd.CombinedOutput() // it fails if a check does
		t.Logf("%v\n%s", err, out)
	}
	var extensions []string // they belong to no version, and so to no suite of one
	found := map[string]conformed{}
	for _, one := range regexp.MustCompile(`(?m)^ +- auth/(\S+) \[(\S+)\]$`).FindAllStringSubmatch(string(list), -1) {
		name, versions := one[1], strings.Split(one[2], ",")
		if versions[0] == "extension" && version == "2025-03-26" ||
			versions[0] != "extension" && !slices.Contains(versions, version) {
			continue
		}
		found[name] = conformed{}
		if loginsNotDone[name] != "" {
			continue
		}
		if versions[0] == "extension" {
			extensions = append(extensions, name)
		}
		p := newPlace(t).login().withBrowser()
		p.loginPort(t)
		if name != "offline-access-scope" { // it looks at the registration, which nobody makes with a document
			p.must("config", "set", "logins.client_metadata_url", "https://conformance-test.local/client-metadata.json")
		}
		p.writeTo(filepath.Join(places, name))
	}
	conform("--suite", "all") // no suite has the logins of all versions; the client refuses what is no login
	for _, name := range extensions {
		flags := []string{"--scenario", "auth/" + name}
		if suite == conformVersion {
			flags = append(flags, "--force")
		}
		conform(flags...)
	}
	for name := range found {
		if loginsNotDone[name] != "" {
			continue
		}
		files, _ := filepath.Glob(filepath.Join(results, "auth", name+"-2[0-9][0-9][0-9]-*", "checks.json"))
		if len(files) != 1 {
			t.Fatalf("results of %s: %q", name, files)
		}
		var c conformed
		decode(t, content(t, files[0]), &c.checks)
		if b, err := os.ReadFile(filepath.Join(places, name+clientFailed)); err == nil {
			c.client = string(b)
		}
		found[name] = c
	}
	return found
}
