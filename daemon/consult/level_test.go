package consult

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/claude"
	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/sandbox"
	"holdline/daemon/sandbox/writetest"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/process"
)

// needLandlock skips the test if the kernel has no Landlock.
func needLandlock(t *testing.T) {
	t.Helper()
	if sandbox.Landlock() < sandbox.Complete {
		t.Skip("needs Landlock of ABI 3 or newer")
	}
}

// TestReadIsConfined runs a program that tries every way to write. It, and what it starts,
// can write to its own directories and nowhere else.
func TestReadIsConfined(t *testing.T) {
	needLandlock(t)
	h := newHouse(t, "")
	config, may := filepath.Join(h.opt.Home, ".claude"), claudetest.Writable(h.opt.Home, h.project)
	own, allowed, elsewhere := filepath.Join(may, "own"), filepath.Join(may, "allowed"), t.TempDir()
	outside := []string{
		h.project, filepath.Join(h.opt.Home, "below"), elsewhere, filepath.Join(h.dirs.Root, "below"),
		filepath.Join(config, "agents"), filepath.Join(config, "plugins"), claudetest.Writable(h.opt.Home, "/another/project"),
	}
	before := map[string]string{}
	for _, dir := range append([]string{own, allowed}, outside...) {
		if err := writetest.Prepare(dir); err != nil {
			t.Fatal(err)
		}
		before[dir], _ = writetest.Listing(dir)
	}
	dirs := strings.Join(append([]string{own, allowed}, outside...), "\n")
	res, err := h.run(t.Context(), 1, map[string]any{
		"prompt": claudetest.Prompt("x", claudetest.Step{Do: "attempt", Message: dirs}), "render": "json",
		"detail": "full",
	})
	if err != nil || res.Fault != nil {
		t.Fatal(err, dump(res.Fault))
	}
	v, _ := res.Value.(answer.View)
	var could map[string][]string
	if err := json.Unmarshal([]byte(v.Answer), &could); err != nil || len(could) != 8 {
		t.Fatalf("err %v, answer %q", err, v.Answer)
	}
	for _, dir := range outside {
		if ways := could[dir]; len(ways) != 0 {
			t.Errorf("in %s it could %s", dir, strings.Join(ways, ", "))
		}
		if after, err := writetest.Listing(dir); err != nil || after != before[dir] {
			t.Errorf("err %v; %s was\n%sand is\n%s", err, dir, before[dir], after)
		}
	}
	if ways := could[allowed]; len(ways) < 20 { // fewer attempts would prove nothing
		t.Errorf("where it may write it could only %s", strings.Join(ways, ", "))
	}
	if v.Level != "read" || v.EnforcedBy != "landlock" ||
		!strings.Contains(strings.Join(v.Notes, "\n"), "Landlock ABI") {
		t.Errorf("level %q enforced by %q, notes %q", v.Level, v.EnforcedBy, v.Notes)
	}
}

// TestUnconfined checks that without Landlock a consult runs, and says that its level is
// enforced by the tools alone.
func TestUnconfined(t *testing.T) {
	h := newHouse(t, "", func(o *Options) { o.Engines.(Fixed)[Claude] = machine(t, o, 0) })
	res, err := h.run(t.Context(), 1, map[string]any{"prompt": "hello", "detail": "full"})
	if err != nil || res.Fault != nil || !strings.Contains(res.Text, "level read enforced by tools") ||
		!strings.Contains(res.Text, "no Landlock") {
		t.Errorf("err %v, %s, text %q", err, dump(res.Fault), res.Text)
	}
	spec, err := process.ReadSpec(filepath.Join(h.opt.Dir, jobdir.ID(h.session, 1)))
	if err != nil || spec.Confine != nil {
		t.Errorf("err %v, confined to %+v", err, spec.Confine)
	}
}

// machine returns the fake program on a machine with this Landlock ABI and without
// bubblewrap.
func machine(t *testing.T, o *Options, abi int, extra ...string) engine.Engine {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return claude.New(claude.Options{
		Bin: exe, Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + o.Home},
		Extra:      append(extra, claudetest.FakeEnv+"=ok", "ANTHROPIC_API_KEY=k", "GORACE=atexit_sleep_ms=0"),
		Landlock:   func() int { return abi },
		Bubblewrap: func(context.Context, []string) error { return errNoBubblewrap },
	})
}

type constError string

func (e constError) Error() string { return string(e) }

