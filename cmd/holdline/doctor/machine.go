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

	"holdline/cmd/holdline/cmdenv"
	"holdline/daemon/command"
	"holdline/daemon/config"
	"holdline/daemon/config/resolve"
	"holdline/daemon/envfile"
	"holdline/daemon/place"
	"holdline/daemon/service"
	"holdline/daemon/shellword"
	"holdline/daemon/spelling"
	"holdline/daemon/statedir"
	"holdline/daemon/supervisor/workdirs"
	"holdline/daemon/userenv"
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

// welcomeTimeout bounds the request for the daemon's environment, with the wait for its
// welcome. A daemon that hangs has a finding of its own.
const welcomeTimeout = 2 * time.Second

// endTime is how long a process that is about to end may still run.
const endTime = 300 * time.Millisecond

// checkMachine checks what the daemon depends on: the PATH and the programs of hosted servers,
// the disks, the locks. It also looks for processes that no daemon knows.
func checkMachine(ctx context.Context, o *Options) []Finding {
	run := filepath.Dir(o.Paths.Start())
	f, path := o.checkPath(ctx)
	o.path = cmp.Or(path, "/usr/local/bin:/usr/bin:/bin")
	found := append([]Finding{f}, o.checkPrograms(o.path)...)
	found = append(found, checkDisk("disk of the state directory", o.StateDir, leastState),
		checkDisk("disk of the runtime directory", run, leastRuntime),
		checkLock(run, "daemon"), checkLock(o.StateDir, "state"), checkLog(o.StateDir))
	found = append(found, checkNotes(o.StateDir)...)
	return append(found, o.checkOrphans(ctx, run)...)
}

// askEnvironment asks the daemon for the environment in which it starts programs, and keeps
// the answer in o.environment. It returns the service manager that has started the daemon; ""
// for none, or if no daemon runs. It makes a connection of its own, since the one that the
// checks of the daemon use comes later, after those of what the daemon depends on.
func (o *Options) askEnvironment(ctx context.Context) (manager string) {
	ctx, cancel := context.WithTimeout(ctx, welcomeTimeout)
	defer cancel()
	conn, _, err := o.Paths.Dial(ctx)
	if err != nil {
		return ""
	}
	c, err := control.NewClientOf(ctx, conn, cmdenv.Version, o.Paths.State())
	if err != nil {
		return ""
	}
	defer c.Close()
	var answer control.EnvironmentAnswer
	if err := c.Call(ctx, control.Environment, nil, &answer, nil); err == nil {
		o.environment = &answer
	}
	if c.Daemon.Managed == service.Nobody {
		return ""
	}
	return c.Daemon.Managed
}

// checkPath checks on which PATH hosted servers find their programs, and returns that PATH.
//
// It is the captured one if there is one, else what a running daemon searches, else that of
// the login shell, which a daemon would ask at its start.
func (o *Options) checkPath(ctx context.Context) (Finding, string) {
	const capture = "holdline install --path"
	f := Finding{Check: "PATH of hosted servers", State: OK}
	captured, err := userenv.ReadPath(userenv.PathFile(o.StateDir))
	login, lerr := o.LoginPath(ctx)
	manager := o.askEnvironment(ctx)
	seen := o.searchedPath()
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return f.with(Problem, err.Error(), "hosted servers see the daemon's own PATH only", capture), login
	// What was captured counts first, for the daemon as well. A profile that was edited since
	// has no effect on it.
	case captured != "":
		f.What = captured
		if more := missingDirs(login, captured); len(more) > 0 {
			f = f.with(Note, "your login shell has more now: "+strings.Join(more, ", "),
				"servers do not find the programs there; their PATH is "+captured, capture)
		}
		return f, cmp.Or(seen, captured)
	// A running daemon knows best, if its login shell has answered.
	case o.environment != nil && o.environment.Failure == "":
		f.What = seen
		return f, seen
	case o.environment != nil:
		return f.with(Note, o.environment.Failure, "the daemon knows no more than: "+seen,
			"correct the shell's profile, then: "+capture), seen
	// The environment of a service manager is not that of a login shell.
	case manager != "":
		f = f.with(Note, "was never captured",
			manager+" starts the daemon without the PATH of your login shell", capture)
	case lerr != nil:
		f = f.with(Note, lerr.Error(), "a daemon that an agent starts has a minimal PATH",
			"correct the shell's profile, then: "+capture)
	default:
		f.What = "that of the login shell, at the daemon's start: " + login
	}
	return f, login
}

// searchedPath returns the PATH on which the running daemon looks for programs; "" if none
// runs.
func (o *Options) searchedPath() string {
	if o.environment == nil {
		return ""
	}
	var dirs []string
	for _, p := range o.environment.Paths {
		dirs = append(dirs, p.Dirs...)
	}
	return strings.Join(dirs, string(filepath.ListSeparator))
}

