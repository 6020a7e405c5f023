package daemoncmd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/starter"
	"holdline/daemon/service"
	"holdline/daemon/statedir"
	"holdline/protocol/ownfile"
	"holdline/protocol/socket"
)

// maxLog is the length of [starter.DaemonLog], in bytes, from which on the daemon rotates
// it. A start empties a longer one.
const maxLog = 8 << 20

// prepare makes this process ready to be a daemon that package starter has started. Its
// stdout becomes the log file, to which other daemons write, too. Its environment becomes
// that of [attach.DaemonEnv].
//
// If systemd's units are enabled, or if launchd starts the daemon, this process must not
// become one. Then prepare returns an error, of exit code 0 if the manager's daemon listens
// at any moment. If onlyWhy is true it is always such an error.
func prepare(ctx context.Context, proc *cmdenv.Process, paths socket.Paths, onlyWhy bool) error {
	units := service.FindUnits(proc.Getenv)
	at := units.Socket()
	if paths.Explicit() {
		at = paths.Start()
	}
	manageable := units.Listens(at)
	if !onlyWhy {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, starter.ManagerTimeout)
		defer cancel()
	}
	switch {
	case manageable && (onlyWhy || units.Enabled()):
		absence := units.Absent(ctx)
		if absence == nil {
			return cmdenv.ExitWith(cmdenv.ExitOK)
		}
		fmt.Fprintf(proc.Stderr, "%s\n%s\n", absence.Why, absence.Hint)
		return cmdenv.ExitWith(starter.ExitManaged)
	case onlyWhy, !paths.Explicit() && service.FindLaunchAgent(proc.Getenv).Start(ctx):
		return cmdenv.ExitWith(cmdenv.ExitOK)
	}
	redirect(proc.Getenv)
	environ := attach.DaemonEnv(proc.Getenv)
	os.Clearenv()
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

// redirect makes the log file the stdout of this process, and also its stderr if that is
// nowhere else. A log file that cannot be opened keeps no daemon from starting: see [strayLog].
func redirect(getenv func(string) string) {
	streams := []*os.File{os.Stdout}
	if null, err := os.Stat(os.DevNull); err == nil {
		if now, err := os.Stderr.Stat(); err != nil || os.SameFile(now, null) {
			streams = append(streams, os.Stderr)
		}
	}
	_ = becomeLog(getenv, streams) // runDaemon sees which streams are the log
}

// becomeLog makes the log file of daemons these standard streams of the process.
func becomeLog(getenv func(string) string, streams []*os.File) error {
	log, err := openLog(getenv)
	if err != nil {
		return err
	}
	defer log.Close()
	for _, stream := range streams {
		if err := unix.Dup2(int(log.Fd()), int(stream.Fd())); err != nil {
			return fmt.Errorf("open the daemon's log: %w", err)
		}
	}
	return nil
}

// openLog opens the log file of daemons for appending, and creates the state directory
// if need be. It empties a file that is longer than maxLog. The caller must close the file.
func openLog(getenv func(string) string) (*os.File, error) {
	dir, err := cmdenv.StateDir(getenv)
	if err != nil {
		return nil, err
	}
	dirs, err := statedir.Open(dir)
	if err == nil {
		err = statedir.MakeDir(dirs.Logs) // Open leaves it to those that write there to say what is wrong with it
	}
	if err != nil {
		return nil, err
	}
	f, err := ownfile.OpenFile(filepath.Join(dir, starter.DaemonLog), os.O_WRONLY|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("open the daemon's log: %w", err)
	}
	info, err := f.Stat()
	if err == nil && info.Size() > maxLog {
		err = f.Truncate(0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open the daemon's log: %w", err)
	}
	return f, nil
}
