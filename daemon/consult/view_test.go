package consult

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/consult/material"
	"holdline/daemon/tool"
)

// TestPages checks that a long answer arrives whole, in pages that no client cuts.
func TestPages(t *testing.T) {
	long := strings.Repeat("a line with \"quotes\" and ü and 🙂\n", 4000)
	w := newWorld(t, func(p *fakeProcess) {
		<-p.in
		p.say("answer " + strings.ReplaceAll(long, "\n", "\u2029"))
		<-p.closed
		p.exit(0)
	})
	long = strings.ReplaceAll(long, "\n", "\u2029")
	res, err := w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: 1}, map[string]any{"prompt": "x"})
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for range 100 {
		v, ok := res.Value.(value)
		if !ok {
			t.Fatalf("value %T, fault %v", res.Value, res.Fault)
		}
		if n := len([]rune(res.Text)); n > tool.MaxText {
			t.Errorf("%d characters", n)
		}
		got.WriteString(v.Answer)
		if v.NextOffset == 0 {
			break
		}
		if !strings.Contains(res.Text, fmt.Sprintf(`"offset":%d`, v.NextOffset)) {
			t.Errorf("no way to the rest in %q", res.Text[len(res.Text)-300:])
		}
		res, err = w.call(t.Context(), "consult_result", tool.Call{Caller: w.caller("a")},
			map[string]any{"consult_id": v.ConsultID, "offset": v.NextOffset})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got.String() != long {
		t.Errorf("%d bytes of %d", got.Len(), len(long))
	}
	for offset, beyond := range map[int]bool{len([]rune(long)) - 1: false, len([]rune(long)): true, 1 << 40: true} {
		res, err := w.call(t.Context(), "consult_result", tool.Call{Caller: w.caller("a")},
			map[string]any{"consult_id": ID("hash-a", 1), "offset": offset})
		says := strings.Contains(res.Text,
			fmt.Sprintf("offset %d is beyond the end: the answer has %d characters", offset, len([]rune(long))))
		if err != nil || says != beyond {
			t.Errorf("offset %d: %v, %q", offset, err, res.Text)
		}
	}
	w.finish()
}

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
		"short": {Text: "short", Structured: json.RawMessage(`{"a":1}`)},
		"structured": {
			Text:       `{"a":"` + strings.Repeat("x", 30_000) + `"}`,
			Structured: json.RawMessage(`{"a":"` + strings.Repeat("x", 30_000) + `"}`),
		},
		"context": {Text: quotes, Context: &material.Context{
			Files: files, AddDirs: []string{long, long},
			Diff: &material.GivenDiff{Text: quotes[:material.MaxShown], Untracked: []string{long}},
		}},
		"much besides": {Text: quotes, Notes: []string{long, long}, Cwd: long, Denials: make([]engine.Denial, 100)},
	} {
		for _, d := range []tool.Detail{tool.Concise, tool.Full} {
			var got strings.Builder
			for offset, pages := 0, 0; ; pages++ {
				v := a.fitting(offset, d)
				b, err := json.Marshal(v)
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
