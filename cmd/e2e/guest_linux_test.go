package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"holdline/protocol"
	"holdline/protocol/control"
)

// guestServers are servers of which guests may use some: docs is shared, work is confined to its
// project, loose runs unconfined in it, and secret is not for guests.
func (p *place) guestServers() map[string]any {
	return map[string]any{
		"docs":   p.toolsEntry(hosting{"scope": "shared"}, "-resources", "told"),
		"work":   shellEntry(hosting{"confine": "project"}),
		"loose":  p.toolsEntry(hosting{"scope": "project"}),
		"secret": p.toolsEntry(hosting{"scope": "shared"}, "-resources", "told"),
	}
}

// guestSocket is the entry of the socket of tests. The directory there of the guest is the project
// of the place.
func (p *place) guestSocket() map[string]any {
	return map[string]any{
		"identity": "boxed", "servers": []string{"docs", "work", "loose"},
		"allow": []string{"docs__look", "docs__hang", "docs__mem://a", "work__*", "loose__*"},
		"paths": map[string]any{filepath.Join(p.dir, "there"): p.project},
	}
}

// guestPath is the path of that socket.
func (p *place) guestPath() string {
	return filepath.Join(p.dir, "run/holdline/guests/box/daemon.sock")
}

// guest starts a proxy in the directory dir of the guest.
func (p *place) guest(dir string, args ...string) *agent {
	p.t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		p.t.Fatal(err)
	}
	waitFor(p.t, "the socket", func() bool { _, err := os.Stat(p.guestPath()); return err == nil })
	cmd := p.command(append([]string{"mcp-stdio", "--guest", p.guestPath()}, args...)...)
	cmd.Dir = dir
	return p.agentOf(cmd)
}

