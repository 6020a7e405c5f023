package install

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/pair"
	"holdline/contrib"
	"holdline/daemon/userenv"
	"holdline/protocol/programtest"
)

// machine is a home with an Options for it. It plays systemctl and launchctl.
type machine struct {
	*Options
	t       *testing.T
	home    string
	out     bytes.Buffer
	ran     []string // command lines that change something
	version string   // of systemd; "" if no user manager answers
	fails   string   // a command line that contains it fails
	state   string   // of every unit that is asked for; "" is inactive
	enabled bool
	loaded  bool
	stopped int
}

// newMachine makes an empty home, with systemd 252 as its manager.
func newMachine(t *testing.T) *machine {
	t.Helper()
	home := t.TempDir()
	exe := filepath.Join(t.TempDir(), "built")
	programtest.Write(t, exe, "program 1")
	m := &machine{t: t, home: home, version: "252.39-1~deb12u1\n"}
	m.Options = &Options{
		OS: "linux", UID: 7, Exe: exe, Home: home,
		BinDir: filepath.Join(home, ".local/bin"), UnitDir: filepath.Join(home, ".config/systemd/user"),
		StateDir: filepath.Join(home, ".local/state/holdline"), ConfigDir: filepath.Join(home, ".config/holdline"),
		RuntimeDir: filepath.Join(home, "run/holdline"), Variables: map[string]string{},
		Run: m.run, Out: &m.out, Stop: func(context.Context) error { m.stopped++; return nil },
	}
	return m
}

// run plays the two service managers.
func (m *machine) run(_ context.Context, name string, args ...string) (string, error) {
	line := name + " " + strings.Join(args, " ")
	if m.fails != "" && strings.Contains(line, m.fails) {
		return "", errors.New("it fails")
	}
	if name == "launchctl" {
		return "", m.launchctl(line, args)
	}
	if m.version == "" {
		return "", errors.New("Failed to connect to bus")
	}
	wants := filepath.Join(m.UnitDir, "sockets.target.wants")
	switch args[1] {
	case "show":
		if strings.Contains(line, "ActiveState") {
			return cmp.Or(m.state, "inactive") + "\n", nil
		}
		return m.version, nil
	case "show-environment":
		return "HOME=" + m.home + "\nXDG_STATE_HOME=/same\n", nil
	case "is-enabled", "is-active":
		if !m.enabled {
			return "no\n", errors.New("exit status 1")
		}
		return map[string]string{"is-enabled": "enabled\n", "is-active": "active\n"}[args[1]], nil
	case "enable":
		if got := m.manifest(); got.Manager != Systemd ||
			got.file(filepath.Join(m.UnitDir, contrib.SystemdSocket)) == nil {
			m.t.Errorf("if it is killed now nobody knows of the units: %+v", got)
		}
		m.enabled = true
		if err := os.MkdirAll(wants, 0o755); err != nil {
			return "", err
		}
		m.ran = append(m.ran, line)
		return "",
			os.Symlink(filepath.Join(m.UnitDir, contrib.SystemdSocket), filepath.Join(wants, contrib.SystemdSocket))
	case "stop":
		if !m.enabled {
			return "", errors.New("Unit not loaded")
		}
	case "disable":
		for _, unit := range args[3:] {
			if _, err := os.Lstat(filepath.Join(m.UnitDir, unit)); err != nil {
				return "", fmt.Errorf("Failed to disable unit: Unit file %s does not exist", unit)
			}
		}
		m.enabled = false
		_ = os.Remove(filepath.Join(wants, contrib.SystemdSocket))
	}
	m.ran = append(m.ran, line)
	return "", nil
}

// launchctl plays launchctl.
func (m *machine) launchctl(line string, args []string) error {
	switch args[0] {
	case "print":
		if strings.Contains(args[1], contrib.LaunchLabel) && !m.loaded {
			return errors.New("Could not find service")
		}
		return nil
	case "bootstrap":
		if m.loaded {
			return errors.New("Bootstrap failed: 5: Input/output error")
		}
		m.loaded = true
	case "bootout":
		if !m.loaded {
			return errors.New("Boot-out failed: 3: No such process")
		}
		m.loaded = false
	}
	m.ran = append(m.ran, line)
	return nil
}

