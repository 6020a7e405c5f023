package consult

import (
	"fmt"
	"regexp"
	"strconv"
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
	goesOn := regexp.MustCompile(`\n\[the answer goes on: consult_result \{"consult_id":"[0-9a-f]+","offset":(\d+)\}`)
	first := res
	for form, page := range map[string]func(tool.Result) (part string, next int){
		"json": func(res tool.Result) (string, int) {
			v, _ := res.Value.(answer.View)
			return v.Answer, v.NextOffset
		},
		"porcelain": func(res tool.Result) (string, int) {
			part, _, _ := strings.Cut(res.Text, "\n\n[consult ")
			next := 0
			if m := goesOn.FindStringSubmatch(part); m != nil {
				part, _, _ = strings.Cut(part, m[0])
				next, _ = strconv.Atoi(m[1])
			}
			return part, next
		},
	} {
		var got strings.Builder
		res = first
		for range 100 {
			if n := len([]rune(res.Text)); n > tool.MaxText {
				t.Errorf("%s: %d characters", form, n)
			}
			part, next := page(res)
			got.WriteString(part)
			if next == 0 {
				break
			}
			res, err = w.call(t.Context(), "consult_result", tool.Call{Caller: w.caller("a")},
				map[string]any{"consult_id": jobdir.ID("hash-a", 1), "offset": next})
			if err != nil {
				t.Fatal(err)
			}
		}
		if got.String() != long {
			t.Errorf("%s: %d bytes of %d", form, got.Len(), len(long))
		}
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
