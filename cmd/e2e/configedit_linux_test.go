package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdline/cmd/holdline/ttytest"
	"holdline/protocol/control"
)

// editSecret is a secret in the file that is edited.
const editSecret = "a-secret-in-the-file"

// editAt returns a command with an editor at a terminal. The editor is the script, with the file as $1. Stderr goes to
// the file errs: of a pipe, the editor would have the other end for as long as it runs.
func (p *place) editAt(script string, args ...string) (cmd *exec.Cmd, errs *os.File) {
	p.t.Helper()
	tty, _ := ttytest.Open(p.t.(*testing.T))
	p.script("the-editor", "#!/bin/sh\n"+script+"\n")
	if err := os.MkdirAll(p.dir+"/tmp", 0o700); err != nil {
		p.t.Fatal(err)
	}
	errs, err := os.CreateTemp(p.dir, "stderr")
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { errs.Close() })
	cmd = p.command(args...)
	cmd.Env = append(cmd.Env, "EDITOR=the-editor", "TMPDIR="+p.dir+"/tmp")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, errs
	return cmd, errs
}

// editWith runs a command with an editor at a terminal, at which the user types answer, and variables on top of the
// place's. It returns what the command says on stderr, and whether it succeeds.
func (p *place) editWith(script, answer string, env []string, args ...string) (said string, ok bool) {
	p.t.Helper()
	cmd, errs := p.editAt(script, args...)
	tty, screen := ttytest.Open(p.t.(*testing.T))
	cmd.Stdin, cmd.Stdout, cmd.Env = tty, tty, append(cmd.Env, env...)
	if _, err := screen.WriteString(answer); err != nil {
		p.t.Fatal(err)
	}
	err := cmd.Run()
	words, rerr := os.ReadFile(errs.Name())
	if rerr != nil {
		p.t.Fatal(rerr)
	}
	return string(words), err == nil
}

