package consult

import (
	"fmt"
	"strings"
	"testing"

	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/jobdir"
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
		v, ok := res.Value.(answer.View)
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
			map[string]any{"consult_id": v.ID, "offset": v.NextOffset})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got.String() != long {
		t.Errorf("%d bytes of %d", got.Len(), len(long))
	}
	for offset, beyond := range map[int]bool{len([]rune(long)) - 1: false, len([]rune(long)): true, 1 << 40: true} {
		res, err := w.call(t.Context(), "consult_result", tool.Call{Caller: w.caller("a")},
			map[string]any{"consult_id": jobdir.ID("hash-a", 1), "offset": offset})
		says := strings.Contains(res.Text,
			fmt.Sprintf("offset %d is beyond the end: the answer has %d characters", offset, len([]rune(long))))
		if err != nil || says != beyond {
			t.Errorf("offset %d: %v, %q", offset, err, res.Text)
		}
	}
	w.finish()
}
