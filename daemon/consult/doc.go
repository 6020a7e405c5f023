// Package consult has the consult tools and runs the jobs behind them.
//
// A consult is a job from the start. A job has a directory of its own in the state
// directory, a place in a queue that is fair between identities, one call of an engine
// process, and in the end a kept answer. A call of the tool starts a job and waits for
// it. The call can end before the job does.
//
// Package hosted/private makes the call of the engine process, see [Host]: it starts the
// process or attaches to it, cancels the call and ends the process. This package says
// what the call is, and decides from outcome.json, the result or the transcript what
// came of it. Package jobdir has the files of a job's directory, and package answer what
// is kept of a job.
//
// A job is attended until the daemon has handed out its id, and a background job after
// that. If the client cancels an attended call or leaves, the daemon ends the job:
// without the id nothing can fetch its answer later. A background job ends only by its
// own ending, by its deadline, by consult_control or from the command line.
//
// The [Manager] owns one goroutine for each job that is queued or running.
// [Manager.Close] and [Manager.Detach] wait for them.
package consult
