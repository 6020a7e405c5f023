package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"holdline/protocol/control"
)

// TestServerDeafAtLists checks that a list that a server did not answer, or could not be asked
// for because it had ended, does not count as empty.
func TestServerDeafAtLists(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"-mute", "-last"} {
		for _, method := range []string{"tools/list", "prompts/list", "resources/list"} {
			t.Run(flag+" "+filepath.Base(filepath.Dir(method)), func(t *testing.T) {
				t.Parallel()
				p := newPlace(t)
				p.configure(map[string]any{"odd": p.oddEntry(hosting{"scope": "shared"}, flag, method, "-once",
					filepath.Join(p.dir, "once"))}).daemon()
				a := p.agent().shake()
				id := a.begin("resources/read", map[string]any{"uri": "mem://one"})
				if pid := p.untilTold(method, 1); flag == "-mute" {
					kill9(t, pid)
				}
				if x := a.wait(id); !strings.Contains(x.raw, "resource of odd") {
					t.Errorf("what is read meanwhile: %s", x.raw)
				}
				for list, want := range map[string]string{
					"tools/list": "odd__keep", "prompts/list": "odd__greet", "resources/list": "mem://one",
				} {
					if x := a.ask(list, map[string]any{}); !strings.Contains(x.raw, want) {
						t.Errorf("%s: %s", list, x.raw)
					}
				}
				if s := p.server("odd"); s.Restarts != 0 || s.LastFault != nil {
					t.Errorf("the server: %+v", s)
				}
				a.rest()
			})
		}
	}
	t.Run("dies", func(t *testing.T) { // any list may have what is asked for
		t.Parallel()
		p := newPlace(t)
		p.configure(map[string]any{"odd": p.oddEntry(hosting{"scope": "shared"}, "-dies", "tools/list")}).daemon()
		a := p.agent().shake()
		if x := a.ask("resources/read", map[string]any{"uri": "mem://one"}); x.Error == nil ||
			!strings.Contains(x.raw, "exit code 9") {
			t.Errorf("what cannot be read: %s", x.raw)
		}
		a.rest()
	})
	t.Run("silent", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t)
		p.configure(map[string]any{"odd": p.oddEntry(hosting{"scope": "shared"}, "-hush", "resources/list")}).daemon()
		a := p.agent().shake()
		pid := p.untilReady("odd") // five seconds later
		heard := func() {
			p.until("it is asked again", func(s control.StatusAnswer) bool {
				return !strings.Contains(strings.Join(find(t, s, "odd").Notes, " "), "not answered")
			})
		}
		heard()
		has := func() {
			t.Helper()
			if x := a.ask("resources/list", map[string]any{}); !strings.Contains(x.raw, "mem://one") {
				t.Errorf("resources/list: %s", x.raw)
			}
		}
		has()
		kill9(t, pid)
		p.until("another process serves", func(s control.StatusAnswer) bool {
			n := child(s, "odd")
			return n != 0 && n != pid && find(t, s, "odd").State == "ready"
		})
		has()
		heard()
		has()
		if n := p.effectsOf("resources/list"); n != 4 {
			t.Errorf("it was asked %d times", n)
		}
		a.rest()
	})
}