const errNoBubblewrap = constError("bubblewrap is not installed")

// TestConfinementFails checks that a program that cannot be confined is not run, and that
// the fault says what failed.
func TestConfinementFails(t *testing.T) {
	h := newHouse(t, "", func(o *Options) {
		// It claims Landlock on every machine, so that the exec step tries it and fails.
		o.Engines.(Fixed)[Claude] = machine(t, o, 7, envRefuse+"=1")
	})
	res, err := h.run(t.Context(), 1, map[string]any{"prompt": "hello"})
	if err != nil || res.Fault == nil || res.Fault.Fault.Code != fault.Denied ||
		!strings.Contains(res.Fault.Fault.Detail, "Landlock refused") {
		t.Errorf("err %v, %s, text %q", err, dump(res.Fault), res.Text)
	}
	if strings.Contains(res.Text+res.FaultText, "fake answer") {
		t.Errorf("it ran: %q", res.Text)
	}
}

// maxTemp is the longest path of a temporary directory that the sandbox of level shell
// takes, in bytes.
const maxTemp = 73

// TestShortTemp checks that a run at level shell gets a temporary directory with a short
// path, even if the state directory has a long one, because the program's sandbox makes
// sockets in it. The directory is removed with the run.
func TestShortTemp(t *testing.T) {
	short, err := os.MkdirTemp("", "hl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(short) })
	for name, tt := range map[string]struct {
		level, sockets string
		code           fault.Code
		elsewhere      bool
	}{
		"shell":     {"shell", filepath.Join(short, "w"), "", true},
		"read":      {"read", filepath.Join(short, "w"), "", false},
		"both long": {"shell", filepath.Join(short, strings.Repeat("w", maxTemp)), fault.Denied, false},
	} {
		t.Run(name, func(t *testing.T) {
			var temp string
			var w *world
			w = newWorld(t, func(p *fakeProcess) {
				<-p.in
				temp = w.starter.last().params.TempDir
				if info, err := os.Stat(temp); err != nil || info.Mode().Perm() != 0o700 {
					t.Errorf("%s: %v", temp, err)
				}
				p.say("start", "answer well")
				<-p.closed
				p.exit(0)
			}, func(o *Options) {
				o.Dir, o.SocketDir = filepath.Join(o.Dir, strings.Repeat("d", maxTemp)), tt.sockets
				if err := os.Mkdir(o.Dir, 0o700); err != nil {
					t.Fatal(err)
				}
			})
			w.engine.shell = true
			res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1},
				map[string]any{"prompt": "x", "level": tt.level})
			if got := code(res, err); got != tt.code {
				t.Fatalf("%s, %v", got, err)
			}
			w.finish()
			if got := strings.HasPrefix(temp, tt.sockets); got != tt.elsewhere || tt.elsewhere && len(temp) > maxTemp {
				t.Errorf("temporary directory %s", temp)
			}
			if left, err := filepath.Glob(filepath.Join(tt.sockets, "*")); err != nil || len(left) != 0 {
				t.Errorf("left: %q, %v", left, err)
			}
		})
	}
}

// TestLevelRefused checks that a level that this machine cannot enforce is refused at once,
// whether the call or the configuration asks for it, and that no program runs.
func TestLevelRefused(t *testing.T) {
	for _, how := range []string{"call", "configuration"} {
		t.Run(how, func(t *testing.T) {
			h := newHouse(t, "", func(o *Options) {
				o.Engines.(Fixed)[Claude] = machine(t, o, 0)
				if how == "configuration" {
					o.Config.Consult.Level = "shell"
				}
			})
			args := map[string]any{"prompt": "hello"}
			if how == "call" {
				args["level"] = "shell"
			}
			res, err := h.run(t.Context(), 1, args)
			if got := code(res, err); got != fault.Denied ||
				!strings.Contains(err.Error(), "bubblewrap is not installed") {
				t.Errorf("%s: err %v, %s", got, err, dump(res.Fault))
			}
			if _, err := os.Stat(filepath.Join(h.opt.Dir, jobdir.ID(h.session, 1))); !os.IsNotExist(err) {
				t.Errorf("a job was made: %v", err)
			}
			args["level"] = "read"
			if res, err := h.run(t.Context(), 2, args); err != nil || res.Fault != nil {
				t.Errorf("level read: %v %s", err, dump(res.Fault))
			}
		})
	}
}