// tree returns all that is in the home: names, modes and contents.
func (m *machine) tree() string {
	m.t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(m.home, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %v", strings.TrimPrefix(path, m.home), info.Mode())
		switch {
		case d.Type().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %x", data)
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			b.WriteString(" " + to)
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return b.String()
}

// hintOf returns what the command prints of an error: its hint among others.
func hintOf(err error) string {
	var b strings.Builder
	cmdenv.Report(&b, err)
	_, hint, _ := strings.Cut(b.String(), "hint: ")
	return hint
}

// install installs, and fails the test if that fails. It returns the output.
func (m *machine) install(w Wish) string {
	m.t.Helper()
	m.out.Reset()
	m.ran = nil
	if err := m.Install(m.t.Context(), w); err != nil {
		m.t.Fatalf("Install(%+v): %v\n%s", w, err, &m.out)
	}
	return m.out.String()
}

// uninstall uninstalls, and fails the test if that fails. It returns the output.
func (m *machine) uninstall(purge bool) string {
	m.t.Helper()
	m.out.Reset()
	m.ran = nil
	if err := m.Uninstall(m.t.Context(), purge); err != nil {
		m.t.Fatalf("Uninstall: %v\n%s", err, &m.out)
	}
	return m.out.String()
}

// write writes a file of the home.
func (m *machine) write(path, content string) {
	m.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) read(path string) string {
	m.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		m.t.Fatal(err)
	}
	return string(b)
}

// whole is the wish for everything that systemd can have.
var whole = Wish{Manager: Systemd, Bin: true, Path: "/a:/b"}

// TestInstall checks that everything is installed, that a second installation changes
// nothing, and that uninstalling leaves nothing.
func TestInstall(t *testing.T) {
	m := newMachine(t)
	m.write(filepath.Join(m.home, ".profile"), "mine")
	before := m.tree()
	out := m.install(whole)
	bin := m.binPath()
	if info, err := os.Stat(bin); err != nil || info.Mode().Perm() != 0o755 || m.read(bin) != "program 1" {
		t.Errorf("the binary: %v, %v", info, err)
	}
	units, err := contrib.SystemdUnits(bin)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range units {
		if got := m.read(filepath.Join(m.UnitDir, u.Name)); got != u.Text {
			t.Errorf("%s is\n%s", u.Name, got)
		}
		if !strings.Contains(out, "write "+filepath.Join(m.UnitDir, u.Name)+"\n") {
			t.Errorf("%s is not told:\n%s", u.Name, out)
		}
	}
	if got, err := userenv.ReadPath(userenv.PathFile(m.StateDir)); got != "/a:/b" || err != nil {
		t.Errorf("the captured PATH is %q, %v", got, err)
	}
	want := []string{"systemctl --user daemon-reload", "systemctl --user enable --now holdline.socket"}
	if !slices.Equal(m.ran, want) {
		t.Errorf("ran %q, want %q", m.ran, want)
	}

	installed := m.tree()
	if out := m.install(whole); len(m.ran) > 0 || m.tree() != installed || strings.Count(out, "unchanged: ") != 5 {
		t.Errorf("a second time: ran %q\n%s", m.ran, out)
	}
	m.DryRun = true
	if out := m.uninstall(true); m.tree() != installed || m.stopped > 0 || len(m.ran) > 0 ||
		!strings.Contains(out, "would remove "+bin+"\n") {
		t.Errorf("a dry uninstall did something, or does not tell: ran %q\n%s", m.ran, out)
	}
	m.DryRun = false
	out = m.uninstall(false)
	if got := m.tree(); got != before {
		t.Errorf("uninstall leaves\n%s\nwant\n%s\nit said\n%s", got, before, out)
	}
	if m.stopped != 2 || m.enabled || m.ran[0] != "systemctl --user disable --now holdline.socket holdline.service" ||
		!slices.Contains(m.ran, "systemctl --user daemon-reload") {
		t.Errorf("stopped %d times, enabled %v, ran %q", m.stopped, m.enabled, m.ran)
	}
}

// TestDryInstall checks that a dry run prints what it would do, and does nothing.
func TestDryInstall(t *testing.T) {
	m := newMachine(t)
	m.DryRun = true
	before := m.tree()
	out := m.install(whole)
	for _, want := range []string{
		"would write " + m.binPath(),
		"would write " + filepath.Join(m.UnitDir, "holdline.service"),
		"would run systemctl --user enable --now holdline.socket",
	} {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("%q is not told:\n%s", want, out)
		}
	}
	if m.tree() != before || len(m.ran) > 0 {
		t.Errorf("something was done: ran %q\n%s", m.ran, m.tree())
	}
}

