package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/doctor"
	"holdline/daemon"
	"holdline/daemon/config"
	"holdline/daemon/service"
	"holdline/daemon/userenv"
	"holdline/protocol/control"
	"holdline/protocol/socket"
	"holdline/proxy"
)

// startWait bounds the wait for a daemon that a command has started.
const startWait = 15 * time.Second

// connectOrStart greets the running daemon, or starts one as a proxy would.
func connectOrStart(cmd *cobra.Command, w *world) (*control.Client, error) {
	c, err := connect(cmd, w)
	if !errors.Is(err, errNoDaemon) {
		return c, err
	}
	explicit, err := cmd.Flags().GetString("socket")
	if err != nil {
		return nil, err
	}
	paths, err := socket.Resolve(explicit, w.getenv)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), startWait)
	defer cancel()
	auto := newAutostart(paths, w.getenv, w.stderr)
	defer auto.close()
	ended, err := auto.start(ctx)
	if managed, ok := errors.AsType[*proxy.ManagedError](err); ok {
		return nil, &hinted{fmt.Errorf("starting the daemon: %w", err), managed.Hint}
	}
	if err != nil {
		return nil, fmt.Errorf("starting the daemon: %w", err)
	}
	for {
		c, err := dialPaths(ctx, paths)
		if err == nil {
			return c, nil
		}
		select {
		case err := <-ended:
			if err != nil {
				return nil, fmt.Errorf("starting the daemon: %w", err)
			}
			ended = nil
		case <-ctx.Done():
			return nil, fmt.Errorf("the daemon that was started does not answer: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// doctorOptions are what the checks of this user's holdline need.
func doctorOptions(w *world, paths socket.Paths) doctor.Options {
	name, _, _ := userenv.Account(os.Getuid())
	o := doctor.Options{
		Version: version, PID: pid(), Paths: paths, Home: w.getenv("HOME"), Environ: w.environ(),
		LoginPath: userenv.UserShell(w.getenv).LoginPath,
		Units:     service.FindUnits(w.getenv),
		Linger:    filepath.Join("/var/lib/systemd/linger", cmp.Or(name, w.getenv("USER"))),
	}
	if runtime.GOOS == "darwin" {
		o.LaunchAgents = filepath.Join(o.Home, "Library", "LaunchAgents")
		o.Launchctl = func(ctx context.Context, args ...string) error {
			_, err := runProgram(ctx, "launchctl", args...)
			return err
		}
	}
	var err error
	if o.StateDir, err = stateDir(w.getenv); err != nil {
		o.ConfigErr = err
	}
	if o.Config, err = configPath("", w.getenv); err != nil {
		o.ConfigErr = err
		return o
	}
	cfg, err := config.Load(o.Config)
	o.ConfigErr = errors.Join(o.ConfigErr, err)
	if err == nil {
		o.Loaded = &cfg
	}
	o.Clients = func() ([]doctor.Client, error) { return doctorClients(w) }
	consults := consultConfig(w)
	environ, err := config.WithCaptured(w.environ(), config.PathFile(o.StateDir))
	if err != nil {
		environ = w.environ() // what is wrong with it has a finding of its own
	}
	o.Check = func(ctx context.Context, engine string) control.CheckAnswer {
		return daemon.CheckConsult(ctx, &consults, environ, engine)
	}
	return o
}

// consultConfig is the configuration as a daemon started from here would have
// it for consults; the default one if there is none that could be read.
func consultConfig(w *world) config.Config {
	cfg := config.Default()
	if path, err := configPath("", w.getenv); err == nil {
		if loaded, err := config.Load(path); err == nil { // doctor says what is wrong with it
			cfg = loaded
		}
	}
	return cfg.WithHome(w.getenv("HOME"))
}
