package consult

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holdline/daemon/consult/answer"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// put writes a file of a project.
func put(t *testing.T, path, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

// gitIn runs the user's git in a directory.
func gitIn(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// asked makes a call with these arguments, and returns the prompt that the program got, and
// the result.
func (w *world) asked(ctx context.Context, n int64, args map[string]any) (string, tool.Result, error) {
	w.t.Helper()
	args["prompt"], args["detail"] = "look", "full"
	res, err := w.call(ctx, "consult", tool.Call{Caller: w.caller("a"), N: n}, args)
	if err != nil {
		return "", res, err
	}
	return w.engine.last().Prompt, res, nil
}

// TestFiles checks that files are quoted behind the prompt, if a consult may read them.
func TestFiles(t *testing.T) {
	w := newWorld(t, answers(0))
	home := filepath.Join(filepath.Dir(w.project), "home")
	put(t, filepath.Join(w.project, "a.go"), "package a // 4711\n")
	put(t, filepath.Join(w.project, "long"), strings.Repeat("0123456789", 30_000))
	put(t, filepath.Join(w.project, "binary"), "MZ\x00\x01")
	put(t, filepath.Join(home, ".ssh", "id"), "SECRET")
	put(t, filepath.Join(filepath.Dir(w.project), "other"), "SECRET")
	if err := os.Symlink(filepath.Join(home, ".ssh", "id"), filepath.Join(w.project, "link")); err != nil {
		t.Fatal(err)
	}
	prompt, res, err := w.asked(t.Context(), 1,
		map[string]any{"files": []string{"a.go", "long", "binary"}, "add_dirs": []string{"sub"}})
	if err != nil || res.Fault != nil {
		t.Fatal(err, res.Fault)
	}
	for _, want := range []string{
		"look\n\n",
		"package a // 4711",
		`left-out="37856 of its 300000 bytes: read the rest"`,
		`left-out="it is no text"`,
		filepath.Join(w.project, "sub"),
	} {
		if !strings.Contains(prompt, want) {
			t.Errorf("no %q in the prompt", want)
		}
	}
	if n := len(prompt); n < 256<<10 || n > 257<<10 {
		t.Errorf("prompt of %d bytes", n)
	}
	if dirs := w.engine.last().AddDirs; len(dirs) != 1 || filepath.Base(dirs[0]) != "sub" {
		t.Errorf("directories %q", dirs)
	}
	if v, _ := res.Value.(answer.View); v.Details == nil || v.Context == nil || len(v.Context.Files) != 3 ||
		v.Prompt != "look" || !strings.Contains(res.Text, "a.go (18 of 18 bytes)") {
		t.Errorf("context %+v in %q", res.Value, res.Text)
	}
	// The prompt must not ask the program to read a file that it may not read.
	n := int64(2)
	if prompt, _, err := w.asked(t.Context(), n,
		map[string]any{"files": []string{"../long"}, "cwd": "sub"}); err != nil ||
		!strings.Contains(prompt, `left-out="37856 of its 300000 bytes">`) {
		t.Errorf("beside the directory: %v, %q", err, prompt[:min(len(prompt), 300)])
	}
	for name, tt := range map[string]struct {
		args map[string]any
		code fault.Code
	}{
		"a link out":         {map[string]any{"files": []string{"link"}}, fault.Denied},
		"elsewhere":          {map[string]any{"files": []string{"../other"}}, fault.Denied},
		"not there":          {map[string]any{"files": []string{"nothing"}}, fault.InvalidInput},
		"a directory":        {map[string]any{"files": []string{"sub"}}, fault.InvalidInput},
		"a device":           {map[string]any{"files": []string{"/dev/zero"}}, fault.InvalidInput},
		"a directory out":    {map[string]any{"add_dirs": []string{home}}, fault.Denied},
		"a file for a place": {map[string]any{"add_dirs": []string{"a.go"}}, fault.InvalidInput},
	} {
		n++
		_, res, err := w.asked(t.Context(), n, tt.args)
		if got := code(res, err); got != tt.code {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	w.finish()
}

// TestDiff checks that a diff is what git reports, for the directory alone.
func TestDiff(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	w := newWorld(t, answers(0))
	file := func(name string) string { return filepath.Join(w.project, name) }
	n := int64(0)
	diff := func(of string, args map[string]any) (string, fault.Code) {
		t.Helper()
		n++
		if args == nil {
			args = map[string]any{}
		}
		args["diff"] = of
		prompt, res, err := w.asked(t.Context(), n, args)
		return prompt, code(res, err)
	}
	if _, c := diff("uncommitted", nil); c != fault.InvalidInput {
		t.Errorf("no repository: %s", c)
	}
	gitIn(t, w.project, "init", "-q", "-b", "main")
	put(t, file("sub/one"), "first\n")
	if prompt, c := diff("uncommitted", nil); c != "" || !strings.Contains(prompt, "sub/one") {
		t.Errorf("without a commit: %s %q", c, prompt)
	}
	gitIn(t, w.project, "add", ".")
	if prompt, c := diff("staged", nil); c != "" || !strings.Contains(prompt, "+first") {
		t.Errorf("the first commit, staged: %s %q", c, prompt)
	}
	gitIn(t, w.project, "commit", "-q", "-m", "one")
	if _, c := diff("uncommitted", nil); c != fault.InvalidInput {
		t.Errorf("nothing differs: %s", c)
	}
	gitIn(t, w.project, "checkout", "-q", "-b", "topic")
	put(t, file("sub/one"), "second\n")
	gitIn(t, w.project, "commit", "-q", "-a", "-m", "two")
	put(t, file("sub/one"), "third\n")
	gitIn(t, w.project, "add", ".")
	put(t, file("top"), "fourth\n")
	put(t, file("sub/one"), "fifth\n")
	for of, want := range map[string]string{
		"uncommitted": "-second\n+fifth\n", "staged": "-second\n+third\n", "main": "-first\n+fifth\n",
		"HEAD~1": "-first\n+fifth\n",
	} {
		prompt, c := diff(of, nil)
		if c != "" || !strings.Contains(prompt, want) || strings.Contains(prompt, "top") != (of != "staged") {
			t.Errorf("%s: %s %q", of, c, prompt)
		}
	}
	if prompt, c := diff("uncommitted", map[string]any{"cwd": "sub"}); c != "" ||
		!strings.Contains(prompt, "+++ b/one") || strings.Contains(prompt, "top") {
		t.Errorf("below a directory: %s %q", c, prompt)
	}
	for _, of := range []string{"nobranch", "--output=owned", "-x"} {
		if _, c := diff(of, nil); c != fault.InvalidInput {
			t.Errorf("%s: %s", of, c)
		}
	}
	put(t, file("sub/one"), strings.Repeat("a long line of a long file\n", 40_000))
	if prompt, c := diff("uncommitted", nil); c != "" || len(prompt) > 522<<10 ||
		!strings.Contains(prompt, "left-out") {
		t.Errorf("a long one: %s, %d bytes", c, len(prompt))
	}
	w.finish()
}

// TestDiffOtherHash takes a diff in a repository with SHA-256, whose empty tree has another
// id.
func TestDiffOtherHash(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	w := newWorld(t, answers(0))
	gitIn(t, w.project, "init", "-q", "--object-format=sha256")
	put(t, filepath.Join(w.project, "one"), "first\n")
	gitIn(t, w.project, "add", ".")
	for i, of := range []string{"staged", "uncommitted"} {
		if prompt, res, err := w.asked(t.Context(), int64(i+1), map[string]any{"diff": of}); err != nil ||
			res.Fault != nil || !strings.Contains(prompt, "+first") {
			t.Errorf("%s: %v %s %q", of, err, dump(res.Fault), prompt)
		}
	}
	w.finish()
}

// TestDiffHostile checks that a repository's configuration cannot make git run programs, or
// show files of another directory.
func TestDiffHostile(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	w := newWorld(t, answers(0))
	traps := t.TempDir()
	trap := func(name string) string {
		path := filepath.Join(traps, name+".sh")
		if err := os.WriteFile(path, []byte("#!/bin/sh\ntouch "+filepath.Join(traps, name)+"\ncat\n"),
			0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := func(name string) string { return filepath.Join(w.project, name) }
	gitIn(t, w.project, "init", "-q", "-b", "main")
	put(t, file("one"), "first\n")
	put(t, file(".gitattributes"), "* filter=trap diff=trap\n")
	gitIn(t, w.project, "add", ".")
	gitIn(t, w.project, "commit", "-q", "-m", "one")
	put(t, file("one"), "second\n")
	for _, kv := range []string{
		"core.fsmonitor", "core.pager", "pager.diff", "diff.external", "diff.trap.command", "diff.trap.textconv",
		"filter.trap.clean", "filter.trap.smudge", "core.sshCommand", "core.alternateRefsCommand",
	} {
		gitIn(t, w.project, "config", kv, trap(kv))
	}
	gitIn(t, w.project, "config", "filter.trap.required", "true")
	put(t, file("more"),
		"[filter \"a=b\"]\n\tclean = "+trap("included")+"\n[filter \"trap\"]\n\tprocess = "+trap("process")+"\n")
	gitIn(t, w.project, "config", "include.path", "../more")
	hooks := filepath.Join(w.project, ".git", "hooks")
	if err := os.MkdirAll(hooks, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, hook := range []string{"post-index-change", "pre-commit", "post-checkout"} {
		if err := os.Symlink(trap(hook), filepath.Join(hooks, hook)); err != nil {
			t.Fatal(err)
		}
	}
	for n, of := range []string{"uncommitted", "staged", "main"} {
		prompt, res, err := w.asked(t.Context(), int64(n+1), map[string]any{"diff": of})
		if of == "staged" {
			if code(res, err) != fault.InvalidInput {
				t.Errorf("staged: %v", err)
			}
			continue
		}
		if err != nil || !strings.Contains(prompt, "+second") {
			t.Errorf("%s: %v %q", of, err, prompt)
		}
	}
	sprung, err := filepath.Glob(filepath.Join(traps, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range sprung {
		if !strings.HasSuffix(path, ".sh") {
			t.Errorf("%s ran", filepath.Base(path))
		}
	}

	secrets := filepath.Join(filepath.Dir(w.project), "home", ".ssh")
	put(t, filepath.Join(secrets, "one"), "SECRET\n")
	gitIn(t, w.project, "config", "core.worktree", secrets)
	if prompt, _, err := w.asked(t.Context(), 9, map[string]any{
		"diff": "uncommitted",
	}); strings.Contains(prompt, "SECRET") || !strings.Contains(prompt, "+second") {
		t.Errorf("files of elsewhere: %v %q", err, prompt)
	}
	w.finish()
}