// TestTakenBack checks that a failure in any step undoes all steps before it, also in a
// second installation over a first one.
func TestTakenBack(t *testing.T) {
	for _, fails := range []string{"daemon-reload", "enable --now"} {
		m := newMachine(t)
		before := m.tree()
		m.fails = fails
		err := m.Install(t.Context(), whole)
		if fails == "daemon-reload" { // undoing needs it, too
			if err == nil || m.read(manifestFile(m.StateDir)) == "" {
				t.Errorf("%s: %v, and nobody knows what may be left", fails, err)
			}
			m.fails = ""
			m.uninstall(false)
		} else if err == nil || !strings.Contains(err.Error(), "it fails") {
			t.Errorf("%s: %v", fails, err)
		}
		if got := m.tree(); got != before {
			t.Errorf("%s fails, and this is left:\n%s", fails, got)
		}
		if m.enabled {
			t.Errorf("%s fails, and the socket is enabled", fails)
		}

		m.fails = ""
		m.install(Wish{Bin: true, Path: "/a"})
		before = m.tree()
		m.write(m.Exe, "program 2")
		m.fails = "enable --now"
		if err := m.Install(t.Context(), whole); err == nil {
			t.Error("it succeeds")
		}
		if got := m.tree(); got != before {
			t.Errorf("a second installation fails, and this is left:\n%s\nwant\n%s", got, before)
		}
	}
}

// TestUpgrade checks that a new binary replaces the old one and is removed at the end, also
// after an interrupted installation.
func TestUpgrade(t *testing.T) {
	m := newMachine(t)
	before := m.tree()
	m.install(whole)
	m.write(m.Exe, "program 2")
	out := m.install(whole)
	if m.read(m.binPath()) != "program 2" || len(m.ran) > 0 || strings.Count(out, "write ") != 1 {
		t.Errorf("the binary is %q, ran %q\n%s", m.read(m.binPath()), m.ran, out)
	}
	m.write(m.Exe, "program 1") // once more, from the old path
	m.install(whole)
	if f := m.manifest(); len(f.file(m.binPath()).Content) != 1 {
		t.Errorf("programs that are not there any more are on record: %+v", f)
	}
	// The installation was killed after the plan was saved and before it was carried out.
	m.write(m.Exe, "program 3")
	p := &plan{o: m.Options, next: m.manifest()}
	if _, err := p.addFile(Binary, m.binPath(), content{exists: true, data: []byte("program 3"), mode: 0o755},
		false); err != nil {
		t.Fatal(err)
	}
	if err := p.next.store(m.StateDir); err != nil {
		t.Fatal(err)
	}
	m.uninstall(false)
	if got := m.tree(); got != before {
		t.Errorf("this is left:\n%s", got)
	}
}

func (m *machine) manifest() Manifest {
	m.t.Helper()
	got, err := ReadManifest(m.StateDir)
	if err != nil {
		m.t.Fatal(err)
	}
	return got
}

// TestProgramsBeside checks that the programs that lie beside this one are installed, replaced
// and removed with it, and that a link brings none.
func TestProgramsBeside(t *testing.T) {
	m := newMachine(t)
	before := m.tree()
	from, to := filepath.Join(filepath.Dir(m.Exe), pair.Top), filepath.Join(m.BinDir, pair.Top)
	m.write(from, "top 1")
	m.install(Wish{Bin: true})
	m.write(from, "top 2")
	m.install(Wish{Bin: true})
	info, err := os.Stat(to)
	if err != nil || m.read(to) != "top 2" || info.Mode() != 0o755 {
		t.Errorf("%v: %q is installed, %v", err, m.read(to), info)
	}
	m.uninstall(false)
	if got := m.tree(); got != before {
		t.Errorf("this is left:\n%s", got)
	}
	m.install(Wish{Bin: true, Link: true})
	if _, err := os.Stat(to); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("beside a link there is %s: %v", to, err)
	}
}

