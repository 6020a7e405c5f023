package top

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"testing"

	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/socket"
)

// TestLogIsFollowedFromTheBeginning checks that already the first request for a log leaves a line
// that is not whole for the next one: else it would be shown as two lines.
func TestLogIsFollowedFromTheBeginning(t *testing.T) {
	dir, err := os.MkdirTemp("", "hl") // short: a socket's path has little room
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	asked := make(chan control.ServerLogsParams, 1)
	go func() { // a daemon that answers one request
		defer close(asked)
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		lines := jsonrpc.NewLines(conn, jsonrpc.MaxFrame)
		if _, err := lines.Next(); err != nil {
			return
		}
		_, _ = conn.Write(protocol.Append(nil, protocol.Welcome{Holdline: protocol.Version}))
		line, err := lines.Next()
		if err != nil {
			return
		}
		var params control.ServerLogsParams
		if m, err := jsonrpc.Parse(line); err == nil && json.Unmarshal(m.Params, &params) == nil {
			asked <- params
			_, _ = conn.Write(append(jsonrpc.AppendResult(nil, m.ID, json.RawMessage("{}")), '\n'))
		}
	}()
	paths, err := socket.Resolve(path, os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	f := &feed{paths: paths, ctx: t.Context()}
	if _, err := f.logs("github", nil); err != nil {
		t.Fatal(err)
	}
	if params := <-asked; !params.Follow || params.Name != "github" {
		t.Errorf("the daemon is asked for %+v", params)
	}
}
