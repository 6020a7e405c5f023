package e2e

import (
	"bytes"
	"cmp"
	"image/png"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"holdline/daemon/login/logintest"
)

// TestE2ELoginInChromium logs in with a real browser, and keeps screenshots of the page at the end
// (go test -artifacts), once with a login and once without. The browser has nothing to say about the
// pages, and nobody but the server was asked for anything.
func TestE2ELoginInChromium(t *testing.T) {
	t.Parallel()
	if os.Getenv("HOLDLINE_E2E") == "" {
		t.Skip("HOLDLINE_E2E=1 is not set: it starts a real browser")
	}
	shell, _ := exec.LookPath("chromium-headless-shell")
	full, _ := exec.LookPath("chromium")
	browser := cmp.Or(shell, full)
	if browser == "" {
		t.Skip("neither chromium-headless-shell nor chromium is on the PATH")
	}
	start := regexp.MustCompile(`http://127\.0\.0\.1:\d+/start/\S+`)
	for name, test := range map[string]struct {
		back func(url.Values)
		code int
	}{
		"success": {func(url.Values) {}, exitOK},
		"error": {func(answer url.Values) {
			answer.Del("code")
			answer.Set("error", "access_denied")
		}, exitFailure},
	} {
		t.Run(name, func(t *testing.T) {
			srv := logintest.Start(t, logintest.Options{Person: "ada@example.com", Back: test.back})
			p := newPlace(t).login().configure(map[string]any{"far": map[string]any{"url": srv.URL}})
			cmd, said := p.command("servers", "login", "far", "--no-browser"), new(words)
			cmd.Stderr = said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			for deadline := time.Now().Add(waitLimit); !start.MatchString(said.String()); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("servers login says %s", said)
				}
			}
			picture := filepath.Join(t.ArtifactDir(), name+".png")
			c := exec.CommandContext(t.Context(), browser, "--headless", "--no-sandbox", "--disable-gpu",
				"--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking", "--enable-logging=stderr",
				"--timeout=60000", // ms: it may wait for ever for a page that has been there for long
				"--user-data-dir="+t.TempDir(), "--window-size=900,600", "--screenshot="+picture, start.FindString(said.String()))
			out, err := c.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for line := range strings.Lines(string(out)) {
				if strings.Contains(line, "CONSOLE") {
					t.Errorf("the browser says %s", line)
				}
			}
			_ = cmd.Wait() // the exit code counts
			if cmd.ProcessState.ExitCode() != test.code {
				t.Errorf("exit %d: %s", cmd.ProcessState.ExitCode(), said)
			}
			b, err := os.ReadFile(picture)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := png.Decode(bytes.NewReader(b)); err != nil {
				t.Error(err)
			}
			for _, path := range srv.Paths() {
				if !strings.Contains(path, "/.well-known/") && !strings.HasSuffix(path, "/mcp") &&
					!strings.HasSuffix(path, "/register") && path != "GET /authorize" && path != "POST /token" {
					t.Errorf("the server was asked %s", path)
				}
			}
		})
	}
}
