package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/daemoncmd"
	"holdline/cmd/holdline/importer"
	"holdline/cmd/holdline/install"
	"holdline/cmd/holdline/pair"
	"holdline/daemon/command"
	"holdline/daemon/userenv"
	"holdline/protocol/socket"
)

// installTimeout bounds the run of one program, for example systemctl.
const installTimeout = 60 * time.Second

// maxToolOutput bounds each of stdout and stderr of one program, in bytes.
const maxToolOutput = 1 << 20

// installOptions are the flags of install. Cobra refuses those that exclude each other.
type installOptions struct {
	systemd, launchd bool // install the daemon for that service manager
	bin, copy, link  bool // install this program, and in which way
	force            bool // replace files that install did not make
	path             bool // only capture the PATH again
	dryRun           bool // print the steps and change nothing
}

// newInstallCommand returns the command install. Package install makes the changes, undoes
// them if one fails, and keeps a list of them for uninstall. This file turns the flags into a
// wish and prints what the user can do next.
func newInstallCommand(proc *cmdenv.Process) *cobra.Command {
	var o installOptions
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install the programs, units, man pages, and the PATH for servers",
		Long: `Install holdline for this user. Without a flag the command captures the PATH of your
login shell, or of this shell if its PATH has more entries. Hosted servers and consults
find their programs on that PATH. The first agent that connects starts the daemon;
with --systemd (or --launchd on macOS) the service manager starts it. --bin copies this
program to ~/.local/bin, with the two beside it: holdline-stdio, a small one for proxies
and workers, and holdline-top. The units name it there. With one of these flags agents
start the daemon again if you have stopped it with holdline stop.

Completions for bash, zsh and fish and the man pages are installed for you alone, below
~/.local/share and ~/.config/fish, but not with --path.

The command reports each step. If a step fails, it undoes the earlier ones. If you run
it again, it changes only what is different. The file install.json in the state
directory lists everything that it made; it replaces other files only with --force.
"holdline uninstall" removes everything.

After a change of your profile: holdline install --path.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runInstall(cmd, proc, o) },
	}
	f := cmd.Flags()
	f.BoolVar(&o.systemd, "systemd", false, "write, enable and start units of systemd's user manager")
	f.BoolVar(&o.launchd, "launchd", false, "write and load a LaunchAgent (macOS)")
	f.BoolVar(&o.bin, "bin", false, "install this program and the two beside it into ~/.local/bin")
	f.BoolVar(&o.copy, "copy", false, "with --bin: as a copy (the default)")
	f.BoolVar(&o.link, "link", false, "with --bin: a link to this program, instead of copies")
	f.BoolVar(&o.force, "force", false, "also replace files that install did not make")
	f.BoolVar(&o.path, "path", false, "only capture the PATH again: the login shell's, or this shell's if it has more")
	f.BoolVar(&o.dryRun, "dry-run", false, "say what would be done, and do nothing")
	cmd.MarkFlagsMutuallyExclusive("systemd", "launchd")
	cmd.MarkFlagsMutuallyExclusive("copy", "link")
	for _, other := range []string{"systemd", "launchd", "bin", "copy", "link"} {
		cmd.MarkFlagsMutuallyExclusive("path", other)
	}
	return cmd
}

// wish returns what the flags ask for, without the PATH, which is captured later. --copy and
// --link imply --bin.
func (o installOptions) wish() install.Wish {
	w := install.Wish{Bin: o.bin || o.copy || o.link, Link: o.link, Force: o.force}
	switch {
	case o.systemd:
		w.Manager = install.Systemd
	case o.launchd:
		w.Manager = install.Launchd
	}
	return w
}

// runInstall installs what the flags ask for, captures the PATH and prints what to do next.
// Asking the login shell for the PATH may take seconds.
//
// The binary is installed first if its directory does not exist yet: the profiles of many
// users add that directory to PATH once it exists, and the captured PATH is to have it.
func runInstall(cmd *cobra.Command, proc *cmdenv.Process, o installOptions) error {
	in, err := installer(cmd, proc)
	if err != nil {
		return err
	}
	in.DryRun = o.dryRun
	wish := o.wish()
	if !o.dryRun && (wish.Bin || wish.Manager != install.Nobody) {
		// Who installs it wants it to run. This comes first: launchd starts the daemon at once.
		if err := attach.LiftStop(cmd, proc); err != nil {
			return err
		}
	}
	rest := wish
	// First the binary alone: only then can the login shell's PATH have the directory.
	if _, missing := os.Stat(in.BinDir); wish.Bin && missing != nil && !o.dryRun {
		if err := in.Install(cmd.Context(), wish); err != nil {
			return err
		}
		rest = install.Wish{}
	}
	// Without the PATH an installation is still useful, so an error is only a warning,
	// unless the PATH is all that the user wants.
	rest.Path, err = pathToCapture(cmd.Context(), proc)
	if err != nil {
		if o.path {
			return cmdenv.WithHint(err, "fix the shell's profile, or write PATH into the env of a server")
		}
		console.Warn(cmd, "%v", err)
	}
	if err := in.Install(cmd.Context(), rest); err != nil {
		return err
	}
	wish.Path = rest.Path
	output := cmd.OutOrStdout()
	if wish.Path != "" {
		console.Line(output, 4, "PATH for hosted servers: %s", wish.Path)
	}
	if o.path {
		return nil
	}
	installDocuments(cmd, proc, in, o.force)
	console.Lines(output, afterInstall(in, wish)+zshNote(proc, in.Home))
	if next := whatToType(proc, in, wish.Bin); next != "" {
		fmt.Fprintf(output, "next: %s\n", next) // not wrapped: it is to be copied
	}
	return nil
}

// whatToType returns the commands that the user needs now, as one line of shell: the PATH of this shell may lack the
// directory of the installed programs, and no agent may be connected yet. It is "" if nothing is left to do.
func whatToType(proc *cmdenv.Process, in *install.Options, bin bool) string {
	var commands []string
	if bin && !slices.Contains(filepath.SplitList(proc.Getenv("PATH")), in.BinDir) {
		dir := in.BinDir
		if rest, ok := strings.CutPrefix(dir, in.Home+"/"); ok {
			dir = "$HOME/" + rest
		}
		commands = append(commands, fmt.Sprintf("export PATH=\"%s:$PATH\"", dir))
	}
	if connected, _, err := importer.Pending(in.StateDir); err != nil || !connected {
		commands = append(commands, "holdline setup")
	}
	return strings.Join(commands, " && ")
}

// installDocuments installs the man pages and the completions. Without them holdline does all that it is for, so an
// error is only a warning.
func installDocuments(cmd *cobra.Command, proc *cmdenv.Process, in *install.Options, force bool) {
	all, err := documents(proc)
	if err == nil {
		err = in.InstallDocuments(cmd.Context(), all, force)
	}
	if err != nil {
		console.Warn(cmd, "completions and man pages are not installed: %v", err)
	}
}

// pathToCapture returns the PATH for hosted servers: that of the login shell, or of the shell
// that runs this command if that has more. It may take seconds.
func pathToCapture(ctx context.Context, proc *cmdenv.Process) (string, error) {
	login, err := userenv.UserShell(proc.Getenv).LoginPath(ctx)
	if err != nil {
		return "", fmt.Errorf("the PATH of your login shell is not captured: %w", err)
	}
	return userenv.Calling(proc.Getenv("PATH"), login), nil
}

// afterInstall returns the notes about what to do after an installation, one line for each.
// wish must have the PATH that was captured.
func afterInstall(in *install.Options, wish install.Wish) string {
	var b strings.Builder
	if wish.Bin && wish.Path != "" && !slices.Contains(filepath.SplitList(wish.Path), in.BinDir) {
		fmt.Fprintf(&b, "note: %s is not on the PATH of your login shell: add it there, "+
			"or agents do not find holdline\n", in.BinDir)
	}
	if _, err := pair.SmallOf(in.Exe); wish.Bin && err != nil {
		b.WriteString("note: holdline-stdio is not installed: it is not beside this program, or of another build. " +
			"Everything works, but the proxy of each agent and the worker of each server take twice the memory.\n")
	}
	return b.String()
}

// zshNote returns the line that completions for zsh need in the profile of a user of zsh, which looks for those of one
// user nowhere by itself; "" if the profile names the directory.
func zshNote(proc *cmdenv.Process, home string) string {
	data, err := cmdenv.XDGDir(proc.Getenv, "XDG_DATA_HOME", ".local/share")
	if err != nil || filepath.Base(proc.Getenv("SHELL")) != "zsh" {
		return ""
	}
	profile := filepath.Join(cmp.Or(proc.Getenv("ZDOTDIR"), home), ".zshrc")
	if text, err := os.ReadFile(profile); err == nil && bytes.Contains(text, []byte("zsh/site-functions")) {
		return ""
	}
	return fmt.Sprintf("note: for completions in zsh, add to %s, before compinit: fpath+=(%s)\n",
		profile, zshFunctions(filepath.Dir(data)))
}

// installer returns package install's view of this machine and this user. It has no runtime
// directory if the user names a socket: a purge must not remove a directory that the user
// has chosen.
func installer(cmd *cobra.Command, proc *cmdenv.Process) (*install.Options, error) {
	home := proc.Getenv("HOME")
	if !filepath.IsAbs(home) {
		return nil, errors.New("HOME is not set to a directory")
	}
	exe, err := pair.Program(os.Args[0])
	if err != nil {
		return nil, err
	}
	state, err := cmdenv.StateDir(proc.Getenv)
	if err != nil {
		return nil, err
	}
	config, err := cmdenv.XDGDir(proc.Getenv, "XDG_CONFIG_HOME", ".config")
	if err != nil {
		return nil, err
	}
	paths, err := attach.PathsOf(cmd, proc)
	if err != nil {
		return nil, err
	}
	run := ""
	if !paths.Explicit() {
		run = filepath.Dir(paths.Start())
	}
	return &install.Options{
		OS: runtime.GOOS, UID: os.Getuid(), Exe: exe, Home: home,
		BinDir: filepath.Join(home, ".local", "bin"), UnitDir: filepath.Join(filepath.Dir(config), "systemd", "user"),
		StateDir: state, ConfigDir: config, RuntimeDir: run, Variables: deciding(proc.Getenv),
		Run: runProgram, Out: cmd.OutOrStdout(),
		Stop: func(context.Context) error { return daemoncmd.StopForNow(cmd, proc) },
	}, nil
}

// deciding returns the variables that are set and decide where holdline's files lie. install
// warns of those that systemd's user manager does not have, since its daemon would use other
// files.
func deciding(getenv func(string) string) map[string]string {
	set := map[string]string{}
	for _, name := range []string{"XDG_CONFIG_HOME", "XDG_STATE_HOME", "HOLDLINE_CONFIG", socket.Env} {
		if value := getenv(name); value != "" {
			set[name] = value
		}
	}
	return set
}

// runProgram runs a program to its end, for [installTimeout] at most, and returns what it
// printed to stdout. It is the [install.Runner] of this process. The error has the stderr of
// the program, with its lines joined.
func runProgram(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	cmd := command.Command{
		Path: path, Args: args, Name: name, Env: os.Environ(), Strict: true,
		Stdout: maxToolOutput, Stderr: maxToolOutput,
	}
	out, err := cmd.Run(ctx)
	if words := bytes.TrimSpace(out.Stderr); err != nil && len(words) > 0 {
		err = fmt.Errorf("%w: %s", err, bytes.ReplaceAll(words, []byte("\n"), []byte("; ")))
	}
	return string(out.Stdout), err
}