// TestGuest checks what a guest sees and uses: what its socket names and nothing else, whatever its
// greeting and its requests say; servers that run in its project only if they are confined, and in
// that project alone; and that its calls survive the daemon.
func TestGuest(t *testing.T) {
	needConfinement(t)
	t.Parallel()
	p := newPlace(t).login()
	p.configure(p.guestServers(), "sockets", map[string]any{"box": p.guestSocket()})
	owner := p.agent().shake()
	daemon := p.pid(0)
	a := p.guest(filepath.Join(p.dir, "there/deep"), "--identity", "owner", "--project", "mine").shake()
	b := p.guest(filepath.Join(p.dir, "elsewhere")).shake() // a directory that stands for none
	list := func(a *agent) (names []string) {
		for _, one := range a.ask("tools/list", map[string]any{}).Result.Tools {
			names = append(names, one.Name)
		}
		slices.Sort(names)
		return names
	}
	look := map[string]any{"token": "x"}
	p.untilReady("docs") // a list does not wait long for a server that starts
	// The first list starts the server of the guest's project.
	waitFor(t, "a server of the guest's project", func() bool { return len(list(a)) == 6 })
	check := func(when string) {
		t.Helper()
		for one, want := range map[*agent][]string{
			a: {"docs__hang", "docs__look", "work__attempt", "work__eat", "work__reach", "work__run"}, b: {"docs__hang", "docs__look"},
		} {
			if got := list(one); !slices.Equal(got, want) {
				t.Errorf("%s: a guest lists %q, want %q", when, got, want)
			}
		}
		var refusals []string
		for _, name := range []string{
			"docs__effect", "loose__look", "secret__look", "no_such__tool", "consult", "consult_result", "health_snapshot",
			"telemetry_snapshot", "consult_say",
		} {
			x := a.wait(a.call(name, look))
			if x.code() != "denied" {
				t.Errorf("%s: %s: %s, want denied", when, name, x.raw)
			}
			refusals = append(refusals, strings.ReplaceAll(faultDetail(x), name, "NAME"))
		}
		if len(slices.Compact(refusals)) != 1 {
			t.Errorf("%s: refusals tell what there is: %q", when, refusals)
		}
		if x := b.wait(b.call("work__run", map[string]any{"command": "true"})); x.code() != "denied" {
			t.Errorf("%s: a server of a project in no project: %s", when, x.raw)
		}
		for _, method := range []string{"resources/list", "resources/templates/list", "prompts/list"} {
			if x := a.ask(method, map[string]any{}); strings.Contains(x.raw, "secret") || strings.Contains(x.raw, "mem://fixed") {
				t.Errorf("%s: %s shows %s", when, method, x.raw)
			}
		}
		for uri, may := range map[string]bool{"mem://a": true, "mem://fixed": false, "mem://many/1": false} {
			x := a.ask("resources/read", map[string]any{"uri": uri})
			// The server does not know the method: its error says that it was asked.
			if strings.Contains(x.raw, "unknown method") != may {
				t.Errorf("%s: reading %s: %s", when, uri, x.raw)
			}
		}
		out := a.wait(a.call("work__run", map[string]any{"command": "pwd; echo x >made; echo x >" + p.dir + "/out || true"}))
		if !strings.Contains(out.text(), p.project+"\n") || !strings.Contains(out.text(), "denied") {
			t.Errorf("%s: the server of the guest's project says %q", when, out.text())
		}
		if _, err := os.Stat(filepath.Join(p.project, "made")); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if _, err := os.Stat(filepath.Join(p.dir, "out")); err == nil {
			t.Errorf("%s: the server wrote beside its project", when)
		}
	}
	check("at first")
	for _, s := range p.status().Sessions {
		if guest := s.Socket == "box"; guest != (s.Identity == "boxed") || guest && (s.Project == "mine" || s.ClientPID != 0) {
			t.Errorf("session %+v", s)
		}
	}
	owner.wait(owner.call("loose__look", look))
	for one, may := range map[*agent]bool{owner: true, a: false, b: false} {
		x := one.ask("server/discover", map[string]any{"_meta": map[string]any{
			"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
			"io.modelcontextprotocol/clientCapabilities": map[string]any{"roots": map[string]any{}},
		}})
		if strings.Contains(x.raw, "consult") != may || !strings.Contains(x.raw, `"serverInfo"`) {
			t.Errorf("a client that may consult (%v) is told %s", may, x.raw)
		}
	}

	// Its calls survive the daemon, and what it may stays the same.
	a.call("docs__hang", map[string]any{"token": "held"})
	p.untilEffect("begin held")
	kill9(t, daemon)
	p.pid(daemon)
	check("with the next daemon")
	// Another socket of the same user does not bring back the guest's session, nor the other way round.
	if out, errs, code := p.run("", "status", "--socket", p.guestPath()); code == 0 {
		t.Errorf("status at the socket of guests: %s%s", out, errs)
	}
	p.guestSays(t, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, protocol.RefusedGreeting)

	// A guest names no files of this machine.
	secret := filepath.Join(p.dir, "run/holdline/leak")
	if err := os.WriteFile(secret, []byte(`"leaked"`), 0o600); err != nil {
		t.Fatal(err)
	}
	got := p.guestSays(t, `{"holdline":1,"role":"mcp","session":"01234567-89ab-cdef-0123-456789abcdef","files":true}`+"\n"+
		`{"holdline":1,"long":{"head":"{\"jsonrpc\":\"2.0\",\"id\":","span":{"file":"leak","offset":0,"size":8},"tail":`+
		`",\"method\":\"ping\"}"}}`+"\n"+`{"jsonrpc":"2.0","id":2,"method":"ping"}`, `"id":2`)
	if strings.Contains(got, "leaked") {
		t.Errorf("a guest read a file: %s", got)
	}

	// Nobody asks a guest. The answer to nothing need not be kept by its proxy.
	p.guestSays(t, `{"holdline":1,"role":"mcp","session":"01234567-89ab-cdef-0123-456789abcde0"}`+"\n"+
		`{"jsonrpc":"2.0","id":9,"result":{}}`, `"seen":1`)

	// Disconnected, it stays out, until the user lets it in.
	if out := p.must("disconnect", "box"); !strings.Contains(out, "socket box is disabled, and 2 guests disconnected") {
		t.Errorf("disconnect said %s", out)
	}
	for _, one := range []*agent{a, b} {
		for range one.lines {
		}
		if err := one.cmd.Wait(); err == nil || !strings.Contains(one.errs.String(), "has disconnected this client") {
			t.Errorf("the guest's proxy: %v, %s", err, one.errs)
		}
	}
	if s := p.status(); len(s.Sessions) != 1 || !s.Sockets[0].Disabled {
		t.Errorf("sessions %+v, sockets %+v", s.Sessions, s.Sockets)
	}
	waitFor(t, "the end of the socket", func() bool { _, err := os.Stat(p.guestPath()); return err != nil })
	p.untilEffect("cancelled held")
	p.must("config", "unset", "sockets.box.disabled")
	p.guest(filepath.Join(p.dir, "there")).shake().rest()
	owner.rest()
}

