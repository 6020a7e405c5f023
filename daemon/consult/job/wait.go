package job

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/request"
	"holdline/daemon/consult/steps"
)

// AwaitClient ends an attended job of an earlier daemon if its client does not come back for it
// within that time, or at once if the client's process is gone. A job that a call attends by
// then, or that is a background job, goes on. A caller that waits for the job by its id counts
// as its client for as long as it waits. It blocks until the time is over, the job has ended or
// it is left to the next daemon.
func (j *Job) AwaitClient(within time.Duration) {
	t := time.NewTimer(within)
	defer t.Stop()
	look := time.NewTicker(lookPause)
	defer look.Stop()
	for late := false; ; {
		switch gone := j.Rec.IsDeserted(); {
		case j.watched():
		case gone:
			j.EndUnattended("its client is gone")
			return
		case late:
			j.EndUnattended("its client did not come back")
			return
		}
		select {
		case <-look.C:
		case <-t.C:
			late = true
		case <-j.Done:
			return
		case <-j.Life.Done():
			return
		}
	}
}

// lookPause is the pause between two looks at the process of a client that is expected
// back.
const lookPause = time.Second

// Times of [Job.AwaitHeard].
const (
	heardWait  = 2 * time.Second        // for the program to take the message
	heardEvery = 100 * time.Millisecond // between two looks whether it has
)

// AwaitHeard waits until the program has taken a message, the job has ended, or the time for
// that is over. It returns the cause of ctx if that ends first.
func (j *Job) AwaitHeard(ctx context.Context, message string) error {
	over := time.After(heardWait)
	tick := time.NewTicker(heardEvery)
	defer tick.Stop()
	for said := steps.Follow(j.Dir); !said.Heard(message); {
		if a, _ := j.Status(); a.State == answer.Queued {
			return nil
		}
		select {
		case <-tick.C:
		case <-j.Done:
			return nil
		case <-over:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// CheckAsked returns a fault for the judge of a panel whose members have not all answered: it has
// no directory yet.
func (j *Job) CheckAsked() error {
	if j.Rec.Label != request.JudgeLabel {
		return nil
	}
	if _, err := os.Lstat(j.Dir); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return engine.Invalid("consult_id: %s is the judge of panel %s, which waits for the answers of the others; "+
		"the panel's id ends them all", j.Rec.ID, j.Rec.Panel)
}
