package material

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/command"
	"holdline/protocol/fault"
)

// place is a client's project, which is a repository with one changed file, beside a home
// directory and a repository that a consult may not read.
type place struct {
	t                   *testing.T
	base, home, project string
	secret              string // the other repository, with a file and a commit that say SECRET
	traps               string // a program that ran has left its name here
	bin                 string // before the PATH of git
	roots               []string
	environ             []string // besides
}

// newPlace makes a place. The test is skipped where git is missing.
func newPlace(t *testing.T) *place {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	base := resolved(t.TempDir())
	p := &place{
		t: t, base: base, home: base + "/home", project: base + "/project", secret: base + "/secret",
		traps: base + "/traps", bin: base + "/bin",
	}
	for _, dir := range []string{p.home, p.traps, p.bin} {
		p.mkdir(dir)
	}
	for dir, says := range map[string]string{p.secret: "SECRET", p.project: "first"} {
		p.mkdir(dir)
		p.git(dir, "init", "-q", "-b", "main")
		p.put(dir+"/one", says+"\n")
		p.git(dir, "add", ".")
		p.git(dir, "commit", "-q", "-m", "one")
	}
	p.put(p.project+"/one", "second\n")
	return p
}

func (p *place) mkdir(dir string) {
	p.t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		p.t.Fatal(err)
	}
}

