package workdirs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"holdline/protocol/farwire"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/process"
	"holdline/protocol/programtest"
)

// hostThatSays returns directories whose host box is a script: it says that the spool of a worker that
// it ends has size bytes, and sends sent of them.
func hostThatSays(t *testing.T, size, sent int64) *Dirs {
	t.Helper()
	bin := t.TempDir()
	hello := farwire.Hello{Version: farwire.Version, Workers: process.Newest(), Node: "n", Program: "1.2.3"}
	programtest.Write(t, filepath.Join(bin, "ssh"), fmt.Sprintf(`#!/bin/sh
echo 'holdline-far %s'
while read -r request; do
	case $request in
	*'"end"'*) echo '{"spool":%d}'; head -c %d /dev/zero ;;
	*) echo '{}' ;;
	esac
done
`, jsonrpc.Encode(hello), size, sent))
	d := New(Options{
		RuntimeDir: t.TempDir(), StateDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Environ: func(context.Context) []string { return []string{"PATH=" + bin + ":/usr/bin:/bin"} },
	})
	t.Cleanup(func() {
		if err := d.CloseHosts(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return d
}

// putFar makes the directory of a worker on a host, with a spool of so many bytes, none of which take room.
func putFar(t *testing.T, d *Dirs, id, host string, spool int64) (dir string) {
	t.Helper()
	dir, spec := d.Dir(id), farSpec()
	spec.ID, spec.Far = id, &process.Far{Host: host}
	spec.Seal()
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, process.FileSpec), jsonrpc.Encode(spec), 0o600)
	}
	if path := filepath.Join(dir, process.FileSpool); err == nil && spool > 0 {
		if err = os.WriteFile(path, nil, 0o600); err == nil {
			err = os.Truncate(path, spool)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestHostNamesASpoolOfAnySize_NothingOfItIsWritten checks that a spool that no worker can have made counts
// as lost, and that one of a size that may be is fetched.
func TestHostNamesASpoolOfAnySize_NothingOfItIsWritten(t *testing.T) {
	for _, c := range []struct{ size, sent, want int64 }{
		{1 << 50, 1 << 30, -1}, {1 << 29, 1 << 29, -1}, {5000, 5000, 5000}, {0, 0, -1}, {-1, 100, -1},
	} {
		d := hostThatSays(t, c.size, c.sent)
		dir := putFar(t, d, "w", "box", 0)
		if err := d.At(&process.Far{Host: "box"}).destroy(t.Context(), dir); err != nil {
			t.Errorf("a spool of %d bytes: %v", c.size, err)
		}
		got := int64(-1)
		if info, err := os.Stat(filepath.Join(dir, process.FileSpool)); err == nil {
			got = info.Size()
		}
		if got != c.want {
			t.Errorf("a spool of %d bytes: %d are here, want %d", c.size, got, c.want)
		}
		if _, err := process.ReadState(dir); err != nil {
			t.Errorf("a spool of %d bytes: the worker does not count as dead: %v", c.size, err)
		}
	}
}

// TestSpoolsOfHostsFillUp_NextOneWaits checks that the spools of one host, and those of all, take no more
// room than they may, that another host has room beside one that uses all of its own, and that there is
// room again once one has been read.
func TestSpoolsOfHostsFillUp_NextOneWaits(t *testing.T) {
	d := hostThatSays(t, 5000, 5000)
	dir := putFar(t, d, "w", "box", 0)
	full := putFar(t, d, "a", "box", maxSpoolsOfHost-4999)
	end := func(host string) error { return d.At(&process.Far{Host: host}).destroy(t.Context(), dir) }
	if err := end("box"); !errors.Is(err, errSpoolsFull) {
		t.Errorf("a spool of a host that has used its room: %v", err)
	}
	if _, err := process.ReadState(dir); err == nil {
		t.Error("a worker whose spool has no room counts as dead")
	}
	if err := end("other"); err != nil {
		t.Errorf("a spool of another host: %v", err)
	}
	putFar(t, d, "b", "other", maxSpools-maxSpoolsOfHost)
	if err := end("third"); !errors.Is(err, errSpoolsFull) {
		t.Errorf("a spool when there is no room for any: %v", err)
	}
	if err := os.Remove(filepath.Join(full, process.FileSpool)); err != nil {
		t.Fatal(err)
	}
	if err := end("box"); err != nil {
		t.Errorf("a spool once another one was read: %v", err)
	}
	if d.fetching["w"].size != 0 || len(d.fetching) != 0 {
		t.Errorf("these are still being fetched: %v", d.fetching)
	}
}
