package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"holdline/daemon/adapter/remote"
)

// runRemote is the hidden command that a worker runs for a server that is
// reached by an address: it is that server for whoever holds its pipes. Which
// one, the environment says.
func runRemote(w *world) int {
	target, err := remote.ParseTarget(w.getenv(remote.EnvTarget))
	if err != nil {
		fmt.Fprintf(w.stderr, "holdline: remote: %v\n", err)
		return exitUsage
	}
	in, ok := w.stdin.(io.ReadCloser)
	if !ok {
		in = io.NopCloser(w.stdin)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(logHandler(w, w.stderr, new(slog.LevelVar)))
	err = remote.Serve(ctx, in, w.stdout, log, remote.Options{Name: target.Name, URL: target.URL, Headers: target.Headers, Version: version})
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(w.stderr, "holdline: remote: %v\n", err)
		return exitFailure
	}
	return exitOK
}
