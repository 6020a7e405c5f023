package consult

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/consult/answer"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/tool"
	"holdline/protocol/bootclock"
	"holdline/protocol/bulk"
	"holdline/protocol/fault"
	"holdline/protocol/process"
)

// filesIn returns the content of all files below dir, by path.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		files[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestUnknownVersion checks that a directory with a file of a version that this program does
// not know is refused with the path of that file, and is kept as it is, although a client asks
// for its consult again. Consults beside it are served.
func TestUnknownVersion(t *testing.T) {
	var log bytes.Buffer // a handler writes one line at a time, and the test reads it at the end
	w := newWorld(t, answers(0), func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	ask := func(n int64) (tool.Result, error) {
		return w.call(t.Context(), "consult", tool.Call{Caller: w.caller("a"), N: n}, map[string]any{"prompt": "x"})
	}
	if res, err := ask(1); err != nil || !strings.HasPrefix(res.Text, "x\n") {
		t.Fatalf("%v, %q", err, res.Text)
	}
	w.finish()

	const job = `{"version":1,"consult_id":"%s","identity":"a"}`
	const other = `{"version":99,"id":"%[1]s","consult_id":"%[1]s"}`
	dirs := map[string]string{}
	for n, files := range []map[string]string{
		{jobdir.FileJob: other},
		{jobdir.FileJob: other, jobdir.FileAnswer: `{"version":1,"consult_id":"%s","state":"done"}`},
		{jobdir.FileJob: job, jobdir.FileAnswer: other},
		{jobdir.FileJob: job, process.FileState: `{}`, engine.FileOutcome: other},
		{jobdir.FileJob: job, process.FileState: `{}`, process.FileSpec: other},
	} {
		id := jobdir.ID("hash-a", int64(n)+10)
		dir := filepath.Join(w.dir, id)
		if err := os.MkdirAll(filepath.Join(dir, jobdir.DirTemp), 0o700); err != nil {
			t.Fatal(err)
		}
		for name, text := range files {
			if strings.Contains(text, "%") {
				text = fmt.Sprintf(text, id)
			}
			if name != process.FileState && name != process.FileSpec {
				text = string(bulk.Seal(engine.SealName(dir, name), []byte(text)))
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(text, "99") {
				dirs[dir] = filepath.Join(dir, name)
			}
		}
	}
	queued := jobdir.Record{
		Version: jobdir.Version, ID: jobdir.ID("hash-a", 2), Session: "hash-a", N: 2, Identity: "a", Engine: Claude,
		CreatedUnixMS: time.Now().UnixMilli(), TimeoutMS: time.Minute.Milliseconds(), BootID: bootclock.ID(),
		Request: engine.Request{Prompt: "x", Cwd: w.project, Level: engine.LevelRead},
	}
	dir := filepath.Join(w.dir, queued.ID)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := queued.Write(dir); err != nil {
		t.Fatal(err)
	}
	before := map[string]string{}
	for dir := range dirs {
		maps.Copy(before, filesIn(t, dir))
	}

	for range 2 { // two daemons, one after the other
		next, err := New(w.opt)
		if err != nil {
			t.Fatal(err)
		}
		w.Manager = next
		for n := range int64(2) {
			a, err := w.Wait(t.Context(), jobdir.ID("hash-a", n+1), nil)
			if err != nil || a.State != answer.Done || a.Text != "x" {
				t.Errorf("a good consult beside the others: %v, %+v", err, a)
			}
		}
		if n := len(w.List(nil)); n != 2 {
			t.Errorf("%d consults are listed, want 2", n)
		}
		for n := range int64(len(dirs)) {
			if res, err := ask(n + 10); code(res, err) != fault.OutcomeUnknown {
				t.Errorf("line %d again: %v, %+v", n+10, err, res)
			}
		}
		if _, unread := w.BadFiles(0); len(unread) != len(dirs) {
			t.Errorf("unread are %q, want %d directories", unread, len(dirs))
		}
		w.finish()
		text := log.String()
		log.Reset()
		for dir, file := range dirs {
			if !strings.Contains(text, file+" is of a version that this program does not know: ") {
				t.Errorf("the log does not name %s:\n%s", file, text)
			}
			if !strings.Contains(text, "rm -r "+dir) {
				t.Errorf("the log does not say how to remove %s", dir)
			}
		}
	}
	after := map[string]string{}
	for dir := range dirs {
		maps.Copy(after, filesIn(t, dir))
		if _, err := os.Stat(filepath.Join(dir, jobdir.DirTemp)); err != nil {
			t.Errorf("the temporary directory: %v", err)
		}
	}
	if !maps.Equal(before, after) {
		t.Errorf("the directories were\n%q\nand are\n%q", before, after)
	}
}