// put writes a file. It appends to .git/config.
func (p *place) put(path, data string) {
	p.t.Helper()
	p.mkdir(filepath.Dir(path))
	flags := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if strings.HasSuffix(path, "/.git/config") {
		flags = os.O_WRONLY | os.O_APPEND
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err == nil {
		_, err = f.WriteString(data)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// link replaces a path by a symbolic link to target.
func (p *place) link(target, path string) {
	p.t.Helper()
	if err := errors.Join(os.RemoveAll(path), os.Symlink(target, path)); err != nil {
		p.t.Fatal(err)
	}
}

// git runs the machine's git, without the configuration of the user who runs the tests.
func (p *place) git(dir string, args ...string) string {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// script writes a program, and returns its path.
func (p *place) script(path, body string) string {
	p.t.Helper()
	p.put(path, "#!/bin/sh\n"+body)
	if err := os.Chmod(path, 0o700); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// trap returns a filter that leaves a trace if it runs.
func (p *place) trap() string {
	return p.script(p.base+"/trap.sh", "touch "+p.traps+"/ran\ncat\n")
}

// wrapGit puts a git before the real one that runs body first.
func (p *place) wrapGit(body string) {
	p.t.Helper()
	path, err := exec.LookPath("git")
	if err != nil {
		p.t.Fatal(err)
	}
	p.script(p.bin+"/git", body+"\nexec "+path+" \"$@\"\n")
}

// diff returns the prompt with a diff of a directory.
func (p *place) diff(cwd, of string) (string, error) {
	r := Reader{
		Home: p.home, Roots: p.roots, Project: p.project,
		Variable: func(name string) string {
			return command.Variable(append(p.environ, "PATH="+p.bin+":"+os.Getenv("PATH")), name)
		},
	}
	req := engine.Request{Cwd: cwd, Prompt: "look"}
	_, err := r.Gather(p.t.Context(), &req, nil, of)
	return req.Prompt, err
}

// partial takes an object from the project's repository, and says where it can be fetched.
func partial(p *place) {
	p.t.Helper()
	p.git(p.project, "commit", "-q", "-a", "-m", "two")
	blob := p.git(p.project, "rev-parse", "HEAD:one")
	p.put(p.project+"/one", "third\n")
	for name, value := range map[string]string{
		"core.repositoryFormatVersion": "1", "extensions.partialClone": "trap", "remote.trap.url": "ext::" + p.trap(),
		"remote.trap.uploadpack": p.trap(), "protocol.ext.allow": "always",
	} {
		p.git(p.project, "config", name, value)
	}
	if err := os.Remove(filepath.Join(p.project, ".git/objects", blob[:2], blob[2:])); err != nil {
		p.t.Fatal(err)
	}
}

// TestDiffOfHostileRepository_RunsAndShowsNothingElse makes hostile repositories. No program
// that they name may run, and nothing of another repository may be shown.
func TestDiffOfHostileRepository_RunsAndShowsNothingElse(t *testing.T) {
	t.Parallel()
	filtered := func(p *place, before string) {
		p.put(p.project+"/.gitattributes", "* filter=trap\n")
		p.put(p.project+"/.git/config", before+"[filter \"trap\"]\n\tclean = "+p.trap()+"\n")
	}
	store := func(p *place) string { return p.secret + "/.git" }
	for name, tt := range map[string]struct {
		hostile func(*place)
		cwd     string // below the project
		code    fault.Code
	}{
		"a filter": {hostile: func(p *place) { filtered(p, "") }},
		"a filter behind a MiB of names": {hostile: func(p *place) {
			var names strings.Builder
			for i := range 11 {
				fmt.Fprintf(&names, "[a \"%d%s\"]\nb\n", i, strings.Repeat("x", 100_000))
			}
			filtered(p, names.String())
		}, code: fault.InvalidInput},
		"more filters than an environment holds": {hostile: func(p *place) {
			var names strings.Builder
			for i := range 20_000 {
				fmt.Fprintf(&names, "[filter \"%d\"]\nclean=x\n", i)
			}
			filtered(p, names.String())
		}, code: fault.InvalidInput},
		"one filter very often": {hostile: func(p *place) {
			filtered(p, "[filter \"trap\"]\n"+strings.Repeat("clean=x\n", 20_000))
		}},
		"a git that cannot be overruled": {hostile: func(p *place) {
			filtered(p, "")
			p.wrapGit(`unset GIT_CONFIG_COUNT; case "$*" in *version*) echo git version 2.30.9; exit;; esac`)
		}, code: fault.SpawnFailure},
		"a filter of a bare repository": {hostile: func(p *place) {
			p.git(p.project, "clone", "-q", "--bare", ".", "bare")
		}, cwd: "bare", code: fault.InvalidInput},
		"objects are missing": {hostile: partial, code: fault.InvalidInput},
		"objects are missing, and git would fetch them": {hostile: func(p *place) {
			partial(p)
			p.wrapGit(`unset GIT_NO_LAZY_FETCH; case "$*" in *version*) echo git version 2.39.3; exit;; esac`)
		}, code: fault.InvalidInput},
		"a file of attributes that is secret": {hostile: func(p *place) {
			p.put(p.secret+"/key", "name: SECRET=\nSECRET: SECRET\n")
			p.put(p.project+"/.git/config", "[core]\n\tattributesFile = "+p.secret+"/key\n")
		}},
		"an order of files that has no end": {hostile: func(p *place) {
			p.put(p.project+"/.git/config", "[diff]\n\torderFile = /dev/zero\n[mailmap]\n\tfile = /dev/zero\n")
		}},
		"a secret file of attributes, and an object is broken": {hostile: func(p *place) {
			p.put(p.secret+"/key", "name: SECRET=\nSECRET: SECRET\n")
			p.put(p.project+"/.git/config", "[core]\n\tattributesFile = "+p.secret+"/key\n")
			blob := p.git(p.project, "rev-parse", "HEAD:one")
			if err := os.Remove(filepath.Join(p.project, ".git/objects", blob[:2], blob[2:])); err != nil {
				p.t.Fatal(err)
			}
		}, code: fault.InvalidInput},
		"attributes of the repository quote themselves": {hostile: func(p *place) {
			p.link(p.secret+"/one", p.project+"/.git/info/attributes")
		}, code: fault.Denied},
		"a configuration that includes a secret file": {hostile: func(p *place) {
			p.put(p.project+"/.git/config", "[include]\n\tpath = "+p.secret+"/one\n")
		}},
		"a .git file": {hostile: func(p *place) {
			p.link(store(p), p.project+"/.git") // in place of the directory
			if err := os.Remove(p.project + "/.git"); err != nil {
				p.t.Fatal(err)
			}
			p.put(p.project+"/.git", "gitdir: "+store(p)+"\n")
		}, code: fault.Denied},
		"a .git file of another's work tree": {hostile: func(p *place) {
			p.git(p.secret, "worktree", "add", "-q", p.base+"/beside")
			p.link(store(p), p.project+"/.git") // in place of the directory
			if err := os.Remove(p.project + "/.git"); err != nil {
				p.t.Fatal(err)
			}
			p.put(p.project+"/.git", "gitdir: "+store(p)+"/worktrees/beside\n")
		}, code: fault.Denied},
		"a link .git": {hostile: func(p *place) { p.link(store(p), p.project+"/.git") }, code: fault.Denied},
		"a common directory": {hostile: func(p *place) {
			p.put(p.project+"/.git/commondir", store(p))
		}, code: fault.Denied},
		"a link to objects":  {hostile: func(p *place) { p.borrow("objects") }, code: fault.Denied},
		"links to an object": {hostile: func(p *place) { p.borrow("objects/*") }, code: fault.Denied},
		"a link to an index": {hostile: func(p *place) {
			p.link(store(p)+"/index", p.project+"/.git/index")
		}, code: fault.Denied},
		"a link to other refs": {hostile: func(p *place) {
			p.link(store(p)+"/refs", p.project+"/.git/refs")
		}, code: fault.Denied},
		"links over a link": {hostile: func(p *place) {
			p.mkdir(p.project + "/more")
			p.link(store(p)+"/objects", p.project+"/more/objects")
			p.link("../more/objects", p.project+"/.git/objects")
		}, code: fault.Denied},
		"a link into what is not looked at": {hostile: func(p *place) {
			p.mkdir(p.project + "/.git/modules/more")
			for _, name := range []string{"info", "pack"} {
				p.link(store(p)+"/objects/"+name, p.project+"/.git/modules/more/"+name)
			}
			p.link("modules/more", p.project+"/.git/objects")
		}, code: fault.Denied},
		"an alternate": {hostile: func(p *place) {
			p.borrow("")
			p.put(p.project+"/.git/objects/info/alternates", store(p)+"/objects\n")
		}, code: fault.Denied},
		"an alternate over an alternate": {hostile: func(p *place) {
			p.put(p.project+"/more/info/alternates", store(p)+"/objects\n")
			p.mkdir(p.project + "/more/pack")
			p.borrow("")
			p.put(p.project+"/.git/objects/info/alternates", "../../more\n")
		}, code: fault.Denied},
		"an alternate behind a MiB of others": {hostile: func(p *place) {
			p.borrow("")
			var list strings.Builder
			for i := range 300 {
				dir := fmt.Sprintf("%s/.git/more/%s%d", p.project, strings.Repeat(strings.Repeat("x", 250)+"/", 14), i)
				p.mkdir(dir)
				list.WriteString(dir + "\n")
			}
			p.put(p.project+"/.git/objects/info/alternates", list.String()+store(p)+"/objects\n")
		}, code: fault.InvalidInput},
		"an alternate with a strange name": {hostile: func(p *place) {
			p.borrow("")
			p.link(store(p)+"/objects", p.base+"/\u00e4\t")
			p.put(p.project+"/.git/objects/info/alternates", p.base+"/\u00e4\t\n")
		}, code: fault.Denied},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			tt.hostile(p)
			before := p.tree()
			prompt, err := p.diff(filepath.Join(p.project, tt.cwd), diffUncommitted)
			f, _ := errors.AsType[*fault.Record](err)
			switch {
			case tt.code == "" && (err != nil || !strings.Contains(prompt, "+second")):
				t.Errorf("got %v, prompt %q; want a diff", err, prompt)
			case tt.code != "" && (f == nil || f.Fault.Code != tt.code):
				t.Errorf("got %v, prompt %.300q; want %s", err, prompt, tt.code)
			case strings.Contains(prompt+fmt.Sprint(err), "SECRET"):
				t.Errorf("another repository is shown: %q, %v", prompt, err)
			}
			if ran, err := os.ReadDir(p.traps); err != nil || len(ran) > 0 {
				t.Errorf("a program of the repository ran: %v, %v", ran, err)
			}
			if after := p.tree(); after != before {
				t.Errorf("something was written: before\n%s\nafter\n%s", before, after)
			}
		})
	}
}

// borrow makes the HEAD of the other repository that of the project, and makes links in the
// project's repository to what matches pattern in the other one.
func (p *place) borrow(pattern string) {
	p.t.Helper()
	var list []string
	if pattern != "" {
		var err error
		if list, err = filepath.Glob(p.secret + "/.git/" + pattern); err != nil || len(list) == 0 {
			p.t.Fatal(list, err)
		}
	}
	for _, path := range list {
		name := strings.TrimPrefix(path, p.secret)
		p.link(path, p.project+name)
	}
	p.put(p.project+"/.git/HEAD", p.git(p.secret, "rev-parse", "HEAD")+"\n")
}

// tree returns the names, times and sizes of all that is in the project and the other
// repository.
func (p *place) tree() string {
	p.t.Helper()
	var list strings.Builder
	for _, dir := range []string{p.project, p.secret} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err == nil {
				fmt.Fprintln(&list, path, info.Mode(), info.Size(), info.ModTime().UnixNano())
			}
			return err
		})
		if err != nil {
			p.t.Fatal(err)
		}
	}
	return list.String()
}

