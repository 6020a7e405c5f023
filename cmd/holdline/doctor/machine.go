package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"holdline/daemon/config"
	"holdline/daemon/statedir"
	"holdline/protocol/control"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
	"holdline/protocol/socket"
)

// Least free space, in bytes, with which a daemon goes on for a while.
const (
	leastState   = 64 << 20 // kept consults, the call log
	leastRuntime = 16 << 20 // records and answers that wait for their clients
)

// askTimeout bounds the wait for the daemon's welcome.
const askTimeout = 2 * time.Second

// settle is how long a process that ends may take for it.
const settle = 300 * time.Millisecond

// machine looks at what lies around the daemon: PATH and programs of hosted
// servers, disks, locks, and processes that nobody owns.
func machine(ctx context.Context, o *Options) []Finding {
	run := filepath.Dir(o.Paths.Start())
	found := append(o.servers(o.path(ctx)),
		disk("disk of the state directory", o.StateDir, leastState), disk("disk of the runtime directory", run, leastRuntime))
	found = append(found, stale(run, "daemon"), stale(o.StateDir, "state"))
	return append(found, o.orphans(ctx, run)...)
}

// ask asks the daemon for the environment in which it starts programs, and
// returns who manages it; "" if nobody does, or none runs.
func (o *Options) ask(ctx context.Context) string {
	dialling, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, _, err := o.Paths.Dial(dialling)
	if err != nil {
		return ""
	}
	c, err := control.NewClient(dialling, conn, o.Version, o.PID)
	if err != nil {
		return ""
	}
	defer c.Close()
	var answer control.EnvironmentAnswer
	if err := c.Call(ctx, control.Environment, nil, &answer, nil); err == nil { // a daemon of before does not know that
		o.sees = &answer
	}
	if c.Daemon.Managed == "no" {
		return ""
	}
	return c.Daemon.Managed
}

// path says with which PATH hosted servers find their programs, and is that.
func (o *Options) path(ctx context.Context) (Finding, string) {
	f := Finding{Check: "PATH of hosted servers", State: OK}
	file := config.PathFile(o.StateDir)
	captured, err := config.ReadPath(file)
	login, unknown := o.LoginPath(ctx)
	manager := o.ask(ctx)
	seen := o.searched()
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		f.State, f.What = Problem, err.Error()
		f.Why, f.Mend = "hosted servers see the daemon's own PATH only", "holdline install --path"
		return f, login
	case captured != "":
		f.What = captured
		if missing := beyond(login, captured); len(missing) > 0 {
			f.State, f.Why = Note, "the PATH of your login shell has more now: "+strings.Join(missing, ", ")
			f.Mend = "holdline install --path"
		}
		return f, cmp.Or(seen, captured)
	case o.sees != nil && o.sees.Failure == "":
		f.What = seen
		return f, seen
	case o.sees != nil:
		f.State, f.What = Note, o.sees.Failure
		f.Why, f.Mend = "the daemon knows no more than: "+seen, "mend the shell's profile, then: holdline install --path"
		return f, seen
	case manager != "":
		f.State, f.What = Note, "was never captured"
		f.Why, f.Mend = manager+" starts the daemon without the PATH of your login shell", "holdline install --path"
	case unknown != nil:
		f.State, f.What = Note, unknown.Error()
		f.Why, f.Mend = "a daemon that an agent starts has a minimal PATH", "mend the shell's profile, then: holdline install --path"
	default:
		f.What = "that of the login shell, at the daemon's start: " + login
	}
	return f, login
}

// searched is the PATH on which the daemon looks for programs; "" if none runs.
func (o *Options) searched() string {
	if o.sees == nil {
		return ""
	}
	var dirs []string
	for _, p := range o.sees.Paths {
		dirs = append(dirs, p.Dirs...)
	}
	return strings.Join(dirs, string(filepath.ListSeparator))
}

// source says where a program that the daemon found comes from.
func (o *Options) source(path string) string {
	if o.sees != nil {
		for _, p := range o.sees.Paths {
			if slices.Contains(p.Dirs, filepath.Dir(path)) {
				return " (" + p.Source + ")"
			}
		}
	}
	return ""
}

// here is where this shell finds a program; "" if it does not.
func (o *Options) here(name string) string {
	path, err := config.LookPath(name, o.Environ)
	if err != nil {
		return ""
	}
	return path
}

// beyond are the directories of list a that list b lacks.
func beyond(a, b string) []string {
	have := filepath.SplitList(b)
	return slices.DeleteFunc(filepath.SplitList(a), func(dir string) bool { return slices.Contains(have, dir) })
}

// servers looks for the programs of the hosted servers that are enabled.
func (o *Options) servers(f Finding, path string) []Finding {
	found := []Finding{f}
	if o.Loaded == nil {
		return found
	}
	if path == "" {
		path = "/usr/local/bin:/usr/bin:/bin"
	}
	around := config.Around{Environ: config.WithPath(o.Environ, path), Home: o.Home, Root: o.Home}
	around.Variables, _ = config.ReadEnvFile(config.VariablesFile(o.Config)) // the daemon says what is wrong with it
	for _, name := range slices.Sorted(maps.Keys(o.Loaded.Servers)) {
		s, _ := o.Loaded.Server(name)
		if !s.Enabled || s.Transport != config.Stdio {
			continue
		}
		if s.EnvFile != "" {
			around.EnvFile, _ = config.ReadEnvFile(s.EnvFile)
		} else {
			around.EnvFile = nil
		}
		found = append(found, o.program(s, around, path)...)
	}
	return found
}

