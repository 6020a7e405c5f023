package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Limits of what is kept of the tools of a server.
const (
	maxMirroring = 4096 // tools with arguments in headers; beyond that all are learned anew
	maxPages     = 100  // of a list of tools that is asked for after a mismatch
)

// codeMismatch is the modern error for headers that do not say what the body says.
const codeMismatch = "-32020"

// headerParam begins the names of the headers that have arguments of a tool.
const headerParam = "Mcp-Param-"

// mirrored is an argument that a call of its tool has to repeat in a header: the
// tool's schema says so with "x-mcp-header" (MCP 2026-07-28, custom headers).
type mirrored struct {
	header string
	path   []string // names of properties, from the arguments inwards
}

// sendModern posts a message of the era without sessions. It reads in lists of tools which
// arguments belong into headers. A server that refuses the headers of a call may have
// changed its tools: sendModern asks for the list then, and posts the call once more if
// that changes its headers. The refusal says that the call was not made.
func (c *Client) sendModern(ctx context.Context, m *message, emit Emit) error {
	switch {
	case m.Method == mcp.ToolsList && m.Kind == jsonrpc.Request:
		return c.post(ctx, m, session{}, c.learning(ctx, m, emit))
	case m.Method != mcp.ToolsCall || m.Kind != jsonrpc.Request:
		return c.post(ctx, m, session{}, emit)
	}
	var refused []byte
	var err error
	if m.mirror, err = c.mirror(m); err != nil {
		return err
	}
	err = c.post(ctx, m, session{}, func(line []byte) error {
		if isMismatch(line) {
			refused = bytes.Clone(line)
			return nil
		}
		return emit(line)
	})
	if err != nil || refused == nil {
		return err
	}
	c.listTools(ctx, m)
	before := m.mirror
	if m.mirror, err = c.mirror(m); err != nil {
		return err
	}
	if ctx.Err() != nil || maps.Equal(m.mirror, before) {
		return emit(refused)
	}
	return c.post(ctx, m, session{}, emit)
}

// isMismatch reports whether a line is the answer of a server that refuses a call for its
// headers.
func isMismatch(line []byte) bool {
	if !bytes.Contains(line, []byte(codeMismatch)) { // nearly always: nothing is parsed
		return false
	}
	m, err := jsonrpc.Parse(line)
	return err == nil && m.Kind == jsonrpc.Response && string(jsonrpc.Field(m.Error, "code")) == codeMismatch
}

// listTools asks the server for its tools, on behalf of a call that it has refused, to learn
// which arguments belong into headers. It uses the call's id, which is free again. If it
// fails, what was known of the tools stays.
func (c *Client) listTools(ctx context.Context, call *message) {
	meta, err := jsonrpc.Replace(jsonrpc.Field(call.Params, "_meta"), mcp.MetaProgress, nil)
	cursor := json.RawMessage(nil)
	for page := 0; err == nil && page < maxPages && (page == 0 || cursor != nil); page++ {
		params := jsonrpc.Prepend(json.RawMessage(`{}`), `"_meta":`+string(meta))
		if cursor != nil {
			params = jsonrpc.Prepend(params, `"cursor":`+string(cursor))
		}
		cursor = nil
		var m message
		if m, err = parse(jsonrpc.AppendRequest(nil, call.ID, mcp.ToolsList, params)); err == nil {
			err = c.post(ctx, &m, session{}, c.learning(ctx, &m, func(line []byte) error {
				if answer, err := jsonrpc.Parse(line); err == nil && answer.Kind == jsonrpc.Response {
					cursor = bytes.Clone(jsonrpc.Field(answer.Result, "nextCursor"))
				}
				return nil
			}))
		}
	}
	if err != nil {
		c.o.Log.WarnContext(ctx, "the tools of the server cannot be listed anew", "err", err)
	}
}

// mirror returns the headers that repeat arguments of a call. An argument that is absent,
// null or no plain value gets none. An argument that the server could read in another way than the
// gateway reads the header is a fault.
func (c *Client) mirror(m *message) (map[string]string, error) {
	c.mu.Lock()
	known := c.tools[m.name]
	c.mu.Unlock()
	var headers map[string]string
	for _, arg := range known {
		value := jsonrpc.Field(m.Params, "arguments")
		for _, name := range arg.path {
			var err error
			if value, err = one(value, name); err != nil {
				return nil, fault.New(fault.InvalidInput, fault.Host, m.operation(),
					"arguments: %v; %s stands in a header, too, so that must be certain: the call was not made", err, name)
			}
		}
		if text, ok := plainText(value); ok {
			if headers == nil {
				headers = map[string]string{}
			}
			headers[arg.header] = headerText(text)
		}
	}
	return headers, nil
}

// one returns a member of an object, or nil, and an error if the object has that in another case,
// too, or twice.
func one(object json.RawMessage, name string) (value json.RawMessage, err error) {
	if len(object) == 0 || object[0] != '{' {
		return nil, nil
	}
	keys := jsonrpc.Keys{Known: []string{name}, Loose: true}
	err = keys.Fields(object, func(key string, v []byte) error {
		if key == name {
			value = v
		}
		return nil
	})
	return value, err
}

