package direct

import (
	"context"
	"time"

	"holdline/daemon/config/resolve"
	"holdline/daemon/leaf"
)

// leafLeave is how long a server that is started without its launcher has to end. It is long: a slow machine must not
// make a difference.
const leafLeave = 10 * time.Second

// notHeard is why a trial has found out nothing. The next start of the server finds it out, or the next trial.
const notHeard = "it did not answer a list in time, so this is not decided yet"

// leafTrial finds out whether a server may be started without its launcher. Whatever is not clear, it is not.
type leafTrial struct {
	launch  *leaf.Launch // nil if no launcher starts it
	process resolve.Process
	root    string
	said    func(line string) // nil, or told what is tried

	why string // it cannot be started so
}

// observe looks for the server's program below its launcher, whose pid is root.
func (t *leafTrial) observe(root int, said string) {
	if t.launch == nil {
		return
	}
	why, err := t.launch.Observe(root, said)
	if t.why = why; err != nil {
		t.why = err.Error()
	}
}

// run starts the server twice without its launcher. It must say what it has said behind that, and end when its stdin does,
// if it does that behind its launcher, and at SIGTERM. It returns why the server is started with its launcher, or "".
func (t *leafTrial) run(ctx context.Context, w wanted, behind heard) (why string) {
	if behind.unheard {
		return notHeard
	}
	direct, ok := t.launch.Direct(true)
	if t.why != "" || !ok {
		return t.why
	}
	if t.said != nil {
		t.said("starting it without its launcher")
	}
	p := t.process
	p.Command, p.Args, p.Dir, p.Env = direct.Command, direct.Args, direct.Dir, direct.Env
	w.era, w.leave = behind.era, leafLeave
	for _, w.byTerm = range []bool{false, true} {
		out, err := ask(ctx, p, t.root, w, nil)
		if err == nil && !out.unheard && out.said != behind.said && !w.byTerm {
			// Its first start may have changed what it says, such as one that makes its files.
			if again, err := ask(ctx, t.process, t.root, wanted{era: w.era, patience: w.patience}, nil); err == nil {
				behind.said, behind.unheard = again.said, again.unheard
			}
		}
		switch {
		case ctx.Err() != nil:
			return "the trial was interrupted"
		case err == nil && (out.unheard || behind.unheard):
			return notHeard
		case err != nil:
			why = leaf.NotStarted
		case out.said != behind.said:
			why = leaf.SaysOtherwise
		case !out.left && w.byTerm:
			why = "it does not end at SIGTERM without its launcher"
		case !out.left && behind.left:
			why = "it does not end with its input without its launcher"
		default:
			continue
		}
		if err := t.launch.Refuse(why); err != nil {
			why += "; " + err.Error()
		}
		return why
	}
	if err := t.launch.Confirm(behind.said); err != nil {
		return err.Error()
	}
	return ""
}
