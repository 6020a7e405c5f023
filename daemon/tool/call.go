package tool

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"holdline/protocol/fault"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
)

// Remote returns the tool in the form in which sessions call all tools.
func (p *Prepared) Remote() *Remote { return &p.remote }

// call checks the arguments of a call, runs the tool and encodes its answer. A call that
// failed is a result as well; the only error is [ErrStopping].
func (p *Prepared) call(ctx context.Context, c RemoteCall) (RemoteResult, error) {
	handle, args, render, detail := p.Tool.Handle, json.RawMessage(`{}`), Porcelain, Concise
	var err error
	if c.Params != nil {
		args, render, detail, err = p.Parse(jsonrpc.Field(c.Params, "arguments"))
	} else if handle = p.Tool.Resume; handle == nil {
		err = fault.New(fault.ResourceExhausted, fault.Host, p.operation,
			"the daemon ended, and the request was too large to be kept for the next one: ask again")
	}
	var res Result
	if err == nil {
		one := Call{Caller: c.Caller, N: c.N, ID: c.ID, Args: args, Detail: detail, Render: render}
		if c.Modern && c.Params != nil {
			meta := mcp.Meta{Capabilities: jsonrpc.Field(jsonrpc.Field(c.Params, "_meta"), mcp.MetaCapabilities)}
			one.Task = meta.TakesTasks()
		}
		if c.Progress != nil {
			one.Progress = increasing(c.Progress)
		}
		res, err = handle(ctx, one)
	}
	if errors.Is(err, ErrStopping) {
		return RemoteResult{}, ErrStopping
	}
	if err != nil {
		res.Fault = fault.From(err, fault.Host, p.operation)
	}
	if f := res.Fault; f != nil && f.Operation == mcp.ToolsCall {
		f.Operation = p.operation
	}
	return RemoteResult{Result: p.Encode(res, render), Fault: res.Fault, Replays: res.Replays}, nil
}

// increasing returns a function that reports progress as the params of a notification. It
// leaves out values that are not higher than the one before, which MCP forbids. Only one
// goroutine at a time may call it.
func increasing(report func(params json.RawMessage)) func(progress, total float64, message string) {
	last, begun := 0.0, false
	return func(value, total float64, message string) {
		if begun && value <= last {
			return
		}
		last, begun = value, true
		params := append([]byte(`{"`+mcp.MetaProgress+`":0,"progress":`), strconv.FormatFloat(value, 'f', -1, 64)...)
		if total > 0 {
			params = strconv.AppendFloat(append(params, `,"total":`...), total, 'f', -1, 64)
		}
		if message != "" {
			params = jsonrpc.AppendString(append(params, `,"message":`...), message)
		}
		report(append(params, '}'))
	}
}
