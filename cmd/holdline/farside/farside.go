// Package farside is the command far: the other side of a daemon that has its workers here. A
// daemon on another machine runs it, with ssh or the like, for each of its workers and for each
// question (package farwire has what they say). It starts workers as that daemon would, finds
// and kills what they left, and is the wire to one. It keeps nothing between two runs: what
// there is to know is in the directories of the workers, in far/ of the state directory.
//
// The workers are no children of it. They go on when it ends, and end by themselves when no
// daemon comes back within their window.
package farside

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/direct"
	"holdline/daemon/config"
	"holdline/daemon/redact"
	"holdline/daemon/statedir"
	"holdline/daemon/supervisor/finding"
	"holdline/daemon/supervisor/near"
	"holdline/protocol/farwire"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
	"holdline/protocol/socket"
	"holdline/protocol/workerwire"
)

// side is one run of the command.
type side struct {
	proc   *cmdenv.Process
	dir    string // of the workers of this origin
	exe    string // this program
	hunter near.Hunter
	out    io.Writer
}

// Run is the command far. It returns when its stdin ends, or the connection to a worker does.
func Run(args []string, proc *cmdenv.Process) error {
	if len(args) != 1 || !process.ValidID(args[0]) {
		return fmt.Errorf("%w: far takes the name of an origin, and is run by a daemon elsewhere", cmdenv.ErrUsage)
	}
	state, err := cmdenv.StateDir(proc.Getenv)
	if err != nil {
		return err
	}
	s := &side{
		proc: proc, dir: filepath.Join(state, "far", args[0]), out: proc.Stdout,
		hunter: near.Hunter{Log: slog.New(slog.DiscardHandler)},
	}
	if err := statedir.MakeRoot(state); err != nil {
		return err
	}
	if s.exe, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	node, _ := os.Hostname()
	hello := farwire.Hello{
		Version: farwire.Version, Workers: process.Newest(), Node: node, Program: cmdenv.Version,
	}
	if err := farwire.WriteHello(s.out, hello); err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // a worker that was started may have to be ended yet
	in := bufio.NewReader(proc.Stdin)
	// A daemon that goes away between its start of a worker and its first connection has no use for that
	// worker. Where it is not known that it has gone, the worker ends by itself.
	started := ""
	defer func() {
		if started != "" {
			_ = s.remove(context.Background(), filepath.Join(s.dir, started))
		}
	}()
	for {
		var q farwire.Request
		if err := farwire.Read(in, &q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if q.Op == farwire.Connect {
			started = ""
			return s.connect(q.ID, in)
		}
		r, spool, err := s.handle(&q)
		switch {
		case err != nil:
			r = errorOf(err)
		case q.Op == farwire.Start:
			started = q.ID
		}
		if err := farwire.Write(s.out, r); err != nil {
			return err
		}
		if spool != nil {
			_, err := io.CopyN(s.out, spool, r.Spool)
			_ = spool.Close()
			if err != nil {
				return err
			}
		}
	}
}

// handle answers a request. The caller sends the spool, if there is one, and closes it.
func (s *side) handle(q *farwire.Request) (r farwire.Reply, spool *os.File, err error) {
	ctx := context.Background()
	dir := filepath.Join(s.dir, q.ID)
	if q.Op != farwire.List && !process.ValidID(q.ID) {
		return r, nil, fmt.Errorf("bad id %q", q.ID)
	}
	switch q.Op {
	case farwire.List:
		r.IDs, err = s.list()
	case farwire.Look:
		r.Alive, err = finding.Alive(dir)
	case farwire.Start:
		err = s.start(ctx, dir, q)
	case farwire.End:
		if err = s.destroy(ctx, dir); err == nil {
			return s.left(dir)
		}
	case farwire.Remove:
		err = s.remove(ctx, dir)
	default:
		err = fmt.Errorf("unknown request %q", q.Op)
	}
	if q.Op != farwire.Start && errors.Is(err, fs.ErrNotExist) { // then there is no worker, and nothing of it
		err = nil
	}
	return r, nil, err
}

// list returns the ids of the workers of this origin.
func (s *side) list() (ids []string, err error) {
	entries, err := os.ReadDir(s.dir)
	for _, e := range entries {
		if e.IsDir() && process.ValidID(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	return ids, err
}

// left returns what a dead worker has left to be read.
func (s *side) left(dir string) (r farwire.Reply, spool *os.File, err error) {
	st, err := process.ReadState(dir)
	if err != nil {
		return r, nil, nil //nolint:nilerr // without a state no child ever ran
	}
	r.State = &st
	if st.Spool == nil || st.Spool.Bytes == 0 {
		return r, nil, nil
	}
	f, err := ownfile.Open(filepath.Join(dir, process.FileSpool))
	if err != nil { // its reader will say that the output is lost
		return r, nil, nil //nolint:nilerr // and it is told so by a spool that is missing
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return r, nil, err
	}
	r.Spool = info.Size()
	return r, f, nil
}

// start starts a worker. On an error nothing of it is left.
func (s *side) start(ctx context.Context, dir string, q *farwire.Request) error {
	spec, env, err := s.resolve(ctx, q)
	if err != nil {
		return err
	}
	spec.Far, spec.Inline, spec.Socket = nil, true, filepath.Join(dir, process.FileSocket)
	if err := spec.Check(); err != nil {
		return err
	}
	if err := socket.CheckPath(spec.Socket); err != nil {
		return err
	}
	for _, d := range []string{filepath.Dir(s.dir), s.dir, dir} {
		if err := statedir.MakeDir(d); err != nil {
			return err
		}
	}
	spec.Seal() // it differs from what the daemon has sent
	if err = statedir.WriteFile(filepath.Join(dir, process.FileSpec), jsonrpc.Encode(spec)); err == nil {
		err = near.Launch(ctx, s.exe, dir, env, nil)
	}
	if err != nil {
		_ = s.destroy(ctx, dir)
		_ = near.RemoveAll(dir)
	}
	return err
}

// destroy kills the worker of a directory with all that it left. One that was started and is not
// there yet cannot begin.
func (s *side) destroy(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, near.DeathTimeout)
	defer cancel()
	return s.hunter.Destroy(ctx, dir, true)
}

// remove is destroy, and removes the directory.
func (s *side) remove(ctx context.Context, dir string) error {
	err := s.destroy(ctx, dir)
	if err == nil {
		err = near.RemoveAll(dir)
	}
	return err
}

// errorOf returns err as the daemon gets it.
func errorOf(err error) farwire.Reply {
	if e, ok := errors.AsType[*workerwire.Error](err); ok {
		return farwire.Reply{Code: e.Code, Error: e.Message}
	}
	if f := fault.Exhausted("", err); f != nil {
		return farwire.Reply{Code: workerwire.CodeExhausted, Error: f.Fault.Detail}
	}
	return farwire.Reply{Code: workerwire.CodeInvalid, Error: err.Error()}
}

// resolve expands the settings of a server as a daemon of this machine would. A program that is
// not found is left to the start.
func (s *side) resolve(ctx context.Context, q *farwire.Request) (process.Spec, workerwire.Environment, error) {
	var env workerwire.Environment
	if q.Spec == nil || q.Spec.Far == nil || len(q.Spec.Argv) == 0 {
		return process.Spec{}, env, errors.New("the request has no spec")
	}
	spec, at := *q.Spec, q.Spec.Far
	server := config.Server{
		Command: spec.Argv[0], Args: spec.Argv[1:], Cwd: spec.Cwd, Env: map[string]config.Variable{},
		Holdline: config.Hosting{InheritEnv: at.InheritEnv, EnvFile: at.EnvFile, Scope: config.ScopeShared},
	}
	for _, kv := range q.Env {
		name, value, _ := strings.Cut(kv, "=")
		server.Env[name] = config.Variable{Text: redact.Secret(value)}
	}
	c := config.Config{Servers: map[string]config.Server{spec.Name: server}}.WithHome(s.proc.Getenv("HOME"))
	settings, _ := c.Server(spec.Name)
	path, err := cmdenv.ConfigPath("", s.proc.Getenv)
	if err != nil {
		return spec, env, err
	}
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := direct.New(asking, s.proc, path, "")
	if err != nil {
		return spec, env, err
	}
	p, err := l.Process(ctx, &settings, "")
	if err != nil && p.Command == "" { // else only the program is not found
		return spec, env, err
	}
	spec.Argv, spec.Cwd = append([]string{p.Command}, p.Args...), p.Dir
	env.Env, env.Secrets = p.Env, p.Secrets
	return spec, env, nil
}

// connect makes this process the wire between its stdin and stdout and a worker. It returns when
// one of them ends, or when nothing has come from the daemon for too long: then the worker must
// learn that no daemon is there.
func (s *side) connect(id string, in *bufio.Reader) error {
	var to *net.UnixConn
	err := fmt.Errorf("bad id %q", id)
	if process.ValidID(id) {
		path := filepath.Join(s.dir, id, process.FileSocket)
		to, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	}
	if err == nil {
		_, err = socket.CheckPeer(to)
	}
	if err != nil {
		return farwire.Write(s.out, errorOf(err))
	}
	defer func() { _ = to.Close() }()
	if err := farwire.Write(s.out, farwire.Reply{}); err != nil {
		return err
	}
	over := make(chan struct{}, 3) // both goroutines end with this process
	heard := time.AfterFunc(farwire.Silence, func() { over <- struct{}{} })
	go func() {
		buf := make([]byte, 64<<10)
		for {
			n, err := in.Read(buf)
			heard.Reset(farwire.Silence)
			if n > 0 {
				if _, werr := to.Write(buf[:n]); werr != nil {
					break
				}
			}
			if err != nil {
				break
			}
		}
		over <- struct{}{}
	}()
	go func() {
		_, _ = io.Copy(s.out, to)
		over <- struct{}{}
	}()
	<-over
	return nil
}
