package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"holdline/daemon/statedir"
	"holdline/protocol/process"
)

// Acts of the killer.
const (
	actDaemon  = "daemon"  // SIGKILL
	actWorker  = "worker"  // SIGKILL of one of them
	actChild   = "child"   // SIGKILL of a worker's child
	actProxy   = "proxy"   // SIGKILL of one of them
	actStall   = "stall"   // a proxy is stopped for a moment, and reads no answer
	actPause   = "pause"   // the daemon is stopped for a moment
	actFreeze  = "freeze"  // a worker is stopped, and the daemon is killed meanwhile
	actReplace = "replace" // another file replaces the binary

	// Directed schedules, for what random acts bring about too seldom.
	actSent = "sent" // the daemon dies after a write
	actHeld = "held" // the daemon is killed while it holds an answer back
	actReap = "reap" // the same after the death of a worker
	// A worker has read a write from a daemon that is killed then. It continues when the
	// next daemon has attached and has not made a write yet.
	actFence = "fence"
)

// menu says how often the killer does what, and how long it waits before.
type menu struct {
	acts []menuItem
	gap  time.Duration // mean
}

type menuItem struct {
	act string
	n   int
}

// usual is the menu of `make chaos`.
var usual = menu{gap: 600 * time.Millisecond, acts: []menuItem{
	{actDaemon, 34},
	{actWorker, 12},
	{actChild, 10},
	{actProxy, 14},
	{actPause, 10},
	{actFreeze, 10},
	{actReplace, 10},
	{actStall, 10},
}}

// countedAs has the names under which a run counts the acts of the usual menu.
var countedAs = map[string]string{
	actDaemon: "killed daemon", actWorker: "killed worker", actChild: "killed child", actProxy: "killed proxy",
	actPause: "stopped", actFreeze: "stopped", actReplace: "replaced binary", actStall: "stalled",
}

// killPlan is one act of the killer.
type killPlan struct {
	Act  string
	Gap  time.Duration // time before the act
	Pick float64       // which of the possible victims, in [0, 1)
	Hold time.Duration // how long the victim is stopped
	Mid  float64       // the part of Hold after which the daemon is killed
}

// planKill draws an act. It always takes the same number of values from r.
func (m *menu) planKill(r *rand.Rand) killPlan {
	all := 0
	for _, i := range m.acts {
		all += i.n
	}
	at, act := r.IntN(all), ""
	for _, i := range m.acts {
		if at < i.n {
			act = i.act
			break
		}
		at -= i.n
	}
	return killPlan{
		Act: act, Gap: time.Duration(r.ExpFloat64() * float64(m.gap)), Pick: r.Float64(),
		Hold: 30*time.Millisecond + time.Duration(r.IntN(600))*time.Millisecond, Mid: r.Float64(),
	}
}

// killer carries out its plan until the run is over. Each third act is one that has not
// happened yet, if there is any: on a busy machine a run has few acts, and each of the menu
// must be among them.
func (r *chaosRun) killer() {
	plan := rand.New(rand.NewPCG(r.seed, 1<<32))
	for i := 1; ; i++ {
		k := r.menu.planKill(plan)
		if i%3 == 0 {
			k.Act = cmp.Or(r.missing(), k.Act)
		}
		if !r.rest(min(k.Gap, 5*r.menu.gap)) {
			return
		}
		r.act(k)
	}
}

// missing returns an act of the menu that has not happened yet, or "".
func (r *chaosRun) missing() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range r.menu.acts {
		if name := countedAs[i.act]; name != "" && r.counts[name] == 0 {
			return i.act
		}
	}
	return ""
}

func (r *chaosRun) act(k killPlan) {
	switch k.Act {
	case actDaemon:
		r.killDaemon()
	case actWorker, actChild:
		if v, ok := r.victim(k.Pick); ok {
			r.killWorker(&v, k.Act)
		}
	case actProxy:
		r.killProxy(k.Pick)
	case actStall:
		r.stall(k)
	case actPause:
		if d, err := r.daemon(); err == nil {
			r.hold(d, k.Hold, nil)
		}
	case actFreeze:
		if v, ok := r.victim(k.Pick); ok {
			r.hold(v.worker, k.Hold, func() {
				r.rest(time.Duration(k.Mid * float64(k.Hold)))
				r.killDaemon()
			})
		}
	case actReplace:
		r.replace(k.Pick < 0.7)
	case actSent:
		r.p.dieAt("write.sent", 1)
	case actHeld:
		// The time is shorter than it takes until the answer is spooled.
		r.held(40*time.Millisecond, func() {})
	case actReap:
		r.held(100*time.Millisecond, func() {
			if v, ok := r.victim(k.Pick); ok {
				r.killWorker(&v, actWorker)
			}
		})
	case actFence:
		r.fence()
	}
}

