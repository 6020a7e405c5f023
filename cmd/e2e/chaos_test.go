package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/adapter/engine/messages"
	"holdline/daemon/consult/budget"
	"holdline/protocol"
	"holdline/protocol/control"
)

const (
	chaosSessions = 8         // at once
	chaosServer   = "tools"   // name of the hosted server that all sessions share
	ownServer     = "own"     // and of the one with a process for each session
	keptInChaos   = 300       // answers of consults
	keptBytes     = 1792      // that the daemon may hold of each, with the beginning of its question
	eventBytes    = 96 << 10  // that it may hold of the last events
	readBytes     = 512 << 10 // of what a daemon has read since its start: lists of servers, and the types of its decoders
	spentBytes    = 160       // that it may hold of what each session has spent on consults

	hostileShared   = "wild"  // name of a hosted server that misbehaves and that sessions share
	hostileOwn      = "feral" // and of one with a process for each session
	hostileSessions = 2       // sessions that call them, in addition to the others
	// Limits of their calls, counted over all daemons: without an answer or progress, while
	// they wait for a process, and in all. The last two are far below [answerLimit], so
	// that none of their calls can rightly take that long.
	hostileTimeout    = time.Second
	hostileStart      = 10 * time.Second
	hostileMaxTimeout = 20 * time.Second
	hostileGap        = 10 // factor by which these sessions pause longer between two steps
	shorter           = 4  // factor by which the windows of recovery are shorter
)

// chaosRun is one place with its sessions and its killer. The seed decides what each actor
// does, from a stream of its own, but not when.
type chaosRun struct {
	p       *place
	seed    uint64
	hostile bool // there are servers that misbehave, and sessions that call them
	begin   time.Time
	menu    menu
	steps   []weight
	limit   time.Duration // for an answer

	stop   chan struct{} // closed when nothing new may begin
	binary int           // which of the two is installed; used by the killer
	served atomic.Int64  // answers that arrived
	seen   int64         // value of served at the last death of a daemon; used by the killer
	barren int           // deaths of daemons in a row without an answer in between; used by the killer

	mu       sync.Mutex
	tokens   int
	live     []*chaosClient
	all      []*chaosClient
	kills    []kill
	counts   map[string]int
	problems []string
}

func (r *chaosRun) now() time.Duration { return time.Since(r.begin) }

// over reports whether nothing new may begin.
func (r *chaosRun) over() bool {
	select {
	case <-r.stop:
		return true
	default:
		return false
	}
}

// rest waits. It returns false if the run is over before.
func (r *chaosRun) rest(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.stop:
		return false
	}
}

// token returns a name for an effect, which no other effect has.
func (r *chaosRun) token(c *chaosClient) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tokens++
	return fmt.Sprintf("t%d-%s", r.tokens, strings.ReplaceAll(c.log.Name, ".", "-"))
}

func (r *chaosRun) count(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what]++
}

func (r *chaosRun) problem(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

func (r *chaosRun) add(c *chaosClient) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live, r.all = append(r.live, c), append(r.all, c)
}

func (r *chaosRun) remove(c *chaosClient) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live = slices.DeleteFunc(r.live, func(other *chaosClient) bool { return other == c })
}

