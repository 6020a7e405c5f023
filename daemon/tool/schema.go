package tool

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/google/jsonschema-go/jsonschema"

	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
)

// MaxDescription is the most characters that a tool's description may have:
// clients cut longer ones.
const MaxDescription = 2047

// maxInteger bounds integers. Readers of JSON do not agree about larger ones.
const maxInteger = 1 << 53

// common are the arguments that every own tool has.
const common = `"render":{"type":"string","enum":["porcelain","json"],"default":"porcelain",` +
	`"description":"porcelain: short text; json: structured"},` +
	`"detail":{"type":"string","enum":["concise","full"],"default":"concise"}`

// Prepared is a tool with its listing and its schema. It never changes, and is safe for
// concurrent use.
type Prepared struct {
	Tool *Tool

	remote     Remote
	operation  string
	listing    json.RawMessage
	sum        [sha256.Size]byte // of listing
	properties json.RawMessage   // schemas of all arguments, by name
	checkers   map[string]checker
	names      []string // of all arguments, in the order of the schema
}

// checker returns what checks one argument. It compiles that at the first call: a daemon that starts
// has sessions waiting, and most arguments are never given.
type checker func() (*jsonschema.Resolved, error)

// newChecker returns the checker of an argument with this schema.
func newChecker(schema json.RawMessage) checker {
	return sync.OnceValues(func() (*jsonschema.Resolved, error) {
		return Compile(schema, &jsonschema.ResolveOptions{ValidateDefaults: true})
	})
}

// operation returns the name of a tool's calls in faults.
func operation(name string) string { return "tools/call:" + name }

// inputSchema is the schema of all arguments of a tool.
type inputSchema struct {
	Type       string          `json:"type"`
	Properties json.RawMessage `json:"properties"`
	Required   []string        `json:"required,omitempty"`
	Additional bool            `json:"additionalProperties"` // always false
}

