package consult

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"holdline/daemon/config"
	"holdline/daemon/events"
	"holdline/protocol/control"
)

// TestConsultsAreEvents checks that people who watch see a question, its end, and a consult
// that a budget refuses, and that the list has the beginning of the question.
func TestConsultsAreEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := defaults()
		cfg.Identities = map[string]config.Identity{"a": {Budget: config.Budget{ConsultsPerDay: 1}}}
		ring := events.NewRing()
		w := newWorld(t, answers(0), func(o *Options) {
			o.Config, o.Log = cfg, slog.New(ring.Handler(slog.DiscardHandler))
		})
		if f, _ := w.spends("one", "a", 1, nil); f != nil {
			t.Fatal(f)
		}
		synctest.Wait() // the caller has its answer before the end is logged
		if f, _ := w.spends("one", "a", 2, nil); f == nil {
			t.Fatal("a second consult was not refused")
		}
		got, _ := ring.After(0)
		want := []control.Event{
			{Kind: control.Asked, Text: "a asks claude: x"},
			{Kind: control.Answered, Text: "done after "},
			{Kind: control.Refused, Text: "a consult of a was refused: ", Bad: true},
		}
		for i, e := range want {
			if len(got) != len(want) || got[i].Kind != e.Kind || got[i].Bad != e.Bad ||
				!strings.HasPrefix(got[i].Text, e.Text) {
				t.Fatalf("the events are %+v, want %+v", got, want)
			}
		}
		if list := w.List(nil); len(list) != 1 || list[0].Question != "x" || list[0].ID != got[0].Subject ||
			list[0].ID != got[1].Subject {
			t.Errorf("the list is %+v", list)
		}
		w.finish()
	})
}
