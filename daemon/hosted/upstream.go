package hosted

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"holdline/daemon/statedir"
	"holdline/daemon/supervisor"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/faultpoint"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
	"holdline/protocol/process"
)

// spoolAfter is how long an answer may stay unconfirmed before it is written
// to a file, so that the server's other output can be acked.
const spoolAfter = 100 * time.Millisecond

// maxErrands bounds the writes that belong to no call and wait for the server
// to read. There is always room for the answers to its requests.
const maxErrands = 1024 + maxAsks

// upstream is one process of a server, seen from this daemon. What is not said
// to belong to its reader is guarded by the manager's mutex.
type upstream struct {
	m     *Manager
	inst  *instance
	dir   string
	id    string
	owner process.Owner
	log   interface {
		Warn(msg string, args ...any)
		Info(msg string, args ...any)
		Debug(msg string, args ...any)
	}

	w          *supervisor.Worker // nil while it is being taken up
	era        string
	result     json.RawMessage // of the handshake
	serving    bool
	ending     bool // it is being ended
	dead       bool // the worker is gone with its tree
	left       bool // the server has ended of itself
	felled     bool // it, or its worker, was killed, and not by us
	caughtUp   bool // all that was said before this daemon attached was read
	death      *fault.Record
	deadCh     chan struct{} // closed when dead
	goneCh     chan struct{} // closed when nobody reads its events any more
	caughtCh   chan struct{} // closed when it has caught up
	calls      map[int64]*call
	internal   map[int64]inquiry // the daemon's own requests
	wish       wishes
	told       map[string]struct{} // requests of the server that an earlier daemon has answered, by relayed id
	responds   []process.Record    // of such answers, and of what stands, before it is known which were made
	ran        []int64             // writes of answers to its requests, in order
	open       int                 // its requests that wait for a client
	early      map[string]early    // answers of its client to requests that are not read again yet
	restored   bool                // an earlier daemon has started it
	leaving    bool                // it is ended once its calls are
	generation int64
	secrets    []string      // that its environment was given
	forget     []int64       // records that are not needed any more
	files      []int64       // spooled answers that are not needed any more
	noise      int64         // lines that were no messages
	unheard    bool          // it has not answered when it was asked for some list
	relisting  bool          // it is being asked for its lists again
	stale      bool          // and says meanwhile that they have changed
	relisted   time.Time     // when it was last
	relistWait time.Duration // before it is once more

	errands chan errand
	poke    chan struct{} // holds a token while something may be settled

	// The reader's alone.
	rest  []byte // of a line that is not whole
	begin int64  // number of the output in which rest, or the next line, begins
	nth   int    // how many lines have ended in the present output
	last  int64  // highest number received
	torn  bool   // the next line may be the end of one
	skip  bool   // the line is too long, and left out
	marks []mark // lines that are not settled, in order
	until int64  // output below it was said before this daemon attached
}

// mark is a line that must not be acked yet.
type mark struct {
	seq int64 // of the output in which it begins
	c   *call // one of the two is set
	ask *ask
	at  time.Time
}

// errand is a write that belongs to no call.
type errand struct {
	rec     process.Record
	compose func(id int64) []byte
	done    func(err error) // nil for nothing to be done; called once it was made, or not
}

func newUpstream(inst *instance, dir string, owner process.Owner) *upstream {
	id := filepath.Base(dir)
	name := id
	if inst.srv != nil {
		name = inst.srv.spec.Name
	}
	return &upstream{
		m: inst.m, inst: inst, dir: dir, id: id, owner: owner, log: inst.m.log.With("worker", id, "server", name),
		deadCh: make(chan struct{}), goneCh: make(chan struct{}), caughtCh: make(chan struct{}), calls: map[int64]*call{}, internal: map[int64]inquiry{}, wish: newWishes(),
		errands: make(chan errand, maxErrands), poke: make(chan struct{}, 1),
	}
}

// goLocked starts the goroutines of a process whose worker is there.
func (u *upstream) goLocked() {
	u.m.wg.Go(u.run)
	u.m.wg.Go(u.runErrands)
	u.m.wg.Go(u.tend)
}

