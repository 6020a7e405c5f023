package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// NewCallTool returns the tool call_tool.
func NewCallTool() Tool {
	return Tool{
		Name: CallTool,
		Description: "Calls a tool of an MCP server that is shared on this machine, and answers with what that " +
			"tool answers. " + FindTools + " finds server, tool and the arguments that it takes.",
		// Nothing is known of what the called tool does.
		Annotations: Annotations{Title: "Call a tool", Destructive: true, OpenWorld: true},
		Dispatch:    OnWorker,
		Contract:    NeverReplay,
		Properties: json.RawMessage(`{
			"server": {"type":"string","description":"as ` + FindTools + ` names it"},
			"tool": {"type":"string","description":"its name at that server"},
			"arguments": {"type":"object","description":"of the tool, by its own schema"}
		}`),
		Required: []string{"server", "tool"},
		Inner:    inner,
	}
}

// inner reads the arguments of call_tool. It returns the arguments of the called tool as
// they are spelled, and does not check them: the server does.
func inner(arguments json.RawMessage) (Inner, error) {
	var in Inner
	if arguments == nil || string(arguments) == "null" {
		return in, errors.New("server and tool: are required")
	}
	if arguments[0] != '{' {
		return in, errors.New("arguments: must be an object")
	}
	err := jsonrpc.Fields(arguments, func(key string, value []byte) error {
		var err error
		switch key {
		case "server":
			in.Server, err = word(value)
		case "tool":
			in.Tool, err = word(value)
		case "arguments":
			if value[0] == '{' {
				in.Arguments = value
			} else if string(value) != "null" {
				err = errors.New("must be an object, of the tool's own arguments")
			}
		default:
			err = errors.New("no such argument, allowed are server, tool, arguments: those of the tool itself " +
				"belong into arguments")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", fault.Short(key, 40), err)
		}
		return nil
	})
	switch {
	case err != nil:
		return Inner{}, err
	case in.Server == "":
		return Inner{}, errors.New("server: is required, a string")
	case in.Tool == "":
		return Inner{}, errors.New("tool: is required, a string")
	}
	return in, nil
}

// word returns a JSON string that is not blank.
func word(value []byte) (string, error) {
	s, ok := mcp.String(value)
	if !ok || strings.TrimSpace(s) == "" {
		return "", errors.New("must be a string that is not blank")
	}
	return s, nil
}
