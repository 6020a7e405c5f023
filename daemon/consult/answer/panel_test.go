package answer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// TestPanel_Golden compares what clients see of a panel with the files in testdata. With
// HOLDLINE_UPDATE=1 it writes those.
func TestPanel_Golden(t *testing.T) {
	rec := jobdir.Record{
		Version: jobdir.Version, ID: "3f0a3f0a3f0a", Identity: "a", Engine: "panel", CreatedUnixMS: 1000, Level: "read", EnforcedBy: "tools",
		Request: engine.Request{Prompt: "Which of the two holds?", Cwd: "/p", Model: "claude/opus+codex+claude"}, Judged: true,
	}
	var members []*Answer
	for i, out := range []engine.Outcome{
		{Answer: "The first.\n", CostUSD: new(0.31), DurationMS: 41_000, Turns: 3},
		{Answer: "The second.", DurationMS: 84_000, Partial: true},
		{Fault: fault.New(fault.DownstreamFailure, fault.Engine, engine.Operation, "the service takes no more requests")},
		{Answer: "They contradict each other.", CostUSD: new(0.1), DurationMS: 9_000},
	} {
		its := rec
		its.ID, its.Panel, its.Judged = string(rune('a'+i))+"00000000000", rec.ID, false
		its.Label = []string{"A", "B", "C", "judge"}[i]
		its.Engine = []string{"claude", "codex", "claude", "claude"}[i]
		its.Request.Model = []string{"opus", "", "haiku", ""}[i]
		rec.Members = append(rec.Members, its)
		members = append(members, FromOutcome(&its, &out, time.UnixMilli(1000+out.DurationMS), ""))
	}
	rec.Notes = []string{"nothing limits what codex costs, since it reports no cost"}
	a := Panel(&rec, members, Done)
	a.End(time.UnixMilli(94_000), "")
	for name, d := range map[string]tool.Detail{"concise": tool.Concise, "full": tool.Full} {
		r := a.Result(0, d)
		value, err := json.MarshalIndent(r.Value, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		for file, got := range map[string]string{
			"panel." + name + ".txt": r.Text + "\n", "panel." + name + ".json": string(value) + "\n",
		} {
			path := filepath.Join("testdata", file)
			if os.Getenv("HOLDLINE_UPDATE") != "" {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil || string(want) != got {
				t.Errorf("%s: %v, got\n%s", file, err, got)
			}
		}
	}
}
