package console

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// ErrTooLong is the error of a line that is longer than it may be.
var ErrTooLong = errors.New("the line is too long")

// Answer asks a question on stderr, and returns the line that the user types to stdin, in small letters; "no" at
// the end of stdin. What was typed before, while the command worked, is no answer. The error is the cause of
// the command's context once that is done.
func Answer(cmd *cobra.Command, stdin io.Reader, question string) (string, error) {
	errs := cmd.ErrOrStderr()
	ForgetTyped(stdin)
	fmt.Fprint(errs, question)
	answer := make(chan string, 1)
	go func() { // it ends with its line, or with this process
		line, err := bufio.NewReader(stdin).ReadString('\n')
		if err != nil && line == "" {
			line = "no"
		}
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case line := <-answer:
		return line, nil
	case <-cmd.Context().Done():
		fmt.Fprintln(errs)
		return "", context.Cause(cmd.Context())
	}
}

// Confirm asks the user a question, and reports whether the answer is yes. An empty line is a yes if byDefault
// is true. Once the command's context is done, the answer is no.
func Confirm(cmd *cobra.Command, stdin io.Reader, question string, byDefault bool) bool {
	line, err := Answer(cmd, stdin, question)
	return err == nil && (line == "" && byDefault || line == "y" || line == "yes")
}

// ReadLine asks a question at a terminal, whose end for output is out, and returns the line that
// is typed, of at most that many bytes. The line is not shown if it is secret. ReadLine returns
// the cause of ctx once that is done, and [io.EOF] for Ctrl-D on an empty line.
//
// The terminal gives out what is typed at once: a line that it collects itself has at most 4 KiB.
func ReadLine(
	ctx context.Context, in *os.File, out io.Writer, question string, secret bool, most int,
) (string, error) {
	fd := int(in.Fd())
	was, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return "", errors.New("there is no terminal to ask at")
	}
	now := *was
	now.Lflag &^= unix.ICANON | unix.ECHO
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 0, 1 // a read waits for a tenth of a second
	if err := unix.IoctlSetTermios(fd, setTermios, &now); err != nil {
		return "", errors.New("the terminal cannot be asked")
	}
	defer func() { _ = unix.IoctlSetTermios(fd, setTermios, was) }() // it has gone otherwise
	show := func(text string) {
		if !secret || text == "\n" {
			_, _ = io.WriteString(out, text) // the line counts, not how it looks
		}
	}
	_, _ = io.WriteString(out, question)
	const backspace, rubout, endOfInput, clearLine = 8, 127, 4, 21
	var line []byte
	var buffer [1]byte // what follows the line is for the next reader
	for ctx.Err() == nil {
		n, err := unix.Read(fd, buffer[:])
		if err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return "", fmt.Errorf("reading from the terminal: %w", err)
		}
		if n == 0 && err == nil { // nothing was typed, or the terminal has gone: then a read does not wait
			if _, err := unix.IoctlGetTermios(fd, getTermios); err != nil {
				return "", errors.New("the terminal was closed")
			}
		}
		for _, c := range buffer[:max(n, 0)] {
			switch {
			case c == '\n' || c == '\r':
				show("\n")
				if len(line) > most {
					return "", ErrTooLong
				}
				return string(line), nil
			case c == endOfInput && len(line) == 0:
				show("\n")
				return "", io.EOF
			case c == clearLine:
				line = line[:0]
			case (c == backspace || c == rubout) && len(line) > 0:
				_, size := utf8.DecodeLastRune(line)
				last := string(line[len(line)-size:])
				line = line[:len(line)-size]
				show(strings.Repeat("\b \b", Width(last)))
			case c >= ' ' && c != rubout && len(line) <= most: // the rest of a line that is too long is lost
				line = append(line, c)
				show(string([]byte{c}))
			}
		}
	}
	show("\n") // what is said next is no part of the question
	return "", context.Cause(ctx)
}
