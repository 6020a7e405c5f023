// Package jobdir knows the directory of a consult: which files are in it, what job.json
// says, and what a daemon that starts concludes from what it finds there.
//
// Files, beside those of the worker and of the engine process:
//
//	job.json     the request with its prompt, and its time; written first
//	answer.json  how the job ended; written last, once
//	tmp/         the program's private temporary directory; removed at the end
//
// The directory has the id of its job for a name. The id is a hash of the session and of
// the number of the client's line. A client that repeats a request after a crash
// therefore finds its job again, and the job never runs twice.
package jobdir

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/calls"
	"holdline/daemon/consult/material"
	"holdline/daemon/statedir"
	"holdline/daemon/tasks"
	"holdline/protocol/bootclock"
	"holdline/protocol/bulk"
	"holdline/protocol/lockcheck"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// Names in the directory.
const (
	FileJob    = "job.json"
	FileAnswer = "answer.json"
	DirTemp    = "tmp"
)

// Version is that of job.json and answer.json.
const Version = 1

// Record is job.json: the request, as it came and as the daemon has resolved it. It
// holds the prompt, so only this user may read the file. An older daemon's record must
// stay readable: fields that are missing are zero.
type Record struct {
	Version       int            `json:"version"`
	ID            string         `json:"consult_id"`
	Session       string         `json:"session"` // hash of the caller's
	N             int64          `json:"n"`
	Identity      string         `json:"identity"`
	Project       string         `json:"project,omitempty"`
	Client        string         `json:"client,omitempty"`
	Attended      bool           `json:"attended"`
	Engine        string         `json:"engine"`
	CreatedUnixMS int64          `json:"created_unix_ms"`
	CreatedBootMS int64          `json:"created_boot_ms,omitempty"` // reading of the boot clock, of boot BootID
	TimeoutMS     int64          `json:"timeout_ms"`
	Request       engine.Request `json:"request"`
	Follows       string         `json:"follows,omitempty"`      // id of the consult that it continues
	AskedBytes    int            `json:"asked_bytes,omitempty"`  // of the prompt without its context; 0 for all
	ReservedUSD   float64        `json:"reserved_usd,omitempty"` // of the budgets, while it has not ended
	EngineVersion string         `json:"engine_version"`
	Level         string         `json:"level"` // that is enforced, and how
	EnforcedBy    string         `json:"enforced_by"`
	Notes         []string       `json:"notes,omitempty"`
	BootID        string         `json:"boot_id,omitempty"` // of the machine when it was asked for
	ClientPID     int            `json:"client_pid,omitempty"`
	// with ClientPID and BootID: the process that the client talks through
	ClientStart uint64            `json:"client_start_time,omitempty"`
	WaitMS      int64             `json:"wait_ms,omitempty"` // how long the call waits; 0 if it does not
	Context     *material.Context `json:"context,omitempty"` // what was put behind the prompt
	Ending      string            `json:"ending,omitempty"`  // why the job is being cancelled; "" if it is not
	Task        *tasks.Asked      `json:"task,omitempty"`    // by which the client asks for the job; nil if it got none
	Damaged     bool              `json:"damaged,omitempty"` // made by Recover: the record itself is lost

	// Of a panel: its members, in the order in which the caller named them, without what is
	// the same as in this record. With Judged the last one is the judge.
	Members []Record `json:"members,omitempty"`
	Judged  bool     `json:"judged,omitempty"`
	// Of a member of a panel: the panel's id, and how the panel calls the member.
	Panel string `json:"panel,omitempty"`
	Label string `json:"label,omitempty"`
}

// ID returns the id of the job that line n of a session asks for. It depends on these
// two alone, so a repeated request finds the same job after any crash.
func ID(session string, n int64) string {
	sum := sha256.Sum256([]byte(session + ":" + strconv.FormatInt(n, 10)))
	return hex.EncodeToString(sum[:])[:12]
}

// MemberID returns the id of member number i of the panel that line n of a session asks for.
func MemberID(session string, n int64, i int) string {
	return ID(session+":"+strconv.FormatInt(n, 10), int64(i))
}

// SetMembers makes rec the record of a panel with these members.
func (rec *Record) SetMembers(members []Record, judged bool) {
	rec.Members, rec.Judged = slices.Clone(members), judged
	for i := range rec.Members {
		m := &rec.Members[i]
		m.Request.Prompt, m.AskedBytes, m.Context = "", 0, nil
	}
}

// Member returns the record of member i of a panel. That of the judge has no prompt, since
// that depends on the answers of the others.
func (rec *Record) Member(i int) Record {
	m := rec.Members[i]
	if !rec.Judged || i < len(rec.Members)-1 {
		m.Request.Prompt, m.AskedBytes, m.Context = rec.Request.Prompt, rec.AskedBytes, rec.Context
	}
	return m
}

// Asked returns the prompt of the caller, without the context behind it.
func (rec *Record) Asked() string {
	if n := rec.AskedBytes; n > 0 && n < len(rec.Request.Prompt) {
		return rec.Request.Prompt[:n]
	}
	return rec.Request.Prompt
}

// IsID reports whether name has the form of a job's id, and so of its directory.
func IsID(name string) bool {
	return len(name) == 12 && strings.Trim(name, "0123456789abcdef") == ""
}

