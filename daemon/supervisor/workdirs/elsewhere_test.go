package workdirs

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/supervisor/finding"
	"holdline/daemon/waiting"
	"holdline/protocol/farwire"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/process"
	"holdline/protocol/programtest"
)

// dirsWith returns directories of which that of the worker "w" has these files.
func dirsWith(t *testing.T, files map[string]string) (d *Dirs, dir string) {
	t.Helper()
	d = New(Options{RuntimeDir: t.TempDir(), StateDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	dir = d.Dir("w")
	if files != nil {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return d, dir
}

// farSpec is the spec of a worker elsewhere that lives for an hour without a daemon.
func farSpec() process.Spec {
	s := process.Spec{
		Version: process.Newest(), ID: "w", Kind: process.KindServer, Name: "w", Argv: []string{"x"}, Socket: "/s",
		Far: &process.Far{Host: "box"}, Orphan: process.Orphan{AfterMS: time.Hour.Milliseconds()},
	}
	s.SetDefaults()
	return s
}

// TestIsOver checks which workers elsewhere a sweep may end: those that this machine knows to be
// over. What cannot be read proves nothing.
func TestIsOver(t *testing.T) {
	spec := string(jsonrpc.Encode(farSpec()))
	for name, c := range map[string]struct {
		files map[string]string
		over  bool
	}{
		"no directory":                {nil, true},
		"a directory without a spec":  {map[string]string{"other": ""}, true},
		"it runs":                     {map[string]string{process.FileSpec: spec}, false},
		"it is dead":                  {map[string]string{process.FileSpec: spec, process.FileState: "{}"}, true},
		"its spec cannot be read yet": {map[string]string{process.FileSpec: "torn"}, false},
	} {
		if d, _ := dirsWith(t, c.files); d.isOver("w") != c.over {
			t.Errorf("%s: isOver = %v", name, !c.over)
		}
	}
}

// TestEndedAlone checks when a worker elsewhere has ended itself for sure: after its window, and a
// margin for its learning that it is alone.
func TestEndedAlone(t *testing.T) {
	spec := farSpec()
	d, dir := dirsWith(t, map[string]string{process.FileSpec: string(jsonrpc.Encode(spec))})
	heard := func(name string, ago time.Duration) {
		t.Helper()
		at := time.Now().Add(-ago)
		if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	heard(process.FileSpec, 61*time.Minute)
	if EndedAlone(dir, &spec) {
		t.Error("it may not have noticed yet that it is alone")
	}
	heard(process.FileSpec, 2*time.Hour)
	if !EndedAlone(dir, &spec) {
		t.Error("it was never heard from, and its window is over")
	}
	d.Contact(dir)
	if EndedAlone(dir, &spec) {
		t.Error("it was heard from just now")
	}
	heard(process.FileContact, 2*time.Hour)
	if !EndedAlone(dir, &spec) {
		t.Error("it was last heard from before its window")
	}
}

// TestAbandon checks that a worker that was given up counts as dead from then on.
func TestAbandon(t *testing.T) {
	d, dir := dirsWith(t, map[string]string{process.FileSpec: string(jsonrpc.Encode(farSpec()))})
	d.o.Environ, d.hosts.Environ = nil, nil
	d.closed = true // no sweep
	at := finding.Far(dir)
	if alive, err := finding.Alive(dir); err != nil || !alive || at == nil || len(d.Far()) != 1 {
		t.Fatalf("a worker elsewhere: %v, %v, at %v", alive, err, at)
	}
	if err := d.At(at).Abandon(dir); err != nil {
		t.Fatal(err)
	}
	if alive, err := finding.Alive(dir); err != nil || alive || len(d.Far()) != 0 {
		t.Errorf("after Abandon: %v, %v", alive, err)
	}
}

// TestOrigin checks that the state directory keeps its name.
func TestOrigin(t *testing.T) {
	d, _ := dirsWith(t, nil)
	one, err := d.origin()
	if err != nil || !process.ValidID(one) {
		t.Fatalf("origin = %q, %v", one, err)
	}
	if again, err := New(d.o).origin(); err != nil || again != one {
		t.Errorf("origin = %q, %v, and was %q", again, err, one)
	}
}

// TestSweepAgain checks that a sweep that is wanted while one is made, which may have passed the
// worker already, is made after that.
func TestSweepAgain(t *testing.T) {
	d, _ := dirsWith(t, nil)
	bin := t.TempDir()
	pipe := filepath.Join(bin, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	hello := farwire.Hello{Version: farwire.Version, Workers: process.Newest(), Node: "n"}
	script := fmt.Sprintf("#!/bin/sh\necho 'holdline-far %s'\nread list\necho >> %[2]s/lists\n"+
		"[ -e %[2]s/first ] || { : > %[2]s/first; read go < %[3]s; }\necho '{}'\n", jsonrpc.Encode(hello), bin, pipe)
	programtest.Write(t, filepath.Join(bin, "ssh"), script)
	d.hosts.Environ = func(context.Context) []string { return []string{"PATH=" + bin + ":/usr/bin:/bin"} }
	d.sweepSoon("box")
	gate, err := os.OpenFile(pipe, os.O_WRONLY, 0) // blocks until the host is asked
	if err != nil {
		t.Fatal(err)
	}
	d.sweepSoon("box")
	if err := gate.Close(); err != nil { // now it answers
		t.Fatal(err)
	}
	if err := waiting.For(t.Context(), &d.wg); err != nil || len(d.sweeping) > 0 {
		t.Errorf("after the sweeps: %v, %v", d.sweeping, err)
	}
	if b, err := os.ReadFile(filepath.Join(bin, "lists")); err != nil || len(b) != 2 {
		t.Errorf("the host was asked %d times, want twice: %v", len(b), err)
	}
	if err := d.CloseHosts(t.Context()); err != nil {
		t.Error(err)
	}
}
