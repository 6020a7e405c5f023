package consult

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/config"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// TestLevelShell_NeedsLeaveOfTheConfiguration checks that a level which the machine can enforce
// is refused before anything runs, unless the configuration allows it.
func TestLevelShell_NeedsLeaveOfTheConfiguration(t *testing.T) {
	for name, tt := range map[string]struct {
		edit    func(*config.Consult)
		refused bool
	}{
		"default": {func(*config.Consult) {}, true},
		"allowed": {func(c *config.Consult) {
			c.Allow = map[string]config.Allow{"a": {Levels: []string{"shell"}}}
		}, false},
		"allowed to another": {func(c *config.Consult) {
			c.Allow = map[string]config.Allow{"b": {Levels: []string{"shell"}}}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config.Default()
			tt.edit(&cfg.Consult)
			w := newWorld(t, answers(0), func(o *Options) { o.Config = &cfg })
			w.engine.shell = true
			res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1},
				map[string]any{"prompt": "x", "level": "shell"})
			// Later it may be refused since the path of the temporary directory is too long here.
			if got := err != nil && strings.Contains(err.Error(), "consult.allow"); got != tt.refused ||
				got && code(res, err) != fault.Denied {
				t.Errorf("got %v, want that it is refused: %t", err, tt.refused)
			}
			w.finish()
		})
	}
}

// TestConsultOfAnother_IsNeitherSeenNorContinued asks for consults of other identities and
// projects by each way that there is: by its id, in the list, to cancel it, and by its session.
func TestConsultOfAnother_IsNeitherSeenNorContinued(t *testing.T) {
	const session = "3d81f0a0-3c5f-4c12-93ea-17cf026df78c"
	for name, tt := range map[string]struct {
		identity, project, share string
		sees                     bool
	}{
		"same":                            {"a", "p", config.ShareProject, true},
		"other project":                   {"a", "q", config.ShareProject, false},
		"other project, shared":           {"a", "q", config.ShareIdentity, true},
		"other identity":                  {"b", "p", config.ShareProject, false},
		"other identity, projects shared": {"b", "p", config.ShareIdentity, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := defaults()
				cfg.Consult.Share = tt.share
				w := newWorld(t, answers(time.Minute), func(o *Options) { o.Config = cfg })
				owner, other := w.caller("a"), w.caller(tt.identity)
				owner.Project, other.Project, other.Session = "p", tt.project, "other"
				id := jobdir.ID(owner.Session, 1)
				if _, err := w.call(t.Context(), "consult", tool.Call{Caller: owner, N: 1},
					map[string]any{"prompt": "x", "wait_s": 0}); err != nil {
					t.Fatal(err)
				}
				want := fault.Code("")
				if !tt.sees {
					want = fault.InvalidInput
				}
				asks := func(when string) {
					t.Helper()
					for name, args := range map[string]map[string]any{
						"consult_result":  {"consult_id": id, "wait_s": 0},
						"consult_control": {"consult_id": id, "action": "cancel"},
					} {
						if when == "running" && name == "consult_control" && tt.sees {
							continue // it is to end by itself
						}
						if got := code(w.call(t.Context(), name, tool.Call{Caller: other}, args)); got != want {
							t.Errorf("%s, %s: got %q, want %q", when, name, got, want)
						}
					}
					if list := w.List(&other); (len(list) > 0) != tt.sees {
						t.Errorf("%s: listed %+v, want that it is seen: %t", when, list, tt.sees)
					}
				}
				asks("running")
				if _, err := w.Wait(t.Context(), id, nil); err != nil {
					t.Fatal(err)
				}
				asks("ended")
				remember(w.Manager, &owner, "a123456789ab", session)
				if got := code(w.call(t.Context(), "consult", tool.Call{Caller: other, N: 1},
					map[string]any{"prompt": "x", "session": session})); got != want {
					t.Errorf("session: got %q, want %q", got, want)
				}
				w.finish()
			})
		})
	}
}