// ReadRecord reads the job.json of a job's directory. One that is another job's is an error.
func ReadRecord(dir string) (Record, error) {
	var rec Record
	err := Read(dir, FileJob, &rec, &rec.Version, Version)
	if err == nil {
		err = CheckID(dir, FileJob, rec.ID)
	}
	return rec, err
}

// CheckID returns an error if the file of that name in a job's directory bears another id than the
// job's: it was put there from elsewhere.
func CheckID(dir, name, id string) error {
	if id != filepath.Base(dir) {
		return fmt.Errorf("%s is of another consult, %q", filepath.Join(dir, name), id)
	}
	return nil
}

// ReadOutcome reads the outcome.json of a job's directory. One that is another job's is an error.
func ReadOutcome(dir string) (engine.Outcome, error) {
	var out engine.Outcome
	err := Read(dir, engine.FileOutcome, &out, &out.Version, engine.Version)
	if err == nil {
		err = CheckID(dir, engine.FileOutcome, out.Job)
	}
	return out, err
}

// Recover returns what is known of a job whose job.json is not whole: its id, and who has asked for it if its
// worker's files tell.
func Recover(dir string) Record {
	rec := Record{Version: Version, ID: filepath.Base(dir), Damaged: true}
	if info, err := os.Stat(dir); err == nil {
		rec.CreatedUnixMS = info.ModTime().UnixMilli()
	}
	if spec, err := process.ReadSpec(dir); err == nil && spec.ID == rec.ID {
		rec.Session, rec.N, rec.Identity = spec.Owner.Session, spec.Owner.N, spec.Owner.Identity
		rec.Engine = spec.Name
	}
	return rec
}

// Write replaces job.json in the directory dir.
func (rec *Record) Write(dir string) error { return Write(dir, FileJob, rec) }

// ErrVersion is wrapped by errors about a file of a version that this program does not
// know. Such a file stays as it is: the program that wrote it may come back.
var ErrVersion = errors.New("a version that this program does not know")

// errDamaged says that a file is not as it was written.
var errDamaged = errors.New("is damaged: it is not as it was written")

// Read decodes a JSON file of a job's directory into v, whose version it then finds in
// version. Any version but known is an error that wraps [ErrVersion]. A file that is not as [Write] has made
// it for this job is an error, too. Each error says which file it was.
func Read(dir, name string, v any, version *int, known int) error {
	path := filepath.Join(dir, name)
	b, err := ownfile.Read(path, ownfile.MaxDocument)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if *version != known {
		return unknownVersion(path, fmt.Errorf("%d, this one takes %d", *version, known))
	}
	if !bulk.IsSealed(engine.SealName(dir, name), bytes.TrimSuffix(b, []byte("\n"))) {
		return fmt.Errorf("%s %w", path, errDamaged)
	}
	return nil
}

// unknownVersion returns the error about a file of a version that is not known: err says
// which it is. The error says what the user can do about the file.
func unknownVersion(path string, err error) error {
	return fmt.Errorf("%s is of %w: %w; another version of Holdline wrote it: go back to that, or: rm -r %s",
		path, ErrVersion, err, filepath.Dir(path))
}

// Write replaces a file of a job's directory by v as JSON.
func Write(dir, name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", name, err)
	}
	return statedir.WriteFile(filepath.Join(dir, name), append(bulk.Seal(engine.SealName(dir, name), b), '\n'))
}

// Remove removes the directory of a job. It removes job.json first. If the daemon dies
// halfway, the next daemon finds a directory without job.json and does not take it for
// a job that has yet to begin.
func Remove(dir string) error {
	lockcheck.Blocking("remove directory")
	// Without its job.json a directory with these is taken for a job whose record is lost.
	for _, name := range []string{process.FileSpec, process.FileState} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := os.Remove(filepath.Join(dir, FileJob)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.RemoveAll(dir)
}

// Key returns the key of the call that asked for the job.
func (rec *Record) Key() calls.Key { return calls.Key{Session: rec.Session, N: rec.N} }

// IsOfThisBoot reports whether the job was asked for since the machine was booted.
func (rec *Record) IsOfThisBoot() bool { return rec.BootID != "" && rec.BootID == bootclock.ID() }

// Created returns when the job was asked for. Within one boot it reads the boot clock,
// so that a change of the wall clock does not move deadlines. After another boot only
// the wall clock is left.
func (rec *Record) Created() time.Time {
	if rec.IsOfThisBoot() && rec.CreatedBootMS > 0 {
		return bootclock.TimeMS(rec.CreatedBootMS)
	}
	return time.UnixMilli(rec.CreatedUnixMS)
}

// IsDeserted reports whether the process through which the client would come back for
// the job is gone. That process is the proxy; it is recognised by its pid, its start time
// and the boot. If the daemon cannot look at the process, IsDeserted returns false: a job
// is rather kept than lost.
func (rec *Record) IsDeserted() bool {
	if rec.BootID == "" || rec.ClientPID == 0 || rec.ClientStart == 0 {
		return false
	}
	if now := bootclock.ID(); now != rec.BootID {
		return now != ""
	}
	p, err := process.Lookup(rec.ClientPID)
	return errors.Is(err, process.ErrGone) || err == nil && p.Start != rec.ClientStart
}