// program looks for the program of one server.
func (o *Options) program(s config.Settings, around config.Around, path string) []Finding {
	f := Finding{Check: "server " + s.Name, State: Problem, Why: "it cannot be started"}
	p, err := s.Process(around)
	if err != nil {
		f.State, f.What, f.Mend = Note, err.Error(), "set it in "+config.VariablesFile(o.Config)+", or in the server's env"
		f.Why = "it cannot be started, unless the daemon knows more than this shell"
		return []Finding{f}
	}
	// What only this shell has is not what the daemon looks in.
	if !slices.Contains(slices.Collect(maps.Keys(s.Env)), "PATH") {
		p.Env = []string{"PATH=" + path}
	}
	at, err := config.LookPath(p.Command, p.Env)
	if err == nil {
		return []Finding{{Check: "program of server " + s.Name, State: OK, What: at + o.source(at)}}
	}
	o.missing = append(o.missing, s.Name)
	f.What = "its command is missing: " + err.Error()
	f.Mend = "install it, or write its whole path into the configuration; where another shell finds it: holdline install --path; if you do not want it: holdline servers disable " + s.Name
	if here := o.here(p.Command); here != "" {
		f.Mend = "this shell finds it at " + here + ": holdline install --path"
	}
	return []Finding{f}
}

// disk looks at the room that is left where dir lies, or will lie.
func disk(check, dir string, least uint64) Finding {
	f := Finding{Check: check, State: OK}
	at := nearest(dir)
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil {
		f.State, f.What, f.Why, f.Mend = Problem, fmt.Sprintf("%s: %v", at, err), "it cannot be said whether there is room", "look at the file system"
		return f
	}
	return room(f, dir, st.Bavail*uint64(st.Bsize), st.Ffree, st.Files, least)
}

// room judges the free bytes, and the free ones of all files that there may be.
func room(f Finding, dir string, free, freeFiles, files, least uint64) Finding {
	f.What = fmt.Sprintf("%s: %d MiB free", dir, free>>20)
	f.Why, f.Mend = "calls that cannot be recorded are refused, answers that cannot be kept wait", "make room"
	switch {
	case free < least:
		f.State, f.What = Problem, fmt.Sprintf("%s, %d MiB are wanted", f.What, least>>20)
	case files > 0 && freeFiles == 0: // some file systems count none
		f.State, f.What = Problem, dir+": no file can be made, all inodes are taken"
	default:
		f.Why, f.Mend = "", ""
	}
	return f
}

// stale looks at who says to hold the lock in dir.
func stale(dir, what string) Finding {
	path := filepath.Join(dir, socket.LockFile)
	f := Finding{Check: what + " lock", State: OK, What: path + ": nobody's"}
	pid, start, err := statedir.Holder(path)
	switch {
	case errors.Is(err, ownfile.ErrRefused):
		f.State, f.What = Problem, err.Error()
		f.Why, f.Mend = "no daemon can start", "mv "+path+" "+path+".foreign"
		return f
	case err != nil:
		return f
	}
	if now, err := process.Lookup(pid); err == nil && now.Start == start {
		f.What = fmt.Sprintf("%s: process %d", path, pid)
		return f
	}
	f.State, f.What = Note, fmt.Sprintf("%s was left by daemon %d, which was killed", path, pid)
	f.Why, f.Mend = "the lock went with its process; the next daemon takes the file over", "nothing has to be done"
	return f
}

// orphans are processes of holdline's that nobody owns any more.
func (o *Options) orphans(ctx context.Context, run string) []Finding {
	f := Finding{Check: "orphans", State: OK, What: "none"}
	first := o.strays(run)
	if len(first) == 0 {
		return []Finding{f}
	}
	select { // most of them are just ending
	case <-time.After(settle):
	case <-ctx.Done():
	}
	var found []Finding
	for _, p := range o.strays(run) {
		if slices.ContainsFunc(first, func(q stray) bool { return q.PID == p.PID && q.Start == p.Start }) {
			found = append(found, Finding{
				Check: "orphan", State: Problem, What: fmt.Sprintf("process %d %s", p.PID, p.what),
				Why:  "nobody knows of it, and it takes memory, or money",
				Mend: fmt.Sprintf("kill -9 %d", p.PID),
			})
		}
	}
	if len(found) == 0 {
		return []Finding{f}
	}
	return found
}

// stray is a process that nobody owns.
type stray struct {
	process.Proc
	what string // it is, for people
}

// strays lists workers whose directory, under one of ours, is gone, and what
// carries the id of a worker of this user's home and runs under none.
func (o *Options) strays(run string) []stray {
	var list []stray
	ours := []string{filepath.Join(run, "w") + "/", filepath.Join(o.StateDir, "consults") + "/"}
	for _, p := range running() {
		dir, worker := workerDir(p.args)
		switch {
		case worker && slices.ContainsFunc(ours, func(prefix string) bool { return strings.HasPrefix(dir, prefix) }):
			if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
				list = append(list, stray{p.Proc, "is a worker whose directory is gone: " + dir})
			}
		case p.worker != "" && p.home == o.Home && !process.HasWorker(p.Proc, p.worker):
			list = append(list, stray{p.Proc, fmt.Sprintf("(%s) belonged to worker %s, which is dead", filepath.Base(first(p.args)), p.worker)})
		}
	}
	return list
}

// workerDir is the directory of the worker that has these arguments.
func workerDir(args []string) (string, bool) {
	if len(args) != 4 || args[1] != "worker" || args[2] != "--run" {
		return "", false
	}
	return args[3], true
}

func first(args []string) string {
	if len(args) == 0 {
		return "?"
	}
	return args[0]
}

// oneProcess is a process of this user.
type oneProcess struct {
	process.Proc
	args   []string
	worker string // id of the worker whose child it says to be
	home   string // its HOME
}