// TestForeign checks that files that the user or another program wrote are named, and
// neither replaced nor removed.
func TestForeign(t *testing.T) {
	m := newMachine(t)
	m.write(m.binPath(), "not ours")
	before := m.tree()
	err := m.Install(t.Context(), whole)
	if f, ok := errors.AsType[*foreignError](err); !ok || f.Path != m.binPath() ||
		!strings.Contains(hintOf(err), "--force") {
		t.Errorf("Install = %v (%s)", err, hintOf(err))
	}
	if m.tree() != before || len(m.ran) > 0 {
		t.Errorf("it did something: %q\n%s", m.ran, m.tree())
	}
	w := whole
	w.Force = true
	m.install(w)
	if m.read(m.binPath()) != "program 1" {
		t.Error("--force does not replace it")
	}

	unit := filepath.Join(m.UnitDir, contrib.SystemdService)
	m.write(unit, "edited")
	if _, ok := errors.AsType[*foreignError](m.Install(t.Context(), whole)); !ok {
		t.Error("an edited unit is replaced")
	}
	out := m.uninstall(false)
	if m.read(unit) != "edited" || !strings.Contains(out, "left: "+unit) {
		t.Errorf("the edited unit:\n%s", out)
	}
	// The file stays in the manifest: once its content is as installed, it is removed.
	if got := m.manifest(); len(got.Files) != 1 || got.Files[0].Path != unit {
		t.Errorf("the manifest has %+v", got)
	}
	units, err := contrib.SystemdUnits(m.binPath())
	if err != nil {
		t.Fatal(err)
	}
	m.write(unit, units[1].Text)
	m.uninstall(false)
	if _, err := os.Stat(unit); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unit: %v", err)
	}
	// A file that was there before, with the same content, is not removed either.
	m = newMachine(t)
	m.write(m.binPath(), "program 1")
	before = m.tree()
	m.install(Wish{Bin: true, Path: "/a"})
	m.uninstall(true)
	if got := m.tree(); got != before {
		t.Errorf("left\n%s\nwant\n%s", got, before)
	}
}

// TestLinkToItself checks that the installed program is not replaced by a link to itself if it is
// called by another path, as in a home that is a link.
func TestLinkToItself(t *testing.T) {
	m := newMachine(t)
	exe := m.binPath()
	home := filepath.Join(t.TempDir(), "home")
	if err := os.Symlink(m.home, home); err != nil {
		t.Fatal(err)
	}
	m.Home, m.BinDir = home, filepath.Join(home, ".local/bin")
	m.install(Wish{Bin: true})
	m.Exe = exe
	m.install(Wish{Bin: true, Link: true})
	if text, err := os.ReadFile(exe); err != nil || string(text) != "program 1" {
		t.Errorf("the installed program is %q, %v", text, err)
	}
}

// TestLink checks that a link replaces a copy, and a copy a link.
func TestLink(t *testing.T) {
	m := newMachine(t)
	before := m.tree()
	for range 2 {
		m.install(Wish{Bin: true, Link: true, Path: "/a"})
		if to, err := os.Readlink(m.binPath()); to != m.Exe || err != nil {
			t.Errorf("the link leads to %q, %v", to, err)
		}
		if out := m.install(Wish{Bin: true, Link: true, Path: "/a"}); strings.Contains(out, "link ") {
			t.Errorf("a second time:\n%s", out)
		}
		m.install(Wish{Bin: true, Path: "/a"})
		if info, err := os.Lstat(m.binPath()); err != nil || !info.Mode().IsRegular() {
			t.Errorf("the copy: %v, %v", info, err)
		}
	}
	// Run from the installed path it has nothing to do.
	m.Exe = m.binPath()
	if out := m.install(Wish{Bin: true, Path: "/a"}); strings.Contains(out, "write ") {
		t.Errorf("it writes over itself:\n%s", out)
	}
	// Run through a link to the installed path it does not make a link to itself.
	m.Exe = filepath.Join(t.TempDir(), "alias")
	if err := os.Symlink(m.binPath(), m.Exe); err != nil {
		t.Fatal(err)
	}
	m.install(Wish{Bin: true, Link: true, Path: "/a"})
	if m.read(m.binPath()) != "program 1" {
		t.Error("the program is gone")
	}
	m.uninstall(false)
	if got := m.tree(); got != before {
		t.Errorf("this is left:\n%s", got)
	}
}

