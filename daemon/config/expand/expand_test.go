package expand

import (
	"errors"
	"strings"
	"testing"
)

// TestExpand checks the forms of variables in values, and the errors of invalid ones.
func TestExpand(t *testing.T) {
	lookup := Lookup(
		[]string{"A=one", "EMPTY=", "TWICE=first", "TWICE=second", "broken"},
		[]string{"A=other", "B=two=2", "BRACES=${A}", "_x9=odd"},
	)
	for _, x := range []struct{ in, want string }{
		{"", ""},
		{"plain", "plain"},
		{"${A}", "one"},
		{"<${A}${B}>", "<onetwo=2>"},
		{"${TWICE}", "second"},
		{"${_x9}", "odd"},
		{"${EMPTY}", ""},
		{"${EMPTY:-x}", "x"}, // as in a shell
		{"${NONE:-}", ""},
		{"${NONE:-/usr/bin:${A}:${NO2:-${B}}}", "/usr/bin:one:two=2"},
		{"${A:-${NONE}}", "one"}, // a variable in an unused default may be missing
		{"${NONE:-:-}", ":-"},
		{"${BRACES}", "${A}"}, // values are not expanded again
		{"$A $ $$ {A} }", "$A $ $$ {A} }"},
		{"$${A}", "${A}"},
		{"$${A} ${A}", "${A} one"},
		{"$$${A}", "$${A}"},
	} {
		if got, err := Text(x.in, lookup); err != nil || got != x.want {
			t.Errorf("Text(%s) = %q, %v; want %q", x.in, got, err, x.want)
		}
	}

	_, err := Text("${A} ${NONE} ${NONE2}", lookup)
	unset, ok := errors.AsType[*UnsetError](err)
	if !ok || unset.Name != "NONE" || err.Error() != "variable NONE is not set and ${NONE} has no default" {
		t.Errorf("a variable that is missing: %v", err)
	}
	if _, err := Text("${NONE:-${NONE2}}", lookup); err == nil || !strings.Contains(err.Error(), "NONE2") {
		t.Errorf("a variable that is missing in a default: %v", err)
	}
	for _, in := range []string{
		"${",
		"${A",
		"${}",
		"${ A}",
		"${9}",
		"${A:default}",
		"${env:A}",
		"${A-b}",
		"${:-x}",
		"${NONE:-${}",
		"${ä}",
		strings.Repeat("${NONE:-", 20) + strings.Repeat("}", 20),
	} {
		got, err := Text(in, lookup)
		if !errors.Is(err, errSyntax) {
			t.Errorf("Text(%s) = %q, %v", in, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "env:") {
			t.Errorf("Text(%s) shows the text: %v", in, err)
		}
	}
}

// FuzzExpand checks that expansion always ends, and that text without "${" stays as it is.
func FuzzExpand(f *testing.F) {
	for _, s := range []string{"${A}", "$${A}", "${A:-${B:-c}}", "${", "$$$${${}}", "a${A:-}b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, value := range []string{"", "v"} {
			got, err := Text(s, func(string) (string, bool) { return value, true })
			if !strings.Contains(s, "${") && (err != nil || got != s) {
				t.Errorf("Text(%q) = %q, %v", s, got, err)
			}
			if len(got) > len(s) {
				t.Errorf("Text(%q) = %q", s, got)
			}
		}
	})
}

// TestQuote checks that a quoted text is expanded to itself.
func TestQuote(t *testing.T) {
	for _, s := range []string{"", "plain", "${A}", "$${A}", "a${", "$", "}${A:-b}$"} {
		if got, err := Text(Quote(s), Lookup(nil)); err != nil || got != s {
			t.Errorf("Text(Quote(%s)) = %q, %v", s, got, err)
		}
	}
}
