package hosted

import (
	"encoding/json"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/hosted/entry"
	"holdline/daemon/hosted/sight"
	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/protocol/mcp"
)

// sightManager returns a manager with two servers that have listed a tool: one that all
// projects see, and one for the projects that look accepts. asked counts the calls of look.
func sightManager(t *testing.T, look func(root string) bool) (m *Manager, asked *int) {
	t.Helper()
	asked = new(int)
	m = New(Options{Log: slog.New(slog.DiscardHandler), CatalogDir: t.TempDir(), StateDir: t.TempDir(), Servers: []entry.Server{
		{Name: "all", Scope: entry.Shared, Lazy: true, MaxConcurrent: 1},
		{Name: "some", Scope: entry.Shared, Lazy: true, MaxConcurrent: 1, Visible: func(root string) bool {
			*asked++
			return look(root)
		}},
	}})
	for _, s := range m.servers {
		s.offers.Load(&listing.Memory{
			Lists: listing.Lists{listing.Tools: {json.RawMessage(`{"name":"t"}`)}}, About: json.RawMessage(`{}`),
		}, s.source(), true)
	}
	return m, asked
}

// TestLookThatHangs checks that a stat that hangs for one server's projects delays that
// server alone, and that its tools appear when the stat returns.
func TestLookThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		m, asked := sightManager(t, func(string) bool {
			<-hang
			return true
		})
		c := tool.Caller{Session: "s", Project: "p", Root: "/p"}
		names := func() (all []string, took time.Duration) {
			begin := time.Now()
			list, _ := m.List(t.Context(), c, mcp.ToolsList)
			for _, l := range list.Entries {
				all = append(all, l.Name)
			}
			return all, time.Since(begin)
		}
		if all, took := names(); len(all) != 1 || all[0] != "all__t" || took > 2*sight.Wait {
			t.Errorf("the list is %v after %v", all, took)
		}
		begin := time.Now()
		if r := m.Find(t.Context(), c, "all__t"); r == nil || r.Server != "all" {
			t.Error("the tool of the other server is not found")
		}
		if all, _ := names(); len(all) != 1 {
			t.Errorf("the list is %v", all)
		}
		m.Status()
		if took := time.Since(begin); took > 0 {
			t.Errorf("later requests wait, %v in all", took)
		}
		close(hang)
		synctest.Wait()
		if all, took := names(); len(all) != 2 || took > 0 {
			t.Errorf("the list is %v after %v, when it is known who sees the server", all, took)
		}
		if *asked != 1 {
			t.Errorf("the file system was asked %d times", *asked)
		}
	})
}

// TestSightsAreRenewed checks that what is known of a project is renewed after a while, and
// at once when the configuration changes, and is dropped when the project has no session
// left.
func TestSightsAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		visible := true
		m, asked := sightManager(t, func(string) bool { return visible })
		c := tool.Caller{Session: "s", Project: "p", Root: "/p"}
		count := func() int {
			list, _ := m.List(t.Context(), c, mcp.ToolsList)
			return len(list.Entries)
		}
		if n := count(); n != 2 || *asked != 1 {
			t.Fatalf("%d tools, asked %d times", n, *asked)
		}
		count()
		if *asked != 1 {
			t.Errorf("asked %d times within an instant", *asked)
		}
		visible = false
		time.Sleep(11 * time.Second)
		count() // uses what is known, and starts a new look
		synctest.Wait()
		if n := count(); n != 1 || *asked != 2 {
			t.Errorf("%d tools, asked %d times, after a while", n, *asked)
		}
		m.Configure([]entry.Server{
			{Name: "all", Scope: entry.Shared, Lazy: true, MaxConcurrent: 1},
			{Name: "some", Scope: entry.Shared, Lazy: true, MaxConcurrent: 1, Visible: func(string) bool {
				*asked++
				return true
			}},
		})
		if n := count(); n != 2 {
			t.Errorf("%d tools with another configuration", n)
		}
		m.Closed("s", "")
		before := *asked
		if count(); *asked != before+1 {
			t.Error("a project without a session is remembered")
		}
	})
}