// TestNoManager checks that without a user manager nothing is installed, and the error says
// what to do, and that uninstalling works without one.
func TestNoManager(t *testing.T) {
	m := newMachine(t)
	before := m.tree()
	for version, word := range map[string]string{"": "no user manager", "245.4\n": "too old"} {
		m.version = version
		err := m.Install(t.Context(), whole)
		if err == nil || !strings.Contains(err.Error(), word) || !strings.Contains(hintOf(err), "leave out --systemd") {
			t.Errorf("systemd %q: %v (%s)", version, err, hintOf(err))
		}
	}
	m.Run = func(context.Context, string, ...string) (string, error) { return "", exec.ErrNotFound }
	if err := m.Install(t.Context(), whole); err == nil || !strings.Contains(err.Error(), "no systemctl") {
		t.Errorf("without systemctl: %v", err)
	}
	if got := m.tree(); got != before {
		t.Errorf("something was done:\n%s", got)
	}
	m.Run, m.version = m.run, "252"
	m.install(whole)
	m.version = ""
	out := m.uninstall(false)
	wants := filepath.Join(m.UnitDir, "sockets.target.wants", contrib.SystemdSocket)
	if got := m.tree(); got != before || !strings.Contains(out, "remove "+wants) {
		t.Errorf("this is left:\n%s\nit said\n%s", got, out)
	}
}

// TestUnitsRemoved checks that uninstalling works after units, or the links that enable
// them, were removed by hand. Systemd, which may still run them, is asked to stop them. A
// unit that keeps running is an error.
func TestUnitsRemoved(t *testing.T) {
	for _, removed := range [][]string{
		{contrib.SystemdSocket},
		{contrib.SystemdService},
		{contrib.SystemdSocket, contrib.SystemdService, "sockets.target.wants/" + contrib.SystemdSocket},
	} {
		m := newMachine(t)
		before := m.tree()
		m.install(whole)
		for _, name := range removed {
			if err := os.Remove(filepath.Join(m.UnitDir, name)); err != nil {
				t.Fatal(err)
			}
		}
		m.enabled = len(removed) < 3 // with all of them removed systemd does not know them
		m.state = "active"
		left := m.tree()
		if err := m.Uninstall(t.Context(), false); err == nil ||
			!strings.Contains(err.Error(), contrib.SystemdSocket+" is not stopped") || m.tree() != left {
			t.Errorf("without %q, and it runs on: %v", removed, err)
		}
		m.state = ""
		out := m.uninstall(false)
		if got := m.tree(); got != before {
			t.Errorf("without %q this is left:\n%s\nit said\n%s", removed, got, out)
		}
		if stopped := slices.Contains(m.ran, "systemctl --user stop "+contrib.SystemdSocket); stopped != m.enabled {
			t.Errorf("without %q: ran %q", removed, m.ran)
		}
	}
}

// TestPurge checks that the directories are removed with --purge, and stay without it.
func TestPurge(t *testing.T) {
	m := newMachine(t)
	before := m.tree()
	m.install(whole)
	used := func() {
		m.write(filepath.Join(m.ConfigDir, "config.json"), "{}")
		m.write(filepath.Join(m.StateDir, "telemetry.jsonl"), "{}")
	}
	used()
	m.uninstall(false)
	if m.read(filepath.Join(m.ConfigDir, "config.json")) != "{}" ||
		m.read(filepath.Join(m.StateDir, "telemetry.jsonl")) != "{}" {
		t.Error("they are gone without --purge")
	}
	if _, err := os.Stat(m.binPath()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the binary: %v", err)
	}
	m.write(filepath.Join(m.RuntimeDir, "epoch"), "1")
	m.uninstall(true) // the manifest still has the directories that it created
	_ = os.Remove(filepath.Join(m.home, "run"))
	if got := m.tree(); got != before {
		t.Errorf("this is left:\n%s\nwant\n%s", got, before)
	}
}

// TestStopFails checks that nothing is removed while the daemon cannot be stopped.
func TestStopFails(t *testing.T) {
	m := newMachine(t)
	m.install(whole)
	before := m.tree()
	m.Stop = func(context.Context) error { return errors.New("it hangs") }
	if err := m.Uninstall(t.Context(), true); err == nil || m.tree() != before || len(m.ran) > 2 {
		t.Errorf("Uninstall = %v, ran %q", err, m.ran)
	}
}

// TestVariables checks that variables that systemd's daemon would not see are named.
func TestVariables(t *testing.T) {
	m := newMachine(t)
	m.Variables = map[string]string{"XDG_STATE_HOME": "/same", "XDG_CONFIG_HOME": "/other"}
	out := m.install(whole)
	if !strings.Contains(out, "note: XDG_CONFIG_HOME ") || strings.Contains(out, "XDG_STATE_HOME") {
		t.Errorf("it said\n%s", out)
	}
}

