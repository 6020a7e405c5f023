package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"holdline/daemon/login/logintest"
)

// endsAt opens an address of an authorization server elsewhere, and returns the address at which
// that browser ends.
func endsAt(t *testing.T, address string) string {
	t.Helper()
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := c.Get(address)
	if err != nil {
		t.Error(err)
		return ""
	}
	resp.Body.Close()
	return resp.Header.Get("Location")
}

// TestLogin_WithoutBrowser checks logins on a machine without a display: by an address that is
// pasted on a terminal, longer than terminals take by themselves, and by a code. Nothing listens then.
func TestLogin_WithoutBrowser(t *testing.T) {
	t.Parallel()
	srv := logintest.Start(t, logintest.Options{Interval: 0.01, Back: func(answer url.Values) {
		answer.Set("x", strings.Repeat("x", 9000))
	}})
	p := newPlace(t).login().configure(map[string]any{"far": map[string]any{"url": srv.URL}})
	port := p.loginPort(t)
	cmd := p.command("servers", "login", "far")
	nobodyListens := func(when string) {
		t.Helper()
		if c, err := new(net.Dialer).DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = c.Close()
			t.Errorf("something listens during the login %s", when)
		}
	}
	shown := onTerminalSeen(t, cmd, "", "WDJB-MJHT", func(*os.File, string) {
		nobodyListens("with a code")
		srv.Approve()
	})
	if cmd.ProcessState.ExitCode() != exitOK || !strings.Contains(shown, "far: logged in, renews itself") {
		t.Errorf("with a code: %s", shown)
	}
	cmd = p.command("servers", "login", "far", "--paste", "--force", "--timeout", "30s")
	shown = onTerminalSeen(t, cmd, "", "nobody logged in", func(*os.File, string) {})
	if !strings.Contains(shown, "press Enter: \r\nholdline: far: nobody logged in within 30s") {
		t.Errorf("--paste, and nothing is pasted: %q", shown)
	}
	cmd = p.command("servers", "login", "far", "--paste", "--force")
	wrong := fmt.Sprintf("http://127.0.0.1:%d/callback?code=x&state=y\n", port)
	shown = onTerminalSeen(t, cmd, wrong, "another login", func(screen *os.File, so string) {
		nobodyListens("by an address")
		_, _ = io.WriteString(screen, endsAt(t, strings.Fields(so[strings.Index(so, srv.Base+"/authorize"):])[0])+"\n")
	})
	if cmd.ProcessState.ExitCode() != exitOK || !strings.Contains(shown, "far: logged in, renews itself") ||
		!strings.Contains(shown, "that is the answer to another login") || strings.Contains(shown, "xxxx") {
		t.Errorf("--paste: exit %d\n%s", cmd.ProcessState.ExitCode(), shown)
	}
}
