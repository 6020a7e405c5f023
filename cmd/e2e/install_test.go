package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/contrib"
	"holdline/protocol/control"
	"holdline/protocol/process"
	"holdline/protocol/programtest"
)

// fakeSystemctl plays systemctl for a user manager that answers. It logs its arguments, and
// keeps the link that enables the socket.
const fakeSystemctl = `#!/bin/sh
echo "$*" >>"$0.log"
wants=$HOME/.config/systemd/user/sockets.target.wants
case $2 in
show) echo 252.39-1~deb12u1 ;;
is-enabled) test -L "$wants/holdline.socket" && echo enabled ;;
is-active) test -L "$wants/holdline.socket" && echo active ;;
enable) mkdir -p "$wants" && ln -s ../holdline.socket "$wants/holdline.socket" ;;
disable) rm -f "$wants/holdline.socket" ;;
esac
`

// script puts a program into a directory of the place that is first on PATH, and returns
// its path.
func (p *place) script(name, text string) string {
	p.t.Helper()
	dir := filepath.Join(p.dir, "scripts")
	path := filepath.Join(dir, name)
	programtest.Write(p.t, path, text)
	for i, v := range p.env {
		if list, ok := strings.CutPrefix(v, "PATH="); ok && !strings.HasPrefix(list, dir+":") {
			p.env[i] = "PATH=" + dir + ":" + list
		}
	}
	return path
}

// home returns all that is in the home directory: names, modes and contents.
func (p *place) home(t *testing.T) map[string]string {
	t.Helper()
	root := filepath.Join(p.dir, "home")
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		what := info.Mode().String()
		if d.Type().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			what += " " + string(b)
		}
		found[strings.TrimPrefix(path, root)] = what
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// sameHome checks that the home is as before.
func (p *place) sameHome(t *testing.T, before map[string]string) {
	t.Helper()
	after := p.home(t)
	for path, what := range after {
		if was, there := before[path]; !there || was != what {
			t.Errorf("%s was left or changed: %.200s", path, what)
		}
	}
	for path := range before {
		if _, there := after[path]; !there {
			t.Errorf("%s is gone", path)
		}
	}
}