// sourceOf returns where the daemon has the directory of a program from, in parentheses; "" if
// that is not known.
func (o *Options) sourceOf(path string) string {
	if o.environment != nil {
		for _, p := range o.environment.Paths {
			if slices.Contains(p.Dirs, filepath.Dir(path)) {
				return " (" + p.Source + ")"
			}
		}
	}
	return ""
}

// missingDirs returns the directories of PATH a that are not in PATH b, in the order of a.
func missingDirs(a, b string) []string {
	have := filepath.SplitList(b)
	return slices.DeleteFunc(filepath.SplitList(a), func(dir string) bool { return slices.Contains(have, dir) })
}

// checkPrograms checks that the program of each enabled hosted server is on path. It looks up
// variables in the environment of this shell, with path as its PATH.
func (o *Options) checkPrograms(path string) []Finding {
	if o.Loaded == nil {
		return nil
	}
	var found []Finding
	around := resolve.Around{Environ: userenv.WithPath(o.Environ, path), Home: o.Home, Root: o.Home}
	around.Variables, _ = envfile.Read(envfile.Path(o.Config)) // the start of a server reports the error
	found = append(found, checkEmptied("variables of all servers", envfile.Path(o.Config))...)
	found = append(found, checkEmptied("variables of consults", o.Loaded.Consult.EnvFile)...)
	for _, name := range spelling.Sorted(maps.Keys(o.Loaded.Servers)) {
		s, _ := o.Loaded.Server(name)
		if !s.Enabled {
			continue
		}
		found = append(found, o.checkCommands(&s, path)...)
		if s.Transport != config.Stdio {
			continue
		}
		around.EnvFile = nil
		if s.EnvFile != "" {
			around.EnvFile, _ = envfile.Read(s.EnvFile)
			found = append(found, checkEmptied("variables of server "+s.Name, s.EnvFile)...)
		}
		found = append(found, o.checkProgram(s, around, path))
	}
	return found
}

// checkEmptied looks whether a file of variables is there and empty, as an editor or a full disk can leave it. The
// path is "" if there is to be none.
func checkEmptied(check, path string) []Finding {
	info, err := os.Stat(path)
	if path == "" || err != nil || info.Size() > 0 {
		return nil // the start of a server reports the error
	}
	return []Finding{Finding{Check: check}.with(Problem, path+" is empty", "nothing gets a variable from it",
		"write its variables into it again; if it is to have none, remove it, or write a comment into it: # none")}
}

// checkCommands looks for the programs that print secrets of a server. It runs none of them: they may
// ask a person.
func (o *Options) checkCommands(s *config.Settings, path string) (found []Finding) {
	for _, use := range s.CommandUses() {
		f := Finding{Check: use.Key + " of server " + s.Name}
		name := use.Argv[0]
		if rest, ok := strings.CutPrefix(name, "~/"); ok {
			name = filepath.Join(o.Home, rest)
		}
		at, err := command.LookPath(name, path)
		if err != nil {
			found = append(found, f.with(Problem, "the command that prints it is missing: "+err.Error(),
				"the server cannot be started",
				"install "+use.Argv[0]+", or write its whole path into the configuration"))
			continue
		}
		f.State, f.What = OK, "is printed by "+at+"; to try it: holdline servers test "+s.Name
		found = append(found, f)
	}
	return found
}

// checkProgram checks the program of one server, and adds the server to o.missing if the
// program does not exist. path is the PATH of a server that configures none.
func (o *Options) checkProgram(s config.Settings, around resolve.Around, path string) Finding {
	f := Finding{Check: "server " + s.Name}
	// Expand the variables of the entry. If one is not set the program is not known.
	p, err := around.Process(s)
	// The daemon may have variables that this shell has not, so this is no problem yet.
	if err != nil {
		return f.with(Note, err.Error(), "it cannot be started, unless the daemon knows more than this shell",
			"holdline env set NAME, in a shell that has it; or set it in the server's env")
	}
	if _, own := s.Env["PATH"]; !own { // the daemon does not search the PATH of this shell
		p.Env = []string{"PATH=" + path}
	}
	at, err := command.LookPath(p.Command, command.Variable(p.Env, "PATH"))
	if err == nil {
		return Finding{Check: "program of server " + s.Name, State: OK, What: at + o.sourceOf(at)}
	}
	// The check of the hosted servers leaves this one out.
	o.missing = append(o.missing, s.Name)
	fix := "install it, or write its whole path into the configuration; where another shell finds it: " +
		"holdline install --path; if you do not want it: holdline servers disable " + s.Name
	return f.with(Problem, "its command is missing: "+err.Error(), "it cannot be started",
		cmp.Or(o.moved(s.Name, p.Command, path), userenv.ShellHas(p.Command, o.Environ), fix))
}