// TestGone checks that a temporary program, as of `go run`, gets into no unit and no link.
func TestGone(t *testing.T) {
	for _, exe := range []string{
		"/tmp/go-build123/b001/exe/holdline", "/home/u/.cache/go-build/b7/" + strings.Repeat("0a", 32) + "-d/holdline",
		"/other/cache/b7/" + strings.Repeat("0a", 32) + "-d/holdline", "/home/u/bin/holdline (deleted)",
	} {
		for _, w := range []Wish{{Manager: Systemd}, {Bin: true, Link: true}} {
			m := newMachine(t)
			before := m.tree()
			m.Exe = exe
			if err := m.Install(t.Context(), w); err == nil || !strings.Contains(hintOf(err), "--bin") {
				t.Errorf("%s: Install(%+v) = %v (%s)", exe, w, err, hintOf(err))
			}
			if m.tree() != before {
				t.Errorf("%s: Install(%+v) did something", exe, w)
			}
		}
	}
	for _, exe := range []string{"/home/u/.local/bin/holdline", "/tmp/x/holdline", "/src/bin/holdline"} {
		if err := Lasting(exe); err != nil {
			t.Error(err)
		}
	}
}

// TestLaunchd checks that the LaunchAgent is written and loaded, loaded again when it has
// changed, and unloaded at the end. If loading fails, the old one is loaded again.
func TestLaunchd(t *testing.T) {
	m := newMachine(t)
	if err := m.Install(t.Context(), Wish{Manager: Launchd}); err == nil || hintOf(err) == "" {
		t.Errorf("on linux: %v", err)
	}
	m.OS = "darwin"
	before := m.tree()
	w := Wish{Manager: Launchd, Bin: true, Path: "/a"}
	m.install(w)
	agent := filepath.Join(m.home, "Library/LaunchAgents/holdline.daemon.plist")
	if m.read(agent) != string(contrib.LaunchAgent(m.binPath(), m.home)) {
		t.Errorf("the agent is\n%s", m.read(agent))
	}
	if want := []string{"launchctl bootstrap gui/7 " + agent}; !slices.Equal(m.ran, want) {
		t.Errorf("ran %q, want %q", m.ran, want)
	}
	if m.install(w); len(m.ran) > 0 {
		t.Errorf("a second time: ran %q", m.ran)
	}
	if err := m.Install(t.Context(), whole); err == nil || !strings.Contains(hintOf(err), "uninstall") {
		t.Errorf("a second manager: %v", err)
	}
	other := Wish{Manager: Launchd, Path: "/a"} // by the path by which it was called
	installed := m.tree()
	tries := 0
	m.Run = func(ctx context.Context, name string, args ...string) (string, error) {
		if args[0] == "bootstrap" {
			if tries++; tries == 1 {
				return "", errors.New("it fails")
			}
		}
		return m.run(ctx, name, args...)
	}
	if err := m.Install(t.Context(), other); err == nil || !m.loaded || m.tree() != installed {
		t.Errorf("Install = %v, loaded %v\n%s", err, m.loaded, m.tree())
	}
	m.ran = nil
	m.install(other)
	if want := []string{
		"launchctl bootout gui/7/holdline.daemon", "launchctl bootstrap gui/7 " + agent,
	}; !slices.Equal(m.ran, want) {
		t.Errorf("ran %q, want %q", m.ran, want)
	}
	m.write(filepath.Join(m.home, "Library/Logs/holdline.log"), "words")
	m.uninstall(true)
	if got := m.tree(); got != before || m.loaded {
		t.Errorf("loaded %v, and this is left:\n%s", m.loaded, got)
	}
}

// TestManifestOfOthers checks that a manifest that cannot be read is an error, not an empty
// one.
func TestManifestOfOthers(t *testing.T) {
	m := newMachine(t)
	for _, content := range []string{"garbage", `{"version":99}`} {
		m.write(manifestFile(m.StateDir), content)
		if err := m.Install(t.Context(), whole); err == nil {
			t.Errorf("Install over the manifest %q succeeds", content)
		}
		if err := m.Uninstall(t.Context(), true); err == nil || m.read(manifestFile(m.StateDir)) != content {
			t.Errorf("Uninstall with the manifest %q = %v", content, err)
		}
	}
}
