package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdline/protocol"
	"holdline/protocol/ownfile"
)

// Files of a worker's directory.
const (
	FileLock      = "lock"          // flock, held by the worker for life; "pid starttime\n"
	FileSpec      = "spec.json"     // [Spec]
	FileState     = "state.json"    // [State]
	FileServer    = "server.json"   // [Server]
	FileLists     = "lists.json"    // what a hosted server lists, for daemons alone
	FileLongLine  = "longline.json" // of a hosted server: that the line under way is left out, for daemons alone
	FileSocket    = "sock"
	FileSpool     = "stdout"     // output while no daemon was there
	FileLong      = "long."      // and a number: a long line of output that is not acknowledged
	FileInput     = "in."        // and a random text: a file with bytes of a write, until the worker has opened it
	FileStderr    = "stderr.log" // what the child wrote to stderr, bounded
	FileWorkerLog = "worker.log" // last words of the worker itself
	FileContact   = "contact"    // of a worker elsewhere: its time is that of the last contact, for daemons alone
	DirAsks       = "q"          // open requests of a server, named by their place in its output
	FileAsks      = "q.json"     // the names of the files that are in DirAsks, for daemons alone
)

// DirRegister is the register of a runtime directory, beside w/: a copy of the [Spec] of each
// server's worker. It is entered before the worker's directory has the spec. The name of the copy
// is changed before the directory is removed, and the copy is removed after that. So a directory
// that is gone, and that no daemon has removed, is noticed.
const DirRegister = "known"

// RegisterFile returns the path of the copy of the spec of the server's worker directory dir.
func RegisterFile(dir string) string {
	return filepath.Join(filepath.Dir(filepath.Dir(dir)), DirRegister, filepath.Base(dir))
}

// What a worker is for. Only people read it: no decision depends on it.
const (
	KindServer  = "server"
	KindConsult = "consult"
)

// Spec is [FileSpec]: what the worker runs, and for whom. The daemon writes it before it
// starts the worker. It never holds an environment: that may have secrets.
type Spec struct {
	Version    int      `json:"version"` // of the protocol that the worker and its daemon speak
	ID         string   `json:"id"`
	Kind       string   `json:"kind"` // KindServer or KindConsult
	Name       string   `json:"name"` // of the server or of the engine, for people
	Argv       []string `json:"argv"`
	Cwd        string   `json:"cwd"`
	Generation int64    `json:"generation"` // number of this start, unique in the state directory
	Socket     string   `json:"socket"`     // path at which the worker listens for daemons
	Limits     Limits   `json:"limits"`
	Owner      Owner    `json:"owner"`
	Orphan     Orphan   `json:"orphan"`
	Tokens     string   `json:"tokens,omitempty"` // key of the progress tokens that the child sees, for daemons alone
	// EndGraceMS is the least time that the child has for each step of its end, whoever ends it;
	// 0 leaves it to them. It is for a child that has to finish what it has begun.
	EndGraceMS        int64    `json:"end_grace_ms,omitempty"`
	ParentDeathSignal string   `json:"parent_death_signal"` // what the child gets when the worker dies (Linux)
	Confine           *Confine `json:"confine,omitempty"`   // nil for a child that may write what its user may
	Bounds            *Bounds  `json:"bounds,omitempty"`    // nil for a child without limits
	Program           string   `json:"program"`             // version of the program that wrote it, for people
	Far               *Far     `json:"far,omitempty"`       // nil for a worker on its daemon's machine
	Inline            bool     `json:"inline,omitempty"`    // long lines go over the connection, not in files
	Sum               uint32   `json:"sum,omitempty"`       // set by [Spec.Seal]
}

// Seal sets the checksum of the spec, so that a wrong bit in its file is noticed.
func (s *Spec) Seal() { s.Sum = s.sum() }

// sum returns the checksum of the spec without its field Sum.
func (s *Spec) sum() uint32 {
	plain := *s
	plain.Sum = 0
	b, _ := json.Marshal(&plain) // plain fields encode
	return max(1, crc32.Checksum(b, takenTable()))
}

