package tool

import (
	"slices"
	"testing"
)

// TestExpand checks what templates become, as RFC 6570 encodes values and as they are.
func TestExpand(t *testing.T) {
	of := func(name string) (string, bool) {
		value, ok := map[string]string{"a": "x/y", "b": "ü z", "c": "", "d": "%41%zz", "long": "abcdef"}[name]
		return value, ok
	}
	for template, want := range map[string][3]string{
		"mem://one":                     {"mem://one", "mem://one", "mem://one"},
		"f:///{a}":                      {"f:///x%2Fy", "f:///x/y", "f:///x%2Fy"},
		"f:///{+a}":                     {"f:///x/y", "f:///x/y", "f:///x/y"},
		"f://{b}/{c}/end":               {"f://%C3%BC%20z//end", "f://ü z//end", "f://%C3%BC%20z//end"},
		"f:{+d}":                        {"f:%41%25zz", "f:%41%zz", "f:%41%25zz"},
		"f:{d}":                         {"f:%2541%25zz", "f:%41%zz", "f:%2541%25zz"},
		"f:{a,none,c}":                  {"f:x%2Fy,", "f:x/y,", "f:x%2Fy,"},
		"f:{none}/{a}":                  {"f:{none}/x%2Fy", "f:{none}/x/y", "f:x/x%2Fy"},
		"f:{/a,c}{?b,none,c}":           {"f:/x%2Fy/?b=%C3%BC%20z&c=", "f:/x/y/?b=ü z&c=", "f:/x%2Fy/?b=%C3%BC%20z&c="},
		"f:{#a}{.c}{;c}{&c}":            {"f:#x/y.;c=&c=", "f:#x/y.;c=&c=", "f:#x/y.;c=&c="},
		"f:{long:3}{long*}":             {"f:abcabcdef", "f:abcabcdef", "f:abcabcdef"},
		"f:{long:x}{a":                  {"f:abcdef{a", "f:abcdef{a", "f:abcdef{a"},
		"f:{}{none}":                    {"f:{}{none}", "f:{}{none}", "f:xx"},
		"f:{long:99999999999999999999}": {"f:abcdef", "f:abcdef", "f:abcdef"},
	} {
		encoded, _, plain := expand(template, of, "{")
		uri, _, _ := expand(template, of, "")
		if got := [3]string{encoded, plain, uri}; got != want {
			t.Errorf("%s: %q, want %q", template, got, want)
		}
	}
}

// seenRules notes what it is asked, and allows everything.
type seenRules struct {
	Rules
	uris []string
}

func (r *seenRules) Check(_ Who, _ string, names ...string) error {
	r.uris = append(r.uris, names[0])
	return nil
}

func (r *seenRules) CheckURI(_ Who, _, uri string) error {
	r.uris = append(r.uris, "URI "+uri)
	return nil
}

// TestCompletion_RulesSeeEachWayInWhichAServerMayReadAValue checks that a value with characters that have a meaning in a
// URI is decided on as encoded and as it is, also in an expression that encodes them.
func TestCompletion_RulesSeeEachWayInWhichAServerMayReadAValue(t *testing.T) {
	c, r := completion{template: "file:///{path}", argument: "path"}, &seenRules{}
	if err := c.check(r, Who{}, "s", "./secret/"); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"file:///.%2Fsecret%2F", "file:///./secret/", "file:///./secret/", "URI file:///.%2Fsecret%2F", "URI file:///./secret/",
	}
	if !slices.Equal(r.uris, want) {
		t.Errorf("the rules saw %q, want %q", r.uris, want)
	}
}