// newChaos makes the place: binaries, configuration, login shell, and rules to break. If
// hostile is true it also has servers that misbehave.
func newChaos(t *testing.T, seed uint64, hostile bool, broken ...string) *chaosRun {
	t.Helper()
	r := &chaosRun{
		p: newPlace(t).login().windows(shorter).faults(), seed: seed, hostile: hostile, menu: usual, steps: everyStep,
		limit: answerLimit, stop: make(chan struct{}), counts: map[string]int{}, begin: time.Now(),
	}
	for _, rule := range broken {
		r.p.breaks(rule)
	}
	config := filepath.Join(r.p.dir, "home/.config/holdline/config.json")
	b, err := r.configuration()
	if err == nil {
		err = errors.Join(
			os.WriteFile(filepath.Join(r.p.dir, faultDir, collectFile), nil, 0o600),
			os.MkdirAll(filepath.Dir(config), 0o700), os.WriteFile(config, b, 0o600),
			os.MkdirAll(filepath.Dir(r.p.bin()), 0o700),
			copyFile(filepath.Join(programs, "holdline"), r.p.bin()+".0"),
			copyFile(filepath.Join(programs, "holdline"), r.p.bin()+".1"),
			r.install(),
		)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// load runs sessions and killer for a time, and returns when the last session has ended.
func (r *chaosRun) load(d time.Duration) {
	var sessions, killing sync.WaitGroup
	killing.Go(r.killer)
	slots := chaosSessions
	if r.hostile {
		slots += hostileSessions
	}
	for slot := range slots {
		sessions.Go(func() { r.slot(slot) })
	}
	time.AfterFunc(d, func() { close(r.stop) })
	killing.Wait()
	sessions.Wait()
}

// slot runs one session after another.
func (r *chaosRun) slot(slot int) {
	lives := rand.New(rand.NewPCG(r.seed, uint64(slot)))
	for life := 0; !r.over(); life++ {
		c, err := r.connect(slot, life, planLife(lives))
		if err != nil {
			r.problem("starting a proxy: %v", err)
			return
		}
		c.live()
	}
}

// history returns what was seen so far.
func (r *chaosRun) history() *history {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &history{Kills: slices.Clone(r.kills)}
	for _, c := range r.all {
		c.mu.Lock()
		h.Sessions = append(h.Sessions, c.log)
		c.mu.Unlock()
	}
	f, err := os.Open(r.p.ledger())
	if err != nil {
		return h
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var n note
		if _, err := fmt.Sscanf(lines.Text(), "%s %s %d", &n.Verb, &n.Token, &n.PID); err == nil {
			h.Ledger = append(h.Ledger, n)
		}
	}
	return h
}

// warm has one session do everything once, and returns the memory that a fresh daemon uses
// afterwards.
func (r *chaosRun) warm(t *testing.T) control.Runtime {
	t.Helper()
	a := r.p.agent("--identity", "first").shake()
	waitFor(t, "the hosted server", func() bool {
		return strings.Contains(a.ask("tools/list", map[string]any{}).raw, chaosServer+"__effect")
	})
	a.rest()
	for range 2 { // the second finds the program checked
		c, err := r.connect(-1, 0, lifePlan{Identity: "warm"})
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range []string{opHealth, opList, opConsult, opBack, opEffect, opLook, opBig, opAsk, opRelay} {
			c.step(stepPlan{Op: op, Size: 100})
		}
		for _, server := range []string{hostileShared, hostileOwn} {
			if r.hostile {
				token := r.token(c)
				c.tool(opHostile, token, server+"__misbehave",
					map[string]any{"token": token, "method": "answers in latin-1"}, stepPlan{})
			}
		}
		c.leave()
		r.p.until("the consult in the background",
			func(s control.StatusAnswer) bool { return s.Consults.Running+s.Consults.Queued == 0 })
		if found := judge(&history{Sessions: []*sessionLog{c.log}, Ledger: r.history().Ledger}); len(found) > 0 {
			t.Fatalf("without a killer: %v", found)
		}
	}
	var base control.Runtime
	settled := 0
	for deadline := time.Now().Add(waitLimit); settled < 5 && time.Now().Before(deadline); {
		s := r.collected(t)
		now := s.Runtime
		if settled++; len(s.Workers) > 0 { // the servers end when no session uses them
			settled = 0
			continue
		}
		if now.Goroutines < base.Goroutines || now.FDs < base.FDs || base.FDs == 0 {
			base, settled = now, 0
		}
		base.HeapBytes = now.HeapBytes
		r.rest(100 * time.Millisecond)
	}
	// What was done so far was done by servers that have ended since.
	r.all = nil
	if err := os.Truncate(r.p.ledger(), 0); err != nil {
		t.Fatal(err)
	}
	return base
}

// collected returns the status of a daemon that has just collected its garbage.
func (r *chaosRun) collected(t *testing.T) control.StatusAnswer {
	t.Helper()
	if d, err := r.daemon(); err == nil {
		_ = syscall.Kill(d.PID, syscall.SIGUSR1)
	}
	return r.p.status()
}

// quiet waits until no session and no consult is left, and returns how long that took.
func (r *chaosRun) quiet(t *testing.T) time.Duration {
	t.Helper()
	for begin := time.Now(); ; r.pause(50 * time.Millisecond) {
		s := r.p.status()
		if len(s.Sessions) == 0 && s.Consults.Running == 0 && s.Consults.Queued == 0 {
			return time.Since(begin)
		}
		if time.Since(begin) > 2*time.Minute {
			t.Fatalf("sessions or consults are left: %+v", s)
		}
	}
}

// check looks at what the load has left, 10 s after the last consult has ended, when the
// sessions that were killed with their daemon are discarded. There is one daemon, which
// holds nothing of the load, and no other process.
func (r *chaosRun) check(t *testing.T, base control.Runtime) {
	t.Helper()
	took := r.quiet(t)
	limit := time.Now().Add(protocol.StartWindow/shorter + 10*time.Second)
	for ; ; r.pause(100 * time.Millisecond) {
		s := r.collected(t)
		heap := base.HeapBytes + base.HeapBytes/5 + eventBytes + readBytes +
			int64(s.Consults.Kept)*keptBytes + int64(r.spenders())*spentBytes
		left := r.processes()
		delete(left, s.Daemon.PID)
		same := s.Runtime.Goroutines <= base.Goroutines && s.Runtime.FDs <= base.FDs && s.Runtime.HeapBytes <= heap
		if same && len(left) == 0 {
			t.Logf("the last consult ended %v after the last session; base %+v, now %+v, which may hold %d bytes; "+
				"%d sessions have spent", took.Round(time.Millisecond), base, s.Runtime, heap, r.spenders())
			break
		}
		if time.Now().After(limit) {
			t.Errorf("10 s behind the last session the daemon has %+v, want no more than %+v; left are %v; status %+v",
				s.Runtime, base, left, s)
			if s.Runtime.HeapBytes > heap {
				t.Logf("the heap may hold %d bytes; it holds:\n%s", heap, r.holdings(s.Daemon.PID))
			}
			break
		}
	}
	r.files(t)
}

// spenders returns how many sessions the daemon's ledger has: what consults have cost whose
// answers are gone. It is bounded, and full after some minutes of chaos.
func (r *chaosRun) spenders() int {
	ledger, err := budget.Read(filepath.Join(r.p.dir, "home/.local/state/holdline/spent.json"), time.Now())
	if err != nil {
		r.p.t.Errorf("the ledger: %v", err)
	}
	return len(ledger.Sessions)
}

// holdings describes the heap of the daemon pid.
func (r *chaosRun) holdings(pid int) string {
	if err := syscall.Kill(pid, syscall.SIGUSR2); err != nil {
		return err.Error()
	}
	path := filepath.Join(r.p.dir, faultDir, heapFile)
	for limit := time.Now().Add(10 * time.Second); ; r.pause(50 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			break
		}
		if time.Now().After(limit) {
			return "the daemon has not written it down"
		}
	}
	out, err := exec.Command("go", "tool", "pprof", "-sample_index=inuse_space", "-top", "-nodecount=20",
		path).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%s%v", out, err)
	}
	return string(out)
}

