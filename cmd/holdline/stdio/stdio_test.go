package stdio

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdline/cmd/holdline/cmdenv"
	"holdline/protocol"
	"holdline/protocol/socket"
	"holdline/proxy"
)

// testPart is the variable that makes the test binary play a part in playPart.
const testPart = "HOLDLINE_TEST_PART"

func TestMain(m *testing.M) {
	if !playPart() {
		os.Exit(m.Run())
	}
}

// playPart runs the part that the environment names. It returns false if there is none, so
// that the tests must run.
func playPart() bool {
	switch os.Getenv(testPart) {
	case "":
		return false
	case "mcp-stdio":
		flag.Parse()
		os.Exit(Run(flag.Args(),
			&cmdenv.Process{Getenv: os.Getenv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr},
			Whole{Path: os.Executable}))
	}
	return true
}

// oneDaemon is a scripted daemon that welcomes every client.
type oneDaemon struct {
	ln    *socket.Listener
	path  string
	reply string // sent instead of the welcome
}

// listenOne starts a daemon on a socket of its own.
func listenOne(t *testing.T) *oneDaemon {
	t.Helper()
	dir, err := os.MkdirTemp("", "hl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	ln, err := socket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return &oneDaemon{ln: ln, path: path}
}

// accept accepts one connection and sends the welcome.
func (d *oneDaemon) accept(t *testing.T) (net.Conn, *bufio.Reader, protocol.Greeting) {
	t.Helper()
	conn, err := d.ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	br := bufio.NewReader(conn)
	line, err := br.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	g, err := protocol.ParseGreeting(line)
	if err != nil {
		t.Fatal(err)
	}
	reply := d.reply
	if reply == "" {
		reply = `{"holdline":1,"session":"` + g.Session + `","daemon":{"managed":"no"}}`
	}
	io.WriteString(conn, reply+"\n")
	return conn, br, g
}

// startProxy runs the test binary as the proxy, with an environment of env alone.
func startProxy(t *testing.T, env []string, args ...string) (cmd *exec.Cmd, stdin io.WriteCloser, stdout *bufio.Reader,
	stderr *bytes.Buffer,
) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), os.Args[0], append([]string{"--"}, args...)...)
	cmd.Env = append([]string{testPart + "=mcp-stdio"}, env...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr = new(bytes.Buffer)
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, stdin, bufio.NewReader(out), stderr
}

func wantExit(t *testing.T, cmd *exec.Cmd, stderr *bytes.Buffer, want int) {
	t.Helper()
	err := cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != want {
		t.Errorf("exit %d (%v), want %d; stderr: %s", got, err, want, stderr)
	}
}

// wantLine checks the next line.
func wantLine(t *testing.T, br *bufio.Reader, want string) {
	t.Helper()
	for {
		line, err := br.ReadString('\n')
		if strings.HasPrefix(line, `{"holdline":1,"ack":`) {
			continue
		}
		if line != want+"\n" {
			t.Fatalf("read %q, %v, want %q", line, err, want)
		}
		return
	}
}

const (
	pingLine = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	pongLine = `{"jsonrpc":"2.0","id":1,"result":{}}`
	byeLine  = `{"holdline":1,"bye":"client"}`
)

// TestMCPStdioPipe checks that requests piped in, with stdin closed behind them, are
// answered, and that the proxy exits with 0.
func TestMCPStdioPipe(t *testing.T) {
	d := listenOne(t)
	cmd, stdin, stdout, stderr := startProxy(t, []string{"HOLDLINE_IDENTITY=codex", "HOLDLINE_TOKEN=t0"}, "--socket",
		d.path, "--server", "gh")
	io.WriteString(stdin, pingLine+"\r\n")
	stdin.Close()
	conn, br, g := d.accept(t)
	if g.Identity != "codex" || g.Token != "t0" || g.Server != "gh" ||
		len(g.Project) != 16 || g.Cwd == "" {
		t.Errorf("greeting %+v", g)
	}
	wantLine(t, br, pingLine)
	io.WriteString(conn, pongLine+"\n")
	wantLine(t, stdout, pongLine)
	wantLine(t, br, byeLine)
	if rest, _ := io.ReadAll(stdout); len(rest) > 0 {
		t.Errorf("stdout goes on with %q", rest)
	}
	wantExit(t, cmd, stderr, cmdenv.ExitOK)
	if stderr.Len() > 0 {
		t.Errorf("stderr %q, want nothing", stderr)
	}
}

