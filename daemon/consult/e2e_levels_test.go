package consult

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holdline/daemon/adapter/engine/claude"
	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/sandbox/writetest"
)

// internet is a proxy that stands for the whole internet: it answers for every host that a
// program asks for, with a certificate of its own.
type internet struct {
	url  string
	ca   string // path of the certificate that clients must trust
	http http.Server
	seen chan string // requests, "METHOD host/path"
}

// newInternet serves handler to every client that uses it as a proxy.
func newInternet(t *testing.T, handler http.Handler) *internet {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "stand-in"}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, root, root, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	in := &internet{ca: filepath.Join(t.TempDir(), "ca.pem"), seen: make(chan string, 1000)}
	if err := os.WriteFile(in.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			leaf := &x509.Certificate{
				SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: hello.ServerName},
				DNSNames: []string{hello.ServerName}, NotBefore: root.NotBefore, NotAfter: root.NotAfter,
				KeyUsage:    x509.KeyUsageDigitalSignature,
				ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			}
			der, err := x509.CreateCertificate(rand.Reader, leaf, root, &key.PublicKey, key)
			return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
		},
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conns := &tunnels{conns: make(chan net.Conn), done: make(chan struct{}), addr: ln.Addr()}
	in.url = "http://" + ln.Addr().String()
	in.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case in.seen <- r.Method + " " + r.Host + r.URL.Path:
		default:
		}
		handler.ServeHTTP(w, r)
	})
	var served sync.WaitGroup
	served.Go(func() { _ = in.http.Serve(tls.NewListener(conns, config)) })
	served.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			served.Go(func() { conns.take(c) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		close(conns.done)
		_ = in.http.Close()
		served.Wait()
	})
	return in
}

// tunnels is a listener of the connections that clients asked for by CONNECT.
type tunnels struct {
	conns chan net.Conn
	done  chan struct{}
	addr  net.Addr
}

func (l *tunnels) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *tunnels) Close() error   { return nil }
func (l *tunnels) Addr() net.Addr { return l.addr }

