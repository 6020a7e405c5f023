package messages_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"holdline/daemon/adapter/engine/messages"
	"holdline/protocol/bulk"
)

func add(t *testing.T, dir, id string) {
	t.Helper()
	if err := messages.Add(dir, messages.Message{ID: id, Text: "text of " + id}); err != nil {
		t.Fatal(err)
	}
}

// TestSameMessageIsAddedOnce checks that a call that is made again adds nothing, and that a line
// which a dead daemon has half written spoils no other.
func TestSameMessageIsAddedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	add(t, dir, "a")
	add(t, dir, "a")
	f, err := os.OpenFile(filepath.Join(dir, messages.File), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(`{"id":"b","text":"te`)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	add(t, dir, "b")
	list, err := messages.Read(dir, 0)
	if err != nil || len(list) != 2 || list[0].ID != "a" || list[1].Text != "text of b" {
		t.Errorf("messages %v, %v", list, err)
	}
}

// TestMessageIsTakenOrLate checks that of messages which are added while the run closes its file
// each is in the file or was refused as late, never both and never neither.
func TestMessageIsTakenOrLate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var work sync.WaitGroup
	late := make([]bool, messages.MaxCount)
	for i := range late {
		work.Go(func() {
			err := messages.Add(dir, messages.Message{ID: fmt.Sprint(i), Text: "x"})
			if late[i] = errors.Is(err, messages.ErrLate); err != nil && !late[i] {
				t.Error(err)
			}
		})
	}
	known := map[string]bool{}
	for closed := false; !closed; {
		more, err := messages.Close(dir, len(known))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range more {
			known[m.ID] = true
		}
		closed = len(more) == 0
	}
	work.Wait()
	for i := range late {
		if late[i] == known[fmt.Sprint(i)] {
			t.Errorf("message %d: late %v, known to the run %v", i, late[i], !late[i])
		}
	}
	if err := messages.Add(dir, messages.Message{ID: "x"}); !errors.Is(err, messages.ErrLate) {
		t.Errorf("adding to a closed file: %v", err)
	}
}

// TestMessagesAreBounded checks that a consult gets no more messages than it may.
func TestMessagesAreBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range messages.MaxCount {
		add(t, dir, fmt.Sprint(i))
	}
	if err := messages.Add(dir, messages.Message{ID: "x"}); !errors.Is(err, messages.ErrFull) {
		t.Errorf("one more: %v", err)
	}
}

// TestMessageWithoutLineEnd checks that a line of which no more than its end is missing, since a
// daemon died while it wrote, counts: the same message is not added again, and the file is closed.
func TestMessageWithoutLineEnd(t *testing.T) {
	t.Parallel()
	for line, closed := range map[string]bool{`{"id":"a","text":"x","at":1}`: false, `{"at":1,"closed":true}`: true} {
		dir := t.TempDir()
		sealed := bulk.Seal(filepath.Base(dir)+"/"+messages.File, []byte(line))
		if err := os.WriteFile(filepath.Join(dir, messages.File), sealed, 0o600); err != nil {
			t.Fatal(err)
		}
		err := messages.Add(dir, messages.Message{ID: "a", Text: "x"})
		if late := errors.Is(err, messages.ErrLate); late != closed || err != nil && !late {
			t.Errorf("adding behind %s: %v", line, err)
		}
		if !closed {
			add(t, dir, "b")
		}
		want := 2
		if closed {
			want = 0
		}
		if list, err := messages.Read(dir, 0); err != nil || len(list) != want {
			t.Errorf("behind %s: %v, %v", line, list, err)
		}
	}
}

// TestFileOfMessagesDamaged_NothingFalseIsSaid checks that neither a message with a wrong letter nor the line of
// another file is taken for one that was said.
func TestFileOfMessagesDamaged_NothingFalseIsSaid(t *testing.T) {
	t.Parallel()
	dir, other := t.TempDir(), t.TempDir()
	for _, id := range []string{"a", "b", "c"} {
		add(t, dir, id)
		add(t, other, id)
	}
	path := filepath.Join(dir, messages.File)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		string(b): "text of a, text of b, text of c",
		strings.Replace(string(b), "text of b", "text of d", 1): "text of a, text of c",
		`{"consult_id":"x","state":"done"}` + "\n":              "",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := messages.Read(dir, 0)
		var said []string
		for _, m := range list {
			said = append(said, m.Text)
		}
		if got := strings.Join(said, ", "); err != nil || got != want {
			t.Errorf("said is %q, %v, want %q", got, err, want)
		}
	}
	if err := os.Rename(filepath.Join(other, messages.File), path); err != nil {
		t.Fatal(err)
	}
	if list, err := messages.Read(dir, 0); err != nil || len(list) != 0 {
		t.Errorf("of another consult: %+v, %v", list, err)
	}
}

// TestLockHeldByAnotherProgram_ReadAndRefusedSoon checks that messages can be read while another program
// holds the lock of their file, and that one is refused then, soon and with the file's name.
func TestLockHeldByAnotherProgram_ReadAndRefusedSoon(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	add(t, dir, "a")
	path := filepath.Join(dir, messages.File)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		if list, err := messages.Read(dir, 0); err != nil || len(list) != 1 {
			t.Errorf("Read = %v, %v", list, err)
		}
		begin := time.Now()
		err := messages.Add(dir, messages.Message{ID: "b"})
		if err == nil || !strings.Contains(err.Error(), path) || time.Since(begin) > 10*time.Second {
			t.Errorf("Add, after %v: %v", time.Since(begin), err)
		}
	})
}
