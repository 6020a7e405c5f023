package consultcmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
)

// maxStdinPrompt bounds what is read from stdin, in bytes. The daemon's own limit on a prompt
// is lower, so its error names the real limit. Without a bound, a pipe that never ends would
// take all memory.
const maxStdinPrompt = 16 << 20

// consultPrompt returns the prompt: the arguments, what is piped in, or both. If there are
// arguments, it waits for a pipe into which nothing is written for [stdinWait] only. Errors call
// it what, and show the example.
func consultPrompt(cmd *cobra.Command, args []string, what, example string) (string, error) {
	if len(args) > 1 && slices.Contains(args, "-") {
		return "", fmt.Errorf(`%w: "-" is the %s on stdin, and goes with no other words`, cmdenv.ErrUsage, what)
	}
	prompt := strings.Join(args, " ")
	words := strings.TrimSpace(prompt) != "" && prompt != "-"
	missing := cmdenv.WithHint(fmt.Errorf("%w: the %s is missing", cmdenv.ErrUsage, what), example+", or pipe it in")
	switch in := cmd.InOrStdin(); {
	case words && !console.IsPiped(in):
		return prompt, nil
	case !words && console.IsTerminal(in):
		return "", missing
	}
	// A prompt from the command line is enough, so do not wait for ever on a pipe.
	begun, err := console.Await(cmd.Context(), func() (bool, error) {
		return !words || begins(cmd.InOrStdin(), stdinWait), nil
	})
	if err != nil {
		return "", err
	}
	if !begun {
		console.Warn(cmd, "nothing came on stdin within %s, going on without it; </dev/null says that there is nothing",
			stdinWait)
		return prompt, nil
	}
	// What is piped in is the prompt, or is put behind it.
	b, err := console.Await(cmd.Context(), func() ([]byte, error) {
		return io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxStdinPrompt))
	})
	if err != nil {
		return "", fmt.Errorf("reading the %s: %w", what, err)
	}
	switch blank := strings.TrimSpace(string(b)) == ""; {
	case !words && blank:
		return "", missing
	case !words:
		return string(b), nil
	case blank:
		return prompt, nil
	}
	return prompt + "\n\n<stdin>\n" + strings.TrimRight(string(b), "\n") + "\n</stdin>", nil
}

// stdinWait bounds the wait for the first byte on stdin when the prompt is on the
// command line: the program that starts a command may leave it a pipe into which
// nothing is ever written.
const stdinWait = 5 * time.Second

// begins waits until in has a byte to read or has ended. It returns false if neither happens
// in time, and true at once for a reader that is no file. It reads nothing.
func begins(in io.Reader, within time.Duration) bool {
	f, ok := in.(*os.File)
	if !ok {
		return true
	}
	// A signal interrupts the wait, which then goes on for the rest of the time.
	for end := time.Now().Add(within); ; {
		left := max(time.Until(end), 0)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}, int(left.Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			return n > 0 || err != nil
		}
		if left == 0 {
			return false
		}
	}
}