// errSum says that a file is not as it was written.
var errSum = errors.New("its checksum is wrong")

// Far says where a worker runs whose daemon is on another machine. Two directories stand for it.
// The one there is that of any worker, and its spec has no Far. The one here has [FileSpec],
// the call records, and what the daemon writes down; there is no lock in it. [FileState] comes
// here when the worker is known to be dead, with its spool.
type Far struct {
	Host       string `json:"host"`           // as the configuration has it
	Node       string `json:"node,omitempty"` // what that machine called itself at the start
	InheritEnv string `json:"inherit_env,omitempty"`
	EnvFile    string `json:"env_file,omitempty"` // there
}

// Limits of a worker, in bytes. A zero is the default.
type Limits struct {
	Retain int `json:"retain"` // stdout kept until it is acked
	Line   int `json:"line"`   // a line begun is read to its end up to this
	Stderr int `json:"stderr"` // ring
}

// Bounds is what a child, with its worker and all that it starts, may use of the machine. The
// daemon that starts the worker sees to it, as far as the machine can: see package
// daemon/limits. 0 is no limit.
type Bounds struct {
	Memory    int64 `json:"memory,omitempty"`     // bytes
	Processes int   `json:"processes,omitempty"`  // with their threads
	CPUWeight int   `json:"cpu_weight,omitempty"` // 1 to 10000
}

// Confine is all that a child, and what it starts, may write to, and which sockets it may
// open: the kernel refuses the rest. A child that cannot be confined is not started.
// The paths are absolute; a directory must exist, a file need not.
type Confine struct {
	Dirs  []string `json:"dirs"` // with all that is below them
	Files []string `json:"files,omitempty"`
	// NoLinks says that the paths had no symbolic links when they were looked at: one that leads
	// through a link by now is an error.
	NoLinks bool `json:"no_links,omitempty"`
	// Sockets are those that it may open: SocketsAny, SocketsNet, SocketsTCP or SocketsNone. All but
	// SocketsAny also keep it from sending signals to other processes, where the kernel knows how.
	Sockets string `json:"sockets,omitempty"`
	Ports   []int  `json:"ports,omitempty"` // with SocketsTCP: those to which it may connect
}

// Kinds of sockets.
const (
	SocketsAny  = ""     // all that there are
	SocketsNet  = "net"  // of the internet's protocols: no unix sockets
	SocketsTCP  = "tcp"  // for outgoing connections of TCP
	SocketsNone = "none" // pairs for its own processes
)

// check returns an error if a path is not absolute. A nil c confines nothing.
func (c *Confine) check() error {
	if c == nil {
		return nil
	}
	for _, path := range slices.Concat(c.Dirs, c.Files) {
		if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
			return fmt.Errorf("spec: bad path %q to be writable", path)
		}
	}
	return nil
}

// Owner says for whom a worker runs.
type Owner struct {
	Session string `json:"session,omitempty"` // hash of the session's uuid
	N       int64  `json:"n,omitempty"`       // number of the client's line
	// ProxyPID and ProxyStart name the process without which the session cannot come
	// back; 0 if that is not known.
	ProxyPID   int    `json:"proxy_pid,omitempty"`
	ProxyStart uint64 `json:"proxy_start,omitempty"`
	Identity   string `json:"identity,omitempty"`
	Project    string `json:"project,omitempty"` // key
	Root       string `json:"root,omitempty"`    // directory of the project, or of the session's; "" if shared
	Scope      string `json:"scope,omitempty"`   // of a server
	Key        string `json:"key,omitempty"`     // of a server's configuration
	Login      string `json:"login,omitempty"`   // which login to a server elsewhere, and as whom; "" if there was none
}

// What a worker does while no daemon is attached.
const (
	OrphanTerminate = "terminate" // end the child, then remove the directory
	OrphanLeave     = "leave"     // let the child go on; its output goes to the spool
)

