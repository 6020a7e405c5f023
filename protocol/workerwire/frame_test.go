package workerwire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"holdline/protocol/jsonrpc"
)

// TestFrameRoundTrip checks that a frame is read as it was written, however its bytes
// arrive.
func TestFrameRoundTrip(t *testing.T) {
	frames := []Frame{
		{Kind: Initialize, ID: 1, Body: jsonrpc.Encode(InitializeParams{Version: 1})},
		{Kind: Result, ID: 2, N: int64(WriteAccepted)},
		{Kind: Failure, ID: 3, Body: jsonrpc.Encode(Errorf(CodeWriteGap, "write %d", 9))},
		{Kind: Stdout, N: 4, Payload: []byte("a\x00\xffb\n")},
		{Kind: Write, ID: 4, N: 1, Payload: bytes.Repeat([]byte("x"), 3<<20+7)},
	}
	var wire bytes.Buffer
	if err := WriteFrames(&wire, frames...); err != nil {
		t.Fatal(err)
	}
	r := iotest.HalfReader(&wire)
	for i, want := range frames {
		got, err := ReadFrame(r)
		if err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("frame %d = %.200v, want %.200v", i, got, want)
		}
	}
	if _, err := ReadFrame(r); !errors.Is(err, io.EOF) {
		t.Errorf("after the last frame: %v, want EOF", err)
	}
}

// TestFailure checks that the answer to a failed request is an error with its code.
func TestFailure(t *testing.T) {
	f := Frame{Kind: Failure, ID: 1, Body: jsonrpc.Encode(Errorf(CodeVersion, "no"))}
	if e, ok := errors.AsType[*Error](f.Decode(nil)); !ok || e.Code != CodeVersion {
		t.Errorf("Decode = %v", f.Decode(nil))
	}
	f.Body = []byte("{")
	if err := f.Err(); !errors.Is(err, ErrFrame) {
		t.Errorf("a body that cannot be read: %v, want ErrFrame", err)
	}
	f = Frame{Kind: Result, ID: 1}
	if err := f.Decode(nil); err != nil {
		t.Errorf("a result: %v", err)
	}
}

// TestBadFrames checks that invalid and incomplete frames are errors.
func TestBadFrames(t *testing.T) {
	raw := func(body, payload uint32, kind Kind, id int64, rest string) string {
		b := binary.BigEndian.AppendUint32(nil, body)
		b = append(binary.BigEndian.AppendUint32(b, payload), byte(kind))
		b = binary.BigEndian.AppendUint64(b, uint64(id))
		return string(binary.BigEndian.AppendUint64(b, 0)) + rest
	}
	for name, tt := range map[string]struct {
		in   string
		want error
	}{
		"cut head":           {"\x00\x00", io.ErrUnexpectedEOF},
		"cut body":           {raw(10, 0, Attach, 1, `{"id"`), io.ErrUnexpectedEOF},
		"no body at all":     {raw(10, 0, Attach, 1, ""), io.ErrUnexpectedEOF},
		"cut payload":        {raw(2, 5, Write, 1, `{}xx`), io.ErrUnexpectedEOF},
		"huge body":          {raw(MaxBody+1, 0, Attach, 1, ""), ErrFrame},
		"huge payload":       {raw(0, MaxPayload+1, Write, 1, ""), ErrFrame},
		"promised and unset": {raw(0, MaxPayload, Write, 1, ""), io.ErrUnexpectedEOF},
		"no kind":            {raw(0, 0, 0, 1, ""), ErrFrame},
		"answer to nothing":  {raw(0, 0, Result, 0, ""), ErrFrame},
		"negative id":        {raw(0, 0, Write, -1, ""), ErrFrame},
	} {
		if _, err := ReadFrame(strings.NewReader(tt.in)); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

// TestWriteFrameLimits checks that nothing is written of a frame over the limits.
func TestWriteFrameLimits(t *testing.T) {
	var wire bytes.Buffer
	for name, f := range map[string]Frame{
		"payload": {Kind: Write, ID: 1, Payload: make([]byte, MaxPayload+1)},
		"body":    {Kind: Attach, ID: 1, Body: make([]byte, MaxBody+1)},
	} {
		if err := WriteFrames(&wire, Frame{Kind: Write, ID: 1}, f); !errors.Is(err, ErrFrame) {
			t.Errorf("%s over the limit: %v, want ErrFrame", name, err)
		}
	}
	if wire.Len() > 0 {
		t.Errorf("%d bytes were written of frames over the limits", wire.Len())
	}
}

func FuzzReadFrame(f *testing.F) {
	for _, fr := range []Frame{
		{Kind: Attach, ID: 1, Body: jsonrpc.Encode(AttachParams{Epoch: 1, AfterSeq: 2})},
		{Kind: Stderr, N: 1, Body: jsonrpc.Encode(Dropped{Bytes: 3}), Payload: []byte("x\n")},
		{Kind: Failure, ID: 7, Body: jsonrpc.Encode(Errorf(CodeInvalid, "no"))},
	} {
		var b bytes.Buffer
		if err := WriteFrames(&b, fr); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		for {
			fr, err := ReadFrame(r)
			if err != nil {
				return
			}
			var b bytes.Buffer
			if err := WriteFrames(&b, fr); err != nil {
				t.Fatalf("%+v cannot be written: %v", fr, err)
			}
			if again, err := ReadFrame(&b); err != nil || !reflect.DeepEqual(again, fr) {
				t.Fatalf("%+v became %+v, %v", fr, again, err)
			}
		}
	})
}
