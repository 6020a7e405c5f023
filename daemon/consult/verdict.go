package consult

import "holdline/daemon/supervisor"

// facts are what a daemon that starts finds of a job's directory. [decide]
// depends on nothing else, so that each of its cases can be named and tested.
type facts struct {
	supervisor.Facts

	Job    bool // job.json is there
	Answer bool // answer.json is there
}

// verdict is what is to become of a job's directory.
type verdict int

// The verdicts.
const (
	verdictLeave   verdict = iota + 1 // a worker comes to its lock, finds no spec and ends
	verdictRemove                     // no client was told of the job: one that still waits asks again
	verdictQueue                      // the job never began, and is to
	verdictAdopt                      // attach: the worker lives, or there is something to be read of it
	verdictEnd                        // the worker lives without a job: end it, then remove the directory
	verdictKeep                       // the job has its answer
	verdictDismiss                    // the job has its answer, and its worker lives: end that
	verdictUnbegun                    // say that the job did not begin
	verdictUnknown                    // say that it is not known what became of it
)

// decide returns what is to become of a job's directory.
func decide(f facts) verdict {
	switch {
	case f.Answer && f.Alive:
		return verdictDismiss
	case f.Answer:
		return verdictKeep
	case f.Alive && !f.Spec:
		return verdictLeave
	case f.Alive && !f.Job:
		return verdictEnd
	case f.Alive:
		return verdictAdopt
	case !f.Job, !f.Spec && !f.State:
		return verdictRemove
	case !f.Spec: // it was taken away because the start failed
		return verdictUnknown
	case f.State: // what the worker left tells more than nothing
		return verdictAdopt
	case !f.Boot: // the client that asked ended with the machine
		return verdictUnbegun
	}
	return verdictQueue
}
