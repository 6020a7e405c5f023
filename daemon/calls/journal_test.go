package calls

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"syscall"
	"testing"
)

// TestJournal checks that a record is read again as it was appended, and that half a line
// at the end of the file does no harm.
func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	j, got, err := reopen(path)
	if err != nil || len(got) != 0 {
		t.Fatalf("OpenJournal of nothing = %v, %v", got, err)
	}
	for w := range int64(3) {
		if err := j.Append(Record{N: w, Write: w + 1, Kind: KindCall, ID: []byte(`"a"`)}); err != nil {
			t.Fatal(err)
		}
	}
	_ = j.Close()
	// A crash in the middle of an append leaves half a line, which was never sent. The next
	// append must not continue that line.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString(`{"n":99,"wri`)
	_ = f.Close()
	j, got, err = reopen(path)
	if err != nil || len(got) != 3 || got[2].Write != 3 {
		t.Fatalf("OpenJournal with a torn line = %v, %v, want three records", got, err)
	}
	if err := j.Append(Record{N: 7, Write: 4}); err != nil {
		t.Fatal(err)
	}
	_ = j.Close()
	b, _ := os.ReadFile(path)
	got, err = ParseRecords(filepath.Dir(path), b)
	if err != nil || len(got) != 4 || got[3].N != 7 {
		t.Errorf("after all: %v, %v, want four records", got, err)
	}
}

// fullDisk writes half of what it is given, and then fails.
type fullDisk struct {
	content  []byte
	truncate error
}

func (d *fullDisk) WriteAt(b []byte, off int64) (int, error) {
	d.content = append(d.content[:off], b[:len(b)/2]...)
	return len(b) / 2, syscall.ENOSPC
}

func (d *fullDisk) ReadAt(b []byte, off int64) (int, error) {
	return copy(b, d.content[off:]), nil
}

func (d *fullDisk) Truncate(size int64) error {
	if d.truncate == nil {
		d.content = d.content[:size]
	}
	return d.truncate
}
func (d *fullDisk) Close() error { return nil }

// TestJournalShortWrite checks that an append that was written only in part fails and is
// cut off, and that a journal whose end cannot be cut off refuses all later appends.
func TestJournalShortWrite(t *testing.T) {
	d := &fullDisk{content: []byte("{}\n")}
	j := &Journal{f: d, size: 3}
	if err := j.Append(Record{N: 1}); !errors.Is(err, ErrJournal) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Append = %v, want ErrJournal and ENOSPC", err)
	}
	if string(d.content) != "{}\n" {
		t.Errorf("file is %q, want the half line cut off", d.content)
	}
	d.truncate = syscall.EIO
	_ = j.Append(Record{N: 1})
	d.truncate = nil
	if err := j.Append(Record{N: 1}); !errors.Is(err, ErrJournal) || j.bad == nil {
		t.Errorf("Append behind a half line = %v, want it refused for good", err)
	}
}

// TestRecordLine checks that a record is read from its line as it was written, with all its
// fields: the line is encoded by hand.
func TestRecordLine(t *testing.T) {
	r := Record{
		N: 1, Session: "s", ID: json.RawMessage(`"a"`), Kind: KindCall, Name: "n", Write: 2, Contract: "c",
		DeadlineBootMS: 3, Identity: "i", ProxyPID: 4, ProxyStart: math.MaxUint64, Round: 5, Call: 6,
		Detached: true, FileSize: 9, FileSum: math.MaxUint32, Done: []int64{7, 8},
	}
	for v, i := reflect.ValueOf(r), 0; i < v.NumField(); i++ {
		if v.Field(i).IsZero() && !slices.Contains([]string{"Doubtful", "Changed"}, v.Type().Field(i).Name) {
			t.Errorf("the test leaves out %s", v.Type().Field(i).Name)
		}
	}
	b, err := r.line(nil)
	if err != nil {
		t.Fatal(err)
	}
	var got Record
	if err := json.Unmarshal(seal(b, 0, "d", 1), &got); err != nil || !reflect.DeepEqual(got, r) {
		t.Errorf("got %+v, %v, want %+v", got, err, r)
	}
}

// TestJournalOfVoidRecords opens a file in which a record has voided another one of the same write
// id: what was said of the void one must not become what is said of the later one.
func TestJournalOfVoidRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	dir := filepath.Dir(path)
	text := header(nil, filepath.Base(dir), 0, 1)
	for i, r := range []Record{
		{Kind: KindCall, Write: 1, N: 1, Session: "s"},
		{Kind: KindDeadline, Call: 1, DeadlineBootMS: 11},
		{Kind: KindCall, Write: 2, N: 2, Session: "s"},
		{Kind: KindDetach, Call: 2, Session: "s", N: 7},
		{Kind: KindDeadline, Call: 2, DeadlineBootMS: 22},
		{Kind: KindCall, Write: 2, N: 3, Session: "s"},
	} {
		from := len(text)
		var err error
		if text, err = r.line(text); err != nil {
			t.Fatal(err)
		}
		text = seal(text, from, filepath.Base(dir), int64(i)+1)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := OpenJournal(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	if err := j.compact(3, nil); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := Load(dir, true)
	if err != nil || got.Damage != nil {
		t.Fatal(err, got.Damage)
	}
	calls := slices.DeleteFunc(got.Records, func(r Record) bool { return r.Kind != KindCall })
	if len(calls) != 2 || calls[0].DeadlineBootMS != 11 || calls[1].N != 3 || calls[1].Detached ||
		calls[1].DeadlineBootMS != 0 {
		t.Errorf("the calls are %+v", calls)
	}
}

// TestChanged checks that the place of the last change stands with its subscription, also behind a
// compaction, which many changes without a record between come to by themselves, and that a record
// with the same write voids it.
func TestChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	j, _, err := reopen(path)
	if err != nil {
		t.Fatal(err)
	}
	j.from, j.due = 1<<10, 1<<10
	put := func(kind string, write int64) {
		t.Helper()
		if err := j.Append(Record{Kind: kind, Write: write, Name: "u"}); err != nil {
			t.Fatal(err)
		}
	}
	change := func(write, place int64) {
		t.Helper()
		if err := j.Changed(write, place); err != nil {
			t.Fatal(err)
		}
	}
	want := func(when, want string) {
		t.Helper()
		wantRecords(t, path, when+": write and change", func(r *Record) int64 { return r.Changed }, want)
	}
	put(KindSubscribe, 1)
	put(KindListen, 2)
	put(KindCall, 3)
	want("no change", "1:0 2:0 3:0 ")
	change(2, 5)
	for place := range int64(100) {
		change(1, 100+place)
	}
	want("changed often", "1:199 2:5 3:0 ")
	if j.size > 4<<10 {
		t.Errorf("the file has %d bytes", j.size)
	}
	put(KindListen, 2) // the earlier write 2 was not taken
	want("its write id given out again", "1:199 2:0 ")
}