func (u *upstream) worker() *supervisor.Worker {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	return u.w
}

// letGo leaves the process to the next daemon.
func (u *upstream) letGo() {
	if w := u.worker(); w != nil {
		w.Close()
	}
}

func (u *upstream) isDead() bool {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	return u.dead
}

// hasEnded tells whether the server has ended of itself, or was killed by
// others.
func (u *upstream) hasEnded() (left, felled bool) {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	return u.left, u.felled
}

// isEnding tells whether the process is ended by us, or will be.
func (u *upstream) isEnding() bool {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	return u.ending || u.leaving
}

// nudge has the reader look for what can be settled.
func (u *upstream) nudge() {
	select {
	case u.poke <- struct{}{}:
	default:
	}
}

// endLocked ends the process. It does not wait.
func (u *upstream) endLocked() {
	if u.ending || u.dead || u.w == nil || u.m.closed {
		u.ending = true
		return
	}
	u.ending = true
	u.serving = false
	w := u.w
	u.m.wg.Go(func() { _, _ = w.Terminate(u.m.life, endGrace) }) // if it fails the worker is lost, and that will be told
}

// end ends the process for good, whatever is still to be told of it, and waits
// until nothing of it is left.
func (u *upstream) end(ctx context.Context) error {
	w := u.worker()
	if w == nil {
		return nil
	}
	_, err := w.Terminate(ctx, endGrace)
	u.nudge()
	select {
	case <-u.goneCh:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// finish ends the process and waits until it is dead, or the daemon stops.
func (u *upstream) finish() {
	u.m.mu.Lock()
	u.endLocked()
	u.m.mu.Unlock()
	select {
	case <-u.deadCh:
	case <-u.m.life.Done():
	}
}

// run reads the worker's events until it is over or let go.
func (u *upstream) run() {
	defer close(u.goneCh)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	w := u.worker()
	u.last, u.until = w.Old()
	u.caught()
	for {
		select {
		case ev, ok := <-w.Events():
			if !ok {
				return
			}
			if u.event(&ev) {
				u.die(w, &ev)
				u.outlive(w)
				return
			}
		case <-u.poke:
		case <-timer.C:
		}
		timer.Reset(u.settle(w))
	}
}

// event takes one event and tells whether it was the last.
func (u *upstream) event(ev *supervisor.Event) bool {
	u.last = max(u.last, ev.Seq)
	switch ev.Kind {
	case supervisor.Output:
		if ev.Stream == process.Stdout {
			u.output(ev)
		}
	case supervisor.Exited:
		u.log.Info("server ended", "exit", ev.Exit.String())
	case supervisor.Closed, supervisor.Lost:
		return true
	}
	u.caught()
	return false
}

// caught notes when everything was read that was said before the attach: what
// nobody waits for by then is cancelled.
func (u *upstream) caught() {
	if u.last < u.until-1 {
		return
	}
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	if u.caughtUp {
		return
	}
	u.caughtUp = true
	close(u.caughtCh)
	for _, c := range u.calls {
		if c.unwanted {
			u.m.letGoLocked(c)
		}
	}
	u.dropEarlyLocked()
	u.interruptLocked()
}

// output takes a piece of standard output apart into lines.
func (u *upstream) output(ev *supervisor.Event) {
	data := ev.Data
	if ev.Dropped > 0 {
		u.torn, u.rest = true, nil
	}
	if len(u.rest) == 0 && !u.skip {
		u.begin = ev.Seq
	}
	u.nth = 0
	for {
		i := bytes.IndexByte(data, '\n')
		if i < 0 {
			break
		}
		line := data[:i]
		if len(u.rest) > 0 {
			u.rest = append(u.rest, line...)
			line = u.rest
		}
		u.line(ev, bytes.TrimSuffix(line, []byte("\r")))
		u.rest = nil
		data = data[i+1:]
		u.begin = ev.Seq
		u.nth++
	}
	if len(data) == 0 {
		return
	}
	if u.rest = append(u.rest, data...); len(u.rest) > jsonrpc.MaxFrame {
		u.rest, u.skip = nil, true
	}
}

// line handles one line of the server.
func (u *upstream) line(ev *supervisor.Event, line []byte) {
	torn := u.torn
	u.torn = false
	if u.skip {
		u.skip = false
		u.noisy("longer than a message may be")
		return
	}
	if len(bytes.TrimSpace(line)) == 0 {
		return
	}
	msg, err := jsonrpc.Parse(line)
	if err != nil {
		if !torn {
			u.noisy(err.Error())
		}
		return
	}
	switch msg.Kind {
	case jsonrpc.Response:
		faultpoint.At("hosted.answered")
		u.answered(msg)
	case jsonrpc.Notification:
		switch {
		case msg.Method == mcp.CancelledNote:
			u.withdrawn(msg)
		case !ev.Old:
			u.notified(msg)
		}
	case jsonrpc.Request:
		u.asked(msg, fmt.Sprintf("%s:%d.%d", u.id, ev.Seq, u.nth))
	}
}

// noisy counts a line that is no message. It is never fatal.
func (u *upstream) noisy(why string) {
	u.m.mu.Lock()
	u.noise++
	first := u.noise == 1
	u.m.mu.Unlock()
	if first {
		u.log.Warn("server writes lines to stdout that are no messages; they are skipped", "err", why)
	}
}

// answered takes the server's answer to where it belongs.
func (u *upstream) answered(msg jsonrpc.Message) {
	write := number(msg.ID)
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	if own, ok := u.internal[write]; ok {
		delete(u.internal, write)
		if !own.stays {
			u.forget = append(u.forget, write)
		}
		own.take(clone(msg))
		return
	}
	c := u.answeredLocked(msg.ID)
	if c == nil || c.state == answered {
		return // it was cancelled, or is known
	}
	msg = clone(msg)
	c.result, c.failure = msg.Result, msg.Error
	c.setLocked(answered)
	if c.unwanted {
		u.m.dropLocked(c)
		return
	}
	u.marks = append(u.marks, mark{seq: u.begin, c: c, at: time.Now()})
}

func clone(m jsonrpc.Message) jsonrpc.Message {
	m.Result, m.Error = bytes.Clone(m.Result), bytes.Clone(m.Error)
	return m
}

// notified handles what the server says to nobody in particular.
func (u *upstream) notified(msg jsonrpc.Message) {
	switch msg.Method {
	case mcp.ProgressNote:
		u.m.mu.Lock()
		c := u.progressedLocked(jsonrpc.Field(msg.Params, mcp.MetaProgress))
		var tell func(json.RawMessage)
		if c != nil && c.state == open {
			tell = c.progress
			c.alive()
		}
		u.m.mu.Unlock()
		if tell != nil {
			tell(bytes.Clone(msg.Params))
		}
	case mcp.Acknowledged:
		u.acknowledged(msg)
	case mcp.ResourceUpdated:
		u.updated(msg)
	case mcp.LogMessage:
		u.logged(msg)
	case mcp.ToolsChanged, mcp.PromptsChanged, mcp.ResourcesChanged:
		u.m.mu.Lock()
		defer u.m.mu.Unlock()
		switch {
		case !u.serving || u.m.closed:
		default:
			u.relistLocked()
		}
	default:
		u.remarked(msg)
	}
}

// Pauses between two looks at the lists of a server that goes on saying that
// they have changed: some say so whenever they are asked for them.
const (
	firstRelistWait = 100 * time.Millisecond
	maxRelistWait   = 10 * time.Second
)

// relistLocked has the process asked for its lists again.
func (u *upstream) relistLocked() {
	if u.relisting {
		u.stale = true
		return
	}
	u.relisting = true
	u.m.wg.Go(u.relistChanged)
}

// relistIn is how long to wait before the lists are asked for again: not at
// all if that was long ago, else longer each time.
func (u *upstream) relistIn(now time.Time) time.Duration {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	since := now.Sub(u.relisted)
	if u.relisted.IsZero() || since > 2*maxRelistWait {
		u.relistWait = 0
		return 0
	}
	u.relistWait = min(max(2*u.relistWait, firstRelistWait), maxRelistWait)
	return u.relistWait - since
}

// maxUnheard is how often a server is asked in vain for a list that it has not
// answered, before it is left at that.
const maxUnheard = 3

// relistChanged asks for the lists until they have not changed meanwhile, and
// were answered: once, however often the server says that they have changed.
func (u *upstream) relistChanged() {
	for unheard := 0; ; {
		if pause(u.m.life, u.relistIn(time.Now()), u.deadCh) != nil {
			return // the next daemon asks
		}
		u.relist()
		u.m.mu.Lock()
		u.relisted = time.Now()
		if u.unheard {
			unheard++
		}
		again := (u.stale || u.unheard && unheard < maxUnheard) && !u.dead && !u.m.closed
		u.stale, u.relisting = false, again
		u.m.mu.Unlock()
		if !again {
			return
		}
	}
}

// relist asks for the lists again.
func (u *upstream) relist() {
	ctx, cancel := context.WithTimeout(u.m.life, startTimeout)
	defer cancel()
	raw, cut, err := u.listAll(ctx)
	if err != nil {
		if u.m.life.Err() == nil {
			u.log.Warn("what the server offers cannot be read again", "err", err)
		}
		return
	}
	u.take(raw, cut)
}

// settle acks what need not be kept by the worker any more, and tells when to
// look again.
func (u *upstream) settle(w *supervisor.Worker) time.Duration {
	now := time.Now()
	next := time.Hour
	var spool []*call
	u.m.mu.Lock()
	kept := u.marks[:0]
	for _, k := range u.marks {
		if k.settledLocked() {
			continue
		}
		if k.c != nil && !k.c.spooling {
			if left := spoolAfter - now.Sub(k.at); left <= 0 {
				k.c.spooling = true
				spool = append(spool, k.c)
			} else {
				next = min(next, left)
			}
		}
		kept = append(kept, k)
	}
	clear(u.marks[len(kept):])
	u.marks = kept
	u.m.mu.Unlock()
	for _, c := range spool {
		size, err := u.spool(c)
		u.m.mu.Lock()
		if c.spooling = false; err == nil {
			c.spooled, c.result, c.failure = true, nil, nil
			if next = 0; c.state != over {
				u.m.countLocked(c, size)
			}
		}
		u.m.mu.Unlock()
		if err != nil { // the server is held up, and nothing is lost
			u.log.Warn("answer cannot be written down", "err", err)
			next = min(next, time.Second)
		}
	}
	u.m.mu.Lock()
	if u.leaving && len(u.calls) == 0 {
		u.endLocked()
	}
	forget, files := u.forget, u.files
	u.forget, u.files = nil, nil
	ack := u.last
	if len(u.rest) > 0 || u.skip {
		ack = u.begin - 1
	}
	for _, k := range u.marks {
		if !faultpoint.Broken("ack.confirmed") {
			ack = min(ack, k.seq-1)
		}
	}
	u.m.mu.Unlock()
	w.Ack(ack)
	w.Forget(forget...)
	if len(forget) > 0 {
		faultpoint.At("hosted.forgot")
	}
	u.unspool(files)
	return next
}

// settledLocked tells whether the worker need not keep the line any more.
func (k *mark) settledLocked() bool {
	if k.ask != nil {
		return k.ask.done
	}
	return k.c.state == over || k.c.spooled
}

func (u *upstream) answerFile(write int64) string {
	return filepath.Join(u.dir, process.DirAnswers, strconv.FormatInt(write, 10))
}

// spool writes down an answer, and tells its size in bytes.
func (u *upstream) spool(c *call) (size int64, err error) {
	u.m.mu.Lock()
	line := c.lineLocked()
	write := c.write
	u.m.mu.Unlock()
	err = statedir.WriteFile(u.answerFile(write), line)
	faultpoint.At("hosted.spooled")
	return int64(len(line)), err
}

func (u *upstream) unspool(files []int64) {
	for _, write := range files {
		_ = os.Remove(u.answerFile(write))
	}
}

// errandLocked has a write made in turn. If too many wait, the server reads
// nothing, and the write is left out, as is what was to be done after it; the
// last places are for answers to its requests, of which no more than [maxAsks]
// can wait. It never waits: who makes the writes needs the lock, too.
func (u *upstream) errandLocked(e errand) {
	if e.rec.Kind != process.RecordRespond && len(u.errands) >= maxErrands-maxAsks {
		return
	}
	select {
	case u.errands <- e:
	default:
		u.log.Warn("the server does not read: an answer to its request is left out")
	}
}

// runErrands makes the writes that belong to no call.
func (u *upstream) runErrands() {
	w := u.worker()
	for {
		select {
		case e := <-u.errands:
			id, err := w.WriteFunc(u.m.life, e.rec, func(id int64) ([]byte, error) { return append(e.compose(id), '\n'), nil })
			faultpoint.At("hosted.errand")
			if err == nil {
				u.m.mu.Lock()
				u.ranLocked(e.rec.Kind, id)
				u.m.mu.Unlock()
			}
			if e.done != nil {
				e.done(err)
			}
		case <-u.deadCh:
			return
		case <-u.m.life.Done():
			return
		}
	}
}

// maxResponds is how many records of answers to the server are kept: those of
// requests that stand in output which is acked long since are not needed.
const maxResponds = 2 * maxAsks

// ranLocked notes the record of an errand that was made. That of a cancellation
// is of no use any more: if it had no effect its call has a record. Nor is that
// of what a client only had to tell.
func (u *upstream) ranLocked(kind string, write int64) {
	switch kind {
	case process.RecordCancel, process.RecordNote:
		u.forget = append(u.forget, write)
		u.nudge()
	case process.RecordRespond:
		if u.ran = append(u.ran, write); len(u.ran) > maxResponds {
			old := len(u.ran) - maxAsks
			u.forget = append(u.forget, u.ran[:old]...)
			u.ran = slices.Clone(u.ran[old:])
			u.nudge()
		}
	}
}

// request makes a request of the daemon's own and waits for the answer.
func (u *upstream) request(ctx context.Context, kind, method string, params json.RawMessage) (json.RawMessage, error) {
	ch := make(chan jsonrpc.Message, 1)
	var write int64
	_, err := u.worker().WriteFunc(ctx, process.Record{Kind: kind, Name: method}, func(id int64) ([]byte, error) {
		u.m.mu.Lock()
		defer u.m.mu.Unlock()
		write = id
		u.internal[id] = inquiry{take: func(msg jsonrpc.Message) { ch <- msg }}
		return append(jsonrpc.AppendRequest(nil, jsonrpc.IntID(id), method, params), '\n'), nil
	})
	defer func() {
		u.m.mu.Lock()
		defer u.m.mu.Unlock()
		delete(u.internal, write)
	}()
	if err != nil {
		return nil, u.fallen(ctx, err)
	}
	select {
	case msg := <-ch:
		if msg.Error != nil {
			return nil, &rpcError{method: method, raw: msg.Error}
		}
		return msg.Result, nil
	case <-u.deadCh:
		return nil, errDied
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// fallTimeout is how long after a write that failed the end of the process may
// be told, which is most often why it failed.
const fallTimeout = 5 * time.Second

// fallen is the error of a write that failed, [errDied] if the process has
// ended by it: it waits until that is known.
func (u *upstream) fallen(ctx context.Context, err error) error {
	f, ok := errors.AsType[*fault.Record](err)
	if !ok || f.Fault.Code == fault.ResourceExhausted || f.Fault.Code == fault.InternalFailure {
		return err
	}
	t := time.NewTimer(fallTimeout)
	defer t.Stop()
	select {
	case <-u.deadCh:
		return errDied
	case <-t.C:
	case <-ctx.Done():
	}
	return err
}

// errDied says that the server ended while it was asked.
var errDied = errors.New("it ended")

// rpcError is a server's refusal of a request of the daemon's own.
type rpcError struct {
	method string
	raw    json.RawMessage
}

func (e *rpcError) Error() string {
	words, ok := mcp.String(jsonrpc.Field(e.raw, "message"))
	if !ok || words == "" {
		return fmt.Sprintf("%s is refused: %s", e.method, clip(e.raw))
	}
	return fmt.Sprintf("%s is refused: %s (%s)", e.method, clip([]byte(words)), clip(jsonrpc.Field(e.raw, "code")))
}

// clip bounds what is repeated of a server's words.
func clip(b []byte) string {
	const most = 512
	return string(bytes.ToValidUTF8(b[:min(len(b), most)], []byte("?")))
}

// die notes the end of the process: whoever waits for it is told.
func (u *upstream) die(w *supervisor.Worker, ev *supervisor.Event) {
	death := ev.Fault
	if ev.Kind == supervisor.Closed {
		death = w.ExitFault("run:"+u.name(), ev.Exit)
	}
	faultpoint.At("hosted.dead")
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	death = masked(death, u.secrets)
	served := u.serving
	u.dead, u.serving, u.death = true, false, death
	if !u.ending && !u.leaving {
		u.felled = ev.Exit.Felled() || ev.Kind == supervisor.Lost && ev.Exit == process.Exit{}
		u.left = ev.Kind == supervisor.Closed && !u.felled
	}
	for _, c := range u.calls {
		if c.state == open {
			c.setLocked(lost)
		}
	}
	close(u.deadCh)
	inst := u.inst
	if inst.up == u {
		inst.up = nil
	}
	if !u.ending {
		if inst.srv != nil && served { // a start that fails is counted as such
			inst.failedLocked(death)
			inst.recovering = true
		}
		u.m.o.Watch.WorkerLost(inst.name, !inst.retired)
		u.log.Warn("server is gone", "err", death)
	}
	u.m.refuseAsksOfLocked(u)
	u.dropEarlyLocked()
	inst.recoverLocked()
	inst.missedLocked()
}

func (u *upstream) name() string {
	if u.inst.srv != nil {
		return u.inst.srv.spec.Name
	}
	return u.inst.key.server
}

// outlive keeps the directory until nobody may ask for a call in it any more.
func (u *upstream) outlive(w *supervisor.Worker) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		next := u.settle(w)
		u.m.mu.Lock()
		left := len(u.calls)
		if u.m.ending || faultpoint.Broken("directory.kept") {
			left = 0
		}
		u.m.mu.Unlock()
		if left == 0 {
			break
		}
		timer.Reset(next)
		select {
		case <-u.poke:
		case <-timer.C:
		case <-u.m.life.Done():
			return
		}
	}
	w.Ack(u.last) // it leaves
	select {
	case <-w.Done():
	case <-u.m.life.Done():
		return
	}
	faultpoint.At("hosted.reaping")
	if err := u.m.o.Workers.Reap(u.dir); err != nil {
		u.log.Warn("directory of a dead worker cannot be removed", "err", err)
	}
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	delete(u.m.processes, u)
}

// startFault is why a process was of no use.
func (u *upstream) startFault(err error) error {
	u.m.mu.Lock()
	death := u.death
	u.m.mu.Unlock()
	if errors.Is(err, tool.ErrStopping) || u.m.life.Err() != nil {
		return tool.ErrStopping
	}
	if refusal, ok := errors.AsType[*rpcError](err); ok {
		if f := u.inst.srv.proxied(refusal.raw); f != nil {
			f.Operation, f.Fault.Generation = operation(u.name()), u.generation
			return f
		}
	}
	r := fault.New(fault.SpawnFailure, fault.Server, operation(u.name()), "server %s did not come up: %v", u.name(), err)
	if death != nil {
		r = fault.New(fault.SpawnFailure, fault.Server, operation(u.name()), "server %s did not come up: %s%s",
			u.name(), death.Fault.Detail, lastWords(death.Cause))
		r.Fault.Generation, r.Cause = death.Fault.Generation, death.Cause
	}
	return r
}

// lastWords are the last line of what a process wrote to stderr, to stand
// behind the words for its end: it often says why.
func lastWords(c *fault.Cause) string {
	if c == nil || len(c.StderrTail) == 0 {
		return ""
	}
	return ": " + clip([]byte(c.StderrTail[len(c.StderrTail)-1]))
}
