package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"holdline/daemon/adapter/engine/claude/claudetest"
	"holdline/protocol/mcp"
)

// lifePlan is the plan for one session.
type lifePlan struct {
	Modern   bool
	Identity string
	Drain    time.Duration
	Steps    int
	Hurry    bool // it disconnects with answers still due
	Caller   uint64
}

// stepPlan is the plan for one step of a session.
type stepPlan struct {
	Op    string
	Gap   time.Duration // time before the step
	MS    float64       // milliseconds that an effect takes
	Pick  float64       // which of the candidates, in [0, 1)
	Many  int           // requests of a burst
	Reuse bool          // use an id again that was used before, if there is one
	Size  int           // bytes of a big answer
	Word  bool          // the id is a string
}

// stepBurst and stepCancel are steps that are no operation.
const (
	stepBurst  = "burst"
	stepCancel = "cancel"
	stepPing   = "ping"
)

// weight says how often a step is drawn.
type weight struct {
	op string
	n  int
}

// everyStep has the steps of `make chaos`, and effectSteps those of a schedule with calls
// of a hosted server alone.
var (
	everyStep = []weight{
		{opHealth, 16},
		{opList, 6},
		{stepPing, 3},
		{opConsult, 14},
		{opBack, 6},
		{opResult, 8},
		{opControl, 2},
		{stepCancel, 9},
		{stepBurst, 6},
		{opEffect, 30},
		{opLook, 8},
		{opBig, 3},
		{opAsk, 3},
		{opRelay, 6},
	}
	effectSteps = []weight{{opEffect, 1}}
	// hostileSteps has the steps of sessions that call servers that misbehave.
	hostileSteps = []weight{{opHostile, 12}, {opLook, 3}, {stepCancel, 1}}
)

// planLife draws the plan of a session. It always takes the same number of values from r.
func planLife(r *rand.Rand) lifePlan {
	p := lifePlan{
		Modern: r.IntN(2) == 0, Identity: fmt.Sprintf("id%d", r.IntN(4)),
		Drain: time.Duration(r.IntN(3000)) * time.Millisecond, Steps: 8 + r.IntN(60), Hurry: r.IntN(4) == 0,
		Caller: r.Uint64(),
	}
	return p
}

// planStep draws a step. It always takes the same number of values from r.
func planStep(r *rand.Rand, weights []weight) stepPlan {
	all := 0
	for _, w := range weights {
		all += w.n
	}
	at, op := r.IntN(all), ""
	for _, w := range weights {
		if at < w.n {
			op = w.op
			break
		}
		at -= w.n
	}
	return stepPlan{
		Op: op, Gap: time.Duration(r.ExpFloat64() * 40 * float64(time.Millisecond)),
		MS: r.Float64() * r.Float64() * 800, Pick: r.Float64(), Many: 2 + r.IntN(8), Reuse: r.IntN(2) == 0,
		Size: 1 << (4 + r.IntN(17)), Word: r.IntN(3) == 0,
	}
}

// maxDue is the limit of a session's requests at once.
const maxDue = 12

// chaosClient is one session: an MCP client with its proxy. One goroutine takes its steps.
// Another one reads, and ends with the proxy's output.
type chaosClient struct {
	run     *chaosRun
	plan    lifePlan
	a       *agent
	steps   []weight
	hostile bool // it calls servers that misbehave
	read    sync.WaitGroup
	change  chan struct{} // has a token when a line has arrived

	mu     sync.Mutex
	log    *sessionLog
	due    map[string]*dueCall // by id
	calls  map[int]*dueCall    // by number, which is the progress token
	free   []string            // ids that may be used again
	barred []*dueCall          // cancelled calls whose ids may not be used yet
	backs  []backJob
	half   *event // the last line, if it is no JSON: a killed proxy may leave half a line
	n      int    // requests made
	ended  bool
	killed bool
}

// dueCall is a request of the client.
type dueCall struct {
	n         int
	id        string
	op, token string
	at        time.Duration
	cancelled int // how many requests were made when it was cancelled; 0 if it was not
}

// backJob is a consult in the background whose id the client knows.
type backJob struct{ token, id string }