// processes returns the place's processes, including its workers, whose environment is
// empty.
func (r *chaosRun) processes() map[int]string {
	found := r.p.processes()
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		cmd, err := os.ReadFile(path)
		if pid, perr := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && perr == nil &&
			bytes.Contains(cmd, []byte(r.p.dir+"/")) {
			found[pid] = string(bytes.ReplaceAll(cmd, []byte{0}, []byte{' '}))
		}
	}
	return found
}

// pause waits, whether or not the run is over.
func (r *chaosRun) pause(d time.Duration) { time.Sleep(d) }

// workerFiles are the files that a consult's directory may have at the end.
var workerFiles = []string{
	"job.json", "spec.json", "calls.jsonl", "state.json", "answer.json", "outcome.json", "transcript.jsonl", "lock",
	"stderr.log", "worker.log", "a", "taken", messages.File,
}

// files checks that no file is left that should not be.
func (r *chaosRun) files(t *testing.T) {
	t.Helper()
	run, state := filepath.Join(r.p.dir, "run/holdline"), filepath.Join(r.p.dir, "home/.local/state/holdline")
	for _, root := range []string{run, state} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name := d.Name()
			if strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".new") || strings.HasSuffix(name, ".tmp") {
				t.Errorf("a stray file is left: %s", path)
			}
			if filepath.Base(filepath.Dir(filepath.Dir(path))) == "consults" && !slices.Contains(workerFiles, name) {
				t.Errorf("a consult has left %s", path)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(state, "consults/*/job.json")); len(left) > 0 {
		for _, job := range left {
			if _, err := os.Stat(filepath.Join(filepath.Dir(job), "answer.json")); err != nil {
				t.Errorf("a consult has no answer: %s", filepath.Dir(job))
			}
		}
	}
	if dirs, _ := filepath.Glob(filepath.Join(run, "w/*")); len(dirs) > 0 {
		t.Errorf("directories of workers are left: %v", dirs)
	}
}

