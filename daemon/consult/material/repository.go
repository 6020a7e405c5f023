package material

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"holdline/daemon/adapter/engine"
	"holdline/protocol/fault"
)

// Versions of git decide what a repository could do.
var (
	// Since then the environment can overrule every setting. Older versions ignore such
	// variables silently.
	leastGit = [3]int{2, 31}
	// Since then git can be kept from fetching the objects that a partial clone lacks, and so
	// can these older versions, by their second number, from that third number on.
	leastLazy = [3]int{2, 45}
	lazyFixed = map[int]int{39: 4, 40: 2, 41: 1, 42: 2, 43: 4, 44: 1}
)

// maxFilters bounds the names of the settings of filters, in bytes: each becomes a variable of
// git's environment.
const maxFilters = 64 << 10

// askVersion asks git for its version. It returns a fault if git is so old that a repository's
// settings cannot be overruled.
func (g *git) askVersion(ctx context.Context) error {
	out, err := g.run(ctx, maxGitErrors, "version")
	if err != nil {
		return err
	}
	v := &g.version
	// Builds between versions have no third number.
	if n, _ := fmt.Sscanf(string(out), "git version %d.%d.%d", &v[0], &v[1], &v[2]); n < 2 || g.before(leastGit) {
		return fault.New(fault.SpawnFailure, fault.Host, engine.Operation, "diff: %s is %q, and git %d.%d or newer is "+
			"needed to keep repositories from running programs; update git, or leave diff out",
			g.path, fault.Short(string(out), 80), leastGit[0], leastGit[1]).WithReason(fault.Version)
	}
	return nil
}

// before reports whether this git is older than version.
func (g *git) before(version [3]int) bool { return slices.Compare(g.version[:], version[:]) < 0 }

// overrule overrules each filter that the configuration defines: git diff would run it on the
// files. The error is a fault if there are too many, or if git would fetch objects that are
// missing.
func (g *git) overrule(ctx context.Context) error {
	out, err := g.run(ctx, maxGitNames, "config", "--null", "--name-only", "--list")
	if err != nil {
		return err
	}
	partial, size := false, 0
	names := strings.Split(string(out), "\x00")
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		switch {
		case strings.HasPrefix(name, "filter."): // clean and process run, required makes their absence an error
			value := ""
			if strings.HasSuffix(name, ".required") {
				value = "false"
			}
			g.config = append(g.config, name, value)
			size += len(name)
		case name == "extensions.partialclone",
			strings.HasPrefix(name, "remote.") && strings.HasSuffix(name, ".promisor"):
			partial = true
		}
	}
	if fixed, ok := lazyFixed[g.version[1]]; partial && g.before(leastLazy) && (!ok || g.version[2] < fixed) {
		return engine.Invalid("diff: the git repository in %s is a partial clone, and this version of git would "+
			"fetch what it lacks; update git to %d.%d or newer, or leave diff out", g.top, leastLazy[0], leastLazy[1])
	}
	if len(out) == maxGitNames || size > maxFilters {
		return engine.Invalid("diff: the configuration of the git repository in %s has too many settings to be "+
			"sure that git runs no program of its choice; shorten .git/config, or leave diff out", g.top)
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
