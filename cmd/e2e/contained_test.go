package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdline/protocol/control"
)

// TestPanicContained makes the daemon panic at each step of its work with one server's
// process, which it started itself or adopted. The daemon lives, the other server's session
// notices nothing, each call is answered and made at most once, the server is back for the
// next call, and the user is told what happened.
func TestPanicContained(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		point   string
		adopted bool // the processes were started by an earlier daemon
	}{
		{point: "hosted.spawned"},
		{point: "hosted.introduced"},
		{point: "hosted.listed"},
		{point: "hosted.dispatched"},
		{point: "hosted.answered"},
		{point: "hosted.forgot"},
		{point: "hosted.adopted", adopted: true},
		{point: "hosted.dispatched", adopted: true},
		{point: "hosted.answered", adopted: true},
		{point: "hosted.forgot", adopted: true},
	} {
		t.Run(fmt.Sprint(c.point, " ", c.adopted), func(t *testing.T) {
			servers := []string{"one", "two"}
			p := newPlace(t).faults()
			entries := map[string]any{}
			for _, name := range servers {
				entries[name] = p.toolsEntry(hosting{"scope": "shared", "lazy": true})
			}
			p.configure(entries)
			d := p.daemon()
			agents, ids := map[string]*agent{}, map[string][]int{}
			begin := func(server, token string) {
				id := agents[server].call(server+"__effect", map[string]any{"token": server + token, "ms": 300})
				ids[server] = append(ids[server], id)
			}
			for _, name := range servers {
				agents[name] = p.agent("--no-autostart").shake()
				if c.adopted {
					begin(name, "before")
					p.untilEffect("begin " + name + "before")
				}
			}
			if c.adopted {
				kill9(t, d.Process.Pid)
			}
			p.dieAs(c.point, death{panics: true})
			if c.adopted {
				d = p.daemon()
			}
			answers := map[string]map[int]answer{}
			for _, name := range servers {
				begin(name, "first")
			}
			for _, name := range servers {
				answers[name] = agents[name].waitAll(ids[name]...)
			}
			guilty := ""
			s := p.until("the failure to be told", func(s control.StatusAnswer) bool {
				for _, name := range servers {
					f := find(t, s, name).LastFault
					if f != nil && f.Fault.Code == "internal_failure" &&
						strings.Contains(f.Fault.Detail, "on purpose, at "+c.point) {
						guilty = name
					}
				}
				return guilty != ""
			})
			if s.Daemon.PID != d.Process.Pid {
				t.Errorf("daemon %d serves, want %d", s.Daemon.PID, d.Process.Pid)
			}
			for _, name := range servers {
				for _, x := range answers[name] {
					if code := x.code(); x.Error != nil || code != "" &&
						(name != guilty ||
							!slices.Contains([]string{"outcome_unknown", "internal_failure", "process_failure"},
								code)) {
						t.Errorf("%s, where %s has failed: %s", name, guilty, x.raw)
					}
				}
				begin(name, "next")
				next := ids[name][len(ids[name])-1]
				if x := agents[name].wait(next); x.Error != nil || x.Result.IsError {
					t.Errorf("the next call of %s: %s", name, x.raw)
				}
				for _, token := range []string{"before", "first", "next"} {
					if n := p.effectsOf("begin " + name + token); n > 1 {
						t.Errorf("the call %s was made %d times", name+token, n)
					}
				}
				agents[name].rest(ids[name]...)
			}
			log, err := os.ReadFile(filepath.Join(p.dir, "daemon.log"))
			if err != nil || !strings.Contains(string(log), "on purpose, at "+c.point) ||
				!strings.Contains(string(log), "daemon/hosted/") {
				t.Errorf("the log has no stack of it (%v):\n%s", err, log)
			}
		})
	}
}