// report logs what happened.
func (r *chaosRun) report(t *testing.T, h *history) {
	t.Helper()
	counts := maps.Clone(r.counts)
	for _, s := range h.Sessions {
		counts["sessions "+string(s.End)]++
		for _, e := range s.Events {
			switch e.Kind {
			case evSent:
				counts["sent "+e.Op]++
			case evAnswer:
				counts["answered "+cmp.Or(e.Code, "well")]++
			default:
				counts[string(e.Kind)]++
			}
		}
	}
	var all []string
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%s %d", what, counts[what]))
	}
	t.Log(strings.Join(all, ", "))
	p50, p99, n := h.innocentLatency()
	t.Logf("%d calls of the well-behaved server: p50 %v, p99 %v", n, p50.Round(time.Millisecond),
		p99.Round(time.Millisecond))
}

// innocentLatency returns the median and the 99th percentile of the time that calls of the
// well-behaved shared server took beyond the tool's own time, and how many of them had a
// good answer.
func (h *history) innocentLatency() (p50, p99 time.Duration, n int) {
	var all []time.Duration
	for _, s := range h.Sessions {
		due := map[string]event{}
		for _, e := range s.Events {
			switch {
			case e.Kind == evSent && (e.Op == opEffect || e.Op == opLook):
				due[e.ID] = e
			case e.Kind == evSent:
				delete(due, e.ID)
			case e.Kind == evAnswer && e.Code == "" && due[e.ID].ID != "":
				all = append(all, e.At-due[e.ID].At-due[e.ID].Takes)
				delete(due, e.ID)
			}
		}
	}
	if len(all) == 0 {
		return 0, 0, 0
	}
	slices.Sort(all)
	return all[len(all)/2], all[len(all)*99/100], len(all)
}

// story returns what the history has about a violation.
func (h *history) story(v violation) string {
	var b strings.Builder
	for _, s := range h.Sessions {
		ids := map[string]bool{}
		for _, e := range s.Events {
			if v.Token != "" && e.Token == v.Token {
				ids[e.ID] = true
			}
			if ids[e.ID] || v.Token == "" && s.Name == v.Session {
				fmt.Fprintf(&b, "  %s %v %s %s %s %s %s %.120q\n", s.Name, e.At.Round(time.Millisecond), e.Kind, e.ID,
					e.Op, e.Code, e.State, e.Text)
			}
		}
		if len(ids) > 0 {
			fmt.Fprintf(&b, "  %s ended: %s %s\n", s.Name, s.End, s.How)
		}
	}
	for _, k := range h.Kills {
		if v.Token != "" && k.Token == v.Token || k.Server != "" {
			fmt.Fprintf(&b, "  killed %+v\n", k)
		}
	}
	for _, n := range h.Ledger {
		if n.Token == v.Token {
			fmt.Fprintf(&b, "  noted %+v\n", n)
		}
	}
	return b.String()
}

// show logs violations, the first ones with their story.
func (h *history) show(t *testing.T, found []violation) {
	t.Helper()
	for i, v := range found {
		if i == 20 {
			t.Errorf("and %d more", len(found)-i)
			return
		}
		t.Errorf("%v\n%s", v, h.story(v))
	}
}

