package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/command"
	"holdline/daemon/statedir"
	"holdline/protocol/ownfile"
)

// Names in the directory of a consult, and in a run's temporary directory.
const (
	dirHome     = "home"
	fileSession = "session.json"
)

// Bounds of a home directory that is kept.
const (
	maxHome  = 64 << 20 // bytes
	maxFiles = 20_000
)

// caches are what an agent can get again. They are not kept.
var caches = []string{".cache", ".npm", ".bun"}

// session is the file session.json beside a kept home directory.
type session struct {
	Agent string `json:"agent"`
	ID    string `json:"session"` // in the agent's own words
}

// homeOf returns the home directory of a run.
func homeOf(req engine.Request) string { return filepath.Join(req.TempDir, dirHome) }

// inHome returns the path of a file from the user's home directory; false if it is not below
// that.
func (a *Agent) inHome(file string) (string, bool) {
	rel, err := filepath.Rel(command.Variable(a.env, "HOME"), file)
	return rel, err == nil && filepath.IsLocal(rel) && rel != "."
}

// Furnish makes the home directory of a run: a copy of the one that the session was kept with,
// or an empty one, with links to the files of the agent's login. The kernel lets the agent read
// these, and not write them.
func (a *Agent) Furnish(_ context.Context, req engine.Request, info engine.Info, dir string) (engine.Request, error) {
	home := homeOf(req)
	if err := os.MkdirAll(home, 0o700); err != nil {
		return req, fmt.Errorf("making the agent's home directory: %w", err)
	}
	if req.Session != "" {
		id, err := copyHome(home, dir, req.Session, agentOf(info).Name)
		if err != nil {
			return req, err
		}
		req.Session = id
	}
	// A home that was kept may have links in the place of directories.
	root, err := openIn(req.TempDir, dirHome)
	if err != nil {
		return req, fmt.Errorf("opening the agent's home directory: %w", err)
	}
	defer func() { _ = root.Close() }()
	for _, file := range agentOf(info).Login {
		rel, ok := a.inHome(file)
		if !ok {
			continue // the check refuses it
		}
		err := root.MkdirAll(filepath.Dir(rel), 0o700)
		if err == nil {
			err = root.Symlink(file, rel)
		}
		if err != nil {
			return req, fmt.Errorf("putting the login into the agent's home directory: %w", err)
		}
	}
	return req, nil
}

// copyHome copies the home directory that the consult id has left into home, which is empty, and
// returns the session's name in the agent's words. dir is that of another consult.
func copyHome(home, dir, id, agent string) (string, error) {
	if dir == "" || len(id) != 12 || strings.Trim(id, "0123456789abcdef") != "" {
		return "", invalid("session: %s is no session of an agent; name the consult_id of an earlier answer", id)
	}
	from := filepath.Join(filepath.Dir(dir), id)
	var s session
	if err := ownfile.ReadJSON(filepath.Join(from, fileSession), &s); err != nil {
		return "", invalid("session: consult %s has left none, or it is not kept any more", id)
	}
	if s.Agent != agent {
		return "", invalid("session: consult %s is one of %s; continue it with that engine", id, "acp:"+s.Agent)
	}
	// The agent that made it may have left links anywhere: a root follows none out of it.
	root, err := openIn(from, dirHome)
	if err == nil {
		defer func() { _ = root.Close() }()
		err = os.CopyFS(home, root.FS())
	}
	if err != nil {
		return "", fmt.Errorf("copying the session of consult %s: %w", id, err)
	}
	return s.ID, nil
}

// Keep moves the home directory of a run into the directory of its consult, whose id is then the
// name of the session: the agent's own name for it means nothing outside of that home.
func (a *Agent) Keep(req engine.Request, info engine.Info, dir string, out *engine.Outcome) {
	s := session{Agent: agentOf(info).Name, ID: out.Session}
	out.Session = ""
	if dir == "" || s.ID == "" {
		return
	}
	err := a.clean(req.TempDir, agentOf(info).Login)
	if err == nil {
		err = os.Rename(homeOf(req), filepath.Join(dir, dirHome))
	}
	var b []byte
	if err == nil {
		b, err = json.Marshal(s)
	}
	if err == nil {
		err = statedir.WriteFile(filepath.Join(dir, fileSession), append(b, '\n'))
	}
	if err != nil {
		out.Notes = append(slices.Clip(out.Notes), fmt.Sprintf("its session is not kept: %v", err))
		return
	}
	out.Session = filepath.Base(dir)
}

// clean removes from the home directory below temp what is not kept: logins, caches, and what is
// neither file nor directory nor link. It returns an error if the rest is too large.
func (a *Agent) clean(temp string, logins []string) error {
	root, err := openIn(temp, dirHome)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for _, file := range logins {
		if rel, ok := a.inHome(file); ok {
			if err := root.Remove(rel); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	for _, name := range caches {
		if err := root.RemoveAll(name); err != nil {
			return err
		}
	}
	size, files := int64(0), 0
	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		kind := d.Type()
		if kind&^(fs.ModeDir|fs.ModeSymlink) != 0 {
			return root.Remove(path)
		}
		if kind.IsRegular() {
			at, err := d.Info()
			if err != nil {
				return err
			}
			size += at.Size()
		}
		if files++; size > maxHome || files > maxFiles {
			return fmt.Errorf("it has more than %d MiB or %d files", maxHome>>20, maxFiles)
		}
		return nil
	})
}

// openIn opens the directory name in dir. It follows no link that leads out of dir: the agent can
// put one in the place of its home.
func openIn(dir, name string) (*os.Root, error) {
	outer, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = outer.Close() }()
	return outer.OpenRoot(name)
}
