package jsonrpc

import (
	"encoding/json"
	"strings"
	"testing"
)

// ordinary has values of every kind, and texts that are almost values.
var ordinary = []string{
	``, ` `, `0`, `-0`, `00`, `-`, `1.`, `.5`, `1.5e`, `1e+`, `1E-9`, `1e5 `, `+1`, `0x1`, `true`, `tru`, `truex`,
	`false`, `null`, `nul`, `""`, `"`, `"a`, `"\`, `"\"`, `"\""`, `"\x"`, `"\u12"`, `"\u12g4"`, `"\u12aF"`, "\"\x1f\"",
	"\"\x7f\"", "\"a\nb\"", `"ümläut"`, "\"\xff\"", `"12345678"`, `"1234567\"`, `"1234567\\"`,
	`"123456789012345\u00e4"`, "\"12345678\x00\"", `"\\\\\\\\\\\\\\\\"`, `[]`, `[ ]`, `[1]`, `[1,]`, `[,1]`, `[1 2]`,
	`[1`, `]`, `[1]]`, `[}`, `{]`, `[[],[[]],{}]`, `{}`, `{ }`, `{"a":1}`, `{"a":1,}`, `{,"a":1}`, `{"a"}`, `{"a":}`,
	`{a:1}`, `{"a":1 "b":2}`, `{"a":{"b":[{}]}}`, `{"a":1]`, `{"a" : 1 , "b" : [ true , false ] }`, "\t{\r\n}\n",
	`"a string of more than 32 bytes"`,
	`"unknown method \"ping\", and more than 32 bytes \\"`,
	"\"more than 32 bytes \t in it, and a tab\"",
	"{}\x00", `{"a":"}"}`, `{1:2}`, `|`, `[|`, `}`, `[1}`, "\u00a0{}",
}

// valid is check without its other results.
func valid(b []byte) bool {
	ok, _, _ := check(b)
	return ok
}

// TestCheck checks that check agrees with package json, also about the depth.
func TestCheck(t *testing.T) {
	for _, s := range ordinary {
		if got, want := valid([]byte(s)), json.Valid([]byte(s)); got != want {
			t.Errorf("check(%q) = %v", s, got)
		}
	}
	for depth := maxDepth - 1; depth <= maxDepth+1; depth++ {
		for _, brackets := range []string{"[]", `{"a": }`} {
			open, end, _ := strings.Cut(brackets, brackets[len(brackets)-1:])
			s := strings.Repeat(open, depth-1) + "[]" + strings.Repeat(brackets[len(brackets)-1:], depth-1) + end
			if got, want := valid([]byte(s)), json.Valid([]byte(s)); got != want {
				t.Errorf("%d of %s: check = %v", depth, brackets, got)
			}
		}
	}
}

// FuzzCheck compares check with package json.
func FuzzCheck(f *testing.F) {
	for _, s := range ordinary {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, want := valid(b), json.Valid(b); got != want {
			t.Errorf("check(%q) = %v", b, got)
		}
		if !valid(b) {
			return
		}
		_, _, longest := check(b)
		if longest.to > 0 && (b[longest.from] != '"' || !json.Valid(b[longest.from:longest.to])) {
			t.Errorf("the longest string of %q is at %+v", b, longest)
		}
		var none extent
		if i := skipSpace(b, 0); b[i] == '"' && skipString(b, i, none) != endString(b, i) {
			t.Errorf("a string ends at %d or at %d", skipString(b, i, none), endString(b, i))
		}
	})
}
