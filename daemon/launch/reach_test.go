package launch

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engines"
	"holdline/daemon/config"
	"holdline/protocol/fault"
)

// routed is an engine of which nothing but the route is asked.
type routed struct {
	engine.Engine

	route engine.Route
}

func (r routed) Route() engine.Route { return r.route }

// to returns an engine whose API has that address.
func to(address string) routed {
	return routed{route: engine.Route{Environ: []string{"X_BASE_URL=" + address}, Address: "X_BASE_URL"}}
}

// unknown is what a lookup says of a host that neither files nor DNS have.
func unknown(_ context.Context, host string) ([]string, error) {
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// TestHostWithoutAddress_RefusedIfNoSourceHasIt checks for sources of hosts and outcomes of lookups whether the consult
// is refused: only if no program on this machine can find the host.
func TestHostWithoutAddress_RefusedIfNoSourceHasIt(t *testing.T) {
	fails := func(err error) func(context.Context, string) ([]string, error) {
		return func(context.Context, string) ([]string, error) { return nil, err }
	}
	timeout := fails(&net.DNSError{Err: "i/o timeout", IsTimeout: true, IsTemporary: true})
	broken := fails(&net.DNSError{Err: "server misbehaving", IsTemporary: true})
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for about, x := range map[string]struct {
		host    string
		lookup  func(context.Context, string) ([]string, error)
		sources string // of the file; "-" if there is none
		want    bool
	}{
		"no file":                   {"gate.example", unknown, "-", true},
		"no line":                   {"gate.example", unknown, "passwd: files\n", true},
		"files and DNS":             {"gate.example", unknown, "hosts: files dns # mdns resolve", true},
		"criteria":                  {"gate.example", unknown, "hosts:\tfiles mdns4_minimal [NOTFOUND=return  SUCCESS=merge] dns\n", true},
		"this machine's name":       {"gate.example", unknown, "hosts: files dns myhostname", true},
		"an unqualified name":       {"gate", unknown, "hosts: files dns", true},
		"a dot at the end":          {"gate.example.", unknown, "hosts: files dns", true},
		"a name of mDNS":            {"gateway.local", unknown, "hosts: files dns", false},
		"in large letters":          {"Gateway.LOCAL.", unknown, "-", false},
		"resolved":                  {"gate.example", unknown, "hosts: mymachines resolve [!UNAVAIL=return] files myhostname dns", false},
		"whole mDNS":                {"gate.example", unknown, "hosts: files mdns4 dns", false},
		"a directory":               {"gate.example", unknown, "hosts: files ldap dns", false},
		"a VPN":                     {"gate.example", unknown, "passwd: files\n hosts : files\tlibvirt_guest dns", false},
		"the machine itself":        {own, unknown, "hosts: files dns myhostname", false},
		"its gateway":               {"_gateway", unknown, "hosts: files dns myhostname", false},
		"another script":            {"bücher.example", unknown, "hosts: files dns", false},
		"time is up":                {"gate.example", timeout, "hosts: files dns", false},
		"DNS is broken":             {"gate.example", broken, "hosts: files dns", false},
		"another error":             {"gate.example", fails(errors.New("no sockets left")), "hosts: files dns", false},
		"never a host":              {"gateway.invalid", broken, "hosts: files resolve", true},
		"a source has it":           {"gateway.invalid", fails(nil), "hosts: files dns", false},
		"sources cannot be read":    {"gate.example", unknown, "/", false},
		"files and DNS, IPv6 as is": {"[::1]", net.DefaultResolver.LookupHost, "hosts: files dns", false},
	} {
		file := filepath.Join(t.TempDir(), "sources")
		switch x.sources {
		case "-":
		case "/":
			file = filepath.Dir(file)
		default:
			if err := os.WriteFile(file, []byte(x.sources), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := (&hosts{x.lookup, file, time.Minute}).check(t.Context(), to("http://"+x.host+":8080/v1"), "Claude Code")
		f, isFault := errors.AsType[*fault.Record](err)
		if isRefused := isFault && f.Reason() == fault.Unreachable; isRefused != x.want || err != nil && !isFault {
			t.Errorf("%s: %s: %v", about, x.host, err)
		} else if isRefused && (!strings.Contains(f.Fault.Detail, x.host) || !strings.Contains(f.Fault.Detail, "X_BASE_URL")) {
			t.Errorf("%s: %v", about, err)
		}
	}
}

// TestLookupHangs_NoRefusal checks that a lookup which takes too long is no reason to refuse a consult, and that who
// cancels the consult meanwhile hears why it was cancelled.
func TestLookupHangs_NoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hosts{func(ctx context.Context, host string) ([]string, error) {
			<-ctx.Done()
			return nil, &net.DNSError{Err: "i/o timeout", Name: host, IsTimeout: true}
		}, "", lookupTime}
		begun := time.Now()
		if err := h.check(t.Context(), to("http://gate.example"), "Codex"); err != nil || time.Since(begun) != lookupTime {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		cause := errors.New("the client has cancelled the consult")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		if err := h.check(ctx, to("http://gate.example"), "Codex"); !errors.Is(err, cause) {
			t.Errorf("cancelled: %v", err)
		}
	})
}

// TestEnginesHosts_OnlyTheOneInUseIsLookedUp checks which host of its environment each engine's program is held to
// reach.
func TestEnginesHosts_OnlyTheOneInUseIsLookedUp(t *testing.T) {
	const base, cloud, proxy = "http://api.base.example/v1", "https://cloud.example", "http://proxy.example:3128"
	for _, x := range []struct {
		engine   string
		environ  []string
		settings string // of Claude Code, or of Codex
		want     string // host that is looked up; "" for none
	}{
		{"claude", nil, "", ""},
		{"claude", []string{"ANTHROPIC_BASE_URL=" + base}, "", "api.base.example"},
		{"claude", []string{"OPENAI_BASE_URL=" + base, "ANTHROPIC_VERTEX_BASE_URL=" + cloud}, "", ""},
		{"claude", []string{"ANTHROPIC_BASE_URL=" + base, "ANTHROPIC_BEDROCK_BASE_URL=" + cloud, "CLAUDE_CODE_USE_BEDROCK=1"}, "", "cloud.example"},
		{"claude", []string{"ANTHROPIC_BASE_URL=" + base, "CLAUDE_CODE_USE_VERTEX=true"}, "", ""},
		{"claude", []string{"ANTHROPIC_BASE_URL=" + base, "CLAUDE_CODE_USE_VERTEX=0"}, "", "api.base.example"},
		{"claude", []string{"ANTHROPIC_BASE_URL=" + base}, `{"env":{"ANTHROPIC_BASE_URL":"https://own.example"}}`, "own.example"},
		{"claude", []string{"ANTHROPIC_BASE_URL=" + base}, `{"env":{"CLAUDE_CODE_USE_BEDROCK":"1"}}`, ""},
		{"claude", []string{"ANTHROPIC_BASE_URL=" + base, "HTTPS_PROXY=" + proxy}, "", "proxy.example"},
		{"claude", []string{"ANTHROPIC_BASE_URL=" + base, "HTTPS_PROXY=proxy.example:3128"}, "", "proxy.example"},
		{"claude", []string{"HTTPS_PROXY=" + proxy, "NO_PROXY=localhost,10.0.0.0/8"}, "", "proxy.example"},
		{"claude", []string{"HTTPS_PROXY=" + proxy, "NO_PROXY=.anthropic.com"}, "", ""},
		{"claude", []string{"HTTPS_PROXY=" + proxy, "no_proxy=*"}, "", ""},
		{"claude", []string{"HTTPS_PROXY=" + proxy, "NO_PROXY=api.anthropic.com:8443"}, "", "proxy.example"}, // another port
		{"claude", []string{"ANTHROPIC_BASE_URL=" + base, "HTTPS_PROXY=" + proxy, "NO_PROXY=x, *.BASE.example:443"}, "", "api.base.example"},
		{"claude", []string{"ANTHROPIC_BASE_URL=http://127.0.0.1:4000", "HTTPS_PROXY=" + proxy}, "", "127.0.0.1"},
		{"claude", []string{"HTTPS_PROXY=" + proxy, "NO_PROXY=x", "CLAUDE_CODE_USE_BEDROCK=1"}, "", ""},
		{"claude", []string{"ALL_PROXY=" + proxy}, "", ""},
		{"claude", []string{"https_proxy=http://first.example", "HTTPS_PROXY=" + proxy}, "", "first.example"},
		{"codex", []string{"ANTHROPIC_BASE_URL=" + base, "AZURE_OPENAI_BASE_URL=" + base}, "", ""},
		{"codex", []string{"OPENAI_BASE_URL=" + base}, "", "api.base.example"},
		{"codex", []string{"OPENAI_BASE_URL=" + base}, `model_provider="mine"`, ""},
		{"codex", []string{"OPENAI_BASE_URL=" + base, "HTTPS_PROXY=" + proxy}, "", "api.base.example"},
		{"codex", []string{"OPENAI_BASE_URL=" + cloud, "HTTPS_PROXY=" + proxy}, "", "proxy.example"},
		{"codex", []string{"ALL_PROXY=" + proxy}, "", "proxy.example"},
		{"acp:x", []string{"GEMINI_BASE_URL=" + base}, "", "api.base.example"},
		{"acp:x", []string{"GEMINI_BASE_URL=" + base, "OTHER_BASE_URL=" + cloud}, "", ""},
		{"acp:x", []string{"GEMINI_BASE_URL=" + base, "https_proxy=" + proxy}, "", ""},
	} {
		home := t.TempDir()
		c := config.Default().Consult
		c.Agents = map[string]config.Agent{"x": {Command: "x"}}
		if x.engine == "codex" && x.settings != "" {
			c.CodexConfig = []string{x.settings}
		} else if x.settings != "" {
			if err := os.MkdirAll(filepath.Join(home, ".claude"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(home, ".claude", "settings.json"), []byte(x.settings), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		environ, extra := append(slices.Clone(x.environ), "HOME="+home), []string(nil)
		if x.engine == "acp:x" { // which gets what the configuration gives it
			environ, extra = []string{"HOME=" + home, "AN_BASE_URL=http://not.passed.example"}, x.environ
		}
		var asked string
		h := hosts{func(ctx context.Context, host string) ([]string, error) {
			asked += host
			return unknown(ctx, host)
		}, "", time.Minute}
		_ = h.check(t.Context(), engines.Find(&c, x.engine).New(&c, environ, extra), "it")
		if asked != x.want {
			t.Errorf("%s, %q, %s: looked for %q, want %q", x.engine, x.environ, x.settings, asked, x.want)
		}
	}
}