// faultDetail returns the text of the fault in an answer.
func faultDetail(x answer) string {
	var f struct{ Fault struct{ Detail string } }
	_ = json.Unmarshal(x.Result.StructuredContent, &f)
	return f.Fault.Detail
}

// guestSays sends lines to the socket of guests, closes its side, and returns what came, which must contain want.
func (p *place) guestSays(t *testing.T, lines, want string) string {
	t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: p.guestPath(), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintln(c, lines)
	_ = c.CloseWrite()
	got, err := io.ReadAll(c)
	if err != nil || !strings.Contains(string(got), want) {
		t.Errorf("a guest that said %s got %q, %v, want %s", lines, got, err, want)
	}
	return string(got)
}

// TestGuest_IsAskedNothing checks that no server asks a guest anything, in either era of both: not by
// a result, nor by a request, whatever the guest says that it can.
func TestGuest_IsAskedNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	box := p.guestSocket()
	box["servers"], box["allow"] = []string{"sdk", "docs"}, []string{"sdk__*", "docs__*"}
	p.configure(map[string]any{
		"sdk": map[string]any{
			"command": filepath.Join(programs, "sdkserver"), "args": []string{"modern"},
			"holdline": hosting{"scope": "shared"},
		},
		"docs": p.toolsEntry(hosting{"scope": "shared"}),
	}, "sockets", map[string]any{"box": box}).daemon()
	owner, legacy := p.agent(), p.guest(filepath.Join(p.dir, "legacy")).shake()
	modern := p.guest(filepath.Join(p.dir, "modern"))
	p.untilReady("sdk")
	p.untilReady("docs")
	caps := func(name string, args map[string]any) map[string]any {
		return modernly(map[string]any{"name": name, "arguments": args},
			"io.modelcontextprotocol/clientCapabilities", map[string]any{"elicitation": map[string]any{}})
	}
	word := map[string]any{"word": "w"}
	if x := owner.wait(owner.begin("tools/call", caps("sdk__inquire", word))); !strings.Contains(x.raw, "input_required") {
		t.Fatalf("the owner is not asked: %s", x.raw)
	}
	if x := modern.wait(modern.begin("tools/call", caps("sdk__inquire", word))); x.code() != "downstream_failure" ||
		!strings.Contains(x.text(), "guests are asked nothing") || strings.Contains(x.raw, "a word for") {
		t.Errorf("a modern guest, a modern server: %s", x.raw)
	}
	if x := modern.wait(modern.begin("tools/call", caps("docs__ask", elicit("one")))); strings.Contains(x.raw, "input_required") {
		t.Errorf("a modern guest, a legacy server: %s", x.raw)
	}
	for name, args := range map[string]map[string]any{"sdk__inquire": word, "docs__ask": elicit("two")} {
		id := legacy.call(name, args)
		x := legacy.until(func(x *answer) bool { return x.answers(id) || x.Method == "elicitation/create" })
		if !x.answers(id) {
			t.Errorf("a legacy guest is asked by %s: %s", name, x.raw)
		}
	}
}

// TestGuest_WrongUserRoot checks that only the users that a socket names may connect, and that others
// than its own user can, if it names them.
func TestGuest_WrongUserRoot(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	p := newPlace(t)
	const nobody = 65534
	box := p.guestSocket()
	box["uids"], box["path"] = []int{nobody}, filepath.Join(p.dir, "box", "s")
	p.configure(p.guestServers(), "sockets", map[string]any{"box": box}).daemon()
	path, _ := box["path"].(string)
	waitFor(t, "the socket", func() bool { _, err := os.Stat(path); return err == nil })
	say := func(uid uint32) string {
		cmd := p.copier(path)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		cmd.Stdin = strings.NewReader(`{"holdline":1,"role":"mcp","session":"01234567-89ab-cdef-0123-456789abcdef"}` + "\n")
		out, _ := cmd.Output() // it fails if it cannot connect
		return string(out)
	}
	p.letPass(t, p.dir)
	if got := say(0); !strings.Contains(got, "this socket serves uid 65534 only, not 0") {
		t.Errorf("a user that the socket does not name got %q", got)
	}
	if got := say(nobody); !strings.Contains(got, `"daemon":`) {
		t.Errorf("the user that the socket names got %q", got)
	}
}

