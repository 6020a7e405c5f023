package material

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/sandbox"
	"holdline/protocol/fault"
)

// Directory returns the real path of a directory that the consult may look around in, and which
// directory that is. dir may be relative to base. The directory must be inside the caller's project or a
// configured root. arg names the argument in faults.
func (r *Reader) Directory(arg, base, dir string) (string, engine.Directory, error) {
	var none engine.Directory
	path, info, err := existing(arg, base, dir)
	switch {
	case err != nil:
		return "", none, err
	case !info.IsDir():
		return "", none, engine.Invalid("%s: %s is not a directory", arg, dir)
	}
	if err := r.allowed(arg, path); err != nil {
		return path, none, err
	}
	f, err := sandbox.OpenDir(path) // it may have become a link meanwhile
	if err == nil {
		defer f.Close()
		info, err = f.Stat()
	}
	if err != nil {
		return path, none, engine.Invalid("%s: %v", arg, err)
	}
	return path, engine.DirectoryOf(info), nil
}

// existing returns the path, without symbolic links, and the file information of
// something that exists. name may be relative to base; base is "" if the client's
// directory is not known. Checks of what is allowed need the path without links: a link
// inside the project may lead out of it.
func existing(arg, base, name string) (string, os.FileInfo, error) {
	if strings.ContainsRune(name, 0) {
		return "", nil, engine.Invalid("%s: must not hold a NUL", arg)
	}
	if !filepath.IsAbs(name) {
		if base == "" {
			return "", nil, engine.Invalid(
				"%s: must be an absolute path, since the client's own directory is not known", arg)
		}
		name = filepath.Join(base, name)
	}
	path, err := filepath.EvalSymlinks(name)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil, engine.Invalid("%s: %s does not exist", arg, name)
	}
	var info os.FileInfo
	if err == nil {
		info, err = os.Stat(path)
	}
	if err != nil {
		return "", nil, engine.Invalid("%s: %v", arg, err)
	}
	return path, info, nil
}

// allowed returns nil if a consult may look at the directory path, which must have no
// symbolic links, and a denied fault otherwise. A configured root allows what is below
// it. Otherwise the path must be inside the client's project, and must not be the root,
// the home directory or one of its dot directories: those hold logins and keys.
func (r *Reader) allowed(arg, path string) error {
	home := resolved(r.Home)
	for _, root := range r.Roots {
		if root = resolved(root); within(root, path) && !special(home, path, root) {
			return nil
		}
	}
	denied := func(what string) error {
		return fault.New(fault.Denied, fault.Host, engine.Operation,
			"%s: %s is %s. Ask from the directory of a project, or name one (consult --cwd DIR). To allow another directory: "+
				"holdline config set consult.roots DIR", arg, path, what)
	}
	switch {
	case special(home, path, ""):
		what := "in a dot directory of the home directory"
		switch {
		case path == "/":
			what = "the root directory"
		case path == home:
			what = "the home directory"
		case within(path, home):
			what = "a directory that holds the home directory"
		}
		return denied(what + ", which a consult may not read by default")
	case r.Project == "" || !within(resolved(r.Project), path):
		return denied("outside of the client's project")
	case resolved(r.Project) != home && within(resolved(r.Project), home) || resolved(r.Project) == "/":
		// A client that was started at the root, or above the home directory,
		// has no project: else all of the disk would be one.
		return denied("in " + r.Project + ", where the client was started, and that is no project")
	}
	return nil
}

// special reports whether path is a place where secrets are: the root directory, the
// home directory or a parent of it, or one of its dot directories. A configured root
// lifts that only if it is this place itself or inside of it: a root that merely
// contains it was not meant to open it.
func special(home, path, root string) bool {
	if path == "/" {
		return root != "/"
	}
	if home == "" || home == "/" {
		return false
	}
	if path == home {
		return root != home
	}
	rest, ok := strings.CutPrefix(path, home+"/")
	if !ok || !strings.HasPrefix(rest, ".") {
		return within(path, home) && root != path // a parent of the home directory holds it, too
	}
	first, _, _ := strings.Cut(rest, "/")
	return !within(home+"/"+first, root)
}

// within reports whether path is dir or is below it. Both must be clean and absolute;
// with dir "" it is false.
func within(dir, path string) bool {
	if dir == "" {
		return false
	}
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// resolved returns path without symbolic links, or the clean path if it does not exist.
func resolved(path string) string {
	if path == "" {
		return ""
	}
	if p, err := filepath.EvalSymlinks(path); err == nil {
		return p
	}
	return filepath.Clean(path)
}
