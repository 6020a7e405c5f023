package supervisor_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/supervisor"
	"holdline/daemon/supervisor/finding"
)

// recorded returns the write ids of a worker's records that are not void.
func recorded(t *testing.T, w *supervisor.Worker) []int64 {
	t.Helper()
	var ids []int64
	for _, r := range records(t, w) {
		ids = append(ids, r.Write)
	}
	return ids
}

// records returns a worker's records that are not void, by write id. Of two with one id the
// later counts.
func records(t *testing.T, w *supervisor.Worker) []calls.Record {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(w.Dir(), calls.File))
	if err != nil {
		t.Fatal(err)
	}
	all, err := calls.ParseRecords(w.Dir(), b)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(all)
	slices.SortStableFunc(all, func(a, b calls.Record) int { return cmp.Compare(a.Write, b.Write) })
	all = slices.CompactFunc(all, func(a, b calls.Record) bool { return a.Write == b.Write })
	return slices.DeleteFunc(all, func(r calls.Record) bool { return r.Write > w.LastWrite() })
}

// told writes n lines to a child, and returns their write ids, which are on record.
func told(t *testing.T, w *supervisor.Worker, n int, name string) []int64 {
	t.Helper()
	var ids []int64
	for i := range n {
		id, err := w.Write(t.Context(), calls.Record{N: int64(i + 1), Kind: calls.KindCall, Name: name},
			fmt.Appendf(nil, "%d\n", i))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// TestWritesWithoutRecord checks that a daemon that clients no longer reach neither records nor
// makes writes, which are joined, and that their ids are given out again.
func TestWritesWithoutRecord(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	var still atomic.Bool
	h.still = still.Load
	w := h.start(h.daemon(), shell("still", `cat`))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			_, err := w.Write(t.Context(), calls.Record{N: 1, Kind: calls.KindCall}, []byte("no\n"))
			if !supervisor.NotDispatched(err) || !supervisor.Disowned(err) {
				t.Errorf("without a record: %v, want a write that was not dispatched", err)
			}
		})
	}
	all.Wait()
	if got := recorded(t, w); len(got) > 0 || w.LastWrite() != 0 {
		t.Errorf("records %v, last write %d, want none", got, w.LastWrite())
	}
	still.Store(true)
	if got := told(t, w, 3, "x"); !slices.Equal(got, []int64{1, 2, 3}) {
		t.Errorf("the next writes are %v", got)
	}
	if got := follow(t, w, true, lines(3)).stdout.String(); got != "0\n1\n2\n" {
		t.Errorf("the child was told %q", got)
	}
}

// TestRecordsOfAnEarlierDaemon checks that records of writes that the worker did not take
// are void, and that the next write uses their ids.
func TestRecordsOfAnEarlierDaemon(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	first := h.daemon()
	w := h.start(first, shell("records", `while read a; do :; done`))
	told(t, w, 4, "x")
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The first daemon recorded two more writes that the worker never took, one of them
	// twice, and was killed while it wrote a line.
	record(t, w.Dir(), calls.Record{N: 8, Write: 5}, calls.Record{N: 9, Write: 5}, calls.Record{N: 10, Write: 6})
	f, err := os.OpenFile(filepath.Join(w.Dir(), calls.File), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, `{"n":11,"wr`)
	f.Close()

	second := h.daemon()
	w, err = second.Attach(t.Context(), h.path("records"))
	if err != nil {
		t.Fatal(err)
	}
	if got := recorded(t, w); !slices.Equal(got, []int64{1, 2, 3, 4}) {
		t.Errorf("records %v, want the four that were taken", got)
	}
	if err := w.Forget(2, 3); err != nil {
		t.Fatal(err)
	}
	// The next write has the id of one that was not made.
	if got := told(t, w, 1, "y"); !slices.Equal(got, []int64{5}) {
		t.Errorf("next write is %v, want 5", got)
	}
	if err := second.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	w, err = h.daemon().Attach(t.Context(), h.path("records"))
	if err != nil {
		t.Fatal(err)
	}
	last := records(t, w)
	if n := len(last); n != 3 || last[n-1].Write != 5 || last[n-1].Name != "y" || last[n-1].N != 1 {
		t.Errorf("records %+v, want 1, 4 and 5, the last of them the later one", last)
	}
	if _, err := w.Terminate(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

// record appends records to the journal of a worker's directory.
func record(t *testing.T, dir string, records ...calls.Record) {
	t.Helper()
	j, err := calls.OpenJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for _, r := range records {
		if err := j.Append(r); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRecordsOfAWorkerThatLeft checks that a worker that exited in order has saved its last
// write, so that a record above it is void although the worker cannot be asked.
func TestRecordsOfAWorkerThatLeft(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	first := h.daemon()
	w := h.start(first, consult("spooled", untilAlone(h.path("spooled")), time.Second))
	told(t, w, 2, "x")
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "the worker to leave", func() bool {
		alive, err := finding.Alive(w.Dir())
		return err == nil && !alive
	})
	record(t, w.Dir(), calls.Record{N: 8, Write: 3})
	w, err := h.daemon().Attach(t.Context(), w.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if got := recorded(t, w); !slices.Equal(got, []int64{1, 2}) || w.LastWrite() != 2 {
		t.Errorf("records %v, last write %d; want two", got, w.LastWrite())
	}
	follow(t, w, true, nil)
	wait(t, "the end", w.Done())
}

// TestForgottenRecordsGo checks that forgotten records are removed from the file, and that
// the others reach the next daemon.
func TestForgottenRecordsGo(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	s := h.daemon()
	w := h.start(s, shell("forget", `while read a; do :; done`))
	path := filepath.Join(w.Dir(), calls.File)
	name := strings.Repeat("x", calls.CompactJournal/8)
	kept := told(t, w, 1, "kept")
	for range 4 {
		if err := w.Forget(told(t, w, 5, name)...); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > calls.CompactJournal*3/2 {
		t.Fatalf("calls.jsonl has %d bytes, %v; 2.5 MiB were written", info.Size(), err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	w, err = h.daemon().Attach(t.Context(), w.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if got := recorded(t, w); !slices.Equal(got, kept) {
		t.Errorf("records %v, want %v, which is needed", got, kept)
	}
	if got := told(t, w, 1, "y"); got[0] != 22 {
		t.Errorf("next write is %v, want 22", got)
	}
	if _, err := w.Terminate(t.Context(), 0); err != nil {
		t.Error(err)
	}
}
