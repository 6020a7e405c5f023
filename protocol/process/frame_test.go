package process

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

func TestFrameRoundTrip(t *testing.T) {
	frames := []Frame{
		{ID: 1, Method: MethodInitialize, Params: Encode(InitializeParams{Version: 1})},
		{ID: 2, Result: Encode(WriteResult{WriteAccepted})},
		{ID: 3, Error: Errorf(CodeWriteGap, "write %d", 9)},
		{Method: EventOutput, Params: Encode(OutputParams{Seq: 4, Stream: Stdout}), Payload: []byte("a\x00\xffb\n")},
		{ID: 4, Method: MethodWrite, Params: Encode(WriteParams{1}), Payload: bytes.Repeat([]byte("x"), 3<<20+7)},
	}
	var wire bytes.Buffer
	for i := range frames {
		if err := WriteFrame(&wire, &frames[i]); err != nil {
			t.Fatal(err)
		}
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

func TestReadFrameBad(t *testing.T) {
	raw := func(header, payload uint32, rest string) string {
		b := binary.BigEndian.AppendUint32(nil, header)
		return string(binary.BigEndian.AppendUint32(b, payload)) + rest
	}
	for name, tt := range map[string]struct {
		in   string
		want error
	}{
		"cut lengths":        {"\x00\x00", io.ErrUnexpectedEOF},
		"cut header":         {raw(10, 0, `{"id"`), io.ErrUnexpectedEOF},
		"no header at all":   {raw(10, 0, ""), io.ErrUnexpectedEOF},
		"cut payload":        {raw(8, 5, `{"id":1}xx`), io.ErrUnexpectedEOF},
		"huge header":        {raw(MaxHeader+1, 0, ""), ErrFrame},
		"huge payload":       {raw(8, MaxPayload+1, ""), ErrFrame},
		"promised and unset": {raw(8, MaxPayload, `{"id":1}`), io.ErrUnexpectedEOF},
		"not JSON":           {raw(3, 0, "{x}"), ErrFrame},
		"not an object":      {raw(2, 0, "[]"), ErrFrame},
		"empty":              {raw(0, 0, ""), ErrFrame},
		"neither":            {raw(2, 0, "{}"), ErrFrame},
		"negative id":        {raw(9, 0, `{"id":-1}`), ErrFrame},
	} {
		if _, err := ReadFrame(strings.NewReader(tt.in)); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

func TestWriteFrameLimits(t *testing.T) {
	var wire bytes.Buffer
	if err := WriteFrame(&wire, &Frame{ID: 1, Payload: make([]byte, MaxPayload+1)}); !errors.Is(err, ErrFrame) {
		t.Errorf("payload over the limit: %v, want ErrFrame", err)
	}
	if err := WriteFrame(&wire, &Frame{ID: 1, Method: strings.Repeat("m", MaxHeader)}); !errors.Is(err, ErrFrame) {
		t.Errorf("header over the limit: %v, want ErrFrame", err)
	}
	if wire.Len() > 0 {
		t.Errorf("%d bytes were written of frames over the limits", wire.Len())
	}
}

func FuzzReadFrame(f *testing.F) {
	for _, fr := range []Frame{
		{ID: 1, Method: MethodAttach, Params: Encode(AttachParams{Epoch: 1, AfterSeq: 2})},
		{Method: EventOutput, Params: Encode(OutputParams{Seq: 1, Stream: Stderr}), Payload: []byte("x\n")},
		{ID: 7, Error: Errorf(CodeInvalid, "no")},
	} {
		var b bytes.Buffer
		if err := WriteFrame(&b, &fr); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Add([]byte("\x00\x00\x00\x02\x04\x00\x00\x00{}"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		for {
			fr, err := ReadFrame(r)
			if err != nil {
				return
			}
			var b bytes.Buffer
			if err := WriteFrame(&b, &fr); err != nil {
				return // escapes can make a header longer than it came
			}
			again, err := ReadFrame(&b)
			if err != nil || again.ID != fr.ID || again.Method != fr.Method || !bytes.Equal(again.Payload, fr.Payload) {
				t.Fatalf("%+v became %+v, %v", fr, again, err)
			}
		}
	})
}
