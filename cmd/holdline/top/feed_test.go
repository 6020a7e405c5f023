package top

import (
	"encoding/json"
	"net"
	"os"
	"testing"

	"holdline/protocol/control"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/socket"
	"holdline/protocol/socket/sockettest"
)

// TestLogIsFollowedFromTheBeginning checks that already the first request for a log leaves a line
// that is not whole for the next one: else it would be shown as two lines.
func TestLogIsFollowedFromTheBeginning(t *testing.T) {
	asked := make(chan control.ServerLogsParams, 1)
	path := sockettest.Daemon(t, func(conn net.Conn, lines *jsonrpc.Lines) { // it answers one request
		defer close(asked)
		line, err := lines.Next()
		if err != nil {
			return
		}
		var params control.ServerLogsParams
		if m, err := jsonrpc.Parse(line); err == nil && json.Unmarshal(m.Params, &params) == nil {
			asked <- params
			_, _ = conn.Write(append(jsonrpc.AppendResult(nil, m.ID, json.RawMessage("{}")), '\n'))
		}
	})
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
