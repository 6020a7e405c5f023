package launch

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"holdline/daemon/config"
	"holdline/daemon/config/expand"
	"holdline/daemon/config/resolve"
	"holdline/daemon/envfile"
	"holdline/daemon/sandbox"
	"holdline/protocol/process"
	"holdline/protocol/project"
)

// tempAge is how old a file in the temporary directory of a confined server may get: as old as
// systemd lets files in /tmp get.
const tempAge = 10 * 24 * time.Hour

// Below the cache of a confined server.
const (
	tempDir = "tmp"
	npmDir  = "npm"
	uvDir   = "uv"
)

// confine holds the process p of a server, which runs for owner, to what its settings say.
//
// The server gets a cache of its own, and with it the caches of npm and uv: programs that
// other servers run, unconfined, come from the user's caches, so it must not write there. The
// error says why it cannot be confined, and what would help; then it must not start.
func (l *Start) confine(s *config.Settings, owner *process.Owner, p *resolve.Process) error {
	if s.Confine == config.ConfineOff {
		return nil
	}
	c := &process.Confine{Sockets: Sockets(s), Ports: s.Network, NoLinks: true}
	if err := sandbox.Refusal(c.Sockets == process.SocketsTCP); err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	writable := slices.Clone(s.Write)
	if s.Confine == config.ConfineProject {
		root := owner.Root
		if root == "" {
			return errors.New("confine: project: this session has no project; use confine: read")
		}
		if resolved, err := filepath.EvalSymlinks(root); err == nil && resolved != root {
			return fmt.Errorf("confine: the project %s is reached by a link now, to %s, which a server may have made; "+
				"start the agent again in the directory in which it is to work", root, resolved)
		}
		if named := l.Grants.cameBy(root); named != "" {
			return fmt.Errorf("confine: the project %s was reached as %s, by a link that a confined server could change; "+
				"start the agent in %s itself if it is to work there", root, named, root)
		}
		writable = append(writable, root)
	}
	targets, err := l.resolveWritable(writable)
	if err != nil {
		return err
	}
	for _, path := range targets {
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			c.Files = append(c.Files, path)
		} else {
			c.Dirs = append(c.Dirs, path)
		}
	}
	cache, err := l.makeCache(s.Name, wall(s, owner))
	if err != nil {
		return fmt.Errorf("confine: %w", err)
	}
	l.Grants.add(c.Dirs...) // the cache is no place for links: nobody names it as writable
	c.Dirs = append(c.Dirs, cache)
	p.Confine, p.Env = c, ownCaches(p.Env, s, cache)
	return nil
}

// HeldBy says for people what holds a server on this machine, and to what, or why it is not
// started; "" if it is not confined.
func HeldBy(s *config.Settings) string {
	if s.Confine == config.ConfineOff {
		return ""
	}
	if err := sandbox.Refusal(Sockets(s) == process.SocketsTCP); err != nil {
		return "nothing, so it does not start: " + err.Error()
	}
	return sandbox.Holds(Sockets(s), s.Network)
}

// Sockets returns which sockets a confined server may open; see [process.Confine].
func Sockets(s *config.Settings) string {
	switch {
	case s.Network == nil:
		return process.SocketsNet
	case len(s.Network) == 0:
		return process.SocketsNone
	}
	return process.SocketsTCP
}

// resolveWritable returns the paths without links, and without those that are below others. It returns
// an error for a path that is not there, that a confined server must not change, or to which a
// link leads that this server or another confined one could change: it would choose what may be
// written at the next start.
func (l *Start) resolveWritable(paths []string) ([]string, error) {
	targets := make([]string, len(paths))
	for i, path := range paths {
		var err error
		if targets[i], err = filepath.EvalSymlinks(path); err != nil {
			return nil, fmt.Errorf("confine: %s is to be writable, and is not there; make it, or name another one in write",
				path)
		}
		if err := l.checkWritable(targets[i]); err != nil {
			return nil, err
		}
	}
	writable := slices.Concat(targets, l.Grants.all())
	for i, path := range paths {
		if leads(path, targets[i], writable) {
			return nil, fmt.Errorf("confine: %s leads to %s by a link that a confined server could change; "+
				"name that in write", path, targets[i])
		}
	}
	slices.Sort(targets) // a directory comes before what is in it
	var top []string
	for _, path := range targets {
		if !slices.ContainsFunc(top, func(dir string) bool { return inside(path, dir) }) {
			top = append(top, path)
		}
	}
	return top, nil
}

// leads reports whether a path leads to target by a link in one of the directories, out of that. Each
// link on the way counts, also one to which only another link leads.
func leads(path, target string, dirs []string) bool {
	for _, place := range linksOn(path) {
		for _, dir := range dirs {
			if inside(place, dir) && !inside(target, dir) {
				return true
			}
		}
	}
	return false
}

// maxLinks bounds the links on the way of a path; the kernel follows 40.
const maxLinks = 64

