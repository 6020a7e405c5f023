package config

import (
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"holdline/daemon/plural"
)

// referencePage is the page for users whose last part, from referenceHeading on, is
// generated from the table.
const (
	referencePage    = "../../contrib/doc/configuration.md"
	referenceHeading = "## All keys\n\n"
)

// TestTable checks that each field has a row and each row a field, in the same order and
// with an explanation, and that defaults and ranges are valid values of the field's type.
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
			if ft.Kind() == reflect.Struct && ft != reflect.TypeFor[Variable]() { // one is also a text
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

// TestReference checks that the page ends with the reference that the table generates.
// With UPDATE=1 it writes that part of the page.
func TestReference(t *testing.T) {
	got, err := os.ReadFile(referencePage)
	prose, _, found := strings.Cut(string(got), referenceHeading)
	if err != nil || !found {
		t.Fatalf("%s has no heading %q: %v", referencePage, referenceHeading, err)
	}
	want := prose + reference()
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(referencePage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(got) != want {
		t.Errorf("%s is out of date; write it anew with UPDATE=1", referencePage)
	}
	for _, path := range []string{
		"limits.in_flight", "mcpServers.NAME.holdline.max_restarts", "identities.NAME.budget.calls",
	} {
		if !slices.ContainsFunc(allKeys(), func(k key) bool { return k.Path == path }) {
			t.Errorf("no key %s", path)
		}
	}
}

// key describes one key of the file for the reference page.
type key struct {
	Path    string // for example "limits.in_flight"; NAME stands for a name that the user chooses
	Type    string
	Default string // "" if there is none
	Allowed string // "" if the type says it all
	Help    string
}

// allKeys returns all keys in the order of the table.
func allKeys() []key { return keysOf(reflect.TypeFor[Config](), "") }

// keysOf returns the keys of a type of the configuration, with prefix before their names.
func keysOf(t reflect.Type, prefix string) []key {
	var all []key
	for _, r := range table[t] {
		ft := t.Field(field(t, r.name)).Type
		k := key{Path: prefix + r.name, Type: typeName(ft), Default: r.preset, Help: r.help}
		if strings.Contains(r.check, "..") || strings.Contains(r.check, "|") {
			k.Allowed = r.check
		}
		if r.check == "engine" {
			k.Allowed = strings.Join(append(slices.Clone(builtIn), "acp:NAME"), " | ")
		}
		all = append(all, k)
		inner := prefix + r.name + "."
		if ft.Kind() == reflect.Map {
			ft, inner = ft.Elem(), inner+"NAME."
		}
		all = append(all, keysOf(ft, inner)...)
	}
	return all
}

// typeName names the type of a key for people.
func typeName(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "duration"
	case t == reflect.TypeFor[plural.Size]():
		return "size"
	case t == reflect.TypeFor[slog.Level]():
		return "string"
	case t.Kind() == reflect.Pointer:
		return typeName(t.Elem())
	case t.Kind() == reflect.Struct, t.Kind() == reflect.Map:
		return "object"
	case t == reflect.TypeFor[Network]():
		return "list of whole numbers"
	case t.Kind() == reflect.Slice:
		return "list of strings"
	case t.Kind() == reflect.Int:
		return "whole number"
	case t.Kind() == reflect.Float64:
		return "number"
	}
	return t.Kind().String()
}

// reference returns the part of the page that lists all keys, as Markdown.
func reference() string {
	var b strings.Builder
	b.WriteString(referenceHeading +
		"This table is made from the one in `daemon/config/keys.go`. NAME stands for a name of yours.\n\n" +
		"| key | type | default | allowed | meaning |\n|---|---|---|---|---|\n")
	code := func(s string) string {
		if s == "" {
			return ""
		}
		return "`" + strings.ReplaceAll(s, "|", `\|`) + "`"
	}
	for _, k := range allKeys() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", k.Path, k.Type, code(k.Default), code(k.Allowed), k.Help)
	}
	return b.String()
}
