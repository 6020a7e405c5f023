package jobdir

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/calls"
	"holdline/daemon/statedir"
	"holdline/protocol/bootclock"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/process"
)

// How far a job has come. Each step has left what the steps before it have left.
const (
	made    = iota // its directory
	asked          // its request: from here on a client may know its id
	specced        // the spec of its worker, which may be on its way
	locked         // its worker has the lock
	stated         // its worker has its state, and starts the process
	told           // the process was told of the job
	began          // the process has noted that it starts its program
	ended          // the answer
)

// truth is what is true of a job, whatever its files say.
type truth struct {
	step  int
	alive bool // its worker lives
	left  bool // its worker has ended in order, since the process has ended
	boot  bool // the machine was not booted since
	group bool
}

// truths returns all that can be true of a job.
func truths() (all []truth) {
	for step := made; step <= ended; step++ {
		for _, boot := range []bool{true, false} {
			all = append(all, truth{step: step, boot: boot})
			if step >= stated && step < ended {
				all = append(all, truth{step: step, boot: boot, left: true})
			}
			if step >= asked && step <= stated || step == ended {
				all = append(all, truth{step: step, boot: boot, group: true})
			}
		}
		if step >= locked {
			all = append(all, truth{step: step, boot: true, alive: true})
		}
	}
	return slices.DeleteFunc(all, func(w truth) bool { return w.group && w.step > asked && w.step < ended })
}

// write makes the files of the job in dir. The caller must call the func that it returns, by which the worker dies.
func (w truth) write(t *testing.T, dir string) (die func()) {
	t.Helper()
	die = func() {}
	id := filepath.Base(dir)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(dir, 0o700))
	rec := Record{Version: Version, ID: id, BootID: "another"}
	if w.boot {
		rec.BootID = bootclock.ID()
	}
	if w.group {
		rec.Members = []Record{{ID: "00000000000a"}}
	}
	if w.step >= asked {
		must(rec.Write(dir))
	}
	if w.step >= specced && !w.group {
		spec := process.Spec{Version: process.Version, ID: id}
		spec.Seal()
		must(os.WriteFile(filepath.Join(dir, process.FileSpec), jsonrpc.Encode(spec), 0o600))
	}
	if w.step >= locked && !w.group {
		lock, err := statedir.TryLock(filepath.Join(dir, process.FileLock))
		must(err)
		me := process.Self()
		must(lock.Write(me.PID, me.Start))
		if die = func() { must(lock.Unlock()) }; !w.alive {
			die()
			die = func() {}
		}
	}
	if w.step >= stated && !w.group {
		taken, err := process.NewTaken(dir)
		must(err)
		if w.step >= told {
			taken.Set(1)
		}
		st := process.State{Version: process.Version, ID: id, Phase: process.PhaseRunning, BootID: rec.BootID}
		if w.left {
			st.Phase = process.PhaseExited
		}
		must(os.WriteFile(filepath.Join(dir, process.FileState), jsonrpc.Encode(st), 0o600))
	}
	if w.step >= began && !w.group {
		tr, err := engine.CreateTranscript(dir, engine.Entry{})
		must(err)
		tr.Close()
	}
	if w.step >= ended {
		must(Write(dir, FileAnswer, map[string]any{"version": Version, "consult_id": id}))
	}
	return die
}

// harms are what can happen to one file of a job. The old copy of a file is what the step before it has left.
var harms = map[string]func(path string, b []byte) error{
	"removed": func(path string, _ []byte) error { return os.Remove(path) },
	"emptied": func(path string, _ []byte) error { return os.WriteFile(path, nil, 0o600) },
	"halved":  func(path string, b []byte) error { return os.WriteFile(path, b[:len(b)/2], 0o600) },
	"NULs":    func(path string, b []byte) error { return os.WriteFile(path, make([]byte, len(b)), 0o600) },
	"another's": func(path string, b []byte) error {
		id := filepath.Base(filepath.Dir(path))
		return os.WriteFile(path, bytes.ReplaceAll(b, []byte(id), []byte("0123456789ab")), 0o600)
	},
	"a directory": func(path string, _ []byte) error {
		if err := os.Remove(path); err != nil {
			return err
		}
		return os.Mkdir(path, 0o700)
	},
}

