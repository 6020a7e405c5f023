// Package form checks the schemas that callers of a consult give, and answers against them.
//
// A schema is checked when it is taken ([Check]), in the daemon, and must then be harmless: it has no
// loop that is never left, and stays small when its references are followed. Answers are checked in
// the engine process ([Judge]), which can be ended.
package form

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
)

// Bounds of schemas and of their use.
const (
	// maxSchema bounds a schema, in bytes. The schema is one word of a command line, and
	// Linux allows 128 KiB for a word.
	maxSchema = 64 << 10
	// maxCost bounds the subschemas that there are when references are followed.
	maxCost = 20_000
	// maxDepth bounds how deep they nest.
	maxDepth = 200
	// judgeTime bounds the check of an answer.
	judgeTime = 5 * time.Second
)

// Check returns an invalid_input fault for a schema that is too large or is no JSON Schema, or that
// could take too long to check an answer with. No schema is no fault.
func Check(schema json.RawMessage) error {
	switch {
	case len(schema) == 0:
		return nil
	case len(schema) > maxSchema:
		return engine.Invalid("schema: %d bytes are too many, at most %d can be taken", len(schema), maxSchema)
	}
	var root any
	if err := json.Unmarshal(schema, &root); err != nil {
		return engine.Invalid("schema: is no JSON Schema: %v", err)
	}
	w := walker{root: root, anchors: map[string]any{}, costs: map[string]int{}, open: map[string]bool{}}
	if err := w.name(root, false, 0); err != nil {
		return engine.Invalid("schema: %v", err)
	}
	if _, err := w.cost(root, "#", nil, 0); err != nil {
		return engine.Invalid("schema: %v", err)
	}
	if _, err := tool.Compile(schema, nil); err != nil {
		return engine.Invalid("schema: is no JSON Schema: %v", err)
	}
	return nil
}

// Judge checks the structured answer of out against the schema that the caller gave. If it does not
// fit, or cannot be checked in time, Judge sets a fault and keeps the text as a partial answer. The
// program may have checked the answer as well, but that is not relied on. Without a schema, or with
// a fault in out, Judge changes nothing.
func Judge(out *engine.Outcome, schema json.RawMessage) {
	if len(schema) == 0 || out.Fault != nil {
		return
	}
	wrong := func(code fault.Code, reason fault.Reason, format string, args ...any) {
		out.Fault = fault.New(code, fault.Engine, engine.Operation, format, args...).WithReason(reason)
		out.Partial, out.Structured = out.Answer != "", nil
	}
	switch {
	case len(out.Structured) == 0 && out.Partial:
		wrong(fault.Timeout, fault.Deadline, "time was up before there was an answer of the form that schema asks for")
		return
	case len(out.Structured) == 0:
		wrong(fault.DownstreamFailure, fault.BadOutput, "the model answered, but not in the form that schema asks for")
		return
	}
	if err := fits(out.Structured, schema); err != nil {
		wrong(fault.DownstreamFailure, fault.BadOutput, "the answer is not what schema asks for: %v", err)
	}
}

// fits returns why an answer does not fit a schema, or cannot be checked. A check that takes too
// long goes on until the process ends: the process of a job does so at once.
func fits(answer, schema json.RawMessage) error {
	done := make(chan error, 1)
	go func() {
		var value any
		form, err := tool.Compile(schema, nil)
		if err == nil {
			err = json.Unmarshal(answer, &value)
		}
		if err == nil {
			err = form.Validate(value)
		}
		done <- err
	}()
	timer := time.NewTimer(judgeTime)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return fmt.Errorf("it could not be checked within %s", judgeTime)
	}
}

// Keywords whose values are schemas: those that look at the same value as the schema that has them,
// and those that look at a part of it.
var (
	sameValue = []string{
		"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies",
	}
	parts = []string{
		"properties", "patternProperties", "additionalProperties", "items", "prefixItems", "additionalItems", "contains",
		"propertyNames", "unevaluatedItems", "unevaluatedProperties", "contentSchema",
	}
)

// walker walks over a schema.
type walker struct {
	root    any
	anchors map[string]any // by name
	costs   map[string]int // of what references lead to, once it is known
	open    map[string]bool
}

// keywords are those that the library reads, which ignores their case: what walker does not take for a
// reference, it must not take for one either.
var keywords = []string{
	"$anchor", "$comment", "$defs", "$dynamicAnchor", "$dynamicRef", "$id", "$ref", "$schema", "$vocabulary",
	"additionalItems", "additionalProperties", "allOf", "anyOf", "const", "contains", "contentEncoding",
	"contentMediaType", "contentSchema", "default", "definitions", "dependencies", "dependentRequired",
	"dependentSchemas", "deprecated", "description", "else", "enum", "examples", "exclusiveMaximum",
	"exclusiveMinimum", "format", "if", "items", "maxContains", "maxItems", "maxLength", "maxProperties", "maximum",
	"minContains", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "not", "oneOf", "pattern",
	"patternProperties", "prefixItems", "properties", "propertyNames", "readOnly", "required", "then", "title", "type",
	"unevaluatedItems", "unevaluatedProperties", "uniqueItems", "writeOnly",
}

// named are the keywords whose values are objects with names of the caller's own.
var named = []string{
	"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependentRequired", "dependencies",
	"$vocabulary",
}