// connect starts a proxy and a session.
func (r *chaosRun) connect(slot, life int, plan lifePlan) (*chaosClient, error) {
	args := []string{"mcp-stdio", "--identity", plan.Identity, "--drain", plan.Drain.String()}
	cmd := exec.CommandContext(context.WithoutCancel(r.p.t.Context()), r.p.bin(), args...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = r.p.env, r.p.project, 5*time.Second
	a, err := r.p.startAgent(cmd)
	if err != nil {
		return nil, err
	}
	c := &chaosClient{
		run: r, plan: plan, a: a, change: make(chan struct{}, 1), due: map[string]*dueCall{}, calls: map[int]*dueCall{},
		steps: r.steps, hostile: slot >= chaosSessions,
		log: &sessionLog{
			Name: fmt.Sprintf("%d.%d", slot, life), Identity: plan.Identity,
			Era: map[bool]string{true: "modern", false: "legacy"}[plan.Modern],
		},
	}
	if c.hostile {
		c.steps = hostileSteps
	}
	r.add(c)
	c.read.Go(c.receive)
	if plan.Modern {
		c.request(opHandshake, "", "server/discover", map[string]any{}, stepPlan{})
		return c, nil
	}
	c.request(opHandshake, "", "initialize", map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": map[string]any{"roots": map[string]any{}},
		"clientInfo": map[string]string{"name": "chaos", "version": "1"},
	}, stepPlan{})
	if c.until(func() bool { return len(c.due) == 0 }) {
		c.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	return c, nil
}

// write sends a line. It ignores errors: the end of a proxy is seen in its output.
func (c *chaosClient) write(line string) { _, _ = io.WriteString(c.a.stdin, line+"\n") }

// until waits until ok, which is called with the lock held, returns true. It returns false
// if the session ended first, or after longer than an answer may take.
func (c *chaosClient) until(ok func() bool) bool {
	limit := time.NewTimer(c.run.limit)
	defer limit.Stop()
	for {
		c.mu.Lock()
		is, ended := ok(), c.ended
		c.mu.Unlock()
		if is || ended {
			return is
		}
		select {
		case <-c.change:
		case <-limit.C:
			return false
		}
	}
}

// answerLimit is longer than an answer may take: a proxy looks 60 s for a daemon.
const answerLimit = 100 * time.Second

// newID returns an id for the next request. The lock is held.
func (c *chaosClient) newID(p stepPlan) string {
	if p.Reuse && len(c.free) > 0 {
		i := int(p.Pick * float64(len(c.free)))
		id := c.free[i]
		c.free = append(c.free[:i], c.free[i+1:]...)
		return id
	}
	if p.Word {
		return strconv.Quote(fmt.Sprintf("r%d", c.n))
	}
	return strconv.Itoa(c.n)
}

// request sends a request.
func (c *chaosClient) request(op, token, method string, params map[string]any, p stepPlan) {
	c.mu.Lock()
	c.n++
	call := &dueCall{n: c.n, id: c.newID(p), op: op, token: token, at: c.run.now()}
	meta := map[string]any{}
	if method == "tools/call" {
		meta[mcp.MetaProgress] = c.n
	}
	if c.plan.Modern {
		meta[mcp.MetaVersion], meta[mcp.MetaCapabilities] = mcp.Modern, map[string]any{}
		meta[mcp.MetaClient] = map[string]string{"name": "chaos", "version": "1"}
	}
	if len(meta) > 0 {
		params["_meta"] = meta
	}
	b, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": json.RawMessage(call.id), "method": method, "params": params,
	})
	if err != nil {
		panic(err)
	}
	c.due[call.id], c.calls[call.n] = call, call
	sent := event{At: call.at, Kind: evSent, ID: call.id, Op: op, Token: token}
	if op == opEffect || op == opLook {
		sent.Takes = time.Duration(p.MS * float64(time.Millisecond))
	}
	c.log.Events = append(c.log.Events, sent)
	c.mu.Unlock()
	c.write(string(b))
}

func (c *chaosClient) tool(op, token, name string, args map[string]any, p stepPlan) {
	c.request(op, token, "tools/call", map[string]any{"name": name, "arguments": args}, p)
}

// step takes one step of the plan, or a similar one that is possible.
func (c *chaosClient) step(p stepPlan) {
	op := p.Op
	switch op {
	case stepCancel:
		c.cancel(p)
	case stepBurst:
		for range p.Many {
			c.effect(p)
		}
	case stepPing:
		if !c.plan.Modern {
			c.request(opHealth, "", "ping", map[string]any{}, p)
		}
	case opHealth:
		c.tool(op, "", "health_snapshot", map[string]any{}, p)
	case opList:
		c.request(op, "", "tools/list", map[string]any{}, p)
	case opConsult, opBack:
		c.consult(op, p)
	case opResult, opControl:
		c.result(op, p)
	case opEffect:
		c.effect(p)
	case opLook, opAsk:
		token := c.run.token(c)
		c.tool(op, token, chaosServer+"__"+op, map[string]any{"token": token, "ms": p.MS}, p)
	case opRelay: // modern servers ask nothing
		token, op, server := c.run.token(c), op, ownServer
		if c.plan.Modern {
			op, server = opAsk, chaosServer
		}
		c.tool(op, token, server+"__ask", map[string]any{"token": token}, p)
	case opHostile:
		token, server := c.run.token(c), hostileShared
		if p.Reuse {
			server = hostileOwn
		}
		how := hostileNames[int(p.Pick*float64(len(hostileNames)))]
		c.run.count("it " + how)
		c.tool(op, token, server+"__misbehave", map[string]any{"token": token, "method": how}, p)
	case opBig:
		token := fmt.Sprintf("%s-%d", c.run.token(c), p.Size)
		c.tool(op, token, chaosServer+"__big", map[string]any{"token": token, "bytes": p.Size}, p)
	}
}

