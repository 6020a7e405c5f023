package calls

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// note returns a record of about size bytes.
func note(write, n int64, size int) Record {
	return Record{Write: write, N: n, Kind: KindCall, Name: strings.Repeat("x", size)}
}

// journal opens a journal and returns its records. The test closes it at its end.
func journal(tb testing.TB, path string) (*Journal, []Record) {
	tb.Helper()
	j, records, err := reopen(path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = j.Close() })
	return j, records
}

// wantRecords checks the records of the journal at path: the write of each, and what of says of it. what names both.
func wantRecords(t *testing.T, path, what string, of func(*Record) int64, want string) {
	t.Helper()
	_, records, err := reopen(path)
	var got strings.Builder
	for i := range records {
		fmt.Fprintf(&got, "%d:%d ", records[i].Write, of(&records[i]))
	}
	if err != nil || got.String() != want {
		t.Errorf("%s are %q, %v, want %q", what, got.String(), err, want)
	}
}

// reopen opens a journal and reads its records. Of two records with one id it returns the
// later.
func reopen(path string) (*Journal, []Record, error) {
	j, err := OpenJournal(filepath.Dir(path))
	if err != nil {
		return nil, nil, err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	records, err := ParseRecords(filepath.Dir(path), b)
	return j, latest(records), err
}

// ids returns the write ids of records.
func ids(records []Record) []int64 {
	var all []int64
	for _, r := range records {
		all = append(all, r.Write)
	}
	return all
}

// TestJournalCompacts appends and forgets records until the file was compacted many times.
// The file and the list of forgotten ids stay small, and the records still needed stay.
func TestJournalCompacts(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	j, _ := journal(t, path)
	const each = 1 << 10
	var id int64
	for range 20 * CompactJournal / each { // twenty times the size that makes it compact
		id++
		if err := j.Append(note(id, id, each)); err != nil {
			t.Fatal(err)
		}
		if id != 5 && id != 700 { // these two are needed to the end
			j.Forget(id)
		}
		if len(j.forgotten) > 2*CompactJournal/each {
			t.Fatalf("%d forgotten ids are kept in memory", len(j.forgotten))
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > CompactJournal+2*each {
		t.Errorf("the file has %v bytes, %v; want it compacted", info.Size(), err)
	}
	if j.size != info.Size() {
		t.Errorf("the journal goes by %d bytes, and there are %d", j.size, info.Size())
	}
	_, records := journal(t, path)
	for _, want := range []int64{5, 700, id} {
		if !slices.Contains(ids(records), want) {
			t.Errorf("record %d is gone", want)
		}
	}
	// Ids that are no longer in the file are not added to the list of forgotten ids.
	j.Forget(1, 2, 3, id+1, 0, -1)
	for _, absent := range []int64{1, 2, 3, id + 1, 0, -1} {
		if _, ok := j.forgotten[absent]; ok {
			t.Errorf("forgotten %d is kept, and no record has it", absent)
		}
	}
}

// TestJournalNeededIsNotCopied checks that a journal whose records are all needed is not
// rewritten at every append.
func TestJournalNeededIsNotCopied(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	j, _ := journal(t, path)
	var id int64
	rewritings, last := 0, j.f
	for j.size < 3*CompactJournal {
		id++
		if err := j.Append(note(id, id, 4<<10)); err != nil {
			t.Fatal(err)
		}
		if id%100 == 0 {
			j.Forget(id)
		}
		if j.f != last {
			rewritings, last = rewritings+1, j.f
		}
	}
	if rewritings < 1 || rewritings > 2 {
		t.Errorf("compacted %d times on the way to 3 MiB, want once or twice", rewritings)
	}
}

// TestJournalForgetsHighest checks that the record with the highest write id goes, too,
// once it is forgotten: if it stayed, no line in the file would say that it is done.
func TestJournalForgetsHighest(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	j, _ := journal(t, path)
	for id := int64(1); id <= 3; id++ {
		if err := j.Append(note(id, id, CompactJournal/2)); err != nil {
			t.Fatal(err)
		}
	}
	j.Forget(1, 2, 3)
	if err := j.compactIfDue(4); err != nil {
		t.Fatal(err)
	}
	if _, records := journal(t, path); len(records) > 0 {
		t.Errorf("records %v, want none", ids(records))
	}
	if err := j.Append(note(4, 4, CompactJournal)); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(note(5, 5, 1)); err != nil {
		t.Fatal(err)
	}
	if _, records := journal(t, path); !slices.Equal(ids(records), []int64{4, 5}) {
		t.Errorf("records %v, want 3 gone, which was forgotten long ago", ids(records))
	}
}

// TestJournalVoids checks that a record replaces an earlier one with the same write id, and
// removes all with higher ids: those writes were not made.
func TestJournalVoids(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	j, _ := journal(t, path)
	for id := int64(1); id <= 6; id++ {
		if err := j.Append(note(id, id, 1)); err != nil {
			t.Fatal(err)
		}
	}
	j.Forget(4) // of the write that was not made
	if err := j.Append(note(4, 70, 1)); err != nil {
		t.Fatal(err)
	}
	_, records := journal(t, path)
	if !slices.Equal(ids(records), []int64{1, 2, 3, 4}) || records[3].N != 70 {
		t.Errorf("records %+v, want 1 to 3 and the later 4", records)
	}
	if len(j.forgotten) > 0 {
		t.Errorf("forgotten %v, want nothing: record 4 is another's now", j.forgotten)
	}
}

// TestJournalCannotRewrite checks that a failing rewrite loses no needed record, and that
// the append is made all the same.
func TestJournalCannotRewrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	j, _ := journal(t, path)
	if err := j.Append(note(1, 1, CompactJournal)); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(note(2, 2, 1)); err != nil {
		t.Fatal(err)
	}
	j.Forget(1)
	if err := os.MkdirAll(filepath.Join(path+compacted, "full"), 0o700); err != nil { // in the way of the new file
		t.Fatal(err)
	}
	if err := j.Append(note(3, 3, 1)); err != nil {
		t.Fatalf("Append = %v, want it made", err)
	}
	if err := os.RemoveAll(path + compacted); err != nil {
		t.Fatal(err)
	}
	if _, records := journal(t, path); !slices.Equal(ids(records), []int64{2, 3}) {
		t.Errorf("records %v, want 2 and 3", ids(records))
	}
	if _, ok := j.forgotten[1]; !ok {
		t.Error("what was forgotten is not forgotten any more")
	}
}

// TestJournalCutAnywhere simulates a crash at every byte of a rewrite: it cuts the new file
// before the rename, and the journal itself after it.
func TestJournalCutAnywhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	j, _ := journal(t, path)
	for id := int64(1); id <= 4; id++ {
		if err := j.Append(note(id, id, 10)); err != nil {
			t.Fatal(err)
		}
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.compact(5, map[int64]struct{}{2: {}, 3: {}}); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	crash := func(main, temp []byte, want []int64, lost bool) {
		t.Helper()
		for name, b := range map[string][]byte{path: main, path + compacted: temp} {
			if err := os.WriteFile(name, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		j, records, err := reopen(path)
		if lost {
			if j.Damage() == nil || err == nil {
				t.Fatalf("%d bytes: records %v, want a damaged journal", len(main), ids(records))
			}
			if err := j.Append(note(9, 9, 1)); !errors.Is(err, ErrDamaged) {
				t.Fatalf("Append to a damaged journal = %v", err)
			}
			_ = j.Close()
			return
		}
		if err != nil || !slices.Equal(ids(records), want) {
			t.Fatalf("%d and %d bytes: records %v, %v, want %v", len(main), len(temp), ids(records), err, want)
		}
		defer func() { _ = j.Close() }()
		if _, err := os.Stat(path + compacted); err == nil {
			t.Fatal("the file that never got its name is left")
		}
		// The journal can be used: append one record and rewrite it once more.
		if err := j.Append(note(9, 9, 1)); err != nil {
			t.Fatal(err)
		}
		if err := j.compact(10, nil); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseRecords(filepath.Dir(path), b)
		if want := append(slices.Clone(want), 9); err != nil || !slices.Equal(ids(again), want) {
			t.Fatalf("%d and %d bytes, one more: records %v, %v, want %v", len(main), len(temp), ids(again), err, want)
		}
	}
	for cut := range len(after) + 1 {
		crash(before, after[:cut], []int64{1, 2, 3, 4}, false)
	}
	// The rename is atomic. A file that lacks more than its last newline was damaged, since compaction
	// has kept as many lines as its first one says.
	for cut := range len(after) + 1 {
		if cut <= bytes.IndexByte(after, '\n') {
			continue // a journal to which nothing was written: only the worker knows better
		}
		crash(after[:cut], nil, []int64{1, 4}, cut < len(after)-1)
	}
}

// TestJournalAsAModel makes random appends, crashes and Forgets, and compares the file with
// a model. It must have each record that was neither forgotten nor voided, and none that
// was voided.
func TestJournalAsAModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel() // they wait for the disk
			model(t, rand.New(rand.NewPCG(seed, 1)))
		})
	}
}

