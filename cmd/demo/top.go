package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/creack/pty"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sync/errgroup"
)

// Size of the terminal that shows holdline top, in characters.
const (
	topColumns = 96
	topLines   = 24
)

// watched are the agents of the recording of holdline top: the client and its project.
var watched = []struct{ client, version, project string }{
	{"claude-code", "2.1.329", "shop"},
	{"codex", "0.99.0", "blog"},
	{"cursor", "1.9.2", "wiki"},
}

// watchedServers are the servers of that recording. Each is the counter under another name.
var watchedServers = []string{"everything", "files", "memory", "thinking"}

// recordTop runs agents that call shared servers, kills one of the servers, and copies what
// holdline top sends to its terminal to stdout. It takes a minute.
func (d *demo) recordTop(ctx context.Context) error {
	var members errgroup.Group
	var sessions []*mcp.ClientSession
	load, end := context.WithCancel(ctx)
	defer func() {
		end() // the agents end with load
		_ = members.Wait()
		for _, s := range sessions {
			_ = s.Close()
		}
	}()
	for _, w := range watched {
		dir := filepath.Join(d.dir, "home", "src", w.project)
		if err := os.MkdirAll(filepath.Join(dir, ".git"), 0o700); err != nil {
			return err
		}
		client := mcp.NewClient(&mcp.Implementation{Name: w.client, Version: w.version}, nil)
		cmd := d.command(ctx, "mcp-stdio", "--no-autostart")
		// Each agent has a process of its own, by which holdline knows it.
		cmd.Path, cmd.Args = "/bin/sh", slices.Concat([]string{"sh", "-c", `"$0" "$@"; exit $?`}, cmd.Args)
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		session, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
		if err != nil {
			return fmt.Errorf("agent %s: %w", w.client, err)
		}
		sessions = append(sessions, session)
		members.Go(func() error { return callAtRandom(load, session) })
	}
	shown, err := d.watchTop(load, func() error {
		s, err := d.status(ctx)
		if err != nil {
			return err
		}
		for _, w := range s.Workers {
			if w.Name == "memory" {
				return syscall.Kill(w.ChildPID, syscall.SIGKILL)
			}
		}
		return errors.New("the server memory does not run")
	})
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(shown)
	return err
}

// callAtRandom calls the servers one after the other, with pauses, until ctx ends.
func callAtRandom(ctx context.Context, session *mcp.ClientSession) error {
	for ctx.Err() == nil {
		name := watchedServers[rand.IntN(len(watchedServers))] + "__count"
		if _, err := session.CallTool(ctx, &mcp.CallToolParams{Name: name}); err != nil && ctx.Err() == nil {
			return err
		}
		wait := time.NewTimer(time.Duration(rand.ExpFloat64() * float64(250*time.Millisecond)))
		select {
		case <-wait.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// watchTop runs holdline top in a terminal for 45 s, calls kill after 35 s, asks a consult after
// that, and returns all that the terminal gets.
func (d *demo) watchTop(ctx context.Context, kill func() error) ([]byte, error) {
	watch, cancel := context.WithTimeout(ctx, 45*time.Second)
	defer cancel()
	top := d.command(ctx, "top")
	top.Env = append(top.Env, "TERM=xterm-256color", "COLORTERM=truecolor")
	terminal, err := pty.StartWithSize(top, &pty.Winsize{Rows: topLines, Cols: topColumns})
	if err != nil {
		return nil, err
	}
	defer terminal.Close()
	var shown bytes.Buffer
	var copied errgroup.Group
	copied.Go(func() error {
		_, err := io.Copy(&shown, terminal)
		if errors.Is(err, syscall.EIO) { // so ends the terminal of a program that has ended
			return nil
		}
		return err
	})
	select {
	case <-time.After(35 * time.Second):
	case <-watch.Done():
	}
	err = kill()
	asked := d.command(ctx, "consult", prompts["alpha"])
	err = errors.Join(err, asked.Start())
	<-watch.Done()
	// A screen that is cleared at the end shows nothing, so the program is killed.
	err = errors.Join(err, top.Process.Kill())
	_ = top.Wait()
	err = errors.Join(err, copied.Wait(), asked.Process.Kill())
	_ = asked.Wait()
	return shown.Bytes(), err
}
