package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func entries(size int, keys ...string) (all []Listing) {
	for _, key := range keys {
		all = append(all, Listing{Name: key, Raw: bytes.Repeat([]byte("x"), size)})
	}
	return all
}

// TestPagesOfAChangingList checks that entries that are added and removed between two pages
// do not affect the others: each of these appears once.
func TestPagesOfAChangingList(t *testing.T) {
	before := entries(maxPage/3, "b", "d", "f", "h", "j")
	part, last := Page(before, "")
	if len(part) != 3 || last != "f" {
		t.Fatalf("the first page has %d entries up to %s", len(part), last)
	}
	after := entries(maxPage/3, "a", "c", "e", "g", "h", "j") // f is removed, the others are new
	if part, last = Page(after, last); len(part) != 3 || last != "" {
		t.Errorf("the second page has %d entries and goes on behind %q, want g, h, j", len(part), last)
	}
}

// TestPageOfOneLongListing checks that an entry longer than a page has a page of its own.
func TestPageOfOneLongListing(t *testing.T) {
	list, n := entries(maxPage+1, "a", "b", "c"), 0
	for after := ""; ; n++ {
		part, last := Page(list, after)
		if len(part) != 1 {
			t.Fatalf("%d entries on a page", len(part))
		}
		if after = last; last == "" {
			break
		}
	}
	if n != 2 {
		t.Errorf("%d pages before the last, want 2", n)
	}
	if part, last := Page(nil, ""); part == nil || len(part) > 0 || last != "" {
		t.Errorf("of an empty list: %v, %q", part, last)
	}
}

// TestCursors checks that a cursor is read as it was written, and only for the same list.
func TestCursors(t *testing.T) {
	for _, key := range []string{"0consult", "1a__b", "mem://é\n", strings.Repeat("u", 8<<10)} {
		raw, err := json.Marshal(NewCursor("tools/list", key))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseCursor("tools/list", raw); got != key || err != nil {
			t.Errorf("%.40q is read as %.40q: %v", key, got, err)
		}
		if _, err := ParseCursor("prompts/list", raw); err == nil {
			t.Errorf("the cursor of %.40q is taken for another list", key)
		}
	}
	for _, raw := range []string{`7`, `"x"`, `"!"`, `{}`, fmt.Sprintf("%q", NewCursor("tools/list", ""))} {
		if key, err := ParseCursor("tools/list", json.RawMessage(raw)); err == nil {
			t.Errorf("%s is read as %q", raw, key)
		}
	}
}