// model runs one random sequence.
func model(t *testing.T, r *rand.Rand) {
	t.Helper()
	path := filepath.Join(t.TempDir(), File)
	j, err := OpenJournal(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	const from = 2 << 10
	j.from, j.due = from, from
	defer func() { _ = j.Close() }()
	live := map[int64]int64{}   // n by write id, of records that must be in the file
	surely := map[int64]int64{} // n by write id, of all records appended and not voided
	var next, n int64 = 1, 0
	for range 400 {
		switch r.IntN(10) {
		case 0: // a crash, at times with half a line written
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			if r.IntN(2) == 0 {
				f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = f.WriteString(`{"n":1,"write":`)
				_ = f.Close()
			}
			if j, err = OpenJournal(filepath.Dir(path)); err != nil {
				t.Fatal(err)
			}
			j.from, j.due = from, from
		case 1: // the worker did not take the last writes
			next = max(1, next-int64(r.IntN(3)))
		case 2, 3, 4, 5:
			id := r.Int64N(next + 1)
			if id < next { // id is of a write that was made
				j.Forget(id)
				delete(live, id)
			}
		default:
			n++
			if err := j.Append(note(next, n, r.IntN(from/8))); err != nil {
				t.Fatal(err)
			}
			for id := range surely {
				if id >= next {
					delete(surely, id)
					delete(live, id)
				}
			}
			live[next], surely[next] = n, n
			next++
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	records, err := ParseRecords(filepath.Dir(path), b)
	if err != nil {
		t.Fatal(err)
	}
	stand := map[int64]int64{}
	for _, rec := range records {
		if was, ok := surely[rec.Write]; !ok || was != rec.N {
			t.Errorf("record %d of line %d stands there, want line %d (%v)", rec.Write, rec.N, was, ok)
		}
		stand[rec.Write] = rec.N
	}
	for id, n := range live {
		if stand[id] != n {
			t.Errorf("record %d of line %d is gone", id, n)
		}
	}
	if !slices.IsSorted(ids(records)) {
		t.Errorf("records are not in order: %v", ids(records))
	}
	if low, high := j.rangeLocked(); high != 0 && len(j.forgotten) > int(high-low+1) {
		t.Errorf("%d forgotten ids, and the file has %d to %d", len(j.forgotten), low, high)
	}
}

// FuzzParseRecords damages a journal in one place. What is read must be what was written, or the
// journal must be damaged.
func FuzzParseRecords(f *testing.F) {
	dir := f.TempDir()
	j, _ := journal(f, filepath.Join(dir, File))
	for id := int64(1); id <= 5; id++ {
		if err := j.Append(note(id, id, 10)); err != nil {
			f.Fatal(err)
		}
		j.Forget(id / 2)
	}
	good, err := os.ReadFile(filepath.Join(dir, File))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint(0), uint(1), []byte{})
	f.Add(uint(70), uint(30), []byte("\n"))
	f.Add(uint(100), uint(1), []byte{0xff})
	want, err := ParseRecords(dir, good)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, at, cut uint, put []byte) {
		from := int(at) % len(good)
		to := min(from+int(cut%256), len(good))
		b := slices.Concat(good[:from], put, good[to:])
		got, err := ParseRecords(dir, b)
		if err != nil {
			return
		}
		have := map[int64]int64{}
		for _, r := range want {
			have[r.Write] = r.N
		}
		for _, r := range got {
			if n, ok := have[r.Write]; ok && n != r.N {
				t.Fatalf("record %d is that of line %d, want %d", r.Write, r.N, n)
			}
		}
		// What is lost at the end of the file only the worker knows.
		if c := parse(filepath.Base(dir), b); c.last == 5 && len(got) != len(want) {
			t.Fatalf("%d records, want %d: %q", len(got), len(want), b)
		}
	})
}

