package remote

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"holdline/protocol/jsonrpc"
)

// TestEvents checks which messages a stream of server-sent events has, and its last event
// id.
func TestEvents(t *testing.T) {
	for _, x := range []struct {
		in   string
		want []string
		last string
	}{
		{"", nil, ""},
		{"data: a\n\n", []string{"a"}, ""},
		{"data: a\n", nil, ""}, // no empty line ends the event
		{"\ufeffdata: a\n\n", []string{"a"}, ""},
		{"data: a\rdata: b\r\rid: 1\rdata: c\r\n\r\ndata: d\n\r", []string{"a\nb", "c", "d"}, "1"},
		{"data:a\r\ndata: b\r\ndata:  c\r\n\r\n", []string{"a\nb\n c"}, ""},
		{": x\ndata\ndata: a\n\n", []string{"\na"}, ""},
		{"id: 1\ndata: a\n\nid: 2\n\ndata: b\n\nid: 3\ndata: c\n", []string{"a", "b"}, "2"},
		{"id: 1\ndata: a\n\nid\ndata: b\n\n", []string{"a", "b"}, ""},
		{"id: 1\n\nid: a\x00b\n\n", nil, "1"},
		{"event: message\ndata: a\n\nevent: ping\ndata: b\n\nevent:\ndata: c\n\n", []string{"a", "c"}, ""},
		{"other: x\nDATA: y\n\ndata: \n\n", nil, ""},
	} {
		var got []string
		e := newEvents(iotest.OneByteReader(strings.NewReader(x.in)), 100)
		n, err := e.readEvents(func(data []byte) error {
			got = append(got, string(data))
			return nil
		})
		if !errors.Is(err, errCut) || n != len(x.want) || !slices.Equal(got, x.want) || e.last != x.last {
			t.Errorf("%q: %d %q, last %q, %v", x.in, n, got, e.last, err)
		}
	}
	e := newEvents(strings.NewReader("retry: 1700\n\nretry: x\n\n"), 100)
	if _, err := e.readEvents(nil); !errors.Is(err, errCut) || e.retry(3) != 1700*time.Millisecond {
		t.Errorf("retry %v, %v", e.retry(3), err)
	}
	e = newEvents(strings.NewReader("retry: 1\n"), 100)
	if _, err := e.readEvents(nil); !errors.Is(err, errCut) || e.retry(0) != minRetry || e.retry(9) != time.Second {
		t.Errorf("retry %v, %v, %v", e.retry(0), e.retry(9), err)
	}
	e = newEvents(strings.NewReader("retry: 999999999\n"), 100)
	if _, err := e.readEvents(nil); !errors.Is(err, errCut) || e.retry(0) != maxRetry {
		t.Errorf("retry %v, %v", e.retry(0), err)
	}
	e = newEvents(strings.NewReader("data: a\n\ndata: b\nretry: 1700\nid: 2\ndata: c"), 100)
	if _, err := e.readEvents(func([]byte) error { return nil }); !errors.Is(err, errCut) || string(e.rest) != "b\nc" || e.last != "" {
		t.Errorf("the rest %q, last %q, %v", e.rest, e.last, err)
	}
	e = newEvents(nil, 100)
	for n, want := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second} {
		if got := e.retry(n); got != want {
			t.Errorf("retry(%d) = %v, want %v", n, got, want)
		}
	}
}

// FuzzEvents checks that no event is longer than the limit, and that an event has only text
// of the stream.
func FuzzEvents(f *testing.F) {
	for _, s := range []string{
		"data: a\n\n",
		"id: 1\r\ndata:b\r\n\r\n",
		":\n\n\n",
		"data",
		"retry: 1\n\n",
		strings.Repeat("data: x\n", 50) + "\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		const limit = 64
		_, err := newEvents(strings.NewReader(in), limit).readEvents(func(data []byte) error {
			if len(data) > limit || !strings.Contains(in, strings.SplitN(string(data), "\n", 2)[0]) {
				t.Errorf("%q: event %q", in, data)
			}
			return nil
		})
		if !errors.Is(err, errCut) && !errors.Is(err, jsonrpc.ErrTooLong) {
			t.Errorf("%q: %v", in, err)
		}
	})
}
