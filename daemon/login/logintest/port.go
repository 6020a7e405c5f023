package logintest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// givenPorts are the ports that FreePort has returned.
var givenPorts sync.Map

// FreePort returns a port of loopback that nobody has, from at to at+9,999. Callers in
// other processes must name another range. None of these should be one that the system gives out;
// then nobody gets the port meanwhile.
func FreePort(tb testing.TB, at int) int {
	tb.Helper()
	for range 1000 {
		port := at + rand.IntN(10000) //nolint:gosec // it is no secret
		if _, given := givenPorts.LoadOrStore(port, true); given {
			continue
		}
		l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			l.Close()
			return port
		}
	}
	tb.Fatal("no port is free")
	return 0
}