// effect calls a tool with a known effect.
func (c *chaosClient) effect(p stepPlan) {
	token := c.run.token(c)
	c.tool(opEffect, token, chaosServer+"__effect", map[string]any{"token": token, "ms": p.MS}, p)
}

// consult begins a consult, whose program notes its beginning and its end.
func (c *chaosClient) consult(op string, p stepPlan) {
	token := c.run.token(c)
	begin, end := "begin "+token, "end "+token
	last := claudetest.Step{Do: "ledger", Message: c.run.p.ledger(), Delay: p.MS / 1000}
	last.Text = &end
	text := "the answer is " + token + "."
	if p.Pick < 0.1 {
		text += strings.Repeat(" And so on.", p.Size/16)
	}
	args := map[string]any{"render": "json", "prompt": claudetest.Prompt("x",
		claudetest.Step{Do: "ledger", Message: c.run.p.ledger(), Text: &begin}, last, claudetest.Say(text))}
	if op == opBack {
		args["wait_s"] = 0
	}
	c.tool(op, token, "consult", args, p)
}

// result asks for the result of a consult in the background, or cancels it.
func (c *chaosClient) result(op string, p stepPlan) {
	c.mu.Lock()
	var job backJob
	if n := len(c.backs); n > 0 {
		job = c.backs[int(p.Pick*float64(n))]
	}
	c.mu.Unlock()
	switch {
	case job.id == "":
		c.tool(opHealth, "", "health_snapshot", map[string]any{}, p)
	case op == opControl:
		c.tool(op, job.token, "consult_control",
			map[string]any{"consult_id": job.id, "action": "cancel", "render": "json"}, p)
	default:
		c.tool(op, job.token, "consult_result",
			map[string]any{"consult_id": job.id, "wait_s": p.MS / 400, "render": "json"}, p)
	}
}

// cancel cancels one of the pending requests.
func (c *chaosClient) cancel(p stepPlan) {
	c.mu.Lock()
	var due []*dueCall
	for n := 1; n <= c.n; n++ {
		call := c.calls[n]
		// A consult in the background may already run when its call is cancelled, and its
		// id is unknown then. A consult_control has its effect even if it is cancelled.
		if call != nil && c.due[call.id] == call && call.cancelled == 0 && call.op != opHandshake &&
			call.op != opBack && call.op != opControl {
			due = append(due, call)
		}
	}
	if len(due) == 0 {
		c.mu.Unlock()
		return
	}
	call := due[int(p.Pick*float64(len(due)))]
	call.cancelled = c.n
	c.barred = append(c.barred, call)
	c.log.Events = append(c.log.Events, event{At: c.run.now(), Kind: evCancelled, ID: call.id})
	c.mu.Unlock()
	c.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + call.id + `}}`)
}

// receive reads the proxy's lines until its end.
func (c *chaosClient) receive() {
	for line := range c.a.lines {
		c.line(line)
		c.changed()
	}
	_ = c.a.cmd.Wait()
	c.mu.Lock()
	if c.half != nil && !c.killed {
		c.log.Events = append(c.log.Events, *c.half)
	}
	c.ended = true
	c.mu.Unlock()
	c.changed()
}

func (c *chaosClient) changed() {
	select {
	case c.change <- struct{}{}:
	default:
	}
}

// chaosLine has the members of a line of the proxy.
type chaosLine struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Token    int     `json:"progressToken"`
		Progress float64 `json:"progress"`
	} `json:"params"`
	Result *struct {
		Content    []struct{ Text string }
		IsError    bool `json:"isError"`
		Structured struct {
			State     string `json:"state"`
			Answer    string `json:"answer"`
			ConsultID string `json:"consult_id"`
			chaosFault
		} `json:"structuredContent"`
	} `json:"result"`
	Error *struct {
		Message string     `json:"message"`
		Data    chaosFault `json:"data"`
	} `json:"error"`
}

type chaosFault struct {
	Fault struct {
		Code   string `json:"code"`
		Detail string `json:"detail"`
	} `json:"fault"`
}

