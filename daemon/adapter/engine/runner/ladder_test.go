package runner

import (
	"testing"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/adapter/engine/acp"
)

// TestAnswerJustInTime checks that an answer which was given just as the time was up is not lost:
// the program is not asked for another one.
func TestAnswerJustInTime(t *testing.T) {
	agent := engine.Agent{Name: "x"}
	a := acp.New(acp.Options{Agent: agent, Command: "/bin/sh"})
	ladder := engine.DefaultLadder()
	r := &run{
		o: &Options{}, params: &engine.Params{Ladder: &ladder}, hide: newMasker(nil, nil),
		timer: time.NewTimer(time.Hour),
		talk:  a.NewRun(engine.Request{Prompt: "x", Cwd: "/"}, engine.Info{Agent: &agent}),
		prog:  &program{writes: make(chan input, maxWrites)},
	}
	defer r.timer.Stop()
	r.talk.Begin()
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}`,
		`{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}`,
		`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s",` +
			`"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"the answer"}}}}`,
	} {
		r.readLine([]byte(line))
	}
	r.interrupt(engine.Deadline, "time is up")
	r.readLine([]byte(`{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}`))
	out := r.talk.Outcome(engine.Exit{Known: true}, r.why)
	if r.phase != leaving || out.Fault != nil || out.Answer != "the answer" || out.Partial {
		t.Errorf("phase %d, %+v, %v", r.phase, out, out.Fault)
	}
}
