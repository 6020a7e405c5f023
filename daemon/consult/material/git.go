package material

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/command"
	"holdline/daemon/gitguard"
	"holdline/daemon/program"
	"holdline/protocol/fault"
)

// gitTimeout bounds all git commands of one call together.
const gitTimeout = 20 * time.Second

// Bounds of what git prints.
const (
	maxUntracked = 200     // names of new files
	maxGitNames  = 1 << 20 // bytes of a list of names
	maxGitErrors = 4 << 10 // bytes of standard error
)

// Names of diffs. Every other value names a commit: the diff is then from the point
// where HEAD and that commit parted.
const (
	diffUncommitted = "uncommitted"
	diffStaged      = "staged"
)

// git runs git commands in one directory. The repository may be hostile: it can name
// programs that git would run, as hooks, filters or pagers, and files that it would read. This git
// runs and reads none of them, writes nothing and reaches no network; see package gitguard. The
// configuration of the user and of the machine counts, for safe.directory.
type git struct {
	program  program.Program
	path     string
	version  [3]int
	cwd      string
	top      string   // directory that has .git: the work tree, whatever the repository's settings say
	user     []string // variables by which git finds the user's configuration
	settings gitguard.Settings
}

// newGit finds git and the repository around cwd. It checks that git runs none of the
// repository's programs, and that the repository may be read. The error is a fault.
func (r *Reader) newGit(ctx context.Context, cwd string) (*git, error) {
	home := r.Home
	if home == "" {
		home = "/nonexistent"
	}
	g := &git{cwd: cwd, top: gitguard.Top(cwd), settings: gitguard.Fixed(), user: []string{
		"HOME=" + home, "XDG_CONFIG_HOME=" + r.Variable("XDG_CONFIG_HOME"), // empty is as good as unset
	}, program: program.Program{
		Name: "git", Bin: "git", Env: []string{"PATH=" + r.Variable("PATH")}, Operation: engine.Operation,
		Timeout: gitTimeout, Cure: "install git, or leave diff out",
	}}
	var err error
	if g.path, _, err = g.program.Find(); err != nil {
		return nil, err
	}
	if g.top == "" {
		return nil, engine.Invalid("diff: %s is in no git repository", cwd)
	}
	if err = g.askVersion(ctx); err == nil {
		err = g.overrule(ctx)
	}
	if err == nil {
		err = r.checkStores(ctx, g)
	}
	return g, err
}

// run runs git with args and blocks until it has ended. It returns the first limit
// bytes of what git prints. If git fails, the error is an invalid_input fault that does not quote
// git: its words can hold lines of any file that the repository names. If ctx is done, it is as
// [late] says.
func (g *git) run(ctx context.Context, limit int, args ...string) ([]byte, error) {
	printed, err := g.ask(ctx, limit, args...)
	failure, failed := errors.AsType[*gitguard.FailureError](err)
	switch {
	case ctx.Err() != nil:
		return nil, late(ctx)
	case failed:
		return nil, engine.Invalid("diff: git %s in %s failed (exit code %d): %v", args[0], g.cwd, failure.Code, failure)
	case err != nil:
		return nil, fault.New(fault.SpawnFailure, fault.Host, engine.Operation, "diff: cannot run git: %v", err)
	}
	return printed, nil
}

// ask is [git.run] with the errors of package gitguard.
func (g *git) ask(ctx context.Context, limit int, args ...string) ([]byte, error) {
	env := slices.Concat([]string{
		"PATH=" + command.Variable(g.program.Env, "PATH"), "LC_ALL=C", "GIT_ATTR_NOSYSTEM=1", "GIT_WORK_TREE=" + g.top,
	}, g.settings.Environ(), g.user)
	cmd := gitguard.Command(g.path, g.cwd, env, args...)
	cmd.Stdout = limit
	printed, err := cmd.Run(ctx)
	return printed.Stdout, gitguard.Explain(err, printed.Stderr)
}

// errGitSlow is the cause of a context that ends after [gitTimeout].
var errGitSlow = errors.New("git takes too long")