// TestInstallAndBack installs holdline, uses it, and uninstalls it. Nothing is left in the
// home directory.
func TestInstallAndBack(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	log := p.script("systemctl", fakeSystemctl) + ".log"
	cursor := filepath.Join(p.dir, "home/.cursor")
	err := os.Mkdir(cursor, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(cursor, "mcp.json"),
			[]byte("{\"mcpServers\": { \"a\": {\"command\": \"a-server\"}, }} // mine\n"), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	before := p.home(t)
	out := p.must("install", "--bin", "--systemd")
	bin := filepath.Join(p.dir, "home/.local/bin/holdline")
	if !strings.HasSuffix(out, "\nnext: export PATH=\"$HOME/.local/bin:$PATH\" && holdline setup\n") ||
		strings.Count(out, "next: ") != 1 {
		t.Errorf("install does not end with what to type now:\n%s", out)
	}
	for _, want := range []string{
		"write " + bin + "\n", "run systemctl --user enable --now holdline.socket\n", "PATH for hosted servers: ",
		programs + ":",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("install does not say %q:\n%s", want, out)
		}
	}
	for path, want := range map[string]string{
		"share/bash-completion/completions/holdline": "__start_holdline", "share/zsh/site-functions/_holdline": "#compdef",
		"share/man/man1/holdline-servers-add.1": ".TH", "../.config/fish/completions/holdline.fish": "complete -c holdline",
	} {
		if text := p.read(t, ".local/"+path); !strings.Contains(text, want) {
			t.Errorf("%s has no %q", path, want)
		}
	}
	if n := strings.Count(out, "man"); n != 1 || !strings.Contains(out, "\nwrite completions and man pages (") {
		t.Errorf("completions and man pages are told in %d lines:\n%s", n, out)
	}
	unit, err := os.ReadFile(filepath.Join(p.dir, "home/.config/systemd/user/holdline.service"))
	if err != nil || !strings.Contains(string(unit), "ExecStart="+bin+" daemon\n") {
		t.Errorf("the unit does not start %s: %v\n%s", bin, err, unit)
	}
	if again := p.must("install", "--bin", "--systemd"); strings.Contains(again, "write ") ||
		strings.Contains(again, "run ") {
		t.Errorf("a second time:\n%s", again)
	}
	p.must("import", "--write")
	p.daemonAt(bin)
	if _, errs, code := p.run("", "uninstall", "--purge"); code != exitUsage ||
		!strings.Contains(errs, "hint: holdline uninstall --yes") || !strings.Contains(errs, "--keep-clients") {
		t.Errorf("what becomes of the clients' entries is not said: exit %d\n%s", code, errs)
	}
	if _, errs, code := p.run("", "uninstall", "--purge", "--keep-clients"); code != exitFailure {
		t.Errorf("what the clients' files were is lost: exit %d\n%s", code, errs)
	}
	p.must("import", "--undo")
	if dry := p.must("uninstall", "--purge", "--dry-run"); !strings.Contains(dry, "would remove "+bin+"\n") {
		t.Errorf("a dry uninstall:\n%s", dry)
	}
	p.status() // the daemon still runs
	p.must("uninstall", "--purge")
	if _, _, code := p.run("", "status"); code != exitNoDaemon {
		t.Errorf("a daemon runs: exit %d", code)
	}
	p.sameHome(t, before)
	asked, err := os.ReadFile(log)
	if err != nil ||
		!strings.Contains(string(asked),
			"--user disable --now holdline.socket holdline.service\n--user daemon-reload\n") {
		t.Errorf("systemctl was asked\n%s%v", asked, err)
	}
	if _, err := os.Stat(filepath.Join(p.dir, "run/holdline")); !os.IsNotExist(err) {
		t.Errorf("the runtime directory: %v", err)
	}
}

