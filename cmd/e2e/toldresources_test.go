package e2e

import (
	"fmt"
	"testing"
)

// A subscriber is an agent that has subscribed to two resources, and counts what it is told of them.
type subscriber struct {
	*agent
	name   string
	modern bool
	one    bool           // it has the one server
	told   map[string]int // by the resource
}

// subscribers starts agents of both eras, for all servers and for one, which subscribe to mem://a and
// mem://b.
func (p *place) subscribers() []*subscriber {
	p.t.Helper()
	var all []*subscriber
	for _, modern := range []bool{false, true} {
		for _, flags := range [][]string{nil, {"--server", "tools"}} {
			name := fmt.Sprintf("modern %v, for %q", modern, flags)
			s := &subscriber{agent: p.agent(append(flags, "--identity", "test")...), name: name, modern: modern, one: flags != nil}
			if modern {
				for _, uri := range []string{"mem://a", "mem://b"} { // a request for each
					s.begin("subscriptions/listen", modernly(map[string]any{"notifications": map[string]any{
						"resourceSubscriptions": []string{uri},
					}}))
					s.until(func(x *answer) bool { return x.Method == acknowledged })
				}
			} else {
				s.shake()
				for _, uri := range []string{"mem://a", "mem://b"} {
					if x := s.subscribe("subscribe", uri); x.Error != nil {
						p.t.Fatal(x.raw)
					}
				}
			}
			s.forget()
			all = append(all, s)
		}
	}
	return all
}

// forget has the agent count from here on.
func (s *subscriber) forget() { s.told = map[string]int{} }

// hear returns which changes the agent was told of until now, since forget.
func (s *subscriber) hear() map[string]int {
	s.t.Helper()
	method, params := "ping", map[string]any{}
	if s.modern {
		method, params = "server/discover", modernly(params)
	}
	id := s.begin(method, params)
	s.until(func(x *answer) bool {
		s.count(x)
		return x.answers(id)
	})
	return s.told
}

// acknowledged stands for the notification that a subscription is in force.
const acknowledged = "notifications/subscriptions/acknowledged"

// count counts a line, if it tells of a change, or acknowledges a subscription.
func (s *subscriber) count(x *answer) {
	if x.Method == acknowledged {
		s.told[acknowledged]++
	}
	if x.Method != "notifications/resources/updated" {
		return
	}
	var m struct{ Params struct{ URI string } }
	decode(s.t, x.raw, &m)
	s.told[m.Params.URI]++
}

// untilTold waits until the agent was told of a change of the resource.
func (s *subscriber) untilTold(uri string) {
	s.t.Helper()
	if s.told[uri] == 0 {
		s.until(func(x *answer) bool {
			s.count(x)
			return s.told[uri] > 0
		})
	}
}

// TestDaemonKilledWithoutChange_SubscribersToldNothing kills the daemon 50 times beside agents of both
// eras that have subscribed to resources, while nothing changes. None of them is told of a change, or again
// that it has subscribed, and the server is not asked again.
func TestDaemonKilledWithoutChange_SubscribersToldNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t).serve("shared", "-resources", "told").login()
	p.daemon()
	all := p.subscribers()
	pid := p.pid(0)
	for range 50 {
		kill9(t, pid)
		pid = p.pid(pid)
		for _, s := range all {
			if told := s.hear(); len(told) > 0 { // it has resumed
				t.Fatalf("the agent (%s) was told of changes: %v", s.name, told)
			}
		}
	}
	all[0].call("tools__touch", map[string]any{"token": "mem://a"})
	for _, s := range all {
		if s.untilTold("mem://a"); s.told["mem://a"] != 1 || len(s.told) != 1 {
			t.Errorf("after one change the agent (%s) was told %v", s.name, s.told)
		}
		s.rest()
	}
	for _, uri := range []string{"mem://a", "mem://b"} {
		if n := p.effectsOf("subscribe " + uri); n != 1 {
			t.Errorf("the server was asked %d times for %s, want once", n, uri)
		}
	}
}

// TestResourceChangedAsDaemonIsKilled_EachSubscriberTold has a resource change at the moment in which
// the daemon is killed, sometimes before and sometimes after it. Each agent is told of it, and of no
// other; and once the next daemons have said so, a kill without a change is told to nobody again.
func TestResourceChangedAsDaemonIsKilled_EachSubscriberTold(t *testing.T) {
	t.Parallel()
	for _, scope := range []string{"shared", "session"} {
		t.Run(scope, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t).serve(scope, "-resources", "told").login()
			p.daemon()
			all := p.subscribers()
			pid := p.pid(0)
			kill := func() {
				kill9(t, pid)
				pid = p.pid(pid)
			}
			for i := range 8 {
				changed, other := "mem://a", "mem://b"
				if i%2 == 1 {
					changed, other = other, changed
				}
				var ids []int
				for j, s := range all {
					s.forget()
					if scope == "session" || j == 0 { // each has its own server
						ids = append(ids, s.change(changed, 1+3*(i%4)))
					}
				}
				p.untilNotes([]string{"begin ", "touched "}[i/2%2]+changed, len(ids)*(i/2+1))
				kill()
				for j, id := range ids {
					all[j].until(func(x *answer) bool {
						all[j].count(x)
						return x.answers(id)
					})
				}
				for _, s := range all {
					if s.untilTold(changed); s.hear()[other] > 0 {
						t.Errorf("round %d: the agent (%s) was told %v, and only %s has changed", i, s.name, s.told, changed)
					}
				}
			}
			silent := 0
			for rounds := 0; silent < 5; rounds++ {
				for _, s := range all {
					s.forget()
				}
				kill()
				silent++
				for _, s := range all {
					if len(s.hear()) > 0 {
						silent = 0
					}
				}
				if rounds == 50 {
					t.Fatal("each kill is told as a change")
				}
			}
			for _, s := range all {
				s.rest()
			}
		})
	}
}

// change has the server change a resource after so many milliseconds.
func (s *subscriber) change(uri string, ms int) (id int) {
	tool := "tools__touch"
	if s.one {
		tool = "touch"
	}
	params := map[string]any{"name": tool, "arguments": map[string]any{"token": uri, "ms": ms}}
	if s.modern {
		params = modernly(params)
	}
	return s.begin("tools/call", params)
}
