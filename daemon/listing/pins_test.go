package listing

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// like returns the likenesses of listings.
func like(t *testing.T, listings ...string) []Likeness {
	t.Helper()
	var list []json.RawMessage
	for _, l := range listings {
		if !json.Valid([]byte(l)) {
			t.Fatal(l)
		}
		list = append(list, json.RawMessage(l))
	}
	return Likenesses(list)
}

// TestLikenesses checks that a pin depends on what a listing says, not on its spelling: on
// each of the pinned parts and on no other.
func TestLikenesses(t *testing.T) {
	const base = `{"name":"a","description":"d","inputSchema":{"type":"object","properties":{"x":{"type":"string"}}},"annotations":{"readOnlyHint":true}}`
	was := like(t, base)[0]
	for _, same := range []string{
		`{ "annotations" : {"readOnlyHint":true}, "inputSchema":{"properties":{"x":{"type":"string"}},"type":"object"},"description":"d","name":"a" }`,
		strings.Replace(base, `"name"`, `"title":"t","_meta":{"x":1},"icons":[],"name"`, 1),
	} {
		if got := like(t, same)[0]; got != was {
			t.Errorf("%s: %+v, want %+v", same, got, was)
		}
	}
	p := newPin(&was, time.Now())
	for edit, want := range map[[2]string]string{
		{`"d"`, `"e"`}:                           "description",
		{`"description":"d",`, ``}:               "description",
		{`"string"`, `"number"`}:                 "inputSchema",
		{`true}}`, `false}}`}:                    "annotations",
		{`true}}`, `true},"outputSchema":{}}`}:   "outputSchema",
		{`true}}`, `true},"outputSchema":null}`}: "outputSchema",
		{
			`{"name":"a","description":"d"`, `{"name":"a","outputSchema":{},"description":"e"`,
		}: "description,outputSchema",
	} {
		now := like(t, strings.Replace(base, edit[0], edit[1], 1))[0]
		if got := strings.Join(p.compare(&now, time.Now()).Parts, ","); got != want || now.hash == was.hash {
			t.Errorf("%s: %s differ, want %s", edit, got, want)
		}
	}
	// Two tools of one name count once, and an entry without a name does not count.
	if all := like(t, base, strings.Replace(base, "d", "e", 1), `{"name":7}`, `{}`); len(all) != 1 || all[0] != was {
		t.Errorf("Likenesses %+v", all)
	}
	if a, b := like(t, strings.Replace(base, `"a"`, `"b"`, 1))[0], was; a.hash == b.hash || a.parts != b.parts {
		t.Error("the name does not count")
	}
	deep := strings.Repeat("[", 200) + strings.Repeat("]", 200)
	if a, b := like(t, `{"name":"a","inputSchema":`+deep+`}`)[0],
		like(t, `{"name":"a","inputSchema":[`+deep+`]}`)[0]; a.hash == b.hash {
		t.Error("what is too deep to be looked into is not told apart")
	}
}

// TestPin checks that a change is reported once, however often it comes and goes, that
// another change is reported again, and that pins have a limit.
func TestPin(t *testing.T) {
	pins := Pins{}
	now := time.UnixMilli(1000)
	look := func(listings ...string) string {
		t.Helper()
		now = now.Add(time.Second)
		changed, dirty := pins.Compare(like(t, listings...), now)
		return fmt.Sprintf("told %v, written %t, marked %t", changed, dirty, pins.Find("a").Changed())
	}
	const one, two, three, other = `{"name":"a","description":"1"}`, `{"name":"a","description":"2"}`,
		`{"name":"a","description":"3"}`, `{"name":"b"}`
	for i, step := range []struct {
		list []string
		want string
	}{
		{[]string{one}, "told [], written true, marked false"}, // seen for the first time
		{[]string{one}, "told [], written false, marked false"},
		{[]string{one, other}, "told [], written true, marked false"}, // a new tool is no change
		{[]string{two, other}, "told [a], written true, marked true"},
		{[]string{two, other}, "told [], written false, marked true"},
		{[]string{other}, "told [], written false, marked true"}, // the changed tool is gone; its mark stays
		{[]string{one}, "told [], written true, marked false"},
		{[]string{one}, "told [], written false, marked false"},
		{[]string{two}, "told [], written true, marked true"}, // known already
		{[]string{three}, "told [a], written true, marked true"},
	} {
		if got := look(step.list...); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
	if p := pins.Find("a"); p.SinceMS != 2000 || p.Description != "1" || p.Change.Description != "3" ||
		p.Change.AtMS != 11_000 || !slices.Equal(p.Change.Parts, []string{"description"}) {
		t.Errorf("pinned %+v, %+v", p, p.Change)
	}
	var many []string
	for i := range MaxEntries {
		many = append(many, fmt.Sprintf(`{"name":"n%d"}`, i))
	}
	look(append(many[:MaxEntries-1:MaxEntries-1], three)...)
	if _, kept := pins.byTool["b"]; kept || len(pins.byTool) != MaxEntries || !pins.Find("a").Changed() {
		t.Errorf("%d pins, of what is gone %v", len(pins.byTool), kept)
	}
}

// TestToolUnchanged_HashIsThatOfEarlierBuilds checks the hash of a tool against that of an earlier
// build: if it changes, the next upgrade takes all pinned tools for changed ones.
func TestToolUnchanged_HashIsThatOfEarlierBuilds(t *testing.T) {
	all := Likenesses([]json.RawMessage{json.RawMessage(
		`{"name": "t", "title": "T", "description": "d", "inputSchema": {"type": "object"},
			"annotations": {"readOnlyHint": true}}`,
	)})
	if want := "34dd8c37de170fb5f7af63a94f42f24106f63f8aba84ed7d033806126b7ba749"; all[0].hash != want {
		t.Errorf("the hash is %s, and that of earlier builds %s", all[0].hash, want)
	}
}
