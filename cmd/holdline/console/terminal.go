package console

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/screen"
	"holdline/protocol/control"
)

// Configure makes the outputs of a command look as the user wants, see [Output.Configure].
func Configure(cmd *cobra.Command, color string, getenv func(string) string) error {
	for _, w := range []io.Writer{cmd.OutOrStdout(), cmd.ErrOrStderr()} {
		if o, ok := w.(*Output); ok {
			if err := o.Configure(color, getenv); err != nil {
				return err
			}
		}
	}
	return nil
}

// FoldHelp puts the help pages of root and the commands below it in order, see [arrangeHelp], and makes them fit the
// terminal. Elsewhere they have [usualColumns]: they are for people there, too.
func FoldHelp(root *cobra.Command) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		out := cmd.OutOrStdout()
		var page bytes.Buffer
		cmd.SetOut(&page)
		help(cmd, args)
		cmd.SetOut(out)
		fmt.Fprint(out, Fold(arrangeHelp(page.String()), cmp.Or(Columns(out), usualColumns)))
	})
}

// arrangeHelp puts a help page into the order in which people need it: how to call the command, what it does with
// examples, its commands and flags, and last the keys of its JSON.
func arrangeHelp(page string) string {
	about, rest, found := strings.Cut(page, "\n\nUsage:\n")
	if !found {
		return page
	}
	calls, options, _ := strings.Cut(rest, "\n\n")
	about, keys, hasKeys := strings.Cut(about, "\n\nWith --json, ")
	parts := []string{"Usage:\n" + strings.TrimRight(calls, "\n"), about}
	if options = strings.Trim(options, "\n"); options != "" {
		parts = append(parts, options)
	}
	if hasKeys {
		parts = append(parts, "With --json, "+keys)
	}
	return strings.Join(parts, "\n\n") + "\n"
}

// WithJSON adds the flag --json to a command and returns the command. See [Print].
func WithJSON(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().Bool("json", false, "print JSON")
	return cmd
}

// ConfigFlag adds the flag --config, which sets path, for [cmdenv.ConfigPath].
func ConfigFlag(flags *pflag.FlagSet, path *string) {
	flags.StringVar(path, "config", "",
		"configuration file (default $HOLDLINE_CONFIG, else ~/.config/holdline/config.json)")
}

// IsJSON reports whether the user wants JSON. It returns false for a command without the flag.
func IsJSON(cmd *cobra.Command) bool {
	on, _ := cmd.Flags().GetBool("json") // a command without the flag prints no JSON
	return on
}

// Print prints the result of a command: value as JSON if the user wants that, else what text
// writes. text need not check the errors of its writes, see [Output].
func Print(cmd *cobra.Command, value any, text func(out io.Writer)) error {
	if IsJSON(cmd) {
		return PrintJSON(cmd.OutOrStdout(), value)
	}
	text(cmd.OutOrStdout())
	return nil
}

// Say prints one line of text to stdout. On a terminal it is wrapped. It returns nil, for the
// last line of a command: the error of a write is kept by [Output].
func Say(cmd *cobra.Command, format string, args ...any) error {
	Lines(cmd.OutOrStdout(), fmt.Sprintf(format, args...))
	return nil
}

// Warn prints one line to stderr, with the program's name before it. On a terminal it is wrapped.
func Warn(cmd *cobra.Command, format string, args ...any) {
	Lines(cmd.ErrOrStderr(), cmdenv.Prefixed(fmt.Sprintf(format, args...)))
}

// PrintJSON prints v as indented JSON with a newline.
func PrintJSON(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// IsTerminal reports whether v is a file that is a terminal, or an [Output] to one.
func IsTerminal(v any) bool {
	if o, ok := v.(*Output); ok {
		v = o.w
	}
	return screen.IsTerminal(v)
}

// IsPiped reports whether v is a pipe or a regular file, which the user has put there. Other
// things may never end, such as a socket that a program was given as its stdin.
func IsPiped(v any) bool {
	if t, ok := v.(*Output); ok {
		v = t.w
	}
	f, ok := v.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && (info.Mode()&os.ModeNamedPipe != 0 || info.Mode().IsRegular())
}

// ProgressLine returns functions that show progress on one line of a terminal, with the time
// since the call, and remove that line. The time goes on each second without a call of show.
// If w is no terminal, or one that cannot remove a line, show is nil and done does nothing. Call
// done once.
func ProgressLine(w io.Writer) (show func(control.Progress), done func()) {
	if o, ok := w.(*Output); !IsTerminal(w) || ok && !o.takesControl() {
		return nil, func() {}
	}
	begun := time.Now()
	var mu sync.Mutex // guards text, and is held while the line is written
	text := ""
	draw := func() {
		line := text
		if took := time.Since(begun).Round(time.Second); took > 0 {
			line = strings.TrimRight(took.String()+"  "+text, " ")
		}
		// A line that reaches the last column would go on below.
		writeOwn(w, "\r\x1b[K"+Shorten(oneLine(line), cmp.Or(Columns(w), usualColumns)-1))
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() { // it ends with done
		defer close(ended)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			mu.Lock()
			draw()
			mu.Unlock()
		}
	}()
	return func(p control.Progress) {
			mu.Lock()
			defer mu.Unlock()
			if p.Message != "" {
				text = p.Message
			}
			draw()
		}, func() {
			close(end)
			<-ended
			WriteControl(w, "\r\x1b[K")
		}
}
