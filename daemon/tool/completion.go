package tool

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// A completion asks a server for values of an argument. Of a template of resources, what is asked and
// each value that comes back make a URI, and the rules decide on that: otherwise a session could read
// the names of all that it may not use.
type completion struct {
	template string // "" if the argument is one of a prompt
	argument string
	value    string            // that is asked for
	others   map[string]string // values of other arguments
}

// completionOf reads the params of a completion. It returns an invalid_input fault for params that programs
// could read in two ways: a reference is to a prompt or to a resource.
func completionOf(params json.RawMessage) (*completion, error) {
	invalid := func(what string) error {
		return fault.New(fault.InvalidInput, fault.Protocol, mcp.Complete, "%s", what)
	}
	ref := jsonrpc.Field(params, "ref")
	kind, _ := mcp.String(jsonrpc.Field(ref, "type"))
	name, uri := jsonrpc.Field(ref, "name"), jsonrpc.Field(ref, "uri")
	switch {
	case name != nil && uri != nil:
		return nil, invalid("params.ref has a name and a uri: it must have the one that its type says")
	case kind == "ref/prompt" && uri != nil, kind == "ref/resource" && name != nil:
		return nil, invalid("params.ref has another member than its type says: ref/prompt has a name, ref/resource a uri")
	case uri == nil:
		return &completion{}, nil
	}
	c, argument := &completion{others: map[string]string{}}, jsonrpc.Field(params, "argument")
	var ok [3]bool
	c.template, ok[0] = mcp.String(uri)
	c.argument, ok[1] = mcp.String(jsonrpc.Field(argument, "name"))
	c.value, ok[2] = mcp.String(jsonrpc.Field(argument, "value"))
	if !ok[0] || !ok[1] || !ok[2] {
		return nil, invalid("params.ref.uri, params.argument.name and params.argument.value must be strings")
	}
	size := len(c.value)
	if given := jsonrpc.Field(jsonrpc.Field(params, "context"), "arguments"); given != nil {
		keys := jsonrpc.Keys{}
		err := keys.Fields(given, func(key string, value []byte) error {
			text, ok := mcp.String(value)
			if !ok || jsonrpc.IsSameKey(key, c.argument) && text != c.value {
				return errors.New("not a value of another argument")
			}
			c.others[key] = text
			size += len(text)
			return nil
		})
		if err != nil {
			return nil, invalid("params.context.arguments must be an object of strings, each argument once, with one value")
		}
	}
	if size > mcp.MaxURI {
		return nil, invalid("the values of params.argument and params.context have more than " +
			strconv.Itoa(mcp.MaxURI) + " bytes")
	}
	return c, nil
}

// check returns nil if the rules let a session use what the template makes with that value of the
// argument, else a fault. What other arguments are may be unknown yet.
func (c *completion) check(rules Rules, who Who, server, value string) error {
	if !strings.Contains(c.template, "{") {
		return nil // it is no template: the rules know it as it is
	}
	of := func(name string) (string, bool) {
		if jsonrpc.IsSameKey(name, c.argument) {
			return value, true
		}
		for other, text := range c.others {
			if jsonrpc.IsSameKey(name, other) {
				return text, true
			}
		}
		return "", false
	}
	encoded, kept, plain := expand(c.template, of, "{")
	for _, uri := range []string{encoded, kept, plain} {
		if err := rules.Check(who, server, uri, c.template); err != nil {
			return err
		}
	}
	if value == "" {
		return nil // the rest of the URI is not known
	}
	encoded, kept, _ = expand(c.template, of, "")
	if err := rules.CheckURI(who, server, encoded); err != nil || kept == encoded {
		return err
	}
	return rules.CheckURI(who, server, kept)
}

// expand returns what a template of RFC 6570 makes: with the values as the RFC encodes them, with the characters kept
// that have a meaning in a URI, and with the values as they are, since servers do each of these. An expression without a
// value stays as it is if unknown is "{"; else it becomes an x, so that the rest is a URI.
func expand(template string, of func(name string) (string, bool), unknown string) (encoded, kept, plain string) {
	add := func(a, b, c string) { encoded, kept, plain = encoded+a, kept+b, plain+c }
	for rest := template; ; {
		text, after, open := strings.Cut(rest, "{")
		add(text, text, text)
		expression, next, closed := strings.Cut(after, "}")
		if !open || !closed {
			if open {
				add("{"+after, "{"+after, "{"+after)
			}
			return encoded, kept, plain
		}
		rest = next
		a, b, c, known := expandOne(expression, of)
		switch {
		case known:
			add(a, b, c)
		case unknown == "{":
			add("{"+expression+"}", "{"+expression+"}", "{"+expression+"}")
		default:
			add("x", "x", "x")
		}
	}
}

