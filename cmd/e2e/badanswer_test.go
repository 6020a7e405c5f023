package e2e

import (
	"strings"
	"testing"
	"time"
)

// TestServerEndsWithoutNewline checks that the last line of a server counts even without a
// newline: its call gets the answer.
func TestServerEndsWithoutNewline(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a, b := p.wild(hosting{})
	pid := p.untilReady("wild")
	if x := a.wait(a.call("wild__end", map[string]any{"text": "my last word"})); x.text() != "my last word" {
		t.Errorf("the last call: %s", x.raw)
	}
	a.echoes("after")
	if p.untilReady("wild") == pid {
		t.Error("the server has not ended")
	}
	a.rest()
	b.rest()
}

// TestServerBadAnswer checks that a call whose answer is no valid message fails at once,
// with the beginning of that line, whatever is wrong with it.
func TestServerBadAnswer(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a, b := p.wild(hosting{"timeout": "10m"}) // longer than the test waits
	for name, line := range map[string]string{
		"a byte of latin-1": `{"jsonrpc":"2.0","id":$ID,"result":{"content":[],"text":"caf$FF"}}`,
		"the id last":       `{"result":{"content":[],"text":"caf$FF"},"jsonrpc":"2.0","id":$ID}`,
		"result and error":  `{"jsonrpc":"2.0","id":$ID,"result":{},"error":{"code":1,"message":"x"}}`,
		"neither":           `{"jsonrpc":"2.0","id":$ID}`,
		"a key twice":       `{"jsonrpc":"2.0","id":$ID,"result":{},"result":{}}`,
		"nested too deep": `{"jsonrpc":"2.0","id":$ID,"result":` + strings.Repeat("[", 20000) +
			strings.Repeat("]", 20000) + `}`,
		"cut off":            `{"jsonrpc":"2.0","id":$ID,"result":{"content":[`,
		"without a version":  `{"id":$ID,"result":{"content":[]}}`,
		"an error, cut off":  `{"jsonrpc":"2.0","id":$ID,"error":{"code":-3`,
		"a result of 7":      `{"jsonrpc":"2.0","id":$ID,"result":7}`,
		"a null result":      `{"jsonrpc":"2.0","id":$ID,"result":null}`,
		"an error of 7":      `{"jsonrpc":"2.0","id":$ID,"error":7}`,
		"an error by name":   `{"jsonrpc":"2.0","id":$ID,"error":{"code":"EIO","message":"x"}}`,
		"an error unsaid":    `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32603}}`,
		"a string for an id": `{"jsonrpc":"2.0","id":"$ID","result":7}`,
		"an odd byte behind": `{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}}$FF`,
	} {
		begun := time.Now()
		x := a.wait(a.call("wild__raw", map[string]any{"text": line}))
		if x.code() != "downstream_failure" || x.reason() != "bad_output" ||
			!strings.Contains(x.text(), "it begins: "+line[:6]) {
			t.Errorf("%s, after %v: %.500s", name, time.Since(begun), x.raw)
		}
	}
	a.echoes("after")
	b.echoes("after")
	a.rest()
	b.rest()
}

// TestServerBadListing checks that a server whose listing is no valid message fails to
// start at once, not after the time for a start.
func TestServerBadListing(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	a, b := p.wild(hosting{})
	before := p.untilReady("wild")
	a.echoes("before")
	p.must("servers", "stop", "wild")
	p.configure(map[string]any{"wild": p.wildEntry(hosting{"scope": "shared", "max_restarts": 100}, "-listing",
		`{"jsonrpc":"2.0","id":$ID,"result":{"tools":[$FF]}}`)})
	p.must("reload")
	begun := time.Now()
	_, errs, code := p.run("", "servers", "start", "wild")
	if took := time.Since(begun); code != 1 || took > waitLimit {
		t.Errorf("a server whose listing is no message: exit %d after %v, %s", code, took, errs)
	}
	if alive(before) {
		t.Error("the server that was stopped lives")
	}
	a.rest()
	b.rest()
}
