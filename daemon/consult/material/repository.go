package material

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/gitguard"
	"holdline/protocol/fault"
)

// Since leastLazy git can be kept from fetching the objects that a partial clone lacks, and so can
// these older versions, by their second number, from that third number on.
var (
	leastLazy = [3]int{2, 45}
	lazyFixed = map[int]int{39: 4, 40: 2, 41: 1, 42: 2, 43: 4, 44: 1}
)

// askVersion asks git for its version. It returns a fault if git is so old that a repository's
// settings cannot be overruled.
func (g *git) askVersion(ctx context.Context) error {
	out, err := g.run(ctx, maxGitErrors, "version")
	if err != nil {
		return err
	}
	version, ok := gitguard.ParseVersion(out)
	least := gitguard.Least
	if g.version = version; !ok || g.before(least) {
		return fault.New(fault.SpawnFailure, fault.Host, engine.Operation, "diff: %s is %q, and git %d.%d or newer is "+
			"needed to keep repositories from running programs; update git, or leave diff out",
			g.path, fault.Short(string(out), 80), least[0], least[1]).WithReason(fault.Version)
	}
	return nil
}

// before reports whether this git is older than version.
func (g *git) before(version [3]int) bool { return slices.Compare(g.version[:], version[:]) < 0 }

// overrule overrules what the repository's configuration names. The error is a fault if that is
// too much, or if git would fetch objects that are missing.
func (g *git) overrule(ctx context.Context) error {
	var err error
	g.settings, err = gitguard.Read(func(limit int, args ...string) ([]byte, error) {
		return g.ask(ctx, limit, args...)
	}, g.top)
	fixed, ok := lazyFixed[g.version[1]]
	switch failure, failed := errors.AsType[*gitguard.FailureError](err); {
	case ctx.Err() != nil:
		return late(ctx)
	case failed:
		return engine.Invalid("diff: git config in %s failed (exit code %d): %v", g.cwd, failure.Code, failure)
	case err != nil:
		return engine.Invalid("diff: the git repository in %s: %v, or leave diff out", g.top, err)
	case g.settings.Partial && g.before(leastLazy) && (!ok || g.version[2] < fixed):
		return engine.Invalid("diff: the git repository in %s is a partial clone, and this version of git would "+
			"fetch what it lacks; update git to %d.%d or newer, or leave diff out", g.top, leastLazy[0], leastLazy[1])
	}
	return nil
}

// checkStores returns a denied fault if the repository has its data where a consult may not
// read. Its data may be elsewhere by a .git file, by the file commondir, by alternates and by
// symbolic links. Data in the directory .git that git has found at or above cwd may always be
// read.
func (r *Reader) checkStores(ctx context.Context, g *git) error {
	places, err := g.lines(ctx, "rev-parse", "--path-format=absolute", "--git-common-dir", "--git-dir")
	if err != nil {
		return err
	}
	if len(places) != 2 {
		return engine.Invalid("diff: the path of the git repository in %s has a line break", g.top)
	}
	c := storeCheck{reader: r, seen: map[string]bool{}}
	if info, err := os.Lstat(filepath.Join(g.top, ".git")); err == nil && info.IsDir() {
		c.own = filepath.Join(g.top, ".git") // the path of cwd has no links
	}
	for _, dir := range places {
		// Git is told to run no hooks. Submodules and large files have directories of their
		// own, which a diff does not read.
		if err := c.check(ctx, dir, "hooks", "modules", "lfs"); err != nil {
			return err
		}
	}
	// Git lists the alternates of alternates, too.
	lines, err := g.lines(ctx, "count-objects", "-v")
	for _, line := range lines {
		if dir, ok := strings.CutPrefix(line, "alternate: "); ok {
			if name, err := strconv.Unquote(dir); err == nil { // as in C, if there are strange characters
				dir = name
			}
			if err := c.check(ctx, dir); err != nil {
				return err
			}
		}
	}
	return err
}

// lines returns the lines that git prints, all of them.
func (g *git) lines(ctx context.Context, args ...string) ([]string, error) {
	out, err := g.run(ctx, maxGitNames, args...)
	if len(out) == maxGitNames {
		err = engine.Invalid("diff: git %s in %s prints more than %d bytes", args[0], g.cwd, maxGitNames)
	}
	return strings.Split(strings.TrimRight(string(out), "\n"), "\n"), err
}

// storeCheck checks where the data of a repository is.
type storeCheck struct {
	reader *Reader
	own    string          // may be read, whatever the project is; "" for none
	seen   map[string]bool // directories that were checked whole, or are being checked
}

// check returns a denied fault if the directory dir may not be read, or if a symbolic link
// below it leads to what may not be read. It follows links to directories. It leaves out the
// entries of dir that are named in except.
func (c *storeCheck) check(ctx context.Context, dir string, except ...string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return engine.Invalid("diff: %v", err)
	}
	if len(except) == 0 {
		if c.seen[dir] {
			return nil
		}
		c.seen[dir] = true
	}
	if !within(c.own, dir) {
		if err := c.reader.allowed("diff", dir); err != nil {
			return err
		}
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return late(ctx)
		case errors.Is(err, fs.ErrNotExist): // git is at work there
			return nil
		case err != nil:
			return engine.Invalid("diff: %v", err)
		case filepath.Dir(path) == dir && slices.Contains(except, d.Name()):
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case d.Type()&fs.ModeSymlink == 0:
			return nil
		}
		target, info, err := existing("diff", "", path)
		switch {
		case err != nil:
			return nil //nolint:nilerr // it leads nowhere, as HEAD of an empty repository does
		case info.IsDir():
			return c.check(ctx, target)
		case !within(c.own, target):
			return c.reader.allowed("diff", filepath.Dir(target))
		}
		return nil
	})
}