// Orphan says what a worker does when no daemon has been attached for AfterMS.
type Orphan struct {
	AfterMS  int64  `json:"after_ms"`
	Do       string `json:"do"`        // OrphanTerminate or OrphanLeave
	SpoolMax int64  `json:"spool_max"` // bytes of [FileSpool]
	// HardDeadlineBootMS is the reading of the boot clock at which a worker without a
	// daemon ends its tree; 0 for never.
	HardDeadlineBootMS int64 `json:"hard_deadline_boot_ms"`
}

// Defaults of a [Spec].
const (
	defaultRetain   = 8 << 20
	defaultLine     = 65 << 20 // more than a message may have, so that a daemon sees which line is too long
	defaultStderr   = 256 << 10
	defaultSpoolMax = 256 << 20
)

// SetDefaults fills in what is zero.
func (s *Spec) SetDefaults() {
	set := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	set(&s.Limits.Retain, defaultRetain)
	set(&s.Limits.Line, defaultLine)
	set(&s.Limits.Stderr, defaultStderr)
	if s.Orphan.AfterMS == 0 {
		s.Orphan.AfterMS = protocol.WorkerWindow.Milliseconds()
	}
	if s.Orphan.SpoolMax == 0 {
		s.Orphan.SpoolMax = defaultSpoolMax
	}
	if s.Orphan.Do == "" {
		s.Orphan.Do = OrphanTerminate
	}
	if s.ParentDeathSignal == "" {
		s.ParentDeathSignal = "SIGKILL"
	}
}

// EndGrace returns the least time that the child has for each step of its end.
func (s *Spec) EndGrace() time.Duration { return time.Duration(s.EndGraceMS) * time.Millisecond }

// NotStarted returns in words why the program was not started.
func (s *Spec) NotStarted(exit Exit) string {
	name := "`" + s.Argv[0] + "`"
	switch op := exit.SpawnOp + " " + exit.SpawnErrno; {
	case op == "chdir ENOENT":
		return name + " cannot be started in " + s.Cwd + ": there is no such directory"
	case op == "exec ENOENT" && !strings.Contains(s.Argv[0], "/"):
		return name + " was not found on its PATH"
	case op == "exec ENOENT":
		return name + " was not found, or the program that its first line names"
	case op == "exec EACCES":
		return name + " may not be run: it is not executable, or its directory is closed to you"
	case op == "exec ENOEXEC":
		return name + " is not a program of this system"
	case exit.SpawnOp == OpConfine:
		return fmt.Sprintf("%s cannot be confined here (%s), so it was not started: holdline doctor",
			name, exit.SpawnErrno)
	}
	return fmt.Sprintf("%s cannot be started (%s)", name, exit)
}

// ValidID reports whether id can be a worker's id: a name of a file and a value
// in an environment, of 1 to 64 letters, digits, "_", "." and "-", the first
// a letter or digit.
func ValidID(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	for i, c := range []byte(id) {
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		case i > 0 && (c == '_' || c == '.' || c == '-'):
		default:
			return false
		}
	}
	return true
}

// Check says what is wrong with a spec, or nil. An error about its version
// wraps [ErrVersion].
func (s *Spec) Check() error {
	if err := CheckVersion(s.Version); err != nil {
		return fmt.Errorf("spec: %w", err)
	}
	switch {
	case !ValidID(s.ID):
		return fmt.Errorf("spec: bad id %q", s.ID)
	case len(s.Argv) == 0 || s.Argv[0] == "":
		return fmt.Errorf("spec: no argv")
	case s.Socket == "":
		return fmt.Errorf("spec: no socket")
	case s.Orphan.Do != OrphanTerminate && s.Orphan.Do != OrphanLeave:
		return fmt.Errorf("spec: bad orphan rule %q", s.Orphan.Do)
	case s.Limits.Retain < 1 || s.Limits.Line < 1 || s.Limits.Stderr < 1 ||
		s.Orphan.AfterMS < 1 || s.Orphan.SpoolMax < 1:
		return fmt.Errorf("spec: limits must be positive")
	}
	return s.Confine.check()
}