// held calls before, waits until the daemon holds an answer back, and kills the daemon
// after d.
func (r *chaosRun) held(d time.Duration, before func()) {
	const point = "session.pursued"
	defer r.disarm(point)
	r.arm(point, "daemon")
	before()
	if r.reached(point) {
		r.rest(d)
		r.killDaemon()
	}
}

func (r *chaosRun) fence() {
	const read, attached = "worker.read", "attach.voided"
	defer r.disarm(read)
	defer r.disarm(attached)
	r.arm(read, "worker")
	if !r.reached(read) {
		return
	}
	r.rest(150 * time.Millisecond) // more is written meanwhile
	r.arm(attached, "daemon")
	r.killDaemon()
	if r.reached(attached) {
		r.p.letGo(read)
		r.rest(50 * time.Millisecond) // the daemon handles what it has read first
	}
}

// reached waits until a process is held at the point, and reports whether one was.
func (r *chaosRun) reached(point string) bool {
	for limit := time.Now().Add(3 * time.Second); !r.p.died(point); {
		if time.Now().After(limit) || !r.rest(2*time.Millisecond) {
			return false
		}
	}
	r.count("at " + point)
	return true
}

// arm makes the next process of a command that reaches a point stop there.
func (r *chaosRun) arm(point, who string) {
	at := filepath.Join(r.p.dir, faultDir, point)
	_ = os.Remove(at + faultReached)
	_ = os.Remove(at + faultLetGo)
	r.p.dieAs(point, death{who: who, held: true})
}

// disarm releases the process that is held at a point. Later ones are not held.
func (r *chaosRun) disarm(point string) {
	_ = os.Remove(filepath.Join(r.p.dir, faultDir, point))
	r.p.letGo(point)
}

// hold stops a process for a time, which begins when meanwhile has returned.
func (r *chaosRun) hold(p process.Proc, d time.Duration, meanwhile func()) {
	if process.Signal(p, syscall.SIGSTOP) != nil {
		return
	}
	r.count("stopped")
	if meanwhile != nil {
		meanwhile()
	}
	r.rest(d)
	_ = process.Signal(p, syscall.SIGCONT)
}

// daemon returns the process that holds the lock.
func (r *chaosRun) daemon() (process.Proc, error) {
	pid, start, err := statedir.Holder(filepath.Join(r.p.dir, "run/holdline/daemon.lock"))
	if err != nil {
		return process.Proc{}, err
	}
	if pid == 0 || pid == os.Getpid() {
		return process.Proc{}, errors.New("no daemon")
	}
	now, err := process.Lookup(pid)
	if err != nil || now.Start != start {
		return process.Proc{}, errors.New("the daemon is gone")
	}
	return now, nil
}

// mostBarren is how many daemons in a row may die before they have answered a request: a
// proxy looks for a daemon no longer than its window.
const mostBarren = 2

func (r *chaosRun) killDaemon() {
	if now := r.served.Load(); now != r.seen {
		r.seen, r.barren = now, 0
	}
	d, err := r.daemon()
	if err == nil && r.barren < mostBarren {
		r.barren++
		r.kill(d, kill{What: "daemon"})
	}
}

// kill kills a process with SIGKILL, and notes it with the time before the signal.
func (r *chaosRun) kill(p process.Proc, k kill) {
	k.At, k.PID = r.now(), p.PID
	if process.Signal(p, syscall.SIGKILL) != nil {
		return
	}
	r.count("killed " + k.What)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kills = append(r.kills, k)
}

// victim is a living worker with its child.
type victim struct {
	worker, child process.Proc
	kill          kill // what its death means
}

// victims returns the living workers.
func (r *chaosRun) victims() []victim {
	var all []victim
	for _, pattern := range []string{
		"run/holdline/w/*/state.json", "home/.local/state/holdline/consults/*/state.json",
	} {
		found, _ := filepath.Glob(filepath.Join(r.p.dir, pattern))
		for _, f := range found {
			dir := filepath.Dir(f)
			st, err := process.ReadState(dir)
			if err != nil || st.Phase == process.PhaseExited {
				continue
			}
			now, err := process.Lookup(st.PID)
			if err != nil || now.Start != st.Start {
				continue
			}
			v := victim{worker: now, child: process.Proc{PID: st.ChildPID, Start: st.ChildStart}}
			spec, err := process.ReadSpec(dir)
			if err != nil {
				continue
			}
			if spec.Name == hostileShared || spec.Name == hostileOwn {
				continue // they end by themselves; without them a seed always kills the same
			}
			if spec.Kind == process.KindServer {
				v.kill.Server = spec.Name
			} else if v.kill.Token = consultToken(dir); v.kill.Token == "" {
				continue
			}
			all = append(all, v)
		}
	}
	return all
}