// moved returns what to do about the program of a server that is gone from its path, as after another version of node
// took the place of the one that nvm had: where a program of that name is now. It returns "" if there is none.
func (o *Options) moved(server, gone, path string) string {
	name := filepath.Base(gone)
	if name == gone {
		return ""
	}
	for _, dirs := range []string{path, command.Variable(o.Environ, "PATH")} {
		if at, err := command.LookPath(name, dirs); err == nil {
			return fmt.Sprintf("%s is now at %s; to name that: holdline servers edit %s", name, at, server)
		}
	}
	return ""
}

// checkDisk checks the free room of the file system that has dir, or will have it. least is in
// bytes. The room counts that a user other than root may take.
func checkDisk(check, dir string, least uint64) Finding {
	f := Finding{Check: check}
	at := nearest(dir)
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil {
		return f.with(Problem, fmt.Sprintf("%s: %v", at, err),
			"it is not known whether there is room", "look at the file system")
	}
	return judgeRoom(f, dir, st.Bavail*uint64(st.Bsize), st.Ffree, st.Files, least)
}

// judgeRoom returns the finding about free bytes, and about how many more files the file
// system can hold. files is 0 for a file system that does not count its files.
func judgeRoom(f Finding, dir string, free, freeFiles, files, least uint64) Finding {
	const why = "calls that cannot be recorded are refused, answers that cannot be kept wait"
	what := fmt.Sprintf("%s: %d MiB free", dir, free>>20)
	switch {
	case free < least:
		return f.with(Problem, fmt.Sprintf("%s, %d MiB are wanted", what, least>>20), why, "make room")
	case files > 0 && freeFiles == 0:
		return f.with(Problem, dir+": no file can be made, all inodes are taken", why, "make room")
	}
	f.State, f.What = OK, what
	return f
}

// moveAway returns the command that gives another name to a file that no daemon can use.
func moveAway(path string) string {
	return "mv " + shellword.Quote(path) + " " + shellword.Quote(path+".foreign")
}

// checkLock checks which process the lock file in dir names. what says whose lock it is. The
// file stays when its process ends, so a name in it is no sign that the lock is held.
func checkLock(dir, what string) Finding {
	path := filepath.Join(dir, socket.LockFile)
	f := Finding{Check: what + " lock", State: OK, What: path + ": held by no process"}
	pid, start, err := statedir.Holder(path)
	switch {
	case errors.Is(err, ownfile.ErrRefused):
		return f.with(Problem, err.Error(), "no daemon can start", moveAway(path))
	case err != nil:
		if file, unopened := errors.AsType[*place.LockFileError](place.LockFile(path, err)); unopened {
			return f.with(Problem, err.Error(), "no daemon can start, and a daemon that runs stops", file.WayOut())
		}
		return f
	case process.IsAlive(pid, start):
		f.What = fmt.Sprintf("%s: process %d", path, pid)
		return f
	}
	return f.with(Note, fmt.Sprintf("%s was left by daemon %d, which was killed", path, pid),
		"the lock went with its process; the next daemon takes the file over", "nothing has to be done")
}

// checkLog checks that a daemon that is started on demand can open its log in the state directory dir.
func checkLog(dir string) Finding {
	path := filepath.Join(dir, statedir.DaemonLog)
	f := Finding{Check: "log of daemons", State: OK, What: path}
	log, err := ownfile.OpenFile(path, os.O_WRONLY|os.O_APPEND)
	const why = "the daemon serves all the same, and logs to stderr or the journal instead; `holdline logs` does not show it"
	fix := "make " + filepath.Dir(path) + " a directory that you can write to"
	switch {
	case err == nil:
		log.Close()
		return f
	case errors.Is(err, os.ErrNotExist) && unix.Access(nearest(path), unix.W_OK|unix.X_OK) == nil:
		f.What += " (not there yet)"
		return f
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ENOTDIR):
	case errors.Is(err, os.ErrPermission):
		fix += ", and " + path + " a file that you can write to"
	case errors.Is(err, ownfile.ErrRefused):
		fix = moveAway(path)
	}
	return f.with(Problem, fmt.Sprintf("%s cannot be opened: %v", path, err), why, fix)
}

// checkNotes looks for damaged notes of workers on other machines in the state directory dir.
func checkNotes(dir string) (found []Finding) {
	for _, err := range workdirs.DamagedNotes(dir) {
		found = append(found, Finding{Check: "worker elsewhere"}.with(Problem, err.Error(),
			"it says on which machine a worker may run, which is known by the files of the worker alone then",
			"holdline stop --all ends the worker, or names it if its machine is not known any more"))
	}
	return found
}

