package earlier_test

import (
	"encoding/json"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdline/daemon/calls"
	"holdline/daemon/hosted/earlier"
	"holdline/daemon/hosted/question"
	"holdline/daemon/listing"
	"holdline/daemon/statedir"
	"holdline/daemon/supervisor"
	"holdline/protocol/bootclock"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/process"
)

// A left is the directory of a worker, as a daemon that has died left it. No worker is there:
// the test holds the lock of one that lives.
type left struct {
	*testing.T
	workers *supervisor.Supervisor
	dir     string
}

func newLeft(t *testing.T) *left {
	t.Helper()
	run := t.TempDir()
	l := &left{t, supervisor.New(supervisor.Options{RuntimeDir: run, Log: slog.New(slog.DiscardHandler)}), ""}
	l.dir = l.workers.Dir("s-1")
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return l
}

// check ends the test if err is not nil.
func (l *left) check(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// write puts a file of that name into the directory.
func (l *left) write(name string, v any) {
	l.Helper()
	l.check(os.WriteFile(filepath.Join(l.dir, name), jsonrpc.Encode(v), 0o600))
}

// live holds the lock of the worker until the test ends.
func (l *left) live() {
	l.Helper()
	lock, err := statedir.TryLock(filepath.Join(l.dir, process.FileLock))
	l.check(err)
	l.Cleanup(func() { _ = lock.Unlock() })
}

// ran writes what a worker that has ended in order leaves, which ran under that boot.
func (l *left) ran(boot string) {
	l.Helper()
	l.write(process.FileSpec, process.Spec{ID: "s-1", Kind: process.KindServer, Name: "s", Generation: 7})
	l.write(process.FileState, process.State{ID: "s-1", Phase: process.PhaseExited, BootID: boot})
}

// introduced writes the result of the handshake.
func (l *left) introduced() {
	l.Helper()
	j, err := calls.OpenJournal(l.dir)
	l.check(err)
	l.check(j.Close())
	l.took(0)
	l.write(process.FileServer, process.Server{ID: "s-1", Era: "legacy", Result: json.RawMessage(`{}`)})
}

// called writes the record of a call, under which the worker has write 1.
func (l *left) called() {
	l.Helper()
	j, err := calls.OpenJournal(l.dir)
	l.check(err)
	l.check(j.Append(calls.Record{N: 3, Session: "session", Kind: calls.KindCall, Name: "tool", Write: 1}))
	l.check(j.Close())
	l.took(1)
}

// took writes down that the worker has taken write n.
func (l *left) took(n int64) {
	l.Helper()
	mark, err := process.NewTaken(l.dir)
	l.check(err)
	mark.Set(n)
}

// read reads the directory as a new daemon does, and reports whether it is still there.
func (l *left) read() (p *earlier.Process, there bool, err error) {
	p, err = earlier.Read(l.workers, l.dir, false, slog.New(slog.DiscardHandler))
	_, gone := os.Stat(l.dir)
	return p, gone == nil, err
}

// TestRead checks which processes are restored, and which directories are removed: never
// that of a worker that lives, nor of one with a call that a client may ask for.
func TestRead(t *testing.T) {
	for _, tc := range []struct {
		name, leaves    string
		restored, there bool
	}{
		{"a living worker with a call", "lock ran handshake call", true, true},
		{"a living worker without calls", "lock ran handshake", true, true},
		{"a living worker without a handshake", "lock ran", true, true},
		{"a living worker that leaves", "lock", false, true},
		{"a dead worker with a call", "ran handshake call", true, true},
		{"a dead worker without calls", "ran handshake", false, false},
		{"a dead worker of an earlier boot", "ran-before handshake call", false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLeft(t)
			for what := range strings.FieldsSeq(tc.leaves) {
				map[string]func(){
					"lock": l.live, "handshake": l.introduced, "call": l.called,
					"ran": func() { l.ran(bootclock.ID()) }, "ran-before": func() { l.ran("another boot") },
				}[what]()
			}
			p, there, err := l.read()
			if err != nil || (p != nil) != tc.restored || there != tc.there {
				t.Errorf("restored %v, the directory is there %v, error %v; want %v, %v and none",
					p != nil, there, err, tc.restored, tc.there)
			}
		})
	}
}

