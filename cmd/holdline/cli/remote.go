package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/daemoncmd"
	"holdline/daemon/adapter/remote"
)

// runRemote is the hidden command that a worker runs for a server that is
// reached by an address: it is that server for whoever holds its pipes. Which
// one, the environment says.
func runRemote(proc *cmdenv.Process) int {
	target, err := remote.ParseTarget(proc.Getenv(remote.EnvTarget))
	if err != nil {
		fmt.Fprintf(proc.Stderr, "holdline: remote: %v\n", err)
		return cmdenv.ExitUsage
	}
	in, ok := proc.Stdin.(io.ReadCloser)
	if !ok {
		in = io.NopCloser(proc.Stdin)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(daemoncmd.LogHandler(proc, proc.Stderr, new(slog.LevelVar)))
	err = remote.Serve(ctx, in, proc.Stdout, log, remote.Options{Name: target.Name, URL: target.URL, Headers: target.Headers, Version: cmdenv.Version})
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(proc.Stderr, "holdline: remote: %v\n", err)
		return cmdenv.ExitFailure
	}
	return cmdenv.ExitOK
}
