package trial

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/sandbox"
	"holdline/daemon/worker/workertest"
)

// TestMain lets the test binary run as the worker, the exec step and a consult program.
func TestMain(m *testing.M) {
	workertest.Dispatch(os.Args[1:], os.Environ(), os.Stderr)
	if os.Getenv("HOLDLINE_WORKER") != "" ||
		len(os.Args) > 1 && slices.Contains([]string{"--version", "--help"}, os.Args[1]) {
		os.Exit(claudetest.FakeMain(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
	}
	os.Exit(m.Run())
}

// options returns the options of a trial in a temporary directory, with the test binary as
// its program.
func options(t *testing.T) Options {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "hls")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return Options{
		Exe: exe, Version: "test", Bin: exe, Environ: []string{"PATH=" + os.Getenv("PATH")}, Dir: dir,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// TestAttempts checks that every attempt that is a command can write where nothing prevents
// it, and that the write is noticed: otherwise a refused attempt would prove nothing.
func TestAttempts(t *testing.T) {
	o := options(t)
	p, err := o.prepare("free")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(p.shm) })
	all := attempts()
	script := filepath.Join(o.Dir, "taken")
	if err := os.WriteFile(script, []byte(hijacked(p, all)), 0o700); err != nil {
		t.Fatal(err)
	}
	before := readTree(p)
	cmd := exec.CommandContext(t.Context(), script)
	cmd.Dir, cmd.Stdin = p.project, strings.NewReader("{}\n")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.home, "TMPDIR=" + o.Dir}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), controlText) {
		t.Fatalf("%v: %s", err, out)
	}
	var c Column
	c.judge(p, before, all, func(int) Outcome { return Refused })
	for i, a := range all {
		program, _, _ := strings.Cut(a.name, " ")
		_, missing := exec.LookPath(program)
		switch {
		case a.tool != "Bash" || a.own || c.Outcomes[i] == Wrote:
		case a.input["run_in_background"] != nil || strings.HasPrefix(program, "nohup"): // it may write later
		case missing != nil && !slices.Contains([]string{":", "cd", "echo", "a"}, program):
			t.Logf("%s: %v", a.name, missing)
		case slices.ContainsFunc([]string{"git ", "rg ", "curl "},
			func(s string) bool { return strings.HasPrefix(a.name, s) }):
			t.Logf("%s: %s", a.name, c.Outcomes[i]) // some versions of the command do not
		default:
			t.Errorf("%s: %s", a.name, c.Outcomes[i])
		}
	}
	if n := len(slices.DeleteFunc(slices.Clone(c.Outcomes), func(o Outcome) bool { return o != Wrote })); n < 30 {
		t.Errorf("only %d of %d attempts wrote", n, len(all))
	}
	if _, err := os.Lstat(p.shm); err == nil {
		t.Errorf("%s is left", p.shm)
	}
	r := Report{Columns: []Column{c}}
	if r.Held() {
		t.Error("that is said to have held")
	}
}

// TestRun checks that a program that attempts nothing proves nothing, and that the kernel
// stops a program that makes all attempts by itself, also in place of an agent. What an agent may
// write by the configuration counts as written.
func TestRun(t *testing.T) {
	o := options(t)
	o.Agents = map[string][]string{"one": nil, "two": {filepath.Join(o.Dir, "acp:two", "outside")}}
	if err := os.MkdirAll(o.Agents["two"][0], 0o700); err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Held() || r.Version != "2.1.329" || len(r.Columns) != 5 {
		t.Fatalf("held %t, %+v", r.Held(), r)
	}
	read, program := r.Columns[0], r.Columns[2]
	if slices.ContainsFunc(read.Outcomes, func(o Outcome) bool { return o != NotTried }) {
		t.Errorf("read: %v", read.Outcomes)
	}
	if sandbox.Landlock() < sandbox.Complete {
		t.Skipf("needs Landlock of ABI 3 or newer for the rest; %s", program.Skipped)
	}
	for _, c := range []Column{program, r.Columns[3]} {
		for i, o := range c.Outcomes {
			if o != Refused && o != NoMatter {
				t.Errorf("%s: %s: %s", c.Name, r.Attempts[i], o)
			}
		}
		if n := len(slices.DeleteFunc(slices.Clone(c.Outcomes),
			func(o Outcome) bool { return o != Refused })); n < 40 || len(c.Elsewhere) > 0 {
			t.Errorf("%s: %d refused, elsewhere %q", c.Name, n, c.Elsewhere)
		}
		if c.EnforcedBy != "landlock" {
			t.Errorf("%s: enforced by %q", c.Name, c.EnforcedBy)
		}
	}
	// What the configuration lets an agent write is no secret.
	if c := r.Columns[4]; c.Name != "acp:two" || c.Outcomes[0] != Wrote || slices.Contains(c.Outcomes, NotTried) {
		t.Errorf("an agent that may write elsewhere: %+v", c)
	}
}

// TestRun_NoClaude checks that agents are tried where there is no claude, and that without agents
// the missing program is an error.
func TestRun_NoClaude(t *testing.T) {
	o := options(t)
	o.Bin = filepath.Join(o.Dir, "missing")
	if r, err := Run(t.Context(), o); err == nil {
		t.Errorf("without agents: %+v", r)
	}
	o.Agents, o.NoWeb = map[string][]string{"one": nil}, true
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if c := r.Columns; r.Program != "" || len(c) != 4 || !strings.Contains(c[0].Skipped, "missing") ||
		!strings.Contains(c[3].Skipped, "consult.web is false") {
		t.Errorf("%+v", r)
	}
}