// TestGuest_InFlight checks that all guests of a socket share its limit of calls in flight, and no others do.
func TestGuest_InFlight(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	box := p.guestSocket()
	box["in_flight"] = 2
	p.configure(p.guestServers(), "sockets", map[string]any{"box": box}).daemon()
	a, b, owner := p.guest(p.dir).shake(), p.guest(p.dir).shake(), p.agent().shake()
	held := a.call("docs__hang", map[string]any{"token": "a"})
	b.call("docs__hang", map[string]any{"token": "b"})
	p.untilEffect("begin a")
	p.untilEffect("begin b")
	looks := func(one *agent) answer { return one.wait(one.call("docs__look", map[string]any{"token": "t"})) }
	for _, guest := range []*agent{a, b} {
		if x := looks(guest); x.code() != "resource_exhausted" ||
			!strings.Contains(x.raw, `"limit":{"name":"calls in flight","value":2,"spent":2}`) {
			t.Errorf("a third call of the guests: %s", x.raw)
		}
	}
	a.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, held))
	p.untilEffect("cancelled a")
	for _, one := range []*agent{b, a, owner} {
		if x := looks(one); x.text() != "t" {
			t.Errorf("with one call of the guests: %s", x.raw)
		}
	}
}

// TestGuest_InNamespacesRoot checks an agent that has a network of its own, and of the host's files not
// the runtime directory, the home or the project, but for the socket: its calls work.
func TestGuest_InNamespacesRoot(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root makes namespaces everywhere")
	}
	p := newPlace(t)
	p.configure(p.guestServers(), "sockets", map[string]any{"box": p.guestSocket()}).daemon()
	waitFor(t, "the socket", func() bool { _, err := os.Stat(p.guestPath()); return err == nil })
	a := p.guestInNamespaces()
	look := map[string]any{"token": "x"}
	if x := a.wait(a.call("docs__look", look)); x.Result.IsError || x.Error != nil {
		t.Errorf("a call from elsewhere: %s", x.raw)
	}
	if x := a.wait(a.call("secret__look", look)); x.code() != "denied" {
		t.Errorf("a server that is not for guests: %s", x.raw)
	}
	p.must("disconnect", "box")
	for range a.lines {
	}
	if err := a.cmd.Wait(); err == nil {
		t.Error("a guest that was disconnected goes on")
	}
	if s := p.status(); slices.ContainsFunc(s.Sessions, func(one control.Session) bool { return one.Socket != "" }) {
		t.Errorf("sessions of guests are left: %+v", s.Sessions)
	}
}

// guestInNamespaces returns a guest that has a network of its own, and of the host's files not the runtime directory,
// the home or the project, but for the socket.
func (p *place) guestInNamespaces() *agent {
	p.t.Helper()
	p.makeDir(filepath.Join(p.dir, "there"))
	p.makeDir(filepath.Join(p.dir, "sock"))
	script := `set -e
mount --make-rprivate /
mount --bind run/holdline/guests/box sock
for hidden in run home "$1"; do mount -t tmpfs none $hidden; done
test -z "$(ls -A run)$(ls -A home)"
cd there
shift
exec "$@"`
	cmd := p.command()
	cmd = exec.Command("sh", "-c", script, "sh", p.project, cmd.Path, "mcp-stdio", "--guest", filepath.Join(p.dir, "sock/daemon.sock"))
	cmd.Env, cmd.Dir = p.env, p.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
	return p.agentOf(cmd).shake()
}

