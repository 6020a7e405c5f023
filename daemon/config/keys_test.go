package config

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// referencePage is the page for users that is made from the table.
const referencePage = "../../contrib/doc/configuration.md"

// TestTable: each field has a row and each row a field, in the same order, with a text
// that explains it; defaults and ranges are values of the field's type, and defaults are
// allowed ones.
func TestTable(t *testing.T) {
	structs := map[reflect.Type]bool{}
	var walk func(typ reflect.Type)
	walk = func(typ reflect.Type) {
		structs[typ] = true
		rows := table[typ]
		if names := keys(typ); len(names) != len(rows) {
			t.Fatalf("%v has the keys %q and %d rows", typ, names, len(rows))
		}
		for i, name := range keys(typ) {
			r, ft := rows[i], typ.Field(i).Type
			if r.name != name || r.help == "" || !strings.Contains(strings.ToLower(r.help), " ") {
				t.Errorf("%v: row %+v, want one for %q with a text", typ, r, name)
			}
			if r.preset != "" {
				v := reflect.New(typ).Elem()
				v.Field(i).Set(parseValue(ft, r.preset))
				d := &decoder{at: map[string]int{}}
				if d.checkRow(r, v.Field(i), name); len(d.errs) > 0 {
					t.Errorf("%v.%s: the default is refused: %v", typ, name, d.errs[0])
				}
			}
			if ft.Kind() == reflect.Map {
				ft = ft.Elem()
			}
			if ft.Kind() == reflect.Struct {
				walk(ft)
			}
		}
	}
	walk(reflect.TypeFor[Config]())
	for typ := range table {
		if !structs[typ] {
			t.Errorf("the table has rows for %v, which is no part of the configuration", typ)
		}
	}
}

// TestReference: the reference page is the one that the table makes. With UPDATE=1 the
// test writes it anew.
func TestReference(t *testing.T) {
	want := Reference()
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(referencePage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(referencePage); err != nil || string(got) != want {
		t.Errorf("%s is out of date, %v; write it anew with UPDATE=1", referencePage, err)
	}
	for _, path := range []string{"limits.in_flight", "mcpServers.NAME.holdline.max_restarts", "identities.NAME.budget.calls"} {
		if !slices.ContainsFunc(Keys(), func(k Key) bool { return k.Path == path }) {
			t.Errorf("no key %s", path)
		}
	}
}