// values are the keywords whose values are no schemas.
var values = []string{"enum", "const", "default", "examples"}

// spelled returns an error for a key of a schema that is a keyword in another case.
func spelled(key string) error {
	if slices.Contains(keywords, key) {
		return nil
	}
	for _, keyword := range keywords {
		if jsonrpc.IsSameKey(key, keyword) {
			return fmt.Errorf("some programs take its key %q for %q: write that, or another name", key, keyword)
		}
	}
	return nil
}

// name collects the anchors below v, and checks what cannot be followed. With names set, the keys of v are
// names of the caller's own.
func (w *walker) name(v any, names bool, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("it nests deeper than %d levels", maxDepth)
	}
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			if err := w.name(one, false, depth+1); err != nil {
				return err
			}
		}
	case map[string]any:
		for key, one := range v {
			if !names {
				if err := spelled(key); err != nil {
					return err
				}
				if slices.Contains(values, key) {
					continue
				}
			}
			text, isText := one.(string)
			switch {
			case isText && (key == "$anchor" || key == "$dynamicAnchor"):
				w.anchors[text] = v
			case isText && (key == "$id" || key == "id") && depth > 0 && strings.ContainsAny(text, ":/#."):
				return fmt.Errorf("%s below its top cannot be followed; refer by #/$defs/NAME instead", key)
			}
			if err := w.name(one, !names && slices.Contains(named, key), depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// children returns the schemas of a keyword's value: one, a list, or those of an object's members.
func children(keyword string, value any) []any {
	switch v := value.(type) {
	case []any:
		return v
	case map[string]any:
		switch keyword {
		case "properties", "patternProperties", "dependentSchemas", "dependencies":
			var all []any
			for _, one := range v {
				all = append(all, one)
			}
			return all
		}
		return []any{v}
	}
	return nil
}

// cost returns how many schemas there are in v when references are followed. same are the references
// that were followed to v for one value: one that comes again is a loop that no value ends. The
// reference at names v; "" if it was not reached by one.
func (w *walker) cost(v any, at string, same []string, depth int) (int, error) {
	object, ok := v.(map[string]any)
	switch {
	case depth > maxDepth:
		return 0, fmt.Errorf("its references nest deeper than %d levels", maxDepth)
	case !ok:
		return 1, nil
	}
	if at != "" {
		if slices.Contains(same, at) {
			return 0, fmt.Errorf("%s refers to itself, and no value ends that", at)
		}
		same = append(slices.Clip(same), at)
	}
	sum := 1
	add := func(n int, err error) error {
		if sum += n; err == nil && sum > maxCost {
			err = fmt.Errorf("it has more than %d parts when its references are followed", maxCost)
		}
		return err
	}
	for _, keyword := range sameValue {
		for _, one := range children(keyword, object[keyword]) {
			if err := add(w.cost(one, "", same, depth+1)); err != nil {
				return sum, err
			}
		}
	}
	for _, keyword := range []string{"$ref", "$dynamicRef", "$recursiveRef"} {
		ref, isText := object[keyword].(string)
		if !isText {
			continue
		}
		target, found := w.target(ref)
		if !found {
			return sum, fmt.Errorf("%s %q leads nowhere within it", keyword, ref)
		}
		if err := add(w.cost(target, ref, same, depth+1)); err != nil {
			return sum, err
		}
	}
	for _, keyword := range parts {
		for _, one := range children(keyword, object[keyword]) {
			if err := add(w.part(one, depth+1)); err != nil {
				return sum, err
			}
		}
	}
	return sum, nil
}

// part returns the cost of a schema of a part of a value. One that refers to a schema that it is
// in counts once: the value is smaller there, so it ends.
func (w *walker) part(v any, depth int) (int, error) {
	object, _ := v.(map[string]any)
	ref, isText := object["$ref"].(string)
	if !isText || len(object) > 1 {
		key := ""
		if object != nil {
			key = fmt.Sprintf("%p", object)
		}
		if w.open[key] {
			return 1, nil
		}
		if n, known := w.costs[key]; known && key != "" {
			return n, nil
		}
		w.open[key] = key != ""
		defer delete(w.open, key)
		n, err := w.cost(v, "", nil, depth)
		w.costs[key] = n
		return n, err
	}
	if w.open[ref] {
		return 1, nil
	}
	if n, known := w.costs[ref]; known {
		return n, nil
	}
	target, found := w.target(ref)
	if !found {
		return 0, fmt.Errorf("$ref %q leads nowhere within it", ref)
	}
	w.open[ref] = true
	defer delete(w.open, ref)
	n, err := w.cost(target, ref, nil, depth)
	w.costs[ref] = n
	return n, err
}

// target returns what a reference leads to.
func (w *walker) target(ref string) (any, bool) {
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil, false
	}
	if pointer, ok = strings.CutPrefix(pointer, "/"); !ok {
		if pointer == "" {
			return w.root, true
		}
		target, found := w.anchors[pointer]
		return target, found
	}
	at := w.root
	for token := range strings.SplitSeq(pointer, "/") {
		if plain, err := url.PathUnescape(token); err == nil {
			token = plain
		}
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		switch v := at.(type) {
		case map[string]any:
			if at, ok = v[token]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(v) {
				return nil, false
			}
			at = v[i]
		default:
			return nil, false
		}
	}
	return at, true
}
