// Package hostscmd is the command hosts: it makes other machines and containers ready to run
// servers for this user's daemon, and checks them.
package hostscmd

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/doctor"
	"holdline/daemon/config"
	"holdline/daemon/config/hostname"
	"holdline/daemon/spelling"
	"holdline/daemon/supervisor/far"
)

// Bounds of commands on a host.
const (
	copyTime   = 10 * time.Minute // of the copy of the program, and of holdline doctor there
	answerTime = 30 * time.Second // of what takes a moment there
)

// hosts has what the commands have in common.
type hosts struct {
	proc     *cmdenv.Process
	patience time.Duration // answerTime
}

// NewCommand returns the command hosts.
func NewCommand(proc *cmdenv.Process) *cobra.Command {
	h := &hosts{proc, answerTime}
	cmd := &cobra.Command{
		Use:   "hosts",
		Short: "Run servers on other machines, by your own ssh",
		Long: `Run servers on other machines and in containers. A HOST is what you would give to
ssh, or docker:NAME, podman:NAME or kube:POD. Then name it in the server's entry:

    holdline hosts add build-box
    holdline config set mcpServers.NAME.holdline.host build-box

Your ssh configuration, keys, agent and jump hosts apply. Holdline never asks for a
password: ssh has to connect without one.`,
		Args: cobra.NoArgs,
		RunE: h.listHosts,
	}
	cmd.AddCommand(h.add(), h.list(), h.remove(), h.doctor())
	return cmd
}

func (h *hosts) add() *cobra.Command {
	var from string
	var always bool
	cmd := &cobra.Command{
		Use:   "add HOST",
		Short: "Make a host ready: check ssh, copy holdline there, check it",
		Long: `Make a host ready to run servers. The command checks that ssh connects without a
prompt, and which system the host has. If holdline is missing there, or speaks
another protocol, it copies this program into ` + "~/" + far.Dir + `
there; a host of another system gets the one of an archive that make dist has
made. Then it checks the host as hosts doctor does.`,
		Args: oneHost,
		RunE: func(cmd *cobra.Command, args []string) error { return h.addHost(cmd, args[0], from, always) },
	}
	cmd.Flags().StringVar(&from, "from", "dist", "directory of archives, for a host of another system")
	cmd.Flags().BoolVar(&always, "copy", false, "copy holdline even if the host has one that fits")
	return cmd
}

// addHost is the command hosts add.
func (h *hosts) addHost(cmd *cobra.Command, host, from string, always bool) error {
	out, err := h.ask(cmd.Context(), host, "uname -sm")
	if err != nil {
		return err
	}
	system, err := systemOf(out)
	if err != nil {
		return fmt.Errorf("%s: %w", host, err)
	}
	_ = console.Say(cmd, "%s answers, without a prompt; its system is %s", host, system)
	there, err := h.greet(cmd.Context(), host)
	lost, unfit := errors.AsType[*far.UnreachableError](err)
	switch {
	case err == nil && !always:
		_ = console.Say(cmd, "holdline %s is there, and fits", there)
	case err == nil || unfit:
		if unfit {
			_ = console.Say(cmd, "%s", lost.Words)
		}
		program, err := programFor(system, from)
		if err != nil {
			return err
		}
		if _, err := h.run(cmd.Context(), host, copyScript(len(program)), bytes.NewReader(program)); err != nil {
			return fmt.Errorf("copy holdline: %w", err)
		}
		if there, err = h.greet(cmd.Context(), host); err != nil {
			return fmt.Errorf("holdline was copied, and cannot be used: %w", advised(err))
		}
		_ = console.Say(cmd, "holdline %s was copied to ~/%s/%s there", there, far.Dir, far.Program())
	default:
		return advised(err)
	}
	if err := h.check(cmd, host); err != nil {
		return err
	}
	return console.Say(cmd, "%s is ready. To run a server there:\n"+
		"  holdline config set mcpServers.NAME.holdline.host %s", host, host)
}

// copyScript returns a script that puts its stdin, of so many bytes, into the place of the program. Until
// it is whole it has another name: it is cut if the connection breaks, or if the disk there is full.
func copyScript(size int) string {
	return `HOME="${HOME:-/}"; d="$HOME/` + far.Dir + `"; n="$d/new.$$"; umask 077; mkdir -p "$d" && cat > "$n" && ` +
		`[ $(wc -c < "$n") -eq ` + strconv.Itoa(size) + ` ] && chmod 700 "$n" && ` +
		`mv -f "$n" "$d/` + far.Program() + `" || { rm -f "$n"; exit 1; }`
}

func (h *hosts) list() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the hosts that the configuration names, with their servers",
		Args:    cobra.NoArgs,
		RunE:    h.listHosts,
	}
}

// listHosts is the command hosts list.
func (h *hosts) listHosts(cmd *cobra.Command, _ []string) error {
	used, err := h.used()
	if err != nil {
		return err
	}
	if len(used) == 0 {
		return console.Say(cmd, "No server runs elsewhere. To run one on HOST: holdline hosts add HOST")
	}
	for _, host := range spelling.Sorted(maps.Keys(used)) {
		if err := console.Say(cmd, "%s: %s", host, strings.Join(used[host], ", ")); err != nil {
			return err
		}
	}
	return nil
}

