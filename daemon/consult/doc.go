// Package consult is the consult tools and the jobs behind them.
//
// A consult is a job from the start: a directory of its own in the state
// directory, a place in a queue that is fair between identities, one worker
// process with a consult program in it, and a kept answer. A call of the tool
// starts a job and waits for it; it can end before the job does. A job is
// attended until its id was handed out, and background after that: the end of
// an attended call ends its job, a background one ends only by its own
// ending, its deadline, consult_control or the command line.
//
// Files of a job's directory, beside the worker's own:
//
//	job.json     the request, prompt included, and when it came; written first
//	spec.json    what the worker is to run; written before the call is answered
//	calls.jsonl  what was written to the program, noted before it was
//	answer.json  how it ended; written last, once
//	tmp/         the program's private temporary directory; removed at the end
//
// The id of a job is a function of the session and the number of the client's
// line, so that a request that is asked again finds its job, and never runs
// twice.
//
// The [Manager] owns one goroutine for each job that is queued or running;
// [Manager.Close] waits for them.
package consult