// TestFirstBin checks that after install has made ~/.local/bin, the profile, which adds it
// to PATH only if it exists, is asked again.
func TestFirstBin(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	profile := filepath.Join(p.dir, "home/.profile")
	f, err := os.OpenFile(profile, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("[ ! -d ~/.local/bin ] || export PATH=~/.local/bin:$PATH\n")
		_ = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	before := p.home(t)
	bin := filepath.Join(p.dir, "home/.local/bin")
	p.must("install", "--bin", "--dry-run")
	p.sameHome(t, before)
	if out := p.must("install", "--bin"); !strings.Contains(out, "PATH for hosted servers: ") ||
		!onPath(out, bin) || strings.Contains(out, "note:") {
		t.Errorf("install --bin:\n%s", out)
	}
	if out, _, _ := p.run("", "doctor", "-v"); !strings.Contains(out, "ok       PATH of hosted servers: ") ||
		!onPath(out, bin) {
		t.Errorf("doctor:\n%s", out)
	}
	if again := p.must("install", "--bin"); strings.Contains(again, "write ") {
		t.Errorf("a second time:\n%s", again)
	}
	p.must("uninstall", "--purge")
	p.sameHome(t, before)
}

// onPath reports whether a command has printed a PATH that has dir, but not as its first directory. Which
// others follow depends on the account: the system's profile sets another PATH for root.
func onPath(out, dir string) bool {
	return strings.Contains(out, ":"+dir+"\n") || strings.Contains(out, ":"+dir+":")
}

// TestPurgeAfterUndo checks that an entry that the undo has left, because it was changed
// meanwhile, is named and does not prevent a purge.
func TestPurgeAfterUndo(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	path := filepath.Join(p.dir, "home/.cursor/mcp.json")
	write := func(text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"mcpServers": {"a": {"command": "true"}}}`)
	p.must("install", "--bin")
	p.must("import", "--write", "--no-check")
	const mine = `{"mcpServers": {"a": {"command": "mine"}}}`
	write(mine)
	if _, errs, code := p.run("", "import", "--undo"); code != exitFailure ||
		!strings.Contains(errs, path+" a: it was changed since") {
		t.Errorf("the undo: exit %d\n%s", code, errs)
	}
	bad := filepath.Join(p.stateRoot(), "import/20200101T000000Z/journal.json")
	if err := os.MkdirAll(filepath.Dir(bad), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bad, []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := p.run("", "uninstall", "--purge"); code != exitFailure || !strings.Contains(errs, bad) ||
		!strings.Contains(errs, "hint: ") {
		t.Errorf("a purge with a journal that cannot be read: exit %d\n%s", code, errs)
	}
	if _, errs, code := p.run("", "uninstall"); code != exitOK || !strings.Contains(errs, bad) {
		t.Errorf("with a journal that cannot be read: exit %d\n%s", code, errs)
	}
	if err := os.RemoveAll(filepath.Dir(bad)); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := p.run("", "uninstall", "--purge"); code != exitOK ||
		!strings.Contains(errs, "left "+path+" a: it was changed since") {
		t.Errorf("after the undo: exit %d\n%s", code, errs)
	}
	if b, err := os.ReadFile(path); string(b) != mine || err != nil {
		t.Errorf("the client's file: %s, %v", b, err)
	}
	for _, rel := range []string{".local/bin", ".local/state/holdline", ".config/holdline"} {
		if _, err := os.Lstat(filepath.Join(p.dir, "home", rel)); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", rel, err)
		}
	}
}

// TestInstallUnreachable checks that without a user manager nothing is installed, and the
// error says what to do.
func TestInstallUnreachable(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	p.script("systemctl", "#!/bin/sh\necho 'Failed to connect to bus: No medium found' >&2\nexit 1\n")
	before := p.home(t)
	_, errs, code := p.run("", "install", "--bin", "--systemd")
	if code != exitFailure || !strings.Contains(errs, "No medium found") || !strings.Contains(errs, "hint: ") ||
		!strings.Contains(errs, "loginctl enable-linger") {
		t.Errorf("exit %d\n%s", code, errs)
	}
	p.sameHome(t, before)
	for _, args := range [][]string{{"--systemd", "--launchd"}, {"--copy", "--link"}, {"--path", "--bin"}} {
		if _, errs, code := p.run("", append([]string{"install"}, args...)...); code != exitUsage {
			t.Errorf("install %v: exit %d\n%s", args, code, errs)
		}
	}
	p.sameHome(t, before)
}

// TestCapturedPath checks that a hosted server finds its program by the captured PATH,
// which the daemon itself does not have. Before, doctor reports it missing; a refreshed
// PATH is used without a new daemon.
func TestCapturedPath(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	tools := filepath.Join(p.dir, "tools")
	if err := os.Mkdir(tools, 0o700); err != nil {
		t.Fatal(err)
	}
	program := fmt.Sprintf("#!/bin/sh\nexec %s/toolserver \"$@\"\n", programs)
	programtest.Write(t, filepath.Join(tools, "mytool"), program)
	entry := p.toolsEntry(hosting{"scope": "shared"})
	entry["command"] = "mytool"
	p.configure(map[string]any{"tools": entry})
	p.must("install")
	out, _, code := p.run("", "doctor", "-v")
	if code != exitFailure || !strings.Contains(out, "server tools: its command is missing: mytool is in none of ") {
		t.Errorf("doctor: exit %d\n%s", code, out)
	}
	p.daemon()
	profile := filepath.Join(p.dir, "home/.profile")
	f, err := os.OpenFile(profile, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(f, "export PATH=%s:$PATH\n", tools); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if out, _, _ := p.run("", "doctor", "-v"); !strings.Contains(out, "your login shell has more now: "+tools) {
		t.Errorf("doctor does not say that the PATH has changed:\n%s", out)
	}
	if out := p.must("install", "--path"); !onPath(out, tools) {
		t.Errorf("install --path:\n%s", out)
	}
	if out, _, code := p.run("", "doctor", "-v"); code != 0 {
		t.Errorf("doctor: exit %d\n%s", code, out)
	}
	if out := p.must("servers", "tools", "tools"); !strings.Contains(out, "tools") || p.server("tools").Tools == nil {
		t.Errorf("the server does not run:\n%s", out)
	}
}

// TestDoctorMissingOnce checks that doctor reports a server's missing program once, even if
// the daemon has noticed it, too.
func TestDoctorMissingOnce(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	p.configure(map[string]any{"tools": map[string]any{"command": "surely-not-there"}})
	p.daemon()
	p.run(piped, "mcp-stdio", "--server", "tools")
	p.until("the server that does not come up", func(s control.StatusAnswer) bool {
		return len(s.Servers) == 1 && s.Servers[0].LastFault != nil
	})
	out, _, code := p.run("", "doctor", "-v")
	if code != exitFailure || strings.Count(out, " server tools: ") != 1 ||
		!strings.Contains(out, "its command is missing") || strings.Contains(out, " servers: tools") {
		t.Errorf("doctor: exit %d\n%s", code, out)
	}
}

// TestDoctorManaged checks that a managed daemon without a captured PATH uses the login
// shell's.
func TestDoctorManaged(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login()
	n := p.notices()
	p.handed()
	waitFor(t, "READY", func() bool { return n.has("READY=1") })
	out := p.must("doctor", "-v")
	if !strings.Contains(out, "ok       PATH of hosted servers: "+programs+":") {
		t.Errorf("doctor:\n%s", out)
	}
	p.must("install", "--path")
	if out := p.must("doctor", "-v"); !strings.Contains(out, "ok       PATH of hosted servers: "+programs+":") {
		t.Errorf("doctor:\n%s", out)
	}
}

// TestLaunchdLog checks that the log of launchd's daemon is where its LaunchAgent says.
func TestLaunchdLog(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	path := filepath.Join(p.dir, "home", contrib.LaunchLog)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte("its words\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.daemon("--started-by", "launchd")
	if out := p.must("logs"); out != "its words\n" {
		t.Errorf("logs prints %q", out)
	}
	if by := p.status().Daemon.StartedBy; by != "launchd" {
		t.Errorf("started by %q", by)
	}
}

// TestDoctorOrphan checks that doctor finds a worker whose directory was removed.
func TestDoctorOrphan(t *testing.T) {
	t.Parallel()
	p := newPlace(t).login().serve("shared")
	p.daemon()
	p.agent().shake()
	p.untilReady("tools")
	var worker process.Proc
	for _, w := range p.status().Workers {
		worker.PID = w.PID
	}
	dirs, err := filepath.Glob(filepath.Join(p.dir, "run/holdline/w/*"))
	if err != nil || len(dirs) != 1 || worker.PID == 0 {
		t.Fatalf("worker %d in %v, %v", worker.PID, dirs, err)
	}
	if out, _, _ := p.run("", "doctor", "-v"); !strings.Contains(out, "ok       orphans: none") {
		t.Errorf("doctor:\n%s", out)
	}
	if err := os.RemoveAll(dirs[0]); err != nil {
		t.Fatal(err)
	}
	out, _, code := p.run("", "doctor", "-v")
	if code != exitFailure || !strings.Contains(out, fmt.Sprintf("kill -9 %d", worker.PID)) {
		t.Errorf("doctor: exit %d\n%s", code, out)
	}
	_ = syscall.Kill(worker.PID, syscall.SIGKILL)
	for deadline := time.Now().Add(waitLimit); alive(worker.PID) && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
}
