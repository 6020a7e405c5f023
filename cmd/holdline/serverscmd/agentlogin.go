package serverscmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
)

// RunLogin is the hidden command login NAME: a login to a server for which an agent asks its
// person. The daemon starts it, with a pipe as its stdin, whose end is the end of the daemon.
//
// It prints one line of JSON with the start address once that is open, and exits with 0 once
// the login is stored. It prints nothing if the login takes a terminal.
func RunLogin(args []string, proc *cmdenv.Process) error {
	if len(args) != 1 || console.IsTerminal(proc.Stdin) {
		return cmdenv.WithHint(fmt.Errorf("%w: login is started by the daemon only", cmdenv.ErrUsage),
			"holdline servers login NAME")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() { // ends with this process
		_, _ = io.Copy(io.Discard, proc.Stdin)
		stop()
	}()
	s := &serversCommand{proc: proc, files: map[string][]string{}}
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	_, cfg, err := s.loadConfig()
	if err != nil {
		return err
	}
	a, err := s.account(&cfg, args[0])
	if err != nil {
		return err
	}
	return s.logInTo(cmd, a, &loginOptions{timeout: 10 * time.Minute, show: func(address string) error {
		return json.NewEncoder(proc.Stdout).Encode(map[string]string{"url": address})
	}})
}