// TestDone checks that a record names the ones forgotten before it, so that they are not
// read again, also after a rewrite.
func TestDone(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	open := func() (*Journal, []int64) {
		t.Helper()
		j, records, err := reopen(path)
		if err != nil {
			t.Fatal(err)
		}
		var ids []int64
		for _, r := range records {
			if r.Done != nil {
				t.Errorf("record %d says that %v are done", r.Write, r.Done)
			}
			ids = append(ids, r.Write)
		}
		return j, ids
	}
	j, _ := open()
	for id := int64(1); id <= 5; id++ {
		if err := j.Append(Record{Write: id, Kind: KindCall}); err != nil {
			t.Fatal(err)
		}
		if id == 3 {
			j.Forget(1, 2)
		}
	}
	j.Forget(4) // no later record can say so before Close
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j, ids := open()
	if !slices.Equal(ids, []int64{3, 4, 5}) {
		t.Errorf("records %v, want 3, 4 and 5", ids)
	}
	// The record that says that 1 and 2 are done is removed; they stay done.
	j.Forget(4)
	j.from, j.due = 1, 1
	if err := j.Append(Record{Write: 6, Kind: KindCall}); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(Record{Write: 7, Kind: KindCall}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j, ids = open()
	if !slices.Equal(ids, []int64{3, 5, 6, 7}) {
		t.Errorf("records %v, want 3, 5, 6 and 7", ids)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}
