package answer

import (
	"encoding/json"
	"strings"
	"testing"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/consult/material"
	"holdline/daemon/tool"
)

// TestFits checks that with render=json a result stays within what clients take, whatever
// it has beside the answer, and that all pages together are the whole answer.
func TestFits(t *testing.T) {
	quotes := strings.Repeat(`"<&> `, 20_000)
	long := strings.Repeat("/a/path", 500)
	files := make([]material.GivenFile, 64)
	for i := range files {
		files[i].Path = long
	}
	for name, a := range map[string]*Answer{
		"long":  {Text: quotes},
		"short": {Text: "short", Summary: Summary{Structured: json.RawMessage(`{"a":1}`)}},
		"structured": {
			Text:    `{"a":"` + strings.Repeat("x", 30_000) + `"}`,
			Summary: Summary{Structured: json.RawMessage(`{"a":"` + strings.Repeat("x", 30_000) + `"}`)},
		},
		"context": {Text: quotes, Details: Details{Context: &material.Context{
			Files: files, AddDirs: []string{long, long},
			Diff: &material.GivenDiff{Text: quotes[:material.MaxShown], Untracked: []string{long}},
		}}},
		"prompt": {Text: quotes, Details: Details{Prompt: quotes}},
		"much besides": {Text: quotes, Summary: Summary{Cwd: long}, Details: Details{
			Notes: []string{long, long}, Prompt: quotes, Denials: make([]engine.Denial, 100),
		}},
	} {
		for _, d := range []tool.Detail{tool.Concise, tool.Full} {
			var got strings.Builder
			for offset, pages := 0, 0; ; pages++ {
				v := a.fitting(offset, d)
				b, err := json.Marshal(v)
				if v.Response != v.Answer {
					t.Fatalf("%s %v: response %q, answer %q", name, d, v.Response, v.Answer)
				}
				if err != nil || units(v) > tool.MaxText || pages > 100 {
					t.Fatalf("%s %v: %d characters, %v, page %d", name, d, units(v), err, pages)
				}
				if name == "short" && !strings.Contains(string(b), `"structured":{"a":1}`) {
					t.Errorf("%s", b)
				}
				got.WriteString(v.Answer)
				if offset = v.NextOffset; offset == 0 {
					break
				}
			}
			if got.String() != a.Text {
				t.Errorf("%s %v: %d bytes of %d", name, d, got.Len(), len(a.Text))
			}
		}
	}
}