// TestDiffOfTouchedFiles_WritesNothing takes a diff where git would write its index anew, since
// the times of files changed. Such files do not differ.
func TestDiffOfTouchedFiles_WritesNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.put(p.project+"/binary", "MZ\x00\x01")
	p.git(p.project, "add", ".")
	p.git(p.project, "commit", "-q", "-m", "two")
	for i, name := range []string{"one", "binary"} {
		if err := os.Chtimes(filepath.Join(p.project, name), time.Time{}, time.Unix(int64(i+1), 0)); err != nil {
			t.Fatal(err)
		}
	}
	before := p.tree()
	prompt, err := p.diff(p.project, diffUncommitted)
	if f, ok := errors.AsType[*fault.Record](err); !ok || f.Fault.Code != fault.InvalidInput {
		t.Errorf("got %v %q, want that nothing differs", err, prompt)
	}
	if after := p.tree(); after != before {
		t.Errorf("something was written: before\n%s\nafter\n%s", before, after)
	}
}

// TestDiffOfLinkedRepository_WorksWhereItMayBeRead takes diffs of repositories whose data is
// elsewhere: they work if the data is in the project or below a root.
func TestDiffOfLinkedRepository_WorksWhereItMayBeRead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		make func(p *place) (cwd string) // cwd has a file "one" that is to be changed
		ok   bool
	}{
		"work tree in the project": {func(p *place) string {
			p.git(p.project, "worktree", "add", "-q", p.project+"/tree")
			return p.project + "/tree"
		}, true},
		"work tree of a repository below a root": {func(p *place) string {
			p.roots = []string{p.secret}
			p.git(p.secret, "worktree", "add", "-q", p.project+"/tree")
			return p.project + "/tree"
		}, true},
		"work tree of another repository": {func(p *place) string {
			p.git(p.secret, "worktree", "add", "-q", p.project+"/tree")
			return p.project + "/tree"
		}, false},
		"a part of the project": {func(p *place) string {
			p.put(p.project+"/sub/one", "first\n")
			p.git(p.project, "add", ".")
			p.git(p.project, "commit", "-q", "-m", "two")
			p.project += "/sub"
			return p.project
		}, true},
		"clone with shared objects": {func(p *place) string {
			p.git(p.project, "clone", "-q", "--shared", ".", p.project+"/tree")
			return p.project + "/tree"
		}, true},
		"hooks that are links": {func(p *place) string {
			p.link(p.base+"/traps", p.project+"/.git/hooks")
			return p.project
		}, true},
		"links within": {func(p *place) string {
			p.git(p.project, "pack-refs", "--all")
			p.link("refs/heads/main", p.project+"/.git/HEAD")
			return p.project
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			cwd := tt.make(p)
			p.put(cwd+"/one", "second\n")
			prompt, err := p.diff(cwd, diffUncommitted)
			f, _ := errors.AsType[*fault.Record](err)
			if tt.ok && (err != nil || !strings.Contains(prompt, "+second")) {
				t.Errorf("got %v, prompt %q; want a diff", err, prompt)
			}
			if !tt.ok && (f == nil || f.Fault.Code != fault.Denied) {
				t.Errorf("got %v, prompt %q; want %s", err, prompt, fault.Denied)
			}
		})
	}
}