// consultToken returns the token of the consult in a directory.
func consultToken(dir string) string {
	tokenOf := regexp.MustCompile(`begin ([\w-]+)`)
	b, err := os.ReadFile(filepath.Join(dir, "job.json"))
	if err != nil {
		return ""
	}
	if m := tokenOf.FindSubmatch(b); m != nil {
		return string(m[1])
	}
	return ""
}

func (r *chaosRun) victim(pick float64) (victim, bool) {
	all := r.victims()
	if len(all) == 0 {
		return victim{}, false
	}
	return all[int(pick*float64(len(all)))], true
}

func (r *chaosRun) killWorker(v *victim, what string) {
	p := v.worker
	if what == actChild {
		if p = v.child; p.PID == 0 {
			return
		}
	}
	v.kill.What, v.kill.Child = what, v.child.PID
	if v.kill.Server == chaosServer && v.child.PID != 0 {
		v.kill.Child = leafOf(v.child.PID) // the ledger has the pid of the server itself
	}
	r.kill(p, v.kill)
}

// stall stops a proxy for a time.
func (r *chaosRun) stall(k killPlan) {
	c := r.client(k.Pick)
	if c == nil {
		return
	}
	if p, err := process.Lookup(c.a.cmd.Process.Pid); err == nil {
		r.count("stalled")
		r.hold(p, k.Hold, nil)
	}
}

// client returns one of the living sessions, nil if there is none.
func (r *chaosRun) client(pick float64) *chaosClient {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.live) == 0 {
		return nil
	}
	return r.live[int(pick*float64(len(r.live)))]
}

// killProxy kills a proxy. What its session waited for does not count any more.
func (r *chaosRun) killProxy(pick float64) {
	c := r.client(pick)
	if c == nil {
		return
	}
	c.mu.Lock()
	c.killed = true
	c.mu.Unlock()
	_ = c.a.cmd.Process.Kill()
	r.count("killed proxy")
}

// replace replaces the binary by another file. If tell is true a command asks the daemon to
// upgrade; otherwise the daemon notices by itself.
func (r *chaosRun) replace(tell bool) {
	r.binary++
	if err := r.install(); err != nil {
		r.problem("replacing the binary: %v", err)
		return
	}
	r.count("replaced binary")
	if !tell {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.p.bin(), "upgrade")
	cmd.Env, cmd.Dir, cmd.WaitDelay = r.p.env, r.p.project, time.Second
	_ = cmd.Run() // there may be no daemon
}

// install links the name of the installed binary to the one whose turn it is.
func (r *chaosRun) install() error {
	next := r.p.bin() + ".new"
	if err := os.Link(fmt.Sprintf("%s.%d", r.p.bin(), r.binary%2), next); err != nil {
		return err
	}
	return os.Rename(next, r.p.bin())
}

// configuration returns the configuration of a place in which chaos runs.
func (r *chaosRun) configuration() ([]byte, error) {
	servers := map[string]any{chaosServer: r.launchedServer(), ownServer: r.server("session")}
	if r.hostile {
		servers[hostileShared], servers[hostileOwn] = r.hostileServer("shared"), r.hostileServer("session")
	}
	return json.Marshal(map[string]any{
		"consult": map[string]any{
			"claude_bin": filepath.Join(programs, "claude"), "max_concurrent": 6,
			"keep": map[string]any{"count": keptInChaos},
		},
		"mcpServers": servers,
	})
}

func (r *chaosRun) server(scope string) map[string]any {
	return map[string]any{
		"command": filepath.Join(programs, "toolserver"), "args": []string{"-ledger", r.p.ledger()},
		"holdline": map[string]any{"scope": scope, "keep_alive": "3s", "max_restarts": 1000, "circuit_threshold": 1000},
	}
}

// launchedServer is started by a launcher at first, and later without it, until it ends by itself.
func (r *chaosRun) launchedServer() map[string]any {
	return r.p.launcher(stays, "").npxEntry(r.server("shared")["holdline"].(map[string]any), "-y", "pkg", "-ledger", r.p.ledger())
}

func (r *chaosRun) hostileServer(scope string) map[string]any {
	return map[string]any{
		"command": filepath.Join(programs, "hostileserver"),
		"holdline": map[string]any{
			"scope": scope, "keep_alive": "3s", "max_restarts": 1000, "circuit_threshold": 1000,
			"timeout": hostileTimeout.String(), "start_timeout": hostileStart.String(),
			"max_timeout": hostileMaxTimeout.String(),
			"lazy":        true, // sessions that do not call it have no process of it
		},
	}
}