// take reads the request for a tunnel, and accepts it.
func (l *tunnels) take(c net.Conn) {
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	r, err := http.ReadRequest(bufio.NewReader(io.LimitReader(c, 64<<10)))
	if err != nil || r.Method != http.MethodConnect {
		_ = c.Close()
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
	select {
	case l.conns <- c:
	case <-l.done:
		_ = c.Close()
	}
}

// credentials is the file in which the program keeps its login.
type credentials struct {
	OAuth struct {
		AccessToken  string   `json:"accessToken"`
		RefreshToken string   `json:"refreshToken"`
		ExpiresAt    int64    `json:"expiresAt"` // Unix time in ms
		Scopes       []string `json:"scopes"`
		Subscription string   `json:"subscriptionType"`
	} `json:"claudeAiOauth"`
}

// refreshed checks that an expired login is refreshed at every level, and that the new
// token is saved. If it were not, the user would be logged out, since a refresh token can
// be used once.
func refreshed(t *testing.T, bin string) {
	t.Helper()
	for _, tt := range []struct{ level, linked string }{
		{"read", ""},
		{"shell", ""},
		{"read", ".claude"},
		{"shell", ".claude"},
		{"read", ".claude/.credentials.json"},
		{"shell", ".claude/.credentials.json"},
	} {
		level := tt.level
		t.Run(level+tt.linked, func(t *testing.T) {
			api, err := claudetest.StartAPI()
			if err != nil {
				t.Fatal(err)
			}
			defer api.Close()
			target, err := url.Parse(api.URL())
			if err != nil {
				t.Fatal(err)
			}
			model := httputil.NewSingleHostReverseProxy(target)
			var mu sync.Mutex
			var used []string // refresh tokens that were used
			in := newInternet(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case strings.HasSuffix(r.URL.Path, "/oauth/token"):
					body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
					mu.Lock()
					used = append(used, string(body))
					mu.Unlock()
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w,
						`{"token_type":"Bearer","access_token":"sk-ant-oat01-new","refresh_token":"sk-ant-ort01-new","expires_in":28800,"scope":"user:inference user:profile"}`)
				case strings.HasPrefix(r.URL.Path, "/v1/messages"):
					if got := r.Header.Get("Authorization"); got != "Bearer sk-ant-oat01-new" {
						w.WriteHeader(http.StatusUnauthorized)
						_, _ = io.WriteString(w,
							`{"type":"error","error":{"type":"authentication_error","message":"expired"}}`)
						return
					}
					model.ServeHTTP(w, r)
				default:
					http.NotFound(w, r)
				}
			}))
			h := newHouse(t, bin, func(o *Options) {
				o.Engines.(Fixed)[Claude] = claude.New(claude.Options{
					Bin: bin, MaxRetries: 1, Timeout: time.Minute,
					Env: []string{
						"PATH=" + os.Getenv("PATH"), "HOME=" + o.Home, "HTTPS_PROXY=" + in.url,
						"NODE_EXTRA_CA_CERTS=" + in.ca, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
						"DISABLE_TELEMETRY=1",
					},
				})
			})
			var old credentials
			old.OAuth.AccessToken, old.OAuth.RefreshToken = "sk-ant-oat01-old", "sk-ant-ort01-old"
			old.OAuth.Scopes, old.OAuth.Subscription = []string{"user:inference", "user:profile"}, "max"
			path := filepath.Join(h.opt.Home, ".claude", ".credentials.json")
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if tt.linked != "" { // the file is a symbolic link, as with users who keep such files elsewhere
				elsewhere, link := t.TempDir(), filepath.Join(h.opt.Home, tt.linked)
				_ = os.Remove(link)
				if err := os.Symlink(filepath.Join(elsewhere, "kept"), link); err != nil {
					t.Fatal(err)
				}
				if tt.linked == ".claude" {
					if err := os.Mkdir(filepath.Join(elsewhere, "kept"), 0o700); err != nil {
						t.Fatal(err)
					}
				}
			}
			put := func(expires time.Time) {
				t.Helper()
				old.OAuth.ExpiresAt = expires.UnixMilli()
				b, err := json.Marshal(old)
				if err == nil {
					err = os.WriteFile(path, b, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			// The login check would refresh the token, too, which is not what is tested
			// here. So it is made before, with a valid token; its result is cached.
			put(time.Now().Add(time.Hour))
			h.need(level)
			put(time.Now().Add(-time.Hour))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			res, err := h.run(ctx, 1,
				map[string]any{"prompt": claudetest.Prompt("x", claudetest.Say("with the new login")), "level": level})
			if err != nil || res.Fault != nil || !strings.HasPrefix(res.Text, "with the new login") {
				t.Errorf("err %v, %s, text %q", err, dump(res.Fault), res.Text)
			}
			var now credentials
			b, err := os.ReadFile(path)
			if err == nil {
				err = json.Unmarshal(b, &now)
			}
			if err != nil || now.OAuth.AccessToken != "sk-ant-oat01-new" ||
				now.OAuth.RefreshToken != "sk-ant-ort01-new" ||
				now.OAuth.ExpiresAt <= time.Now().UnixMilli() {
				t.Errorf("err %v, kept %s", err, b)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(used) != 1 || !strings.Contains(used[0], "sk-ant-ort01-old") {
				t.Errorf("refreshed with %q", used)
			}
			if t.Failed() {
				for len(in.seen) > 0 {
					t.Log(<-in.seen)
				}
			}
		})
	}
}

// phases cancels a run in each of its phases. Within 3 s no process of its tree is left,
// and its cost is known as far as the program reported it.
func phases(t *testing.T, bin string) {
	t.Helper()
	shell := func(command string) []claudetest.Step {
		return []claudetest.Step{
			{Tool: claudetest.Tool{Name: "Bash", Input: map[string]any{"command": command, "timeout": 120_000}}},
			{Echo: "tool_results"},
		}
	}
	for _, tt := range []struct {
		name  string
		level string
		steps []claudetest.Step
		until func(h *house, api *claudetest.API) bool
		cost  bool
	}{
		{
			name: "at the start", level: "read", steps: []claudetest.Step{{Delay: 600}},
			until: func(h *house, _ *claudetest.API) bool { return len(h.tree()) > 0 },
		},
		{
			name: "waiting for the model", level: "read", steps: []claudetest.Step{{Delay: 600}},
			until: func(_ *house, api *claudetest.API) bool { return len(api.Requests()) > 0 },
		},
		{
			name: "while it answers", level: "read",
			steps: []claudetest.Step{{Text: new(strings.Repeat("word ", 1000)), Chunk: 5, ChunkDelay: 0.05}},
			until: func(h *house, _ *claudetest.API) bool { return h.text(1) != "" }, cost: true,
		},
		{
			name: "between two requests", level: "read", cost: true,
			steps: []claudetest.Step{{
				Text: new("Let me look."), Tool: claudetest.Tool{Name: "Glob", Input: map[string]any{"pattern": "*"}},
			}, {Delay: 600}},
			until: func(_ *house, api *claudetest.API) bool { return len(api.Requests()) > 1 },
		},
		{
			name: "in a command", level: "shell", steps: shell("sleep 601"), cost: true,
			until: func(h *house, _ *claudetest.API) bool { return h.running("sleep\x00601") },
		},
		{
			name: "in a command that heeds nothing", level: "shell",
			steps: shell("sh -c 'trap \"\" TERM INT HUP; setsid sleep 602; sleep 603'"), cost: true,
			until: func(h *house, _ *claudetest.API) bool { return h.running("sleep\x00602") },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, api := realHouse(t, bin)
			h.need(tt.level)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var at time.Time
			var tree []int
			var watch sync.WaitGroup
			watch.Go(func() {
				// A process that is just replaced by its program has no environment for a moment.
				for begun := time.Now(); len(tree) == 0 && time.Since(begun) < time.Minute; {
					if tt.until(h, api) {
						tree = h.tree()
					}
					time.Sleep(5 * time.Millisecond)
				}
				at = time.Now()
				cancel()
			})
			_, err := h.run(ctx, 1, map[string]any{"prompt": claudetest.Prompt("x", tt.steps...), "level": tt.level})
			watch.Wait()
			a, werr := h.Wait(t.Context(), jobdir.ID(h.session, 1), nil)
			if took := time.Since(at); took > 30*time.Second {
				t.Errorf("took %s", took)
			}
			if err == nil || werr != nil || a.State != answer.Cancelled {
				t.Fatalf("err %v, %v, %s", err, werr, dump(a))
			}
			if len(tree) == 0 {
				t.Error("there was no process")
			}
			for _, pid := range tree {
				gone(t, pid)
			}
			if left := h.tree(); len(left) != 0 {
				t.Errorf("left: %v", left)
			}
			if tt.cost && (a.CostUSD == nil || a.SessionID == "") {
				t.Errorf("cost and session are not known: %s", dump(a))
			}
		})
	}
}