// linksOn returns the directories, without links, in which the links lie that are followed on the way of
// an absolute path.
func linksOn(path string) (places []string) {
	at, rest := "/", strings.Split(path, "/")
	for len(rest) > 0 && len(places) < maxLinks {
		name := rest[0]
		switch rest = rest[1:]; name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		to, err := os.Readlink(filepath.Join(at, name))
		if err != nil { // it is no link
			at = filepath.Join(at, name)
			continue
		}
		places = append(places, at)
		if filepath.IsAbs(to) {
			at = "/"
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return places
}

// Grants are the directories and files that confined servers were allowed to change: a link below
// one of them may be a server's. A nil Grants has none.
type Grants struct {
	workers string // the directory of workers, of which earlier daemons started some

	mu     sync.Mutex // guards all below
	loaded bool
	paths  map[string]struct{} // one for each project with a confined server, and those of the configuration
	came   map[string]string   // by project, how it was named by whoever came to it by a link of a confined server
}

// NewGrants returns the grants that the specs of workers below the directory workers have.
func NewGrants(workers string) *Grants {
	return &Grants{workers: workers, paths: map[string]struct{}{}, came: map[string]string{}}
}

// Came records that a client has come to the directory cwd, which has no links, by the name named; "" if
// that has none either. If a confined server could have made a link in that, no server may change the
// project of cwd because of its scope, until a client comes there by itself.
func (g *Grants) Came(cwd, named string) {
	g.mu.Lock()
	none := named == "" && len(g.came) == 0
	g.mu.Unlock()
	if none {
		return
	}
	root, byLink := project.RootOf(cwd), named != "" && leads(named, cwd, g.all())
	g.mu.Lock()
	defer g.mu.Unlock()
	if byLink {
		g.came[root] = named
	} else {
		delete(g.came, root)
	}
}

// cameBy returns how a project was named by whoever came to it by a link of a confined server; "" if nobody
// did, or somebody has come without since.
func (g *Grants) cameBy(root string) string {
	if g == nil {
		return ""
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.came[root]
}

// add adds paths, which have no links.
func (g *Grants) add(paths ...string) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, path := range paths {
		g.paths[path] = struct{}{}
	}
}

// all returns the paths. The first call reads the specs of workers.
func (g *Grants) all() []string {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	loaded := g.loaded
	g.mu.Unlock()
	if !loaded {
		g.load()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.loaded = true
	return slices.Collect(maps.Keys(g.paths))
}

// load adds what workers of earlier daemons may write. A spec that cannot be read is left out: its
// worker is no longer used.
func (g *Grants) load() {
	entries, _ := os.ReadDir(g.workers)
	for _, e := range entries {
		if spec, err := process.ReadSpec(filepath.Join(g.workers, e.Name())); err == nil && spec.Confine != nil {
			g.add(spec.Confine.Dirs...)
			g.add(spec.Confine.Files...)
		}
	}
}

// inside reports whether path is dir or below it. Both have no links.
func inside(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// checkWritable returns why a confined server must not write to path, and to what is below it:
// it could change what Holdline itself starts or believes. path has no links.
func (l *Start) checkWritable(path string) error {
	whole := append([]string{l.cacheBase()}, l.Guarded...) // nor what is in them
	part := []string{l.Home, filepath.Dir(l.Config), l.Config, envfile.Path(l.Config)}
	for i, own := range append(part, whole...) {
		resolved, err := filepath.EvalSymlinks(own)
		if own == "" || err != nil {
			continue // there is nothing to change
		}
		if inside(resolved, path) || i >= len(part) && inside(path, resolved) {
			what := "Holdline's own files"
			if own == l.Home {
				what = "your home directory"
			}
			return fmt.Errorf("confine: the server could write to %s, which has %s; name less in write, or start "+
				"the agent in a directory of its own", path, what)
		}
	}
	return nil
}

// cacheBase returns the directory of the caches of confined servers.
func (l *Start) cacheBase() string {
	base, _ := expand.Lookup(l.Environ)("XDG_CACHE_HOME")
	if !filepath.IsAbs(base) {
		base = filepath.Join(l.Home, ".cache")
	}
	return filepath.Join(base, "holdline")
}

// wall returns a name for all processes of a server that may share a cache: those of one project, or
// of the guests of one socket in it, that are confined in the same way. What one of them puts
// into the cache, the others run.
func wall(s *config.Settings, owner *process.Owner) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%v\x00%q", owner.Project, s.Confine, Sockets(s), s.Network, s.Write))
	return hex.EncodeToString(sum[:6])
}

// makeCache makes the cache of a confined server behind a [wall], removes what is old in its
// temporary directory, and returns its path, without links.
func (l *Start) makeCache(server, wall string) (string, error) {
	dir := filepath.Join(l.cacheBase(), server, wall)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	// The server may have put links into it: nothing outside may be made or removed by them.
	in, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer func() { _ = in.Close() }()
	for _, name := range []string{tempDir, npmDir, uvDir} {
		if err := in.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	if temp, err := in.Open(tempDir); err == nil {
		entries, _ := temp.ReadDir(-1)
		_ = temp.Close()
		for _, e := range entries {
			if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > tempAge {
				_ = in.RemoveAll(filepath.Join(tempDir, e.Name()))
			}
		}
	}
	return filepath.EvalSymlinks(dir)
}

// ownCaches returns the environment env in which temporary files and the caches of npx and uvx
// are below cache, but for variables that the settings of the server have set. Without a network
// npx and uvx take what is in their caches at once, instead of asking their registries first.
func ownCaches(env []string, s *config.Settings, cache string) []string {
	own := map[string]string{}
	for name, dir := range map[string]string{
		"TMPDIR": tempDir, "npm_config_cache": npmDir, "UV_CACHE_DIR": uvDir + "/cache",
		"UV_TOOL_DIR": uvDir + "/tools", "UV_PYTHON_INSTALL_DIR": uvDir + "/python",
	} {
		own[name] = filepath.Join(cache, dir)
	}
	if Sockets(s) == process.SocketsNone {
		own["npm_config_offline"], own["UV_OFFLINE"] = "true", "1"
	}
	maps.DeleteFunc(own, func(name, _ string) bool { return s.Env[name] != "" })
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		key, _, _ := strings.Cut(kv, "=")
		return own[key] != ""
	})
	for _, name := range slices.Sorted(maps.Keys(own)) {
		env = append(env, name+"="+own[name])
	}
	return env
}