// line handles a line of the proxy.
func (c *chaosClient) line(line string) {
	at := c.run.now()
	var m chaosLine
	err := json.Unmarshal([]byte(line), &m)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.half != nil { // a further line: the proxy's end did not cut it
		c.log.Events = append(c.log.Events, *c.half)
		c.half = nil
	}
	switch {
	case err != nil:
		c.half = &event{At: at, Kind: evAnswer, ID: "?", Unasked: true, Text: shortened(line)}
	case m.Method == "notifications/progress":
		e := event{At: at, Kind: evProgress, ID: fmt.Sprintf("#%d", m.Params.Token), Value: m.Params.Progress}
		if call := c.calls[m.Params.Token]; call != nil && c.due[call.id] == call {
			e.ID = call.id
		}
		c.log.Events = append(c.log.Events, e)
	case m.Method != "" && m.ID != nil:
		c.log.Events = append(c.log.Events, event{At: at, Kind: evAsked, ID: string(m.ID)})
		c.write(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"roots":[]}}`)
	case m.Method != "":
	default:
		c.answered(at, line, &m)
	}
}

// answered handles an answer. The lock is held.
func (c *chaosClient) answered(at time.Duration, line string, m *chaosLine) {
	c.run.served.Add(1)
	e := event{At: at, Kind: evAnswer, ID: string(m.ID)}
	switch {
	case m.Error != nil:
		e.Code, e.Text = orWord(m.Error.Data.Fault.Code, "error"), m.Error.Message
	case m.Result == nil:
		e.Unasked, e.Text = true, shortened(line)
	case m.Result.IsError:
		e.Code, e.Text = orWord(m.Result.Structured.Fault.Code, "tool error"), shortened(line)
	default:
		e.State, e.Text = m.Result.Structured.State, m.Result.Structured.Answer
		if len(m.Result.Content) > 0 && m.Result.Structured.State == "" {
			e.Text = m.Result.Content[0].Text
		}
	}
	e.Size, e.Text = len(e.Text), shortened(e.Text)
	c.log.Events = append(c.log.Events, e)
	call := c.due[e.ID]
	if call == nil {
		return
	}
	delete(c.due, e.ID)
	if call.cancelled == 0 {
		c.free = append(c.free, call.id)
	}
	if call.op == opBack && e.Code == "" && m.Result != nil {
		c.backs = append(c.backs, backJob{call.token, m.Result.Structured.ConsultID})
	}
	c.unbar(call)
}

// unbar frees the ids of requests that were cancelled before call was sent: no answer to
// them can arrive any more. The lock is held.
func (c *chaosClient) unbar(call *dueCall) {
	var left []*dueCall
	for _, b := range c.barred {
		switch {
		case c.due[b.id] != b: // it was answered
			c.free = append(c.free, b.id)
		case b.cancelled < call.n:
			delete(c.due, b.id)
			c.free = append(c.free, b.id)
		default:
			left = append(left, b)
		}
	}
	c.barred = left
}

func orWord(s, word string) string {
	if s == "" {
		return word
	}
	return s
}

func shortened(s string) string { return s[:min(len(s), 300)] }

// live runs a session from its first step to its end.
func (c *chaosClient) live() {
	steps := rand.New(rand.NewPCG(c.run.seed, c.plan.Caller))
	for range c.plan.Steps {
		p := planStep(steps, c.steps)
		if c.hostile {
			p.Gap *= hostileGap
		}
		if !c.until(func() bool { return len(c.due) < maxDue }) || !c.run.rest(p.Gap) {
			break
		}
		c.step(p)
	}
	c.leave()
}

// leave ends the session as its plan says, and notes how it ended.
func (c *chaosClient) leave() {
	hurry := c.plan.Hurry && !c.run.over()
	if !hurry {
		c.until(func() bool {
			for _, call := range c.due {
				if call.cancelled == 0 {
					return false
				}
			}
			return true
		})
	}
	c.mu.Lock()
	gone := c.ended
	if !gone {
		c.log.End = sessionLeft
		if hurry {
			c.log.End = sessionHurry
		}
		c.log.Events = append(c.log.Events, event{At: c.run.now(), Kind: evLeft})
	}
	c.mu.Unlock()
	_ = c.a.stdin.Close()
	read := make(chan struct{})
	go func() { c.read.Wait(); close(read) }()
	select {
	case <-read:
	case <-time.After(c.run.limit):
		_ = c.a.cmd.Process.Signal(syscall.SIGQUIT)
		<-read
	}
	c.run.remove(c)
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.a.cmd.ProcessState
	switch {
	case c.killed:
		c.log.End = sessionKilled
	case gone || !state.Success() && !hurry: // a proxy that leaves at once may not find a daemon
		c.log.End, c.log.How = sessionLost, fmt.Sprintf("%v: %s", state, c.a.errs)
	}
}