// TestDiffOfRepositoryOfAnotherUser_NeedsSafeDirectory checks that such a repository is
// refused, unless the user's own configuration allows it, in either of its places. The
// repository's own does not count.
func TestDiffOfRepositoryOfAnotherUser_NeedsSafeDirectory(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.wrapGit("export GIT_TEST_ASSUME_DIFFERENT_OWNER=1 GIT_CONFIG_NOSYSTEM=1")
	p.put(p.project+"/.git/config", "[safe]\n\tdirectory = *\n")
	for _, tt := range []struct {
		name, file string // where the configuration is
		xdg        string
		ok         bool
	}{
		{"none", p.base + "/nowhere", "", false},
		{"home", p.home + "/.gitconfig", "", true},
		{"home, below .config", p.home + "/.config/git/config", "", true},
		{"XDG_CONFIG_HOME", p.base + "/xdg/git/config", p.base + "/xdg", true},
	} {
		p.put(tt.file, "[safe]\n\tdirectory = "+p.project+"\n")
		p.environ = []string{"XDG_CONFIG_HOME=" + tt.xdg}
		prompt, err := p.diff(p.project, diffUncommitted)
		if f, _ := errors.AsType[*fault.Record](err); tt.ok != (err == nil && strings.Contains(prompt, "+second")) ||
			!tt.ok && (f == nil || f.Fault.Code != fault.InvalidInput) {
			t.Errorf("%s: got %v, prompt %q", tt.name, err, prompt)
		}
		if err := os.Remove(tt.file); err != nil {
			t.Fatal(err)
		}
	}
}