// checkOrphans looks for holdline's processes that no daemon knows. A process that has just
// lost its worker is about to end, so it looks twice and reports those that it sees both
// times. With none it reports that, too.
func (o *Options) checkOrphans(ctx context.Context, run string) []Finding {
	var found []Finding
	if first := o.orphans(run); len(first) > 0 {
		select {
		case <-time.After(endTime):
		case <-ctx.Done():
		}
		for _, p := range o.orphans(run) {
			if slices.ContainsFunc(first, func(q orphan) bool { return q.PID == p.PID && q.Start == p.Start }) {
				found = append(found, Finding{Check: "orphan"}.with(
					Problem, fmt.Sprintf("process %d %s", p.PID, p.what),
					"no daemon knows it, and it takes memory, or money", fmt.Sprintf("kill -9 %d", p.PID)))
			}
		}
	}
	if len(found) == 0 {
		f := Finding{Check: "orphans", State: OK, What: "none"}
		if !process.Exact {
			f.What = "none that can be found: if a worker is killed by SIGKILL, this system does not show " +
				"which processes of its server have left the server's process group"
		}
		return []Finding{f}
	}
	return found
}

// workers returns the workers of these directories that run, by the names of their directories. run is the runtime
// directory.
func (o *Options) workers(run string) map[string]process.Proc {
	found := map[string]process.Proc{}
	parents := []string{filepath.Join(run, "w"), filepath.Join(o.StateDir, "consults")}
	all, _ := process.List() // after an error the list is empty
	for _, p := range all {
		if dir := process.WorkerDir(process.Args(p.PID)); dir != "" && slices.Contains(parents, filepath.Dir(dir)) {
			found[dir] = p
		}
	}
	return found
}

// checkWorkers returns a finding for each worker that runs and that the daemon does not have: it could be neither used
// nor ended. One that is ending is given a moment. running was found before known.
func checkWorkers(
	ctx context.Context, c *control.Client, running map[string]process.Proc, known []control.Worker,
) (found []Finding) {
	unknown := func() {
		maps.DeleteFunc(running, func(dir string, p process.Proc) bool {
			is := func(w control.Worker) bool { return w.ID == filepath.Base(dir) }
			_, err := os.Lstat(dir) // one without a directory is an orphan
			return err != nil || slices.ContainsFunc(known, is) || !process.IsAlive(p.PID, p.Start)
		})
	}
	if unknown(); len(running) == 0 {
		return nil
	}
	select {
	case <-time.After(endTime):
	case <-ctx.Done():
	}
	var status control.StatusAnswer
	if err := c.Call(ctx, control.Status, nil, &status, nil); err != nil {
		return nil // the daemon ends, and its workers go on without it
	}
	known = status.Workers
	unknown()
	for _, dir := range slices.Sorted(maps.Keys(running)) {
		pid := running[dir].PID
		found = append(found, Finding{Check: "worker"}.with(Problem,
			fmt.Sprintf("process %d is a worker that the daemon can neither use nor end: %s", pid, dir),
			"what its server does is seen by nobody, and it takes memory", fmt.Sprintf("kill -9 %d", pid)))
	}
	return found
}

// orphan is a process that no daemon knows. Its start time tells it from a later process with
// the same pid.
type orphan struct {
	process.Proc
	what string // what the process is, for people
}

// orphans returns three kinds of processes: workers of these directories whose own directory is
// gone, processes that belonged to a worker of this user's home by their environment and do not run
// under it, and those that belonged to a worker of these directories by their mark. run is the runtime
// directory.
func (o *Options) orphans(run string) []orphan {
	var list []orphan
	ours := []string{filepath.Join(run, "w") + "/", filepath.Join(o.StateDir, "consults") + "/"}
	// Processes of other users cannot be read, and are none of ours.
	all, _ := process.List() // after an error the list is empty
	for _, p := range all {
		args := process.Args(p.PID)
		dir, worker := process.WorkerDir(args), process.Variable(p.PID, process.EnvWorker)
		switch {
		case slices.ContainsFunc(ours, func(prefix string) bool { return strings.HasPrefix(dir, prefix) }):
			if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
				list = append(list, orphan{p, "is a worker whose directory is gone: " + dir})
			}
		case worker != "" && process.Variable(p.PID, "HOME") == o.Home && !process.HasWorker(p, worker):
			program := "?"
			if len(args) > 0 {
				program = filepath.Base(args[0])
			}
			list = append(list, orphan{p, fmt.Sprintf("(%s) belonged to worker %s, which is dead",
				program, filepath.Base(worker))})
		}
	}
	carried, err := process.Carriers()
	if err != nil {
		return list
	}
	for _, m := range carried.Marked() {
		if slices.ContainsFunc(ours, func(prefix string) bool { return m.Mark.Under(filepath.Clean(prefix)) }) {
			list = append(list, orphan{m.Proc, "(" + process.Name(m.PID) + ") belonged to a worker, which is dead"})
		}
	}
	return list
}