// listing is a tool as tools/list shows it.
type listing struct {
	Name        string          `json:"name"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
	Annotations annotations     `json:"annotations"`
	Meta        json.RawMessage `json:"_meta,omitempty"`
}

// annotations are MCP's hints, and what holdline says of its own tools beside them.
type annotations struct {
	Annotations

	Holdline struct {
		Dispatch Dispatch `json:"dispatch"`
		Contract Contract `json:"replayContract"`
	} `json:"holdline"`
}

// Prepare checks a tool and makes its listing. An error is a mistake in the tool's definition;
// [Prepared.Check] finds those in the schema. The tool must not change afterwards.
func Prepare(t *Tool) (*Prepared, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	p := &Prepared{Tool: t, operation: operation(t.Name), checkers: map[string]checker{}}
	p.remote = Remote{Name: t.Name, Contract: t.Contract, Handle: p.call}

	var own bytes.Buffer // the object of all arguments' schemas
	if err := json.Compact(&own, []byte(cmp.Or(string(t.Properties), "{}"))); err != nil {
		return nil, fmt.Errorf("properties: %w", err)
	}
	err := jsonrpc.Fields(own.Bytes(), func(name string, raw []byte) error {
		if name == "render" || name == "detail" {
			return fmt.Errorf("%s is an argument of every tool", name)
		}
		if p.checkers[name] != nil {
			return fmt.Errorf("%s: is there twice", name)
		}
		p.checkers[name] = newChecker(raw)
		p.names = append(p.names, name)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("properties: %w", err)
	}
	if t.Inner == nil {
		own.Truncate(own.Len() - len("}"))
		if len(p.names) > 0 {
			own.WriteByte(',')
		}
		own.WriteString(common + "}")
		p.names = append(p.names, "render", "detail")
	}
	for _, name := range t.Required {
		if p.checkers[name] == nil {
			return nil, fmt.Errorf("required argument %s has no property", name)
		}
	}
	p.properties = own.Bytes()
	schema, err := jsonrpc.Marshal(inputSchema{Type: "object", Properties: p.properties, Required: t.Required})
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	p.listing, err = t.list(schema)
	p.sum = sha256.Sum256(p.listing)
	return p, err
}

// Check returns what is wrong with the tool's schema, or nil. Tests of own tools call it, since a
// daemon compiles no schema before it is needed.
func (p *Prepared) Check() error {
	for _, check := range p.checkers {
		if _, err := check(); err != nil {
			return fmt.Errorf("properties: %w", err)
		}
	}
	return nil
}

// check returns what is wrong with the definition of a tool, or nil.
func (t *Tool) check() error {
	switch {
	case t.Name == "" || len(t.Name) > 128 || strings.ContainsFunc(t.Name, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_.-", r)
	}):
		return fmt.Errorf("name %q: 1 to 128 of A-Z a-z 0-9 _ . - are wanted", t.Name)
	case len([]rune(t.Description)) > MaxDescription:
		return fmt.Errorf("description has more than %d characters", MaxDescription)
	case t.Dispatch != OnHost && t.Dispatch != OnWorker:
		return fmt.Errorf("dispatch %q is unknown", t.Dispatch)
	case t.Contract != Convergent && t.Contract != NeverReplay:
		return fmt.Errorf("contract %q is unknown", t.Contract)
	case (t.Handle == nil) == (t.Inner == nil):
		return errors.New("one handler is wanted")
	}
	return nil
}

// list returns the tool as tools/list shows it, with this input schema.
func (t *Tool) list(schema json.RawMessage) (json.RawMessage, error) {
	l := listing{
		Name: t.Name, Title: t.Annotations.Title, Description: t.Description,
		InputSchema: schema, Meta: t.Meta, Annotations: annotations{Annotations: t.Annotations},
	}
	l.Annotations.Holdline.Dispatch, l.Annotations.Holdline.Contract = t.Dispatch, t.Contract
	b, err := jsonrpc.Marshal(l)
	if err != nil {
		return nil, fmt.Errorf("listing: %w", err)
	}
	return b, nil
}

// Compile returns the checker of a JSON Schema, which is safe for concurrent use. o may be
// nil.
func Compile(schema json.RawMessage, o *jsonschema.ResolveOptions) (*jsonschema.Resolved, error) {
	s := new(jsonschema.Schema)
	if err := json.Unmarshal(schema, s); err != nil {
		return nil, err
	}
	return s.Resolve(o)
}

// Listing is the tool as tools/list shows it. The caller must not change it.
func (p *Prepared) Listing() json.RawMessage { return p.listing }

// Parse checks a call's arguments and returns them as an object without render and detail,
// in which integers are spelled as integers. Absent (nil) and null arguments are an empty
// object. An error is a [*fault.Record] of code invalid_input, whose detail names the field
// and what is wrong with it.
//
// Render and detail are returned also with an error about another argument, so that the
// error is shown as it was asked for.
func (p *Prepared) Parse(arguments json.RawMessage) (args json.RawMessage, r Render, d Detail, err error) {
	if args, err = p.parse(arguments, &r, &d); err != nil {
		return nil, r, d, fault.New(fault.InvalidInput, fault.Host, p.operation, "%v", err)
	}
	return args, r, d, nil
}

// parse is [Prepared.Parse] with a plain error. It stores the values of render and detail.
func (p *Prepared) parse(arguments json.RawMessage, r *Render, d *Detail) (json.RawMessage, error) {
	arguments = bytes.TrimSpace(arguments)
	if len(arguments) == 0 || string(arguments) == "null" {
		arguments = json.RawMessage(`{}`)
	}
	switch {
	case !json.Valid(arguments):
		return nil, errors.New("arguments: not valid JSON")
	case arguments[0] != '{':
		return nil, fmt.Errorf("arguments: must be an object (got %s)", got(arguments))
	case jsonrpc.DeeperThan(arguments, maxArgumentDepth):
		return nil, fmt.Errorf("arguments: nest deeper than %d levels", maxArgumentDepth)
	}
	if err := noDuplicates(arguments); err != nil {
		return nil, fmt.Errorf("arguments: %w", err)
	}
	var errs []error
	given := map[string]bool{}
	own, err := jsonrpc.Rewrite(arguments, func(name string, raw []byte) []byte {
		var ok bool
		switch name {
		case "render":
			if *r, ok = parseName(raw, renders); !ok {
				errs = append(errs, fmt.Errorf("render: must be porcelain or json (got %s)", got(raw)))
			}
			return nil
		case "detail":
			if *d, ok = parseName(raw, details); !ok {
				errs = append(errs, fmt.Errorf("detail: must be concise or full (got %s)", got(raw)))
			}
			return nil
		}
		given[name] = true
		raw, err := p.argument(name, raw)
		if err != nil {
			errs = append(errs, err)
		}
		return raw
	})
	if err != nil {
		return nil, fmt.Errorf("arguments: %w", err)
	}
	if len(errs) > 0 {
		return nil, join(errs)
	}
	// The schema has no rules between arguments, so this is all that is left to check.
	for _, name := range p.Tool.Required {
		if !given[name] {
			return nil, fmt.Errorf("%s: is required, %s", name, want(jsonrpc.Field(p.properties, name)))
		}
	}
	return own, nil
}

// maxErrors bounds how many mistakes one refusal lists.
const maxErrors = 8

// join puts the errors on one line each.
func join(errs []error) error {
	if more := len(errs) - maxErrors; more > 0 {
		errs = append(slices.Clip(errs[:maxErrors]), fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}

// argument checks one of the tool's own arguments and returns its JSON. An integer that
// was spelled 2.0 or 1e2 is spelled anew, since the tool decodes into Go integers.
func (p *Prepared) argument(name string, raw []byte) ([]byte, error) {
	check := p.checkers[name]
	if check == nil {
		return nil, fmt.Errorf("%s: no such argument, allowed are %s", label(name), strings.Join(p.names, ", "))
	}
	var value any
	if err := json.Unmarshal(raw, &value); err != nil { // a number beyond float64
		return nil, fmt.Errorf("%s: has a number that is out of range", name)
	}
	schema, err := check()
	if err != nil { // a mistake of ours
		return nil, fmt.Errorf("%s: cannot be checked: %w", name, err)
	}
	if err := schema.Validate(value); err != nil {
		return nil, fmt.Errorf("%s: must be %s (got %s)", name, want(jsonrpc.Field(p.properties, name)), got(raw))
	}
	n, isNumber := value.(float64)
	if !isNumber || schema.Schema().Type != "integer" {
		return raw, nil
	}
	if math.Abs(n) > maxInteger {
		return nil, fmt.Errorf("%s: is out of range (got %s)", name, got(raw))
	}
	return strconv.AppendInt(nil, int64(n), 10), nil
}