// copies returns the copies of the file that was edited, and their directories.
func (p *place) copies() []string {
	p.t.Helper()
	var all []string
	for _, pattern := range []string{filepath.Join(p.stateRoot(), "*dit*"), filepath.Join(p.stateRoot(), "draft*"), p.dir + "/tmp/*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			p.t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

// TestConfigEditKilled_NoCopyIsLeft checks that nobody else can read the copy that is edited, whatever the umask is,
// and that no copy is left when the command is killed, in each way.
func TestConfigEditKilled_NoCopyIsLeft(t *testing.T) {
	t.Parallel()
	for name, kill := range map[string]func(p *place, cmd *exec.Cmd, release func()){
		"ended by SIGTERM": func(_ *place, cmd *exec.Cmd, release func()) {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
			release()
		},
		"its terminal has gone": func(_ *place, cmd *exec.Cmd, release func()) {
			_ = cmd.Process.Signal(syscall.SIGHUP)
			_ = cmd.Wait()
			release()
		},
		"killed, and the editor goes on": func(_ *place, cmd *exec.Cmd, release func()) {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			release()
		},
		"killed with the editor": func(p *place, cmd *exec.Cmd, _ func()) {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			_ = cmd.Wait()
			next, errs := p.editAt("exit 0", "config", "edit")
			if err := next.Run(); err != nil {
				said, _ := os.ReadFile(errs.Name())
				p.t.Errorf("the next edit: %v\n%s", err, said)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.configure(map[string]any{"tools": map[string]any{
				"command": "tools", "env": map[string]string{"KEY": editSecret},
			}})
			fifo, begun := filepath.Join(p.dir, "fifo"), filepath.Join(p.dir, "begun")
			if err := syscall.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			cmd, _ := p.editAt(`stat -c %a "$1" "$(dirname "$1")" >`+begun+`.new; grep -c `+editSecret+` "$1" >>`+begun+
				`.new; mv `+begun+`.new `+begun+`; echo changed >"$1"; read x <`+fifo, "config", "edit")
			sh := exec.CommandContext(t.Context(), "/bin/sh", append([]string{"-c", `umask 0; exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)...)
			sh.Env, sh.Dir, sh.Stdin, sh.Stdout, sh.Stderr = cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr
			sh.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			before, err := os.ReadFile(filepath.Join(p.dir, "home/.config/holdline/config.json"))
			if err != nil {
				t.Fatal(err)
			}
			if err := sh.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = syscall.Kill(-sh.Process.Pid, syscall.SIGKILL) })
			var modes []byte
			waitFor(t, "the editor to have begun", func() bool {
				modes, _ = os.ReadFile(begun)
				return len(modes) > 0
			})
			if string(modes) != "600\n700\n1\n" {
				t.Errorf("modes of the copy and its directory, and lines with the secret: %q", modes)
			}
			if len(p.copies()) == 0 {
				t.Fatal("there is no copy while it is edited: the test looks at the wrong place")
			}
			kill(p, sh, func() {
				f, err := os.OpenFile(fifo, os.O_RDWR, 0) // which waits for no reader
				if err == nil {
					t.Cleanup(func() { f.Close() })
					_, err = f.WriteString("go on\n")
				}
				if err != nil {
					t.Error(err)
				}
			})
			waitFor(t, "no copy to be left", func() bool { return len(p.copies()) == 0 })
			if after, err := os.ReadFile(filepath.Join(p.dir, "home/.config/holdline/config.json")); err != nil || !bytes.Equal(after, before) {
				t.Errorf("the file was changed: %s, %v", after, err)
			}
		})
	}
}

// TestEditWithoutTerminal_Refused checks that no editor is started where there is no terminal, and that the words
// say what to do.
func TestEditWithoutTerminal_Refused(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": map[string]any{"command": "tools"}})
	p.script("the-editor", "#!/bin/sh\ntouch "+p.dir+"/ran\n")
	p.env = append(p.env, "EDITOR=the-editor")
	for _, args := range [][]string{{"config", "edit"}, {"servers", "edit", "tools"}} {
		out, errs, code := p.run("", args...)
		want := "holdline: holdline " + strings.Join(args[:2], " ") + " opens your editor, and needs a terminal"
		if code != 2 || !strings.HasPrefix(errs, want) || !strings.Contains(errs, "hint: for one setting: holdline config set ") {
			t.Errorf("%v: exit %d\n%s%s", args, code, out, errs)
		}
	}
	if _, err := os.Stat(filepath.Join(p.dir, "ran")); err == nil || len(p.copies()) > 0 {
		t.Errorf("an editor ran (%v), or there is a copy: %v", err, p.copies())
	}
}

// TestConfigEdit checks that an editor gets a copy, that only a right one replaces the file, and that an editor which is
// not there has written nothing.
func TestConfigEdit(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"tools": map[string]any{"command": "tools"}})
	path := filepath.Join(p.dir, "home/.config/holdline/config.json")
	edit := func(script, answer string, env ...string) (said string, ok bool) {
		t.Helper()
		return p.editWith(script, answer, env, "config", "edit")
	}
	if said, ok := edit("", "", "EDITOR=/nonexistent --wait"); ok || strings.Contains(said, "what you have written") ||
		!strings.HasPrefix(said, "holdline: the editor /nonexistent was not found") || !strings.Contains(said, "EDITOR=nano") {
		t.Errorf("no editor: %s", said)
	}
	command := func() string {
		t.Helper()
		return strings.TrimSpace(p.must("config", "get", "mcpServers.tools.command"))
	}
	if said, ok := edit(`sed -i 's/: *"tools"/: "other"/' "$1"`, ""); !ok || command() != "other" {
		t.Errorf("edited: %s, the command is %s", said, command())
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if said, ok := edit("true", ""); !ok {
		t.Errorf("no change: %s", said)
	}
	said, ok := edit(`sed -i s/command/comand/ "$1"`, "n\n")
	for _, want := range []string{"did you mean command?", "is as it was", "hint: what you have written is in "} {
		if ok || !strings.Contains(said, want) {
			t.Errorf("a mistake: %s, want %q", said, want)
		}
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
		t.Errorf("a mistake replaces the file: %s%v", after, err)
	}
}

// TestServersEdit checks that the user edits the entry of one server alone, and that the rest of the file stays as it is,
// to the byte; that mistakes are named and what was written then is kept; and that a running daemon reads the file.
func TestServersEdit(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	const file = `{
  // All of them.
  "mcpServers": {
    "first": { "command": "first" }, // stays
    "second": {
      // Its program.
      "command": "second",
      "disabled": true
    }
  },
}
`
	path := filepath.Join(p.dir, "home/.config/holdline/config.json")
	p.configure(nil)
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	edit := func(script, answer string, args ...string) (said string, ok bool) {
		t.Helper()
		return p.editWith(script, answer, nil, args...)
	}
	saw := filepath.Join(p.dir, "saw")
	if said, ok := edit(`cp "$1" `+saw+`; sed -i s/second/other/ "$1"`, "", "servers", "edit", "second"); !ok {
		t.Fatalf("servers edit: %s", said)
	}
	text, err := os.ReadFile(saw)
	want := "// Server second of " + path + ".\n{\n  // Its program.\n  \"command\": \"second\",\n  \"disabled\": true\n}\n"
	if err != nil || string(text) != want {
		t.Errorf("the editor saw %q, %v\nwant %q", text, err, want)
	}
	changed := strings.Replace(file, `"command": "second"`, `"command": "other"`, 1)
	check := func(when, want string) {
		t.Helper()
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("%s: the file is\n%s%v\nwant\n%s", when, text, err, want)
		}
	}
	check("edited", changed)
	if _, ok := edit(`true`, "", "servers", "edit", "first"); !ok {
		t.Error("no change is no error")
	}
	check("no change", changed)
	said, ok := edit(`sed -i s/command/comand/ "$1"`, "n\n", "servers", "edit", "first")
	if ok || !strings.Contains(said, `did you mean command`) || !strings.Contains(said, "given up") ||
		!strings.Contains(said, "server first is as it was") || len(p.copies()) != 1 {
		t.Errorf("with a mistake: %s, copies %v", said, p.copies())
	}
	check("given up", changed)
	if said, ok := edit(`true`, "", "servers", "edit", "secnd"); ok || !strings.Contains(said, "did you mean second?") {
		t.Errorf("a slip: %s", said)
	}
	p.daemon()
	if said, ok := edit(`sed -i /disabled/d "$1"`, "", "servers", "edit", "second"); !ok {
		t.Errorf("with a daemon: %s", said)
	}
	p.until("second to be hosted", func(s control.StatusAnswer) bool { return len(s.Servers) == 2 })
}
