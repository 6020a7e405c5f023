package e2e

import (
	"testing"
	"time"
)

// reached waits until a process is held at a point, or has died there.
func (p *place) reached(name string) {
	p.t.Helper()
	for deadline := time.Now().Add(waitLimit); !p.died(name); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("no process came to %s", name)
		}
	}
}

// TestStopped_ProxyThatConnectsMeanwhileEnds checks that an agent that restarts its proxy while the daemon stops
// does not start another daemon, and does not wait for the old one.
func TestStopped_ProxyThatConnectsMeanwhileEnds(t *testing.T) {
	t.Parallel()
	p := newPlace(t).faults()
	p.daemon()
	p.dieAs("stop.told", death{held: true})
	p.dieAs("proxy.welcomed", death{who: "mcp-stdio", held: true})
	stop := p.command("stop")
	if err := stop.Start(); err != nil {
		t.Fatal(err)
	}
	p.reached("stop.told")
	a := p.agent()
	p.reached("proxy.welcomed") // by the daemon that stops
	p.letGo("proxy.welcomed")
	p.letGo("stop.told")
	if err := stop.Wait(); err != nil {
		t.Errorf("stop: %v", err)
	}
	refused(t, a.initialize())
	_ = a.cmd.Wait()
	if code := a.cmd.ProcessState.ExitCode(); code != exitLost && code != exitNoDaemon { // it may have read the welcome
		t.Errorf("exit %d: %s", code, a.errs)
	}
	if p.listens() {
		t.Error("another daemon was started")
	}
}

// TestStopThenResume checks that a proxy that resumes while the daemon stops gets the
// farewell, and does not wait for a daemon.
func TestStopThenResume(t *testing.T) {
	t.Parallel()
	p := newPlace(t).faults()
	daemon := p.daemon()
	a := p.agent().shake()
	p.dieAs("proxy.lost", death{who: "mcp-stdio", held: true})
	kill9(t, daemon.Process.Pid)
	p.reached("proxy.lost")
	p.dieAs("stop.told", death{held: true})
	p.daemon()
	stop := p.command("stop")
	if err := stop.Start(); err != nil {
		t.Fatal(err)
	}
	p.reached("stop.told")
	p.letGo("proxy.lost")
	ended := make(chan struct{})
	go func() { _ = a.cmd.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(waitLimit):
		t.Errorf("the proxy still waits; it said %s", a.errs)
	}
	if code := a.cmd.ProcessState.ExitCode(); code != exitLost {
		t.Errorf("exit %d, want %d: %s", code, exitLost, a.errs)
	}
	p.letGo("stop.told")
	if err := stop.Wait(); err != nil {
		t.Errorf("stop: %v", err)
	}
}