// operators are those of RFC 6570: what stands before the first value and between values, and whether
// names stand before the values.
var operators = map[byte]struct {
	first, between string
	named, keeps   bool // keeps says that reserved characters are not encoded
}{
	'+': {"", ",", false, true}, '#': {"#", ",", false, true}, '.': {".", ".", false, false},
	'/': {"/", "/", false, false}, ';': {";", ";", true, false}, '?': {"?", "&", true, false},
	'&': {"&", "&", true, false},
}

// expandOne is [expand] for one expression; known is false if none of its variables has a value.
func expandOne(expression string, of func(name string) (string, bool)) (encoded, kept, plain string, known bool) {
	first, between, named, keeps := "", ",", false, false
	if expression != "" {
		if op, ok := operators[expression[0]]; ok {
			first, between, named, keeps = op.first, op.between, op.named, op.keeps
			expression = expression[1:]
		}
	}
	for name := range strings.SplitSeq(expression, ",") {
		name, most, cut := strings.Cut(strings.TrimSuffix(name, "*"), ":")
		value, ok := of(name)
		if !ok {
			continue
		}
		if n, err := strconv.Atoi(most); cut && err == nil && n >= 0 {
			if all := []rune(value); len(all) > n {
				value = string(all[:n])
			}
		}
		before := between
		if !known {
			before, known = first, true
		}
		if named {
			before += name + "="
		}
		encoded, kept, plain = encoded+before+encode(value, keeps), kept+before+encode(value, true), plain+before+value
	}
	return encoded, kept, plain, known
}

// encode returns a value of a template as it stands in a URI. With keeps set, characters that have a
// meaning in a URI stay, and so does what is encoded already.
func encode(value string, keeps bool) string {
	const digits, reserved = "0123456789ABCDEF", ":/?#[]@!$&'()*+,;="
	isHex := func(b byte) bool { return strings.IndexByte(digits+"abcdef", b) >= 0 }
	var b strings.Builder
	for i := range len(value) {
		switch c := value[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-._~", c) >= 0,
			keeps && strings.IndexByte(reserved, c) >= 0,
			keeps && c == '%' && i+2 < len(value) && isHex(value[i+1]) && isHex(value[i+2]):
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	return b.String()
}

// Completed returns what a server has answered to a completion, without the values that make what the
// session may not use: the server does not know the rules. params are those of the request. How many
// values there are in all is left out then, since it counts these, too. A result that is loaded later
// is looked at then.
func (c *Catalog) Completed(who Caller, to *Remote, params json.RawMessage, res RemoteResult) (RemoteResult, error) {
	of, err := completionOf(params)
	if err != nil || of.template == "" {
		return res, err
	}
	filter := func(result json.RawMessage) (json.RawMessage, error) {
		if len(result) == 0 {
			return result, nil
		}
		kept, err := of.filter(result, func(value string) bool {
			return of.check(c.rules, who.Who(), to.Server, value) == nil
		})
		if err != nil {
			return nil, fault.New(fault.DownstreamFailure, fault.Server, mcp.Complete,
				"the answer of server %s cannot be checked against the rules: %v", to.Server, err)
		}
		return kept, nil
	}
	if load := res.Load; load != nil {
		res.File = nil // its result would pass unseen
		res.Load = func() (result, failure json.RawMessage, err error) {
			if result, failure, err = load(); err == nil {
				result, err = filter(result)
			}
			if err != nil {
				return nil, nil, err
			}
			return result, failure, nil
		}
	}
	if res.Result, err = filter(res.Result); err != nil {
		return RemoteResult{Replays: res.Replays}, err
	}
	return res, nil
}

// filter returns a result with the values alone that may be shown. It stays as it is if all may.
func (c *completion) filter(result json.RawMessage, may func(value string) bool) (json.RawMessage, error) {
	if err := mcp.CompletedObject.Check(result); err != nil {
		return nil, err
	}
	completed := jsonrpc.Field(result, "completion")
	values := jsonrpc.Field(completed, "values")
	if values == nil {
		return result, nil
	}
	kept, all := []json.RawMessage{}, true
	err := jsonrpc.Elements(values, func(raw []byte) error {
		if value, ok := mcp.String(raw); ok && may(value) {
			kept = append(kept, raw)
		} else {
			all = false
		}
		return nil
	})
	if err != nil || all {
		return result, err
	}
	list, err := jsonrpc.Marshal(kept)
	if err == nil {
		completed, err = jsonrpc.Rewrite(completed, func(key string, value []byte) []byte {
			switch key {
			case "values":
				return list
			case "total":
				return nil
			}
			return value
		})
	}
	if err != nil {
		return nil, err
	}
	return jsonrpc.Replace(result, "completion", completed)
}