// Phases of a [State].
const (
	PhaseStarting = "starting" // the child is not yet, or not yet surely, the program
	PhaseRunning  = "running"
	PhaseAlone    = "alone"  // no daemon for longer than the window
	PhaseExited   = "exited" // final: the worker has left in order
)

// State is [FileState]. A pid means nothing without its start time and the
// boot id.
type State struct {
	Version    int    `json:"version"` // as in the Spec
	ID         string `json:"id"`      // of the worker
	Phase      string `json:"phase"`
	BootID     string `json:"boot_id"`             // of the machine's boot
	PID        int    `json:"pid"`                 // of the worker
	Start      uint64 `json:"start_time"`          // of the worker
	ChildPID   int    `json:"child_pid,omitempty"` // also its process group
	ChildStart uint64 `json:"child_start_time,omitempty"`
	LastWrite  int64  `json:"last_write"`      // id of the last write that the worker has taken
	Acked      int64  `json:"acked"`           // a daemon has acknowledged all events up to this number
	NextSeq    int64  `json:"next_seq"`        // number of the next event
	Exit       *Exit  `json:"exit,omitempty"`  // nil while the child runs
	Spool      *Spool `json:"spool,omitempty"` // nil if there is none
	UnixMS     int64  `json:"unix_ms"`         // when it was written
}

// Spool says what [FileSpool] holds: the bytes of stdout that were not acknowledged when it
// was begun, and all that followed.
type Spool struct {
	Bytes int64 `json:"bytes"`
	Acked int64 `json:"acked_bytes,omitempty"` // bytes at the beginning that were acknowledged
	Lost  int64 `json:"lost,omitempty"`        // bytes that could not be written
}

// Server is [FileServer]: what a hosted server's handshake came to. It is
// written before the write that follows the handshake.
type Server struct {
	Version int             `json:"version"`
	ID      string          `json:"id"`                // of the worker
	Era     string          `json:"era"`               // "legacy" or "modern"
	Result  json.RawMessage `json:"result"`            // of initialize or discover, as it came
	Offered json.RawMessage `json:"offered,omitempty"` // capabilities told to the server
	Relay   *string         `json:"relay"`             // hash of the session that its requests go to
}

// ErrOtherDirectory is wrapped by errors about a file that bears the id of another directory.
var ErrOtherDirectory = errors.New("it is that of another directory")

// belongs returns an error if id, which the file name in the directory dir bears, is not that
// directory's.
func belongs(dir, name, id string) error {
	if id != filepath.Base(dir) {
		return fmt.Errorf("%s: %w: %q", filepath.Join(dir, name), ErrOtherDirectory, id)
	}
	return nil
}

// ReadSpec reads the spec of the worker directory dir. It returns an error that wraps
// [ErrOtherDirectory] if that is another one's. Its version is checked by [Spec.Check], not here; the
// checksum of another version covers what this one does not know.
func ReadSpec(dir string) (Spec, error) {
	var s Spec
	err := ownfile.ReadJSON(filepath.Join(dir, FileSpec), &s)
	if err == nil {
		err = belongs(dir, FileSpec, s.ID)
	}
	if err == nil && s.Version == Version && s.Sum != 0 && s.Sum != s.sum() {
		err = fmt.Errorf("%s: %w", filepath.Join(dir, FileSpec), errSum)
	}
	return s, err
}

// ReadState reads the state of the worker directory dir. It returns an error that wraps
// [ErrOtherDirectory] if that is another one's.
func ReadState(dir string) (State, error) {
	var s State
	err := ownfile.ReadJSON(filepath.Join(dir, FileState), &s)
	if err == nil {
		err = belongs(dir, FileState, s.ID)
	}
	return s, err
}

// ReadServer reads what the handshake of the server in the worker directory dir came to. It returns
// an error that wraps [ErrOtherDirectory] if that is another one's.
func ReadServer(dir string) (Server, error) {
	var s Server
	err := ownfile.ReadJSON(filepath.Join(dir, FileServer), &s)
	if err == nil {
		err = belongs(dir, FileServer, s.ID)
	}
	return s, err
}
