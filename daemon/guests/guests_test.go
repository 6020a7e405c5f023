package guests

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/daemon/config"
	"holdline/daemon/listener"
	"holdline/protocol"
	"holdline/protocol/socket"
)

// manager returns a manager of these sockets, which does not listen.
func manager(t *testing.T, private string, sockets map[string]config.Socket) *Manager {
	t.Helper()
	return New(Options{
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), UID: os.Getuid(), Private: private,
		Dir: filepath.Join(private, "guests"), Current: func() map[string]config.Socket { return sockets },
	})
}

// TestAdmit checks what is left of the greeting of a guest, and that a project which other guests
// could replace is refused.
func TestAdmit(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"app/sub", "lib"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "app"), link); err != nil {
		t.Fatal(err)
	}
	m := manager(t, dir, map[string]config.Socket{
		"box": {Paths: map[string]string{
			"/app": filepath.Join(dir, "app"), "/lib": filepath.Join(dir, "lib"), "/gone": filepath.Join(dir, "gone"),
		}},
		"other": {Identity: "them", Paths: map[string]string{
			"/sub": filepath.Join(dir, "app", "sub"), "/alias": filepath.Join(link, "sub"),
		}},
		"off": {Disabled: true},
	})
	admit := func(name, cwd string) (*listener.Conn, *protocol.Refusal) {
		c := &listener.Conn{Peer: socket.Peer{PID: 7}, Greeting: protocol.Greeting{
			Identity: "owner", Token: "t", Project: "p", Cwd: cwd, View: "v", Files: true, Logins: []string{"X"}, Session: "s",
		}}
		return c, m.admit(name, c)
	}
	c, refusal := admit("box", "/app/deep")
	g := c.Greeting
	if refusal != nil || g.Identity != "guest:box" || g.Token+g.View != "" || g.Files || g.Logins != nil || g.Session != "s" ||
		g.Cwd != filepath.Join(dir, "app") || g.Project == "p" || c.Peer.PID != 0 || c.Guest.Socket != "box" ||
		c.Guest.InFlight != config.GuestCalls {
		t.Errorf("a guest in its project: %+v, %+v, %v", g, c, refusal)
	}
	other, _ := admit("box", "/lib")
	away, refusal := admit("box", "/home/me")
	if refusal != nil || away.Greeting.Cwd != "" || away.Greeting.Project == other.Greeting.Project {
		t.Errorf("a guest elsewhere: %+v, %v", away.Greeting, refusal)
	}
	for name, cwd := range map[string]string{
		"other": "/sub", "box": "/gone", "off": "/", "none": "/",
	} {
		if _, refusal := admit(name, cwd); refusal == nil || strings.Contains(refusal.Message, dir) {
			t.Errorf("%s at %s: %v, want a refusal that names no directory here", cwd, name, refusal)
		}
	}
	if _, refusal := admit("other", "/alias"); refusal == nil {
		t.Error("a project behind a link, in the project of others, is not refused")
	}
}

// TestOwnDirectory checks that no socket is made beside what guests must not see.
func TestOwnDirectory(t *testing.T) {
	dir := t.TempDir()
	private, link := filepath.Join(dir, "run"), filepath.Join(dir, "link")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	m := manager(t, private, map[string]config.Socket{
		"box": {}, "other": {Path: filepath.Join(dir, "two", "deep", "s")},
		"off": {Path: filepath.Join(dir, "off", "s"), Disabled: true},
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer m.serving.Wait()
	defer cancel()
	for _, path := range []string{
		filepath.Join(private, "box.sock"), filepath.Join(dir, "box.sock"), filepath.Join(private, "guests", "box.sock"),
		filepath.Join(link, "run", "box.sock"), filepath.Join(link, "run", "guests", "box.sock"),
		filepath.Join(dir, "two", "deep", "box.sock"), filepath.Join(dir, "two", "box.sock"),
	} {
		if _, err := m.open(ctx, "box", config.Socket{Path: path}); err == nil {
			t.Errorf("a socket at %s", path)
		}
	}
	for _, path := range []string{
		"", filepath.Join(dir, "off", "box.sock"), filepath.Join(dir, "two", "deep", "er", "s"),
	} {
		if _, err := m.open(ctx, "box", config.Socket{Path: path}); err != nil {
			t.Errorf("no socket at %q: %v", path, err)
		}
	}
}

// TestConnections checks that a socket has no more guests than it may have, though one says that it
// resumes, and that one which is there has another connection in its place.
func TestConnections(t *testing.T) {
	dir := t.TempDir()
	box := config.Socket{Path: filepath.Join(dir, "box", "s"), Connections: 1}
	m := manager(t, filepath.Join(dir, "run"), map[string]config.Socket{"box": box})
	m.o.Serve = func(ctx context.Context, c *listener.Conn) {
		_, _ = c.Write([]byte("served"))
		<-ctx.Done()
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer m.serving.Wait()
	defer cancel()
	if _, err := m.open(ctx, "box", box); err != nil {
		t.Fatal(err)
	}
	for i, session := range []int{1, 1, 2} {
		c, err := net.Dial("unix", box.Path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		fmt.Fprintf(c, `{"holdline":1,"role":"mcp","resume":true,"session":"%036d"}`+"\n", session)
		b := make([]byte, 512)
		n, err := c.Read(b)
		if got := string(b[:n]); err != nil || (got == "served") != (session == 1) {
			t.Errorf("connection %d, of guest %d, got %q, %v", i, session, got, err)
		}
	}
}

// TestReopen checks that a socket whose limit has changed is open again at once.
func TestReopen(t *testing.T) {
	dir := t.TempDir()
	box := config.Socket{Path: filepath.Join(dir, "box", "s"), Connections: 1}
	sockets := map[string]config.Socket{}
	m := manager(t, filepath.Join(dir, "run"), sockets)
	m.o.Expel = func(string) {}
	ctx, cancel := context.WithCancel(t.Context())
	defer m.serving.Wait()
	defer cancel()
	doors, closed := map[string]*door{}, map[string]bool{}
	for range 20 {
		sockets["box"] = box
		m.update(ctx, doors, closed)
		if doors["box"] == nil || !doors["box"].ln.Still() {
			t.Fatalf("with %d connections: %s", box.Connections, m.trouble["box"])
		}
		box.Connections++
	}
}