// need skips the test if this machine cannot enforce the level.
func (h *house) need(level string) {
	h.t.Helper()
	info, err := h.Check(h.t.Context(), Claude, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	if lacks := info.Level(level).Lacks; lacks != "" {
		h.t.Skip(lacks)
	}
}

// tree returns the processes that carry the id of job 1 in their environment: the program
// and all that it started, in any session.
func (h *house) tree() []int {
	var found []int
	want := "HOLDLINE_WORKER=" + filepath.Join(h.dirs.Consults, jobdir.ID(h.session, 1)) + "\x00"
	h.each(func(pid int, dir string) {
		if env, err := os.ReadFile(filepath.Join(dir, "environ")); err == nil && strings.Contains(string(env), want) {
			found = append(found, pid)
		}
	})
	return found
}

// running reports whether one of them has this text in its command line.
func (h *house) running(command string) bool {
	for _, pid := range h.tree() {
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil &&
			strings.Contains(string(line), command) {
			return true
		}
	}
	return false
}

// each calls f for every process of the machine.
func (h *house) each(f func(pid int, dir string)) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(dir), "%d", &pid); err == nil {
			f(pid, dir)
		}
	}
}

// worktree checks that at level shell neither the run's directory nor another one that it
// may read nor the repository of a work tree can be written to. Commands run all the same,
// without network.
func worktree(t *testing.T, bin string) {
	t.Helper()
	h, api := realHouse(t, bin)
	h.need("shell")
	repo, tree, more := filepath.Join(h.project, "repo"), filepath.Join(h.project, "tree"),
		filepath.Join(h.project, "more")
	for _, args := range [][]string{
		{"init", "-q", repo},
		{"-C", repo, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"},
		{"-C", repo, "worktree", "add", "-q", tree},
	} {
		if out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	if err := os.Mkdir(more, 0o700); err != nil {
		t.Fatal(err)
	}
	before, err := writetest.Listing(h.project)
	if err != nil {
		t.Fatal(err)
	}
	var steps []claudetest.Step
	for _, command := range []string{
		"echo control-$((6*7))", "touch here", "touch " + repo + "/.git/there", "git branch another",
		"git -c user.name=a -c user.email=a@b commit --allow-empty -m y", "touch " + more + "/it",
		"curl -s -m 5 " + api.URL() + "/v1/models; echo curl ended with $?",
	} {
		steps = append(steps,
			claudetest.Step{Tool: claudetest.Tool{Name: "Bash", Input: map[string]any{"command": command}}})
	}
	steps = append(steps, claudetest.Step{Echo: "tool_results"})
	res, err := h.run(t.Context(), 1, map[string]any{
		"prompt": claudetest.Prompt("x", steps...), "level": "shell", "cwd": "tree", "add_dirs": []string{more},
	})
	if err != nil || res.Fault != nil || !strings.Contains(res.Text, "control-42") ||
		!strings.Contains(res.Text, "enforced by sandbox") {
		t.Fatalf("err %v, %s, text %q", err, dump(res.Fault), res.Text)
	}
	if !strings.Contains(res.Text, "curl ended with") || strings.Contains(res.Text, "not_found_error") {
		t.Errorf("a command has reached the network: %q", res.Text)
	}
	if after, err := writetest.Listing(h.project); err != nil || after != before {
		t.Errorf("err %v; there was\n%s\nand is\n%s\n%s", err, before, after, res.Text)
	}
}