// TestGuest_EveryMethodRoot has a guest in namespaces ask, by each method that there is, for what belongs to a server
// that is not for guests. It gets nothing of it, is told the same as of a server that there is not, and the server
// hears of nothing. At the end it is disconnected by the number of its session.
func TestGuest_EveryMethodRoot(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root makes namespaces everywhere")
	}
	p := newPlace(t)
	ledger := filepath.Join(p.dir, "ledger")
	odd := func(name string) map[string]any {
		return p.oddEntry(hosting{"scope": "shared"}, "-name", name, "-ledger", ledger+name, "-list",
			fmt.Sprintf(`{"resources":[{"name":"of %[1]s","uri":"mem://%[1]s"}]}`, name))
	}
	box := p.guestSocket()
	box["servers"], box["allow"] = []string{"docs"}, []string{"docs__*"}
	servers := map[string]any{"docs": odd("docs"), "secret": odd("secret")}
	p.configure(servers, "sockets", map[string]any{"box": box}).daemon()
	waitFor(t, "the socket", func() bool { _, err := os.Stat(p.guestPath()); return err == nil })
	owner := p.agent().shake()
	p.untilReady("docs") // a list does not wait long for a server that starts
	p.untilReady("secret")
	got := owner.ask("resources/read", map[string]any{"uri": "mem://secret"})
	if !strings.Contains(got.raw, "resource of secret") {
		t.Fatalf("the owner reads %s", got.raw)
	}
	heard := func() string { b, _ := os.ReadFile(ledger + "secret"); return string(b) }
	before, a := heard(), p.guestInNamespaces()
	for method, want := range map[string]string{
		"tools/list": "docs__say", "prompts/list": "docs__greet", "resources/list": "mem://docs",
		"resources/templates/list": "resourceTemplates", "server/discover": "serverInfo",
	} {
		x := a.ask(method, modernly(map[string]any{}))
		if strings.Contains(x.raw, "secret") || !strings.Contains(x.raw, want) {
			t.Errorf("%s: %s", method, x.raw)
		}
	}
	argument := map[string]any{"name": "n", "value": ""}
	for method, params := range map[string]func(name string) map[string]any{
		"tools/call":  func(name string) map[string]any { return map[string]any{"name": name + "__say"} },
		"prompts/get": func(name string) map[string]any { return map[string]any{"name": name + "__greet"} },
		"completion/complete": func(name string) map[string]any {
			return map[string]any{"argument": argument, "ref": map[string]any{"type": "ref/prompt", "name": name + "__greet"}}
		},
		"resources/read":        func(name string) map[string]any { return map[string]any{"uri": "mem://" + name} },
		"resources/subscribe":   func(name string) map[string]any { return map[string]any{"uri": "mem://" + name} },
		"resources/unsubscribe": func(name string) map[string]any { return map[string]any{"uri": "mem://" + name} },
		"logging/setLevel":      func(string) map[string]any { return map[string]any{"level": "debug"} },
		"tasks/get":             func(name string) map[string]any { return map[string]any{"taskId": name} },
		"tasks/cancel":          func(name string) map[string]any { return map[string]any{"taskId": name} },
		"roots/list":            func(string) map[string]any { return map[string]any{} },
		"servers/list":          func(string) map[string]any { return map[string]any{} },
	} {
		var told []string
		for _, name := range []string{"secret", "nobody"} {
			x := a.ask(method, params(name))
			text, _, _ := strings.Cut(strings.SplitN(x.raw, `"id":`, 2)[1], "fault_id")
			_, text, _ = strings.Cut(text, ",")
			told = append(told, strings.ReplaceAll(text, name, "NAME"))
		}
		if told[0] != told[1] {
			t.Errorf("%s tells what there is:\n%s\n%s", method, told[0], told[1])
		}
	}
	listen := a.begin("subscriptions/listen", modernly(map[string]any{
		"notifications": map[string]any{"resourceSubscriptions": []string{"mem://secret"}},
	}))
	same(t, "the acknowledgement",
		a.news(func(x *answer) bool { return x.Method == "notifications/subscriptions/acknowledged" }),
		fmt.Sprintf("[] for %d", listen))
	if after := heard(); after != before {
		t.Errorf("the server that is not for guests heard\n%s\nand has heard\n%s", before, after)
	}
	if row := lineWith(p.must("sessions"), "boxed"); !slices.Contains(strings.Fields(row), "box") {
		t.Errorf("sessions does not name the socket of the guest: %q", row)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "home/.config/holdline/config.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, s := range p.status().Sessions {
		if s.Socket != "" {
			p.must("disconnect", s.ID) // also while the file has an error
		}
	}
	for range a.lines {
	}
	if err := a.cmd.Wait(); err == nil || !strings.Contains(a.errs.String(), "has disconnected this client") {
		t.Errorf("the guest's proxy: %v, %s", err, a.errs)
	}
	owner.rest()
}

// TestGuest_AnotherGreeting checks that a guest which knows the session of a client here, and names its identity,
// cannot take it over, and that none controls the daemon.
func TestGuest_AnotherGreeting(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(p.guestServers(), "sockets", map[string]any{"box": p.guestSocket()}).daemon()
	waitFor(t, "the socket", func() bool { _, err := os.Stat(p.guestPath()); return err == nil })
	const greeting = `{"holdline":1,"role":"mcp","session":"01234567-89ab-cdef-0123-456789abcde1","identity":"boxed"`
	c, err := net.Dial("unix", filepath.Join(p.dir, "run/holdline/daemon.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintln(c, greeting+"}")
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, `"daemon":`) {
		t.Fatalf("the session of a client here: %s, %v", line, err)
	}
	for _, resume := range []string{"true", "false"} {
		p.guestSays(t, greeting+`,"resume":`+resume+`}`, protocol.RefusedIdentity)
	}
	for _, method := range []string{"status", "server/stop", "stop", "disconnect"} {
		p.guestSays(t, fmt.Sprintf(`{"holdline":1,"role":"control"}`+"\n"+`{"jsonrpc":"2.0","id":1,"method":%q}`, method),
			protocol.RefusedGreeting)
	}
	if s := p.status(); len(s.Sessions) != 1 || s.Sessions[0].Socket != "" {
		t.Errorf("the sessions are %+v", s.Sessions)
	}
}

