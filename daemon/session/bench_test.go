package session_test

import (
	"testing"

	"holdline/protocol"
)

// BenchmarkCall counts the allocations of a call of a host tool, client and server
// together. The client's share is what BenchmarkPing counts.
func BenchmarkCall(b *testing.B) {
	h := start(b)
	go func() {
		for range h.inCall {
		}
	}()
	c := h.open(b, protocol.Greeting{Identity: "a"})
	for _, bench := range []struct{ name, line string }{
		{"ping", `{"jsonrpc":"2.0","id":1,"method":"ping"}`},
		{"echo", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hi"}}}`},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.send(bench.line)
				if _, err := c.lines.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	close(h.inCall)
}