// found is what a daemon that starts finds of a job, one of whose files was harmed; none if file is "".
type found struct {
	truth
	file, how string
	facts     calls.JobFacts
}

// look makes the files of each job, harms each in each way, and looks at them as a daemon does. So it is with a file
// that cannot be read for an error that passes: once the daemon gives it up, it counts as damaged.
func look(t *testing.T) (all []found) {
	t.Helper()
	root, n := t.TempDir(), 0
	one := func(w truth, file, how string) {
		t.Helper()
		n++
		dir := filepath.Join(root, fmt.Sprintf("%012x", n))
		defer w.write(t, dir)()
		if file != "" {
			path := filepath.Join(dir, file)
			b, err := os.ReadFile(path)
			if err != nil {
				return // this job has no such file
			}
			if err := harms[how](path, b); err != nil {
				t.Fatal(err)
			}
		}
		var a struct {
			Version int    `json:"version"`
			ID      string `json:"consult_id"`
		}
		f, rec, err := Look(dir, &a, &a.Version, &a.ID, false)
		if err != nil || rec.ID != filepath.Base(dir) {
			t.Errorf("%+v, %s %s: %v, the record is of %q", w, file, how, err, rec.ID)
		}
		all = append(all, found{w, file, how, f})
	}
	for _, w := range truths() {
		one(w, "", "")
		for _, file := range []string{
			FileJob, process.FileSpec, process.FileState, process.FileTaken, engine.FileTranscript, FileAnswer,
		} {
			for how := range harms {
				one(w, file, how)
			}
		}
	}
	return all
}

// wrong returns why a verdict must not be given, or "".
func (o *found) wrong(v calls.JobVerdict) string {
	whole := o.file == ""
	live := o.step < ended || o.file == FileAnswer
	untold := o.step < told && !o.left
	switch {
	case !live && v != calls.JobEnded:
		return "its answer is there"
	case v == calls.JobEnded && live:
		return "it has no answer"
	case o.step >= began && !o.group && (v == calls.JobWaits || v == calls.JobNeverBegan):
		return "its program would start twice, or is said to have never begun"
	case o.left && v == calls.JobWaits && o.file != process.FileState:
		return "how its process ended is known, and it would begin again without end"
	case o.step == asked && o.file == FileJob && o.how == "removed": // nothing else is left of it, and nothing ran
	case v == calls.JobUnknown && o.step >= asked:
		return "its id may have been told"
	case o.step == made && v != calls.JobUnknown:
		return "no client knows of it"
	case o.group && o.step == ended && v != calls.JobGoesOn && live:
		return "its members have their answers"
	case o.step == ended && live && o.how != "removed" && !o.alive && !o.group && v != calls.JobTorn:
		return "it has ended, and no worker has anything of it"
	case o.step == ended && live && o.alive && v != calls.JobGoesOn:
		return "its worker lives, and may have the answer"
	case v == calls.JobTorn && o.step < ended:
		return "it has not ended"
	case v == calls.JobLost && (whole || o.file != FileJob && o.file != process.FileSpec && o.step < ended):
		return "what became of it can be known"
	case o.alive && o.file == process.FileSpec && v == calls.JobWaits && o.step >= stated:
		return "its worker would run beside the next one"
	case o.alive && (whole || o.file == process.FileState || o.file == process.FileTaken) && live && v != calls.JobGoesOn:
		return "its worker lives, and its records are sound"
	case o.file == FileJob && o.step >= asked && live && v != calls.JobLost:
		return "it is not known who has asked for it, and for what"
	case whole && o.group && live && v != calls.JobGoesOn:
		return "its members go on"
	case !whole || o.group || o.alive || !live:
	case untold && o.boot && o.step >= asked && v != calls.JobWaits:
		return "it was certainly not begun, and is not begun"
	case o.step < stated && !o.boot && o.step >= asked && v != calls.JobNeverBegan:
		return "its client ended with the machine, before it began"
	case (o.step >= told || o.left || !o.boot && o.step >= stated) && v != calls.JobGoesOn:
		return "what its worker has left says what became of it"
	}
	return ""
}