// chaosLimits returns how long chaos runs, and its seed.
func chaosLimits(t *testing.T) (time.Duration, uint64) {
	t.Helper()
	word := os.Getenv("HOLDLINE_CHAOS")
	if word == "" {
		t.Skip("HOLDLINE_CHAOS=60s (or make chaos) runs it for so long")
	}
	d, err := time.ParseDuration(word)
	if err != nil {
		t.Fatalf("HOLDLINE_CHAOS=%q is no duration such as 60s", word)
	}
	seed := uint64(time.Now().UnixNano()) % 1_000_000
	if s := os.Getenv("SEED"); s != "" {
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("SEED=%q is no number", s)
		}
	}
	return d, seed
}

// TestChaos has eight sessions of both eras use one daemon while its processes are killed
// at random. The oracle then checks that each promise was kept.
func TestChaos(t *testing.T) {
	d, seed := chaosLimits(t)
	t.Logf("replay with: make chaos CHAOS=%v SEED=%d", d, seed)
	r := newChaos(t, seed, os.Getenv("HOLDLINE_CHAOS_HOSTILE") != "0")
	base := r.warm(t)
	r.load(d)
	h := r.history()
	r.report(t, h)
	for _, problem := range r.problems {
		t.Error(problem)
	}
	r.check(t, base)
	h = r.history() // with what consults in the background have noted since
	h.show(t, judge(h))
	if t.Failed() {
		r.tell(t)
	}
	if act := r.missing(); d >= 30*time.Second && act != "" {
		t.Errorf("%s: never", countedAs[act])
	}
}

// TestChaosNeighbours runs chaos twice with the same seed, with servers that misbehave and
// without. With them, the 99th percentile of calls of the well-behaved server may at most
// double.
func TestChaosNeighbours(t *testing.T) {
	d, seed := chaosLimits(t)
	if d < 5*time.Minute {
		t.Skip("HOLDLINE_CHAOS=5m or more: less says nothing about a 99th percentile")
	}
	var p99 [2]time.Duration
	for i, hostile := range []bool{false, true} {
		r := newChaos(t, seed, hostile)
		r.warm(t)
		r.load(d)
		r.quiet(t)
		h := r.history()
		r.report(t, h)
		h.show(t, judge(h))
		_, p99[i], _ = h.innocentLatency()
	}
	if p99[1] > 2*p99[0] {
		t.Errorf("p99 with servers that misbehave is %v, and %v without: more than twice", p99[1], p99[0])
	}
}

// tell logs the end of the daemons' log, and keeps all of it if the user asks for that.
func (r *chaosRun) tell(t *testing.T) {
	t.Helper()
	t.Logf("failed; replay with SEED=%d", r.seed)
	logs, _ := filepath.Glob(filepath.Join(r.p.dir, "home/.local/state/holdline/logs/*"))
	for _, log := range logs {
		b, _ := os.ReadFile(log)
		lines := bytes.Split(b, []byte("\n"))
		t.Logf("%s:\n%s", filepath.Base(log), bytes.Join(lines[max(0, len(lines)-60):], []byte("\n")))
	}
	to := os.Getenv("HOLDLINE_CHAOS_KEEP")
	if to == "" {
		return
	}
	b, err := json.Marshal(r.history())
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(to, fmt.Sprintf("chaos-%d.json", r.seed)), b, 0o600),
			os.CopyFS(filepath.Join(to, fmt.Sprintf("chaos-%d", r.seed)),
				os.DirFS(filepath.Join(r.p.dir, "home/.local/state/holdline"))))
	}
	t.Logf("kept in %s: %v", to, err)
}

// TestChaosPlan checks that one seed always gives the same plan, and another seed another
// one.
func TestChaosPlan(t *testing.T) {
	plan := func(seed uint64) (all []any) {
		lives, kills := rand.New(rand.NewPCG(seed, 3)), rand.New(rand.NewPCG(seed, 1<<32))
		for range 20 {
			life := planLife(lives)
			all = append(all, life, usual.planKill(kills))
			steps := rand.New(rand.NewPCG(seed, life.Caller))
			for range life.Steps {
				all = append(all, planStep(steps, everyStep))
			}
		}
		return all
	}
	if !reflect.DeepEqual(plan(1), plan(1)) || reflect.DeepEqual(plan(1), plan(2)) {
		t.Error("the seed does not decide the plan")
	}
}