func (h *hosts) remove() *cobra.Command {
	return &cobra.Command{
		Use:     "remove HOST",
		Aliases: []string{"rm"},
		Short:   "Remove from a host what hosts add has copied there",
		Args:    oneHost,
		RunE: func(cmd *cobra.Command, args []string) error {
			host := args[0]
			used, err := h.used()
			if err != nil {
				return err
			}
			if names := used[host]; len(names) > 0 {
				return cmdenv.WithHint(fmt.Errorf("%s runs there", strings.Join(names, ", ")),
					"to run it here: holdline config unset mcpServers."+names[0]+".holdline.host")
			}
			script := `rm -rf "${HOME:-/}/` + far.Dir + `"`
			if _, err := h.ask(cmd.Context(), host, script); err != nil {
				return err
			}
			return console.Say(cmd, "~/%s was removed from %s", far.Dir, host)
		},
	}
}

func (h *hosts) doctor() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor HOST",
		Short: "Check that a host can be reached, and that servers can run there",
		Long: `Check that a host can be reached without a prompt, that the holdline there fits, and that a
server can run there: the command starts a small one and ends it again. Of holdline
doctor there it prints what concerns servers.`,
		Args: oneHost,
		RunE: func(cmd *cobra.Command, args []string) error {
			host := args[0]
			begun := time.Now()
			there, err := h.greet(cmd.Context(), host)
			if err != nil {
				return advised(err)
			}
			_ = console.Say(cmd, "%s answers after %v, with holdline %s",
				host, time.Since(begun).Round(time.Millisecond), there)
			return h.check(cmd, host)
		},
	}
}

// used returns the names of servers by the host that they run on.
func (h *hosts) used() (map[string][]string, error) {
	at, err := cmdenv.ConfigPath("", h.proc.Getenv)
	if err != nil {
		return nil, err
	}
	c, err := config.Load(at)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return doctor.ServersByHost(&c), nil
}

// greet returns the version of the holdline on a host, if a daemon of this program can use it.
func (h *hosts) greet(ctx context.Context, host string) (version string, err error) {
	err = far.Visit(ctx, host, h.proc.Environ(), 0, func(s *far.Session) error {
		version = s.Program
		return nil
	})
	return version, err
}

// advised returns an error of a connection with its fix as the hint.
func advised(err error) error {
	u, ok := errors.AsType[*far.UnreachableError](err)
	if !ok || u.Fix == "" {
		return err
	}
	err = fmt.Errorf("%s cannot be reached: %s", u.Host, u.Words)
	if u.Fix == far.Try(u.Host) {
		return byHand(err, u.Host)
	}
	return cmdenv.WithHint(err, u.Fix)
}

// byHand returns err with the hint to try the connection by hand.
func byHand(err error, host string) error {
	return cmdenv.WithHint(err, far.Try(host)+" has to work, and must not ask for anything")
}

// oneHost checks the arguments of a command for one host.
func oneHost(cmd *cobra.Command, args []string) error {
	if err := cobra.ExactArgs(1)(cmd, args); err != nil {
		return err
	}
	if err := hostname.Check(args[0]); err != nil {
		return fmt.Errorf("%w: %q: %w", cmdenv.ErrUsage, args[0], err)
	}
	return nil
}

// ask runs a script that takes a moment on a host, and returns what it prints.
func (h *hosts) ask(ctx context.Context, host, script string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, h.patience)
	defer cancel()
	out, err := h.run(limited, host, script, nil)
	switch {
	case err == nil:
		return out, nil
	case limited.Err() != nil && ctx.Err() == nil:
		err = fmt.Errorf("%s cannot be reached: no answer within %v", host, h.patience)
	}
	return "", byHand(err, host)
}

// run runs a script on a host, and returns what it prints.
func (h *hosts) run(ctx context.Context, host, script string, stdin io.Reader) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, copyTime)
	defer cancel()
	c := far.Command(ctx, host, script, h.proc.Environ(), false)
	c.Stdin = stdin
	return far.Run(c, host)
}

// systemOf returns GOOS/GOARCH of what uname -sm has printed.
func systemOf(uname string) (string, error) {
	fields := strings.Fields(uname)
	systems := map[string]string{"Linux": "linux", "Darwin": "darwin"}
	machines := map[string]string{"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
	if n := len(fields); n >= 2 && systems[fields[n-2]] != "" && machines[fields[n-1]] != "" {
		return systems[fields[n-2]] + "/" + machines[fields[n-1]], nil
	}
	return "", fmt.Errorf("its system is none that Holdline runs on: %s", strings.TrimSpace(uname))
}

// programFor returns the program for a system: this one, or that of an archive in dir.
func programFor(system, dir string) ([]byte, error) {
	if system == runtime.GOOS+"/"+runtime.GOARCH {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this program: %w", err)
		}
		return os.ReadFile(self)
	}
	found, _ := filepath.Glob(filepath.Join(dir, "*"+strings.ReplaceAll(system, "/", "?")+".tar.gz"))
	if len(found) == 0 {
		return nil, cmdenv.WithHint(fmt.Errorf("there is no archive for %s in %s", system, dir),
			"make dist, then: holdline hosts add HOST --from dist")
	}
	archive := found[len(found)-1]
	// There may be those of several versions.
	own := "holdline-" + cmdenv.Version + "-" + strings.ReplaceAll(system, "/", "-") + ".tar.gz"
	if own = filepath.Join(dir, own); slices.Contains(found, own) {
		archive = own
	}
	f, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	zip, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	for r := tar.NewReader(zip); ; {
		head, err := r.Next()
		if err != nil {
			return nil, fmt.Errorf("%s has no holdline: %w", f.Name(), err)
		}
		if head.Typeflag == tar.TypeReg && path.Base(head.Name) == "holdline" {
			return io.ReadAll(r)
		}
	}
}
