package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// Example shows the harness: a place is a user's home with a daemon, agents and servers,
// and all of them can be killed. Here the daemon is killed during a call. The agent's proxy
// starts the next daemon, and the answer arrives.
func Example() {
	x := &exampleT{ctx: context.Background()}
	defer x.end()

	p := newPlace(x).login().serve("shared") // an MCP server with the name "tools"
	a := p.agent().shake()                   // an MCP client with its proxy, which starts the daemon
	p.untilReady("tools")

	id := a.call("tools__effect", map[string]any{"token": "once", "ms": 500})
	p.untilEffect("begin once")
	kill9(x, p.pid(0))

	answer := a.wait(id)
	fmt.Println(answer.text())
	a.rest(id) // the client disconnects; a second answer would fail the test
	fmt.Println("effects:", p.effectsOf("begin once"))
	// Output:
	// once
	// effects: 1
}

// exampleT lets an example use the harness, which needs a testing.TB. A failure panics.
type exampleT struct {
	testing.TB
	ctx      context.Context //nolint:containedctx // as a testing.T has one
	cleanups []func()
	failed   bool
}

func (x *exampleT) end() {
	for len(x.cleanups) > 0 {
		last := len(x.cleanups) - 1
		x.cleanups[last]()
		x.cleanups = x.cleanups[:last]
	}
}

func (x *exampleT) Helper()                    {}
func (x *exampleT) Name() string               { return "Example" }
func (x *exampleT) Context() context.Context   { return x.ctx }
func (x *exampleT) Cleanup(f func())           { x.cleanups = append(x.cleanups, f) }
func (x *exampleT) Failed() bool               { return x.failed }
func (x *exampleT) Log(args ...any)            { fmt.Fprintln(os.Stderr, args...) }
func (x *exampleT) Logf(f string, args ...any) { fmt.Fprintf(os.Stderr, f+"\n", args...) }

func (x *exampleT) Error(args ...any)            { x.failed = true; x.Fatal(args...) }
func (x *exampleT) Errorf(f string, args ...any) { x.failed = true; x.Fatalf(f, args...) }
func (x *exampleT) Fatal(args ...any)            { panic(fmt.Sprint(args...)) }
func (x *exampleT) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