// TestMCPStdioSignals checks that on SIGTERM and SIGINT the proxy says bye to the daemon
// and exits with success.
func TestMCPStdioSignals(t *testing.T) {
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		d := listenOne(t)
		cmd, stdin, _, stderr := startProxy(t, []string{"HOLDLINE_SOCKET=" + d.path})
		_, br, _ := d.accept(t)
		io.WriteString(stdin, pingLine+"\n")
		wantLine(t, br, pingLine)
		begin := time.Now()
		cmd.Process.Signal(sig)
		wantLine(t, br, byeLine)
		if _, err := br.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("after the bye: %v, want EOF", err)
		}
		wantExit(t, cmd, stderr, cmdenv.ExitOK)
		t.Logf("%v: ended after %v", sig, time.Since(begin))
	}
}

// TestMCPStdioStuckClient sends SIGTERM while the client does not read and its pipe is
// full. The proxy exits.
func TestMCPStdioStuckClient(t *testing.T) {
	d := listenOne(t)
	cmd, _, _, stderr := startProxy(t, nil, "--socket", d.path)
	conn, br, _ := d.accept(t)
	conn.SetWriteDeadline(time.Now().Add(time.Minute))
	go func() { // until the proxy has ended
		note := []byte(`{"jsonrpc":"2.0","method":"n","params":{"a":"` + strings.Repeat("x", 10000) + `"}}` + "\n")
		for {
			if _, err := conn.Write(note); err != nil {
				return
			}
		}
	}()
	if line, err := br.ReadString('\n'); !strings.Contains(line, `"ack"`) { // the proxy is running
		t.Fatalf("read %q, %v", line, err)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	wantExit(t, cmd, stderr, cmdenv.ExitOK)
}

// TestMCPStdioClosedStdout checks that a proxy whose stdout is closed says bye and exits
// with failure.
func TestMCPStdioClosedStdout(t *testing.T) {
	d := listenOne(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "--", "--socket", d.path)
	cmd.Env = []string{testPart + "=mcp-stdio"}
	cmd.Stdout = w
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	stderr := new(bytes.Buffer)
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	conn, br, _ := d.accept(t)
	r.Close()
	io.WriteString(conn, `{"jsonrpc":"2.0","method":"n"}`+"\n")
	wantLine(t, br, byeLine)
	wantExit(t, cmd, stderr, cmdenv.ExitFailure)
}

// TestMCPStdioExitCodes checks the exit code and the last output of each way in which a
// proxy can fail.
func TestMCPStdioExitCodes(t *testing.T) {
	d := listenOne(t)
	cmd, stdin, stdout, stderr := startProxy(t, nil, "--no-autostart", "--reconnect-timeout", "100ms",
		"--socket", d.path)
	conn, br, _ := d.accept(t)
	io.WriteString(stdin, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t"}}`+"\n")
	br.ReadString('\n')
	d.ln.Close()
	conn.Close()
	line, _ := stdout.ReadString('\n')
	if !strings.Contains(line, `"id":7`) || !strings.Contains(line, "outcome_unknown") {
		t.Errorf("answer to a call that was lost: %q", line)
	}
	wantExit(t, cmd, stderr, cmdenv.ExitLost)

	d = listenOne(t)
	d.reply = `{"holdline":1,"error":{"code":"identity_refused","message":"wrong token for identity \"codex\""}}`
	cmd, _, _, stderr = startProxy(t, nil, "--socket", d.path)
	d.accept(t)
	wantExit(t, cmd, stderr, cmdenv.ExitFailure)
	if s := stderr.String(); !strings.HasPrefix(s, "holdline: wrong token for identity \"codex\"\nhint: ") {
		t.Errorf("stderr of a refusal: %q", s)
	}

	d.ln.Close()
	cmd, _, _, stderr = startProxy(t, nil, "--no-autostart", "--socket", d.path)
	wantExit(t, cmd, stderr, cmdenv.ExitNoDaemon)
	if s := stderr.String(); !strings.Contains(s, d.path) {
		t.Errorf("stderr without a daemon: %q, want the path", s)
	}
	for _, args := range [][]string{
		{"--nonsense"}, {"--drain", "soon"}, {"--drain", "-1s"}, {"--reconnect-timeout", "-1s"}, {"x"},
	} {
		cmd, _, _, stderr = startProxy(t, nil, args...)
		wantExit(t, cmd, stderr, cmdenv.ExitUsage)
		if s := stderr.String(); !strings.Contains(s, "\nhint: see holdline mcp-stdio --help\n") {
			t.Errorf("%q: stderr %q", args, s)
		}
	}
	for slip, meant := range map[string]string{"--identty": "--identity", "--sever=x": "--server", "-no-autostrat": "--no-autostart"} {
		cmd, _, _, stderr = startProxy(t, nil, slip)
		wantExit(t, cmd, stderr, cmdenv.ExitUsage)
		if s := stderr.String(); !strings.Contains(s, "; did you mean "+meant+"?\nhint: see holdline mcp-stdio --help\n") {
			t.Errorf("%s: stderr %q", slip, s)
		}
	}
	long := "/" + strings.Repeat("x", 200)
	cmd, _, _, stderr = startProxy(t, nil, "--socket", long)
	wantExit(t, cmd, stderr, cmdenv.ExitFailure)
	if s := stderr.String(); !strings.Contains(s, "too long") {
		t.Errorf("stderr of a long path: %q", s)
	}
}

// TestParseMCPStdio checks what options and environment of mcp-stdio mean.
func TestParseMCPStdio(t *testing.T) {
	dir := t.TempDir()
	good, open, empty := filepath.Join(dir, "good"), filepath.Join(dir, "open"), filepath.Join(dir, "empty")
	os.WriteFile(good, []byte("s3cret\n"), 0o600)
	os.WriteFile(open, []byte("s3cret\n"), 0o644)
	os.WriteFile(empty, []byte("\n"), 0o600)
	vars := map[string]string{"HOLDLINE_IDENTITY": "env", "HOLDLINE_PROJECT": "key", "HOLDLINE_TOKEN": "tok"}
	env := func(k string) string { return vars[k] }
	o, err := parseMCPStdio([]string{"--identity", "flag", "--token-file", good, "--drain=inf", "--no-autostart"}, env)
	want := Options{
		identity: "flag", project: "key", tokenFile: good, token: "s3cret",
		drain: proxy.NoDrainLimit, reconnect: time.Minute, noAutostart: true,
	}
	if err != nil || o != want {
		t.Errorf("options %+v, %v, want %+v", o, err, want)
	}
	vars["HOME"] = dir // the shell leaves the tilde behind "=" as it is
	if o, err = parseMCPStdio([]string{"--token-file=~/good"}, env); err != nil || o.token != "s3cret" {
		t.Errorf("options %+v, %v", o, err)
	}
	o, err = parseMCPStdio(nil, env)
	if err != nil || o.identity != "env" || o.token != "tok" || o.drain != 5*time.Second {
		t.Errorf("options %+v, %v", o, err)
	}
	for _, bad := range []string{open, empty, dir, filepath.Join(dir, "absent")} {
		if _, err := parseMCPStdio([]string{"--token-file", bad}, env); err == nil || errors.Is(err, cmdenv.ErrUsage) {
			t.Errorf("token file %s: %v, want an error", bad, err)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error shows the token: %v", err)
		}
	}
}

// TestNewSession checks that session ids are random UUIDs.
func TestNewSession(t *testing.T) {
	a, b := newSession(), newSession()
	if a == b ||
		!regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(a) {
		t.Errorf("sessions %q, %q", a, b)
	}
	g, _ := json.Marshal(protocol.Greeting{Holdline: 1, Role: "mcp", Session: a})
	if _, err := protocol.ParseGreeting(g); err != nil {
		t.Error(err)
	}
}

// TestRefusedStdout checks that the flags of stdin are as before if stdout cannot be used.
func TestRefusedStdout(t *testing.T) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	in, other := os.NewFile(uintptr(fds[0]), "stdin"), os.NewFile(uintptr(fds[1]), "other")
	defer in.Close()
	defer other.Close()
	out, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	out.Close()
	if _, _, err := stdio(in, out); err == nil {
		t.Fatal("a closed stdout was taken")
	}
	if flags, err := unix.FcntlInt(uintptr(fds[0]), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
		t.Errorf("stdin has the flags %#x, %v", flags, err)
	}
}

// TestTokenPipe checks that a pipe is refused as a token file, also if nothing writes to it.
func TestTokenPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := readToken(path)
		done <- err
	}()
	select {
	case err := <-done:
		if err == nil {
			t.Error("it was taken")
		}
	case <-time.After(time.Minute):
		t.Error("its writer is waited for")
	}
}