// TestFilesOfJobDamaged_VerdictIsSafe looks at jobs at each point of their life, with each of their files whole or
// damaged in each way, and checks the verdict.
func TestFilesOfJobDamaged_VerdictIsSafe(t *testing.T) {
	all := look(t)
	for _, o := range all {
		v := calls.DecideJob(o.facts)
		if why := o.wrong(v); why != "" {
			t.Errorf("%+v: verdict %d: %s", o, v, why)
		}
	}
	t.Logf("%d jobs", len(all))
	if len(all) < 300 {
		t.Errorf("only %d jobs", len(all))
	}
}

// TestRuleOfJobsTakenAway_IsNoticed takes each rule of the law of jobs away in turn: for some job the verdict is
// wrong then.
func TestRuleOfJobsTakenAway_IsNoticed(t *testing.T) {
	all := look(t)
	law := calls.DecideJob
	// without returns the law as it would be if no job had that fact.
	without := func(forget func(*calls.JobFacts)) func(calls.JobFacts) calls.JobVerdict {
		return func(f calls.JobFacts) calls.JobVerdict {
			forget(&f)
			return law(f)
		}
	}
	for name, broken := range map[string]func(calls.JobFacts) calls.JobVerdict{
		"an answer ends it":                     without(func(f *calls.JobFacts) { f.Answer = false }),
		"a torn answer has ended it":            without(func(f *calls.JobFacts) { f.Torn = false }),
		"a group has members that have theirs":  without(func(f *calls.JobFacts) { f.Group = false }),
		"what is damaged is not begun":          without(func(f *calls.JobFacts) { f.Damaged = false }),
		"a request comes first":                 without(func(f *calls.JobFacts) { f.Job = true }),
		"a worker that lives goes on":           without(func(f *calls.JobFacts) { f.Alive = false }),
		"what a process may know is not begun":  without(func(f *calls.JobFacts) { f.Told = false }),
		"a process that ended by itself failed": without(func(f *calls.JobFacts) { f.Left = false }),
		"a client ends with its machine":        without(func(f *calls.JobFacts) { f.Boot = true }),
		"a state says that a process ran":       without(func(f *calls.JobFacts) { f.State = false }),
		"a spec says that there is a worker":    without(func(f *calls.JobFacts) { f.Spec = false }),
		"a process that was told nothing begins again": without(func(f *calls.JobFacts) {
			f.Told = f.Told || f.State
		}),
		"the worker with a torn answer may have it": func(f calls.JobFacts) calls.JobVerdict {
			if f.Torn && !f.Answer {
				return calls.JobTorn
			}
			return law(f)
		},
		"a worker without a spec is ended first": func(f calls.JobFacts) calls.JobVerdict {
			if f.Alive && f.State && !f.Spec && !f.Answer && f.Job {
				return calls.JobWaits
			}
			return law(f)
		},
		"no request beside what follows it is damage": func(f calls.JobFacts) calls.JobVerdict {
			if v := law(f); v != calls.JobLost || f.Job || f.Damaged {
				return v
			}
			return calls.JobUnknown
		},
		"nothing was promised without a request": func(f calls.JobFacts) calls.JobVerdict {
			if v := law(f); v != calls.JobUnknown {
				return v
			}
			return calls.JobLost
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, o := range all {
				if why := o.wrong(broken(o.facts)); why != "" {
					t.Logf("%+v: %s", o, why)
					return
				}
			}
			t.Errorf("nothing wrong with %d jobs", len(all))
		})
	}
}