// plainText returns the text of a JSON string, boolean or integer. It returns false for
// anything else, also for integers that a JSON number does not hold exactly everywhere.
func plainText(value json.RawMessage) (string, bool) {
	const maxSafe = 1<<53 - 1
	switch s := string(value); {
	case s == "true" || s == "false":
		return s, true
	case s != "" && s[0] == '"':
		return mcp.String(value)
	default:
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || f < -maxSafe || f > maxSafe || f != float64(int64(f)) {
			return "", false
		}
		return strconv.FormatInt(int64(f), 10), true
	}
}

// learning returns an emit that learns from the answer to m, a list of tools, which arguments
// belong into headers. It leaves tools out that ask for headers that cannot be: MCP demands
// that, since a call of them would break the rules of one side or the other.
func (c *Client) learning(ctx context.Context, m *message, emit Emit) Emit {
	return func(line []byte) error {
		answer, err := jsonrpc.Parse(line)
		if err != nil || answer.Kind != jsonrpc.Response || answer.Result == nil || !sameID(answer.ID, m.ID) {
			return emit(line)
		}
		var good []byte
		bad := false
		_ = jsonrpc.Elements(jsonrpc.Field(answer.Result, "tools"), func(tool []byte) error {
			if name, err := c.learn(tool); err != nil {
				bad = true
				c.o.Log.WarnContext(ctx, "tool left out: its schema asks for a header that cannot be",
					"tool", name, "err", err)
			} else {
				good = append(append(good, ','), tool...)
			}
			return nil
		})
		if !bad {
			return emit(line)
		}
		list := append(append([]byte("["), good[min(1, len(good)):]...), ']')
		result, err := jsonrpc.Replace(answer.Result, "tools", list)
		if err != nil {
			return emit(line)
		}
		return emit(jsonrpc.AppendResult(nil, answer.ID, result))
	}
}

// learn remembers which arguments of a tool belong into headers. It returns the tool's name,
// and an error if its schema breaks the rules for that.
func (c *Client) learn(tool []byte) (name string, err error) {
	name, _ = mcp.String(jsonrpc.Field(tool, "name"))
	var s headerScan
	if bytes.Contains(tool, []byte(mcp.SchemaHeader)) { // few have it, and schemas can be long
		s.schema(jsonrpc.Field(tool, "inputSchema"), nil, true)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tools, name)
	if s.err != nil || len(s.found) == 0 {
		return name, s.err
	}
	if c.tools == nil || len(c.tools) >= maxMirroring {
		c.tools = map[string][]mirrored{}
	}
	c.tools[name] = s.found
	return name, nil
}

// headerScan collects the annotated arguments of one schema.
type headerScan struct {
	found []mirrored
	err   error // the first breach of a rule
}

// schema reads a schema and those in it. plain says that only properties lead to it, by path;
// elsewhere no annotation may stand. What is no object, or has a key twice, has none.
func (s *headerScan) schema(raw []byte, path []string, plain bool) {
	_ = jsonrpc.Fields(raw, func(key string, value []byte) error {
		switch key {
		case mcp.SchemaHeader:
			s.add(value, jsonrpc.Field(raw, "type"), path, plain)
		case "properties":
			_ = jsonrpc.Fields(value, func(name string, value []byte) error {
				s.schema(value, append(slices.Clip(path), name), plain)
				return nil
			})
		case "const", "default", "enum", "examples": // values and no schemas
		default:
			s.below(value)
		}
		return nil
	})
}

// below reads the schemas that the value of another keyword may hold.
func (s *headerScan) below(value []byte) {
	if len(value) > 0 && value[0] == '[' {
		_ = jsonrpc.Elements(value, func(one []byte) error {
			s.below(one)
			return nil
		})
		return
	}
	s.schema(value, nil, false)
}

// add takes over one annotation, or notes which rule it breaks.
func (s *headerScan) add(value, kind []byte, path []string, plain bool) {
	name, isText := mcp.String(value)
	header := headerParam + name
	isTaken := slices.ContainsFunc(s.found, func(m mirrored) bool { return strings.EqualFold(m.header, header) })
	var problem string
	switch {
	case !isText || name == "" || strings.ContainsFunc(name, isNoHeaderRune):
		problem = "it is no name of a header"
	case !plain || len(path) == 0:
		problem = "it stands where a call cannot have one value"
	case isTaken:
		problem = "two arguments have the same one"
	case !slices.Contains([]string{`"string"`, `"integer"`, `"boolean"`}, string(kind)):
		problem = "the argument is no string, integer or boolean"
	default:
		s.found = append(s.found, mirrored{header: header, path: path})
		return
	}
	if s.err == nil {
		s.err = errors.New(mcp.SchemaHeader + " " + string(value[:min(len(value), 64)]) + ": " + problem)
	}
}

// isNoHeaderRune reports whether r cannot stand in the name of a header (RFC 9110, token).
func isNoHeaderRune(r rune) bool {
	return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}