// late returns why ctx is done: a timeout fault if [gitTimeout] has passed, otherwise
// its cause.
func late(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, errGitSlow) {
		return err
	}
	return fault.New(fault.Timeout, fault.Host, engine.Operation,
		"diff: git took more than %s; leave diff out, or name files instead", gitTimeout)
}

// diff returns a git diff of the directory cwd: what was given, and the bytes to put
// behind the prompt. of is "uncommitted", "staged" or the name of a commit. Except for
// "staged" it lists files that git does not track, too, since they are in no diff. A
// diff that is too long is cut at the end of a line.
//
// In a repository without a commit, diff compares with the empty tree. If nothing
// differs, that is an invalid_input fault: most likely the caller has named the wrong
// directory.
func (r *Reader) diff(ctx context.Context, cwd, of string) (*GivenDiff, []byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, gitTimeout, errGitSlow)
	defer cancel()
	g, err := r.newGit(ctx, cwd)
	if err != nil {
		return nil, nil, err
	}
	// Nothing outside of the directory is compared, wherever the repository says
	// that its files are.
	args := []string{
		"diff", "--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty",
		"--relative", "-M", "--src-prefix=a/", "--dst-prefix=b/",
	}
	given := &GivenDiff{Of: of}
	switch of {
	case diffUncommitted, diffStaged:
		if given.Base, err = g.commit(ctx, "HEAD"); err != nil {
			given.Base = "" // nothing is committed yet; if it is no repository, diff says so
		}
		if of == diffStaged {
			args = append(args, "--cached")
		}
		// diff needs something to compare with, even before the first commit.
		base := given.Base
		if base == "" {
			if base, err = g.emptyTree(ctx); err != nil {
				return nil, nil, err
			}
		}
		args = append(args, base)
	default:
		if given.Base, err = g.commit(ctx, of); err != nil {
			return nil, nil, engine.Invalid("diff: wants uncommitted, staged, or a commit to compare with, and %q "+
				"is none in %s", of, cwd)
		}
		args = append(args, "--merge-base", given.Base)
	}
	data, err := g.run(ctx, maxDiff+1, append(args, "--", ".")...)
	if err != nil {
		return nil, nil, err
	}
	if of != diffStaged {
		if given.Untracked, err = g.untracked(ctx); err != nil {
			return nil, nil, err
		}
	}
	cut := len(data) > maxDiff
	if cut {
		data = data[:maxDiff]
		if i := bytes.LastIndexByte(data, '\n'); i > 0 {
			data = data[:i+1]
		}
	}
	if len(data) == 0 && len(given.Untracked) == 0 {
		return nil, nil, engine.Invalid("diff: nothing differs in %s (%s)", cwd, of)
	}
	given.Bytes, given.Cut = len(data), cut
	given.Text = strings.ToValidUTF8(string(data[:min(len(data), MaxShown)]), "\uFFFD")
	return given, data, nil
}

// commit returns the id of the commit that name stands for.
func (g *git) commit(ctx context.Context, name string) (string, error) {
	out, err := g.run(ctx, maxGitErrors, "rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}")
	return strings.TrimSpace(string(out)), err
}

// emptyTree returns the id of the tree without files. A repository without a commit is
// compared with that. The id depends on the hash that the repository uses, so it is no
// constant.
func (g *git) emptyTree(ctx context.Context) (string, error) {
	out, err := g.run(ctx, maxGitErrors, "hash-object", "-t", "tree", "--stdin")
	return strings.TrimSpace(string(out)), err
}

// untracked returns the names of files below the directory that git neither tracks nor
// ignores, at most maxUntracked of them. A last entry says if there are more.
func (g *git) untracked(ctx context.Context) ([]string, error) {
	out, err := g.run(ctx, maxGitNames, "ls-files", "--others", "--exclude-standard", "-z", "--", ".")
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		switch {
		case name == "":
		case len(names) == maxUntracked:
			return append(names, fmt.Sprintf("and more than %d others", maxUntracked)), nil
		default:
			names = append(names, name)
		}
	}
	return names, nil
}
