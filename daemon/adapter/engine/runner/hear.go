package runner

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/messages"
	"holdline/protocol/faultpoint"
	"holdline/protocol/process"
)

// listenEvery is the pause between two looks for messages.
const listenEvery = 250 * time.Millisecond

// hearing is what a run knows of the messages to it. Those that the program reads while it
// works are passed on; the others are held, and make the prompt of another start of the program,
// which continues its session.
type hearing struct {
	size   int64              // of the file when it was last read
	read   int                // messages that were read
	open   int                // that the program has, and has not taken
	held   []messages.Message // for the next start
	begun  []messages.Message // part of the present prompt, until the model does something
	closed bool               // no more messages are taken
	past   *engine.Outcome    // of earlier starts of the program; nil if there were none
}

// listen takes the messages that have come.
func (r *run) listen() {
	if r.params.Dir == "" || r.ear.closed {
		return
	}
	at, err := os.Stat(filepath.Join(r.params.Dir, messages.File))
	if err != nil || at.Size() == r.ear.size {
		return
	}
	list, err := messages.Read(r.params.Dir, r.ear.read)
	if err != nil {
		r.o.Log.Warn("messages to the run cannot be read", "err", err)
		return
	}
	r.ear.size = at.Size()
	r.hear(list)
}

// hear passes messages on to the program, or holds them.
func (r *run) hear(list []messages.Message) {
	listener, _ := r.talk.(engine.Listener)
	for _, m := range list {
		r.ear.read++
		var line []byte
		if listener != nil {
			line = listener.Say(m.ID, m.Text)
		}
		if line == nil {
			r.ear.held = append(r.ear.held, m)
			continue
		}
		r.record(engine.Entry{Kind: engine.KindSaid, ID: m.ID})
		faultpoint.At("adapter.said")
		if len(line) > 0 {
			r.prog.queueInput(line)
		}
		r.ear.open++
	}
}

// heard notes that the program has taken a message.
func (r *run) heard(id string) {
	r.record(engine.Entry{Kind: engine.KindHeard, ID: id})
	faultpoint.At("adapter.heard")
}

// heardPrompt notes that the program has taken the messages of its prompt: it works on it.
func (r *run) heardPrompt() {
	for _, m := range r.ear.begun {
		r.heard(m.ID)
	}
	r.ear.begun = nil
}

// goesOn reports whether the program begins another turn by itself, behind the end of one. If
// it does not, no more messages are taken, unless another start of the program follows.
func (r *run) goesOn(answered bool) bool {
	for r.params.Dir != "" && !r.ear.closed {
		switch {
		case r.ear.open > 0:
			return true
		case answered && len(r.ear.held) > 0:
			return false
		}
		more, err := messages.Close(r.params.Dir, r.ear.read)
		if err != nil {
			r.o.Log.Warn("messages to the run cannot be read", "err", err)
		}
		r.ear.closed = len(more) == 0
		r.hear(more)
	}
	return false
}

// deafen ends the taking of messages, whatever has come.
func (r *run) deafen() {
	if r.params.Dir == "" || r.ear.closed {
		return
	}
	r.ear.closed = true
	if _, err := messages.Close(r.params.Dir, math.MaxInt); err != nil {
		r.o.Log.Warn("messages to the run cannot be refused", "err", err)
	}
}

// beginWith puts the messages that came before the run behind its prompt. If the program takes
// no such long prompt, they are held.
func (r *run) beginWith(eng engine.Engine) error {
	p := r.params
	if p.Dir == "" {
		return nil
	}
	list, err := messages.Read(p.Dir, 0)
	if err != nil || len(list) == 0 {
		return err
	}
	r.ear.read = len(list)
	with := p.Request
	with.Prompt += "\n\n" + joined(list)
	if fits := eng.Fits(with) == nil; fits {
		p.Request, r.ear.begun = with, list
	} else {
		r.ear.held = list
	}
	return nil
}

// joined returns the texts of messages as one.
func joined(list []messages.Message) string {
	texts := make([]string, len(list))
	for i, m := range list {
		texts[i] = m.Text
	}
	return strings.Join(texts, "\n\n")
}

// next starts the program again with the messages that are held, if it has answered. It reports
// whether it did; if not, the run is over.
func (r *run) next(ctx context.Context) bool {
	if len(r.ear.held) == 0 || r.why != engine.Itself || ctx.Err() != nil {
		return false
	}
	out := r.said()
	if out.Fault != nil || out.Session == "" {
		return false
	}
	req := r.params.Request
	if req.MaxUSD > 0 && out.CostUSD != nil {
		if req.MaxUSD -= *out.CostUSD; req.MaxUSD <= 0 {
			return false
		}
	}
	n := len(r.ear.held)
	req.Session, req.Prompt = out.Session, joined(r.ear.held)
	for ; n > 1 && r.eng.Fits(req) != nil; req.Prompt = joined(r.ear.held[:n]) {
		n--
	}
	cmd, err := guarded(ctx, r.eng, req, r.info)
	var prog *program
	if err == nil {
		prog, err = startProgram(&cmd, r.workDir(), r.o.Worker)
	}
	if err != nil {
		r.o.Log.WarnContext(ctx, "the program cannot be started again for a message", "err", err)
		return false
	}
	r.ear.past = added(r.ear.past, &out)
	r.ear.begun, r.ear.held = r.ear.held[:n:n], r.ear.held[n:]
	r.cmd, r.prog, r.talk, r.params.MaxUSD = cmd, prog, r.eng.NewRun(req, r.info), req.MaxUSD
	r.ear.open = 0
	r.phase, r.exit, r.rest, r.errLines = working, process.Exit{}, nil, nil
	return true
}

// added returns the outcome of a run whose program was started twice: the last answer, and
// the sums of what both have used. past may be nil.
func added(past, out *engine.Outcome) *engine.Outcome {
	if past == nil {
		return out
	}
	sum := *out
	if sum.Fault != nil && sum.Answer == "" {
		sum.Answer, sum.Partial = past.Answer, past.Answer != ""
	}
	if sum.Session == "" {
		sum.Session = past.Session
	}
	if len(sum.Models) == 0 {
		sum.Models = past.Models
	}
	switch {
	case sum.CostUSD == nil:
		sum.CostUSD = past.CostUSD
	case past.CostUSD != nil:
		sum.CostUSD = new(*past.CostUSD + *sum.CostUSD)
	}
	sum.Turns += past.Turns
	sum.APIMS += past.APIMS
	sum.Usage.Input += past.Usage.Input
	sum.Usage.Output += past.Usage.Output
	sum.Usage.CacheRead += past.Usage.CacheRead
	sum.Usage.CacheWrite += past.Usage.CacheWrite
	sum.Denials = append(slices.Clip(past.Denials), sum.Denials...)
	return &sum
}
