package form

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"holdline/daemon/adapter/engine"
	"holdline/protocol/fault"
)

// doubled returns a schema of n definitions, each of which refers twice to the next, as form says.
func doubled(n int, form string) string {
	var defs []string
	for i := range n {
		next := fmt.Sprintf(`{"$ref":"#/$defs/a%d"}`, i+1)
		defs = append(defs, fmt.Sprintf(`"a%d":%s`, i, strings.ReplaceAll(form, "NEXT", next)))
	}
	return `{"type":"object","$ref":"#/$defs/a0","$defs":{` + strings.Join(defs, ",") +
		fmt.Sprintf(`,"a%d":{"type":"object"}}}`, n)
}

// TestSchemaThatNeverEnds_IsRefused checks that loops and growth are found when a schema is taken,
// and that trees, which end with their value, are not taken for loops.
func TestSchemaThatNeverEnds_IsRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		schema string
		ok     bool
	}{
		"plain":  {`{"type":"object","properties":{"a":{"type":"string"}}}`, true},
		"a tree": {`{"type":"object","properties":{"left":{"$ref":"#"},"right":{"$ref":"#"}}}`, true},
		"a tree in a definition": {
			`{"type":"object","properties":{"t":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"object","properties":` +
				`{"v":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]},"c":{"type":"array","items":{"$ref":"#/$defs/n"}}}}}}`,
			true,
		},
		"an anchor":                               {`{"type":"object","properties":{"a":{"$ref":"#x"}},"$defs":{"b":{"$anchor":"x"}}}`, true},
		"a property named $id":                    {`{"type":"object","properties":{"$id":{"type":"string"},"$ref":{"type":"string"}}}`, true},
		"a few references":                        {doubled(5, `{"allOf":[NEXT,NEXT]}`), true},
		"itself":                                  {`{"type":"object","$ref":"#"}`, false},
		"itself, in a list":                       {`{"type":"object","allOf":[{"anyOf":[{"$ref":"#"}]}]}`, false},
		"itself, negated":                         {`{"type":"object","not":{"if":true,"then":{"$ref":"#"}}}`, false},
		"itself, dynamically":                     {`{"type":"object","$dynamicAnchor":"x","$dynamicRef":"#x"}`, false},
		"itself, by an anchor":                    {`{"type":"object","$anchor":"x","oneOf":[{"$ref":"#x"}]}`, false},
		"itself, over another":                    {`{"type":"object","$ref":"#/$defs/a","$defs":{"a":{"allOf":[{"$ref":"#"}]}}}`, false},
		"itself, by an escape":                    {`{"type":"object","$ref":"#/%24defs/a","$defs":{"a":{"$ref":"#/$defs/a"}}}`, false},
		"itself, for dependents":                  {`{"type":"object","dependentSchemas":{"a":{"$ref":"#"}}}`, false},
		"itself, within a part":                   {`{"type":"object","properties":{"a":{"$ref":"#/properties/a"}}}`, false},
		"twice and twice":                         {doubled(25, `{"allOf":[NEXT,NEXT]}`), false},
		"twice and twice, nested":                 {doubled(25, `{"allOf":[{"properties":{"x":NEXT}},{"properties":{"x":NEXT}}]}`), false},
		"deep":                                    {`{"type":"object","not":` + strings.Repeat(`{"not":`, 5000) + "{}" + strings.Repeat("}", 5001), false},
		"elsewhere":                               {`{"type":"object","$ref":"https://example.com/x"}`, false},
		"itself, in capitals":                     {`{"type":"object","$REF":"#"}`, false},
		"itself, by a long s":                     {`{"type":"object","propertie\u017f":{"a":{}},"oneOf":[{"$ref":"#"}]}`, false},
		"itself, in a list of another case":       {`{"type":"object","AllOf":[{"$ref":"#"}]}`, false},
		"itself, in a part of another case":       {`{"type":"object","properties":{"a":{"$Ref":"#/properties/a"}}}`, false},
		"itself, in a definition of another case": {`{"type":"object","$ref":"#/$defs/a","$defs":{"a":{"anyof":[{"$ref":"#/$defs/a"}]}}}`, false},
		"properties named as keywords":            {`{"type":"object","properties":{"Type":{},"$REF":{},"AllOf":{},"required":{}},"$defs":{"Items":{}}}`, true},
		"values named as keywords":                {`{"type":"object","default":{"$REF":"#","Type":1},"enum":[{"AllOf":[]}]}`, true},
		"an address within":                       {`{"type":"object","allOf":[{"$id":"http://x/y","$ref":"y"}]}`, false},
	} {
		err := Check(json.RawMessage(tt.schema))
		f, _ := errors.AsType[*fault.Record](err)
		if tt.ok != (err == nil) || !tt.ok && (f == nil || f.Fault.Code != fault.InvalidInput) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestJudge checks that an answer has the form that the schema asks for, or else a fault,
// and that its text stays as a partial answer.
func TestJudge(t *testing.T) {
	t.Parallel()
	schema := json.RawMessage(`{"type":"object","required":["a"]}`)
	if err := Check(schema); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{`{"type":"nothing","properties":7}`, `"` + strings.Repeat("x", maxSchema) + `"`} {
		if f, ok := errors.AsType[*fault.Record](Check(json.RawMessage(bad))); !ok || f.Fault.Code != fault.InvalidInput {
			t.Errorf("%.40s: %v", bad, f)
		}
	}
	for name, tt := range map[string]struct {
		out  engine.Outcome
		code fault.Code
	}{
		"right":      {engine.Outcome{Structured: json.RawMessage(`{"a":1}`)}, ""},
		"wrong":      {engine.Outcome{Structured: json.RawMessage(`{}`)}, fault.DownstreamFailure},
		"none":       {engine.Outcome{}, fault.DownstreamFailure},
		"none, late": {engine.Outcome{Partial: true}, fault.Timeout},
	} {
		out := tt.out
		out.Answer = "in words"
		Judge(&out, schema)
		if tt.code == "" {
			if out.Fault != nil || !slices.Equal(out.Structured, tt.out.Structured) {
				t.Errorf("%s: %+v", name, out)
			}
			continue
		}
		if out.Fault == nil || out.Fault.Fault.Code != tt.code || !out.Partial || out.Structured != nil {
			t.Errorf("%s: %+v", name, out)
		}
	}
}

// TestKeywords_AllOfTheLibrary checks that each keyword that the library reads is known.
func TestKeywords_AllOfTheLibrary(t *testing.T) {
	t.Parallel()
	for field := range reflect.TypeFor[jsonschema.Schema]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name != "" && name != "-" && !slices.Contains(keywords, name) {
			t.Errorf("the library reads %q", name)
		}
	}
	if !slices.IsSorted(keywords) {
		t.Error("the keywords are not sorted")
	}
}
