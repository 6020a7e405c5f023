package calls

// JobFacts are what a daemon that starts finds in the directory of a job: a call that a private process serves.
// A file that cannot be read for an error that passes is no fact yet: it is read again first.
type JobFacts struct {
	Alive bool // the lock of its worker is held, whatever any pid says
	Spec  bool // what the worker runs is known
	State bool // a worker had its lock and its socket
	Boot  bool // the job was asked for under this boot of the machine

	Job    bool // its request is there, and whole
	Answer bool // its answer is there, and whole
	Group  bool // it has members, which are jobs, and no worker

	Left bool // its worker has ended in order, and its files say how the process ended
	Told bool // the process may have been told of the job, or what it was told cannot be read

	Torn    bool // its answer is there, and not whole
	Damaged bool // its request is there and not whole, or it is not known which files a worker has
}

// JobVerdict says what became of a job of an earlier daemon.
type JobVerdict int

// The verdicts.
const (
	JobUnknown    JobVerdict = iota + 1 // no client knows its id
	JobEnded                            // it has its answer
	JobGoesOn                           // its worker lives, or has left something to be read
	JobWaits                            // it has not begun, and is queued
	JobNeverBegan                       // it has not begun, and its client ended with the machine
	JobLost                             // it is not known what became of it
	JobTorn                             // it has ended, and its answer is to be made again from what else is there
)

// DecideJob is the law of jobs: it says what became of one, from nothing but the facts. The first row that
// matches decides:
//
//	an answer                                JobEnded
//	a torn answer                            JobTorn, unless it is a group's, or its worker lives and has it still
//	damaged                                  JobLost: it may have run
//	no request; a spec, a state, or alive    JobLost, too: the request is written before all of these
//	no request                               JobUnknown: it is written before the call is answered or queued
//	a group                                  JobGoesOn, whatever became of its members
//	alive, with a spec                       JobGoesOn
//	a state, dead, not left, not told, boot  JobWaits: its process was told nothing, so it begins again
//	a state, or told, with a spec            JobGoesOn: what the worker left says more than nothing
//	a state, or told, no spec                JobLost: the spec was removed since the start failed
//	nothing, other boot                      JobNeverBegan
//	nothing                                  JobWaits: a worker has a state before its child runs
func DecideJob(f JobFacts) JobVerdict {
	switch {
	case f.Answer:
		return JobEnded
	case f.Torn && !f.Group && (!f.Job || !f.Spec || !f.Alive):
		return JobTorn
	case f.Damaged, !f.Job && (f.Spec || f.State || f.Alive):
		return JobLost
	case !f.Job:
		return JobUnknown
	case f.Group, f.Spec && f.Alive:
		return JobGoesOn
	case f.State && !f.Alive && !f.Left && !f.Told && f.Boot:
		return JobWaits
	case f.Spec && (f.State || f.Told):
		return JobGoesOn
	case f.State, f.Told:
		return JobLost
	case !f.Boot:
		return JobNeverBegan
	}
	return JobWaits
}
