package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/protocol/control"
)

// TestServerAsleepInACall_ShownAsNotAnsweringAndNeverEnded has a server that does one thing at a
// time sleep in a call. A second session's call waits meanwhile. Status says that the server does
// not answer; then both calls get their answers from the same process. With HOLDLINE_LONG it sleeps
// for six minutes.
func TestServerAsleepInACall_ShownAsNotAnsweringAndNeverEnded(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"stray": p.strayEntry(hosting{"scope": "shared", "timeout": "15m"})}).daemon()
	a, b := p.agent().shake(), p.agent().shake()
	before := p.untilReady("stray")
	wakes := filepath.Join(p.dir, "wakes")
	begun := time.Now()
	sleeping := a.call("stray__hold", map[string]any{"token": wakes})
	p.untilEffect("hold")
	waiting := b.call("stray__say", map[string]any{"token": "beside"})
	s := p.until("the server is shown as not answering", func(s control.StatusAnswer) bool {
		return find(t, s, "stray").State == "not answering"
	})
	if at := time.UnixMilli(find(t, s, "stray").SilentMS); at.Before(begun.Add(-time.Second)) || at.After(time.Now()) {
		t.Errorf("it does not answer since %v, and the call began at %v", at, begun)
	}
	x := b.wait(b.call("health_snapshot", map[string]any{"detail": "full"}))
	if !strings.HasPrefix(x.text(), "Ready. ") || !strings.Contains(x.text(), "stray: is not answering") {
		t.Errorf("the health meanwhile: %s", x.raw)
	}
	if os.Getenv("HOLDLINE_LONG") != "" {
		time.Sleep(time.Until(begun.Add(6 * time.Minute)))
	}
	if err := os.WriteFile(wakes, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if x := a.wait(sleeping); x.text() != wakes {
		t.Errorf("the long call: %s", x.raw)
	}
	if x := b.wait(waiting); x.text() != "beside" || p.effectsOf("say beside") != 1 {
		t.Errorf("the call beside it: %s", x.raw)
	}
	if s := p.server("stray"); s.State != "ready" || s.SilentMS != 0 || s.Restarts != 0 || s.LastFault != nil ||
		child(p.status(), "stray") != before {
		t.Errorf("the server: %+v", s)
	}
	a.rest()
	b.rest()
}

// TestServerIsStoppedAtItsStart_FaultSaysSo has a server be stopped before it has answered anything: once it itself,
// and once a program that it has started. The fault and a trial say that it was stopped, and advise no more time.
func TestServerIsStoppedAtItsStart_FaultSaysSo(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	frozen := func(script string) map[string]any {
		return map[string]any{
			"command": "/bin/sh", "args": []string{"-c", script}, "holdline": hosting{"start_timeout": "10s"},
		}
	}
	p.configure(map[string]any{
		"itself": frozen("kill -STOP $$"), "below": frozen("sh -c 'kill -STOP $$'; exit 1"),
	}).daemon()
	a := p.agent().shake()
	said := func(s control.StatusAnswer, name string) string {
		if f := find(t, s, name).LastFault; f != nil {
			return f.Fault.Detail
		}
		return ""
	}
	s := p.until("both starts have failed", func(s control.StatusAnswer) bool {
		return strings.Contains(said(s, "itself"), "was stopped") && strings.Contains(said(s, "below"), "was stopped")
	})
	_, errs, code := p.run("", "servers", "test", "below")
	if code == exitOK || !strings.Contains(errs, "was stopped") {
		t.Errorf("the trial: exit %d, %s", code, errs)
	}
	for _, text := range []string{said(s, "itself"), said(s, "below"), errs} {
		if strings.Contains(text, "more time") {
			t.Errorf("it advises more time: %s", text)
		}
	}
	a.leave()
}

// TestServerIsStopped_FaultSaysThatItDoesNotAnswer stops a server's process in a call. The fault of
// the call says that the server answers no ping either, so that nobody waits longer for it.
func TestServerIsStopped_FaultSaysThatItDoesNotAnswer(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.configure(map[string]any{"stray": p.strayEntry(hosting{"scope": "shared", "timeout": "30s"})}).daemon()
	a := p.agent().shake()
	p.untilReady("stray")
	x := a.wait(a.call("stray__stop", map[string]any{"token": "a"}))
	if x.code() != "timeout" || x.reason() != "not_answering" ||
		!strings.Contains(x.text(), "has not answered a ping for") || strings.Contains(x.text(), "more time") {
		t.Errorf("the call that stops the server: %s", x.raw)
	}
	a.rest()
}