// TestReadAll checks that all is read that an earlier daemon knew of a process.
func TestReadAll(t *testing.T) {
	l := newLeft(t)
	l.live()
	l.ran(bootclock.ID())
	l.introduced()
	l.called()
	l.check(os.Mkdir(filepath.Join(l.dir, calls.DirAnswers), 0o700))
	size, sum, err := calls.WriteAnswer(l.dir, 1, calls.Answer{Result: json.RawMessage(`{"a":1}`)})
	l.check(err)
	j, err := calls.OpenJournal(l.dir)
	l.check(err)
	l.check(j.Filed(1, size, sum))
	l.check(j.Close())
	l.check(question.Write(l.dir, "4.1", []byte(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`),
		question.Shown{}))
	memory := listing.Memory{Key: "k", Lists: listing.Lists{listing.Tools: {json.RawMessage(`{"name":"t"}`)}}}
	l.check(memory.Write(filepath.Join(l.dir, process.FileLists)))

	p, _, err := l.read()
	l.check(err)
	switch {
	case !p.Alive || p.Dir != l.dir || p.Spec.Name != "s" || p.Spec.Generation != 7:
		t.Errorf("process: %+v", p)
	case len(p.Records) != 1 || p.Records[0].Name != "tool" || p.Records[0].Write != 1:
		t.Errorf("records: %+v", p.Records)
	case len(p.Answers) != 1 || p.Answers[1] != size:
		t.Errorf("answers: %v, want one of %d bytes", p.Answers, size)
	case len(p.Questions) != 1 || p.Questions[0].Seq != 4 || p.Questions[0].Nth != 1:
		t.Errorf("questions: %+v", p.Questions)
	case p.Lists == nil || p.Lists.Key != "k" || len(p.Lists.Lists[listing.Tools]) != 1:
		t.Errorf("lists: %+v", p.Lists)
	}
}

// TestReadBroken checks that a process is restored although its lists cannot be read, and that one
// whose records cannot be read is known to be damaged: its calls are not known.
func TestReadBroken(t *testing.T) {
	l := newLeft(t)
	l.ran(bootclock.ID())
	l.introduced()
	l.called()
	l.write(process.FileLists, "no lists")
	if p, _, err := l.read(); err != nil || p == nil || p.Lists != nil {
		t.Errorf("with broken lists: %+v, %v", p, err)
	}
	l.check(os.Remove(filepath.Join(l.dir, calls.File)))
	l.check(os.Mkdir(filepath.Join(l.dir, calls.File), 0o700))
	if p, there, err := l.read(); err != nil || p == nil || p.Damage == nil || !there {
		t.Errorf("with broken records: %+v, the directory is there %v, error %v", p, there, err)
	}
}

// TestCompare checks that living processes are restored first, the youngest of them before
// the others, and then dead ones in the same order.
func TestCompare(t *testing.T) {
	var all []*earlier.Process
	for _, generation := range []int64{2, 5, 3} {
		spec := process.Spec{Generation: generation}
		all = append(all, &earlier.Process{Spec: spec}, &earlier.Process{Spec: spec, Alive: true})
	}
	slices.SortFunc(all, (*earlier.Process).Compare)
	for i, want := range []int64{5, 3, 2, 5, 3, 2} {
		if p := all[i]; p.Spec.Generation != want || p.Alive != (i < 3) {
			t.Errorf("process %d is of generation %d and alive %v, want %d and %v",
				i, p.Spec.Generation, p.Alive, want, i < 3)
		}
	}
}

// TestDeserted checks that a session is given up only if it is certain that its proxy has
// ended: its process is gone, or another one has its id. The proxy is known by the process of
// the session, or by the records of its calls.
func TestDeserted(t *testing.T) {
	self, err := process.Lookup(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	owner := func(session string, pid int, start uint64) *earlier.Process {
		o := process.Owner{Session: session, ProxyPID: pid, ProxyStart: start}
		return &earlier.Process{Spec: process.Spec{Owner: o}}
	}
	call := func(session string, pid int, start uint64) calls.Record {
		return calls.Record{Session: session, Kind: calls.KindCall, ProxyPID: pid, ProxyStart: start}
	}
	shared := func(records ...calls.Record) *earlier.Process { return &earlier.Process{Records: records} }
	gone := math.MaxInt32
	for _, tc := range []struct {
		name  string
		found []*earlier.Process
		want  []string
	}{
		{"no session", []*earlier.Process{owner("", gone, 1)}, nil},
		{"an unknown proxy", []*earlier.Process{owner("x", 0, 0)}, nil},
		{"a proxy that lives", []*earlier.Process{owner("x", self.PID, self.Start)}, nil},
		{"a proxy that is gone", []*earlier.Process{owner("x", gone, 1)}, []string{"x"}},
		{"another process with its id", []*earlier.Process{owner("x", self.PID, self.Start+1)}, []string{"x"}},
		{"a call of an unknown proxy", []*earlier.Process{shared(call("x", 0, 0))}, nil},
		{"calls of a proxy that lives, and of one that is gone", []*earlier.Process{
			shared(call("x", self.PID, self.Start), call("y", gone, 1)), shared(call("y", gone, 1)),
		}, []string{"y"}},
		{"a session that has had two proxies, the later of which lives", []*earlier.Process{
			shared(call("x", gone, 1), call("x", self.PID, self.Start)),
		}, nil},
		{"the same the other way round", []*earlier.Process{
			shared(call("x", self.PID, self.Start)), shared(call("x", gone, 1)),
		}, nil},
		{"a cancellation alone", []*earlier.Process{
			shared(calls.Record{Session: "x", Kind: calls.KindCancel, ProxyPID: gone, ProxyStart: 1}),
		}, nil},
	} {
		if got := earlier.Deserted(tc.found); !slices.Equal(got, tc.want) {
			t.Errorf("%s: sessions %q are deserted, want %q", tc.name, got, tc.want)
		}
	}
}

// TestAnswerFileLost_CallIsNotMadeAgain has an answer in a file, whose line was acknowledged. Once the file is not
// what the journal says, the call is doubtful: it was made, and its answer is lost.
func TestAnswerFileLost_CallIsNotMadeAgain(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"whole":   func(string) error { return nil },
		"missing": os.Remove,
		"emptied": func(path string) error { return os.Truncate(path, 0) },
		"another call's": func(path string) error {
			_, _, err := calls.WriteAnswer(filepath.Dir(filepath.Dir(path)), 1, calls.Answer{Result: json.RawMessage(`{"a":2}`)})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLeft(t)
			l.live()
			l.ran(bootclock.ID())
			l.introduced()
			l.called()
			l.check(os.Mkdir(filepath.Join(l.dir, calls.DirAnswers), 0o700))
			size, sum, err := calls.WriteAnswer(l.dir, 1, calls.Answer{Result: json.RawMessage(`{"a":1}`)})
			l.check(err)
			j, err := calls.OpenJournal(l.dir)
			l.check(err)
			l.check(j.Filed(1, size, sum))
			l.check(j.Close())
			l.check(damage(calls.AnswerFile(l.dir, 1)))
			p, _, err := l.read()
			l.check(err)
			lost := name != "whole"
			if len(p.Records) != 1 || p.Records[0].Doubtful != lost || (p.LostFile != nil) != lost || (len(p.Answers) == 0) != lost {
				t.Errorf("%+v", p)
			}
		})
	}
}

// TestAnswerFileNotOnRecord_IsNotBelieved checks that a file of which the journal says nothing is
// dropped, since the worker still has the line, unless it has a fault.
func TestAnswerFileNotOnRecord_IsNotBelieved(t *testing.T) {
	for name, a := range map[string]calls.Answer{
		"a result": {Result: json.RawMessage(`{"a":1}`)},
		"a fault":  {Fault: fault.New(fault.ProcessFailure, fault.Server, "tools/call:t", "it died")},
	} {
		l := newLeft(t)
		l.live()
		l.ran(bootclock.ID())
		l.introduced()
		l.called()
		l.check(os.Mkdir(filepath.Join(l.dir, calls.DirAnswers), 0o700))
		_, _, err := calls.WriteAnswer(l.dir, 1, a)
		l.check(err)
		p, _, err := l.read()
		l.check(err)
		if len(p.Records) != 1 || p.Records[0].Doubtful || p.LostFile != nil || (len(p.Answers) == 1) != (a.Fault != nil) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// TestFileOfRequestDamaged_CallsWithoutAnswerAreDoubtful damages the file of a server's request. Each call that
// has no answer may wait for that, and would for ever: its record is doubtful, and the file is named. One
// that has its answer is not concerned, nor is any if the request was answered.
func TestFileOfRequestDamaged_CallsWithoutAnswerAreDoubtful(t *testing.T) {
	for name, tc := range map[string]struct{ damaged, responded, doubtful bool }{
		"whole":                 {false, false, false},
		"damaged":               {true, false, true},
		"damaged, and answered": {true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLeft(t)
			l.ran(bootclock.ID())
			l.introduced()
			l.live()
			l.called()
			l.check(question.Write(l.dir, "5.0", []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`), question.Shown{}))
			path := filepath.Join(l.dir, process.DirAsks, "5.0")
			if tc.damaged {
				l.check(os.Truncate(path, 10))
			}
			if tc.responded {
				j, err := calls.OpenJournal(l.dir)
				l.check(err)
				l.check(j.Append(calls.Record{Session: "session", Kind: calls.KindRespond, Name: "s-1:5.0", Write: 2}))
				l.check(j.Close())
				l.took(2)
			}
			p, _, err := l.read()
			l.check(err)
			if p.Records[0].Doubtful != tc.doubtful || (p.LostFile != nil) != tc.doubtful {
				t.Errorf("doubtful %t, lost %v", p.Records[0].Doubtful, p.LostFile)
			}
			if tc.doubtful && !strings.Contains(p.LostFile.Error(), path) {
				t.Errorf("%v does not name %s", p.LostFile, path)
			}
		})
	}
}
