package configcmd

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/daemon/config"
	"holdline/daemon/config/edit"
)

// aboutKeys is the help of the commands that take a key.
const aboutKeys = `

KEY has dots, as in consult.timeout or mcpServers.github.holdline.scope; a name with a
dot in it stands in double quotes. All keys: holdline config get`

// newKeyCommands returns the commands get, set and unset. file is the flag --config.
func newKeyCommands(proc *cmdenv.Process, file *string) []*cobra.Command {
	get := console.WithJSON(&cobra.Command{
		Use: "get [KEY]", Short: "Print the value of a setting that is in force, or list all keys",
		Long: `Print the value of a setting that the file puts into force, defaults included. Secrets are
hidden. Without KEY, list all keys and what they mean; with --json, a list of objects: key,
help, values (that it can have, if these are a few words).` + aboutKeys,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return listKeys(cmd)
			}
			return getKey(cmd, proc, *file, args[0])
		},
	})
	set := &cobra.Command{
		Use: "set KEY VALUE", Short: "Change a setting in the configuration file",
		Long: `Change a setting in the configuration file, which keeps its comments. The value is
checked first. A running daemon reads the file again.

A list is written with commas, or as JSON; an object as JSON:

    holdline config set consult.timeout 30m
    holdline config set mcpServers.github.holdline.deny 'delete_*,push'
    holdline config set identities.codex.budget '{"consults_per_day": 20}'` + aboutKeys,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeKey(cmd, proc, *file, args[0], func(path string, k config.Key) (string, error) {
				return "is set", edit.SetKey(cmd.Context(), path, k, args[1])
			})
		},
	}
	unset := &cobra.Command{
		Use: "unset KEY", Short: "Remove a setting, so that its default holds again",
		Long: `Remove a setting from the configuration file, with its comments. Its default holds again,
and a running daemon reads the file again.` + aboutKeys,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeKey(cmd, proc, *file, args[0], func(path string, k config.Key) (string, error) {
				had, err := edit.UnsetKey(cmd.Context(), path, k)
				if !had {
					return "is not", err
				}
				return "is removed", err
			})
		},
	}
	return []*cobra.Command{get, set, unset}
}

// parseKey returns the key that an argument names. One that there is not is a usage error.
func parseKey(text string) (config.Key, error) {
	k, err := config.ParseKey(text)
	if err != nil {
		return nil, cmdenv.WithHint(fmt.Errorf("%w: %w", cmdenv.ErrUsage, err),
			"all keys: holdline config get")
	}
	return k, nil
}

// listKeys prints all keys that a configuration can have, with NAME for the names that the user
// chooses.
func listKeys(cmd *cobra.Command) error {
	type known struct {
		Key    string   `json:"key"`
		Help   string   `json:"help"`
		Values []string `json:"values,omitempty"`
	}
	cfg := config.Config{
		Servers: map[string]config.Server{"NAME": {}}, Identities: map[string]config.Identity{"NAME": {}},
	}
	var all []known
	for _, k := range cfg.Keys() {
		all = append(all, known{k.Key.String(), k.Help, k.Values})
	}
	return console.Print(cmd, all, func(out io.Writer) {
		t := console.NewDetails(out, "KEY", "MEANING")
		for _, k := range all {
			meaning := k.Help
			if len(k.Values) > 0 {
				meaning += " (" + strings.Join(k.Values, " | ") + ")"
			}
			t.Row(k.Key, meaning)
		}
		t.Flush()
	})
}

// keyAndFile returns the key that text names, and the path of the configuration file. file is the
// value of --config.
func keyAndFile(proc *cmdenv.Process, file, text string) (k config.Key, path string, err error) {
	if k, err = parseKey(text); err == nil {
		path, err = cmdenv.ConfigPath(file, proc.Getenv)
	}
	return k, path, err
}

// getKey prints the value of a key that is in force by the configuration file.
func getKey(cmd *cobra.Command, proc *cmdenv.Process, file, text string) error {
	k, path, err := keyAndFile(proc, file, text)
	if err != nil {
		return err
	}
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	value, known := cfg.Value(k)
	if !known {
		return fmt.Errorf("%s has no %s", path, k)
	}
	return console.Print(cmd, value, func(out io.Writer) {
		switch x := value.(type) {
		case map[string]any, []any:
			_ = console.PrintJSON(out, x) // the output keeps the error of a write
		default:
			fmt.Fprintln(out, x)
		}
	})
}

// changeKey changes a key in the configuration file, prints what was done to it in words, and
// has a running daemon read the file. It never prints the value, which may be a secret.
func changeKey(
	cmd *cobra.Command, proc *cmdenv.Process, file, text string,
	change func(path string, k config.Key) (words string, err error),
) error {
	k, path, err := keyAndFile(proc, file, text)
	if err != nil {
		return err
	}
	if err := attach.CheckEdit(proc, path); err != nil {
		return err
	}
	words, err := change(path, k)
	switch {
	case errors.Is(err, config.ErrNoServer):
		return cmdenv.WithHint(err, "add it: holdline servers add "+k[1])
	case err != nil:
		return err
	}
	_ = console.Say(cmd, "%s %s in %s", k, words, path)
	if strings.HasPrefix(words, "is not") {
		return nil
	}
	return attach.ReloadFile(cmd, proc, path)
}
