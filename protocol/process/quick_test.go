package process

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"testing"
)

// simpleHeaders are those that each call has, and some that are nearly so.
var simpleHeaders = []string{
	`{"id":1,"method":"write","params":{"writeId":1}}`,
	`{"id":12345678901234,"result":{"status":"accepted"}}`,
	`{"method":"output","params":{"seq":7,"stream":"stdout"}}`,
	`{"id":3,"method":"ack","params":{"seq":9}}`,
	`{"id":3,"result":{}}`,
	`{"id":3}`, `{}`, `{"id":0}`, `{"id":03}`, `{"id":-3}`, `{"id":3,}`, `{"id":3"result":{}}`, `{"id":3,"result":{}`, `{"id":3}}`,
	`{"id":1234567890123456789}`, `{"id":12345678901234567890}`, `{"id":1e3}`,
	`{"id":3,"result":{"a":"}"}}`, `{"id":3,"result":{"a":{"b":1}}}`, `{"id":3,"result":{"a":}}`, `{"id":3,"result":null}`,
	`{"id":3,"result":{"a":1 }}`, `{"id":3, "result":{}}`, `{"id":3,"result":{},"params":{}}`, `{"id":3,"id":4}`, `{"ID":3}`,
	`{"method":"a\u0062","params":{}}`, `{"method":"","params":{}}`, `{"id":3,"error":{"code":"x"}}`, `{"id":3,"other":1}`,
}

// sameHeader compares what is read of a header with what package json reads.
func sameHeader(t *testing.T, h []byte) (simple bool) {
	t.Helper()
	got, simple := parseHeader(bytes.Clone(h))
	var want Frame
	if err := json.Unmarshal(h, &want); simple && (err != nil || !reflect.DeepEqual(got, want)) {
		t.Errorf("%s is read as %+v, package json reads %+v, %v", h, got, want, err)
	}
	return simple
}

// sameFrame compares the header that is written for a frame with that of
// package json.
func sameFrame(t *testing.T, f *Frame) (simple bool) {
	t.Helper()
	got, simple := appendHeader(nil, f)
	if want, err := json.Marshal(f); simple && (err != nil || !bytes.Equal(got, want)) {
		t.Errorf("%+v is written as %s, package json writes %s, %v", f, got, want, err)
	}
	return simple
}

// TestSimpleHeaders: simple headers are read and written as package json does
// it, and those of each call are simple.
func TestSimpleHeaders(t *testing.T) {
	for i, h := range simpleHeaders {
		simple := sameHeader(t, []byte(h))
		if !simple && i < 5 {
			t.Errorf("%s is not read as a simple one", h)
		}
		var f Frame
		if json.Unmarshal([]byte(h), &f) == nil && !sameFrame(t, &f) && i < 5 {
			t.Errorf("%s is not written as a simple one", h)
		}
	}
	for _, f := range []Frame{
		{ID: -1},
		{ID: math.MinInt64},
		{ID: 1, Method: "a<b"},
		{ID: 1, Params: json.RawMessage(` {}`)},
		{ID: 1, Params: json.RawMessage(`{"a":"<"}`)},
		{ID: 1, Result: json.RawMessage(`{`)},
		{ID: 1, Result: json.RawMessage{}},
		{ID: 1, Result: json.RawMessage("{\"a\":\"\u2028\"}")},
		{},
	} {
		sameFrame(t, &f)
	}
}

// TestSimpleParams: the params of each call are as package json has them.
func TestSimpleParams(t *testing.T) {
	for _, n := range []int64{0, 1, 9, 10, math.MaxInt64, -1} {
		if got, want := EncodeWrite(n), Encode(WriteParams{n}); !bytes.Equal(got, want) {
			t.Errorf("a write is %s, want %s", got, want)
		}
		if p, err := ParseWrite(Encode(WriteParams{n})); err != nil || p.WriteID != n {
			t.Errorf("write %d is read as %d, %v", n, p.WriteID, err)
		}
		for _, p := range []OutputParams{{Seq: n, Stream: Stdout}, {Seq: n, Stream: Stderr}, {First: 1, Seq: n, Stream: Stdout}, {Seq: n, Stream: Stdout, Dropped: 1}} {
			if got, want := EncodeOutput(p), Encode(p); !bytes.Equal(got, want) {
				t.Errorf("output is %s, want %s", got, want)
			}
			if got, ok := ParseOutput(EncodeOutput(p)); ok && got != p {
				t.Errorf("output %+v is read as %+v", p, got)
			}
		}
	}
	for _, params := range []string{`{"writeId":1`, `{"writeId":01}`, `{"writeId":1}}`, `7`} {
		if p, err := ParseWrite(json.RawMessage(params)); err == nil {
			t.Errorf("%s is read as %+v", params, p)
		}
	}
}

func FuzzHeader(f *testing.F) {
	for _, h := range simpleHeaders {
		f.Add([]byte(h), int64(1), "write", []byte(`{"writeId":1}`))
	}
	f.Fuzz(func(t *testing.T, h []byte, id int64, method string, raw []byte) {
		sameHeader(t, h)
		sameFrame(t, &Frame{ID: id, Method: method, Params: raw})
		sameFrame(t, &Frame{ID: id, Result: raw})
	})
}