// TestGuest_Explained checks that config explain agrees with what guests may call, also by the rules
// of the identity that a socket gives by default.
func TestGuest_Explained(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	box := p.guestSocket()
	delete(box, "identity")
	p.configure(p.guestServers(), "sockets", map[string]any{"box": box},
		"identities", map[string]any{"guest:box": map[string]any{"deny": []string{"docs__hang"}}}).daemon()
	a := p.guest(p.dir).shake()
	for _, name := range []string{"docs__look", "docs__hang", "docs__effect", "loose__look", "secret__look", "consult"} {
		var e explained
		out := p.must("config", "explain", "--json", "--guest", "box", name)
		decode(t, out, &e)
		x := a.wait(a.call(name, map[string]any{"token": "x"}))
		if may := x.code() != "denied"; may != e.Allowed || may != (name == "docs__look") {
			t.Errorf("%s: explain says %s\na call: %s", name, out, x.raw)
		}
	}
	a.rest()
}

// TestE2EGuestBubblewrap has an agent in a sandbox of bubblewrap, by the command of contrib/doc/elsewhere.md. It uses
// what the socket names, in its project too, and nothing else. The daemon is killed during its call.
func TestE2EGuestBubblewrap(t *testing.T) {
	needConfinement(t)
	t.Parallel()
	if os.Getenv("HOLDLINE_E2E") == "" {
		t.Skip("HOLDLINE_E2E=1 is not set: it runs bubblewrap")
	}
	if out, err := exec.Command("bwrap", "--ro-bind", "/", "/", "--unshare-all", "true").CombinedOutput(); err != nil {
		t.Skipf("bubblewrap cannot be used here: %v: %s", err, out)
	}
	p := newPlace(t).guestsAt("/tmp/app")
	a := p.agentOf(exec.Command("bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/run",
		"--tmpfs", "/tmp", "--tmpfs", p.dir, "--unshare-all", "--ro-bind", filepath.Dir(p.guestPath()), "/run/holdline",
		"--bind", p.project, "/tmp/app", "--ro-bind", programs, "/tmp/bin", "--chdir", "/tmp/app",
		"/tmp/bin/holdline", "mcp-stdio", "--guest", "/run/holdline/daemon.sock")).shake()
	p.useAsGuest(a)
	a.rest()
}

// guestsAt starts a daemon for guests whose directory dir stands for the project.
func (p *place) guestsAt(dir string) *place {
	p.t.Helper()
	socket := p.guestSocket()
	socket["allow"] = []string{"docs__*", "work__*", "loose__*"}
	socket["paths"] = map[string]any{dir: p.project}
	p.configure(p.guestServers(), "sockets", map[string]any{"box": socket}).daemon()
	waitFor(p.t, "the socket", func() bool { _, err := os.Stat(p.guestPath()); return err == nil })
	return p
}

// useAsGuest kills the daemon during a call of a guest, which is answered once, and checks that the
// guest uses a confined server in the project, where that makes the file "made", and nothing that is
// not for guests.
func (p *place) useAsGuest(a *agent) {
	p.t.Helper()
	id := a.call("docs__effect", map[string]any{"token": "e", "ms": 1500})
	p.untilEffect("begin e")
	kill9(p.t, p.status().Daemon.PID)
	p.daemon()
	p.once("e", a.wait(id))
	if x := a.wait(a.call("work__run", map[string]any{"command": "echo made >made; pwd"})); !strings.Contains(x.raw, p.project) {
		p.t.Errorf("a call of a server in the project: %s", x.raw)
	}
	for _, tool := range []string{"secret__look", "loose__look", "consult"} {
		if x := a.wait(a.call(tool, map[string]any{"token": "x", "prompt": "x"})); x.code() != "denied" {
			p.t.Errorf("%s: %s", tool, x.raw)
		}
	}
}
