package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holdline/cmd/holdline/cmdenv"
	"holdline/daemon/spelling"
)

// addHelpHint adds to a usage error without a hint where the command's help is.
func addHelpHint(cmd *cobra.Command, err error) error {
	if cmdenv.HasHint(err) || !errors.Is(err, cmdenv.ErrUsage) {
		return err
	}
	return cmdenv.WithHint(err, "see "+cmd.CommandPath()+" --help")
}

// checkArgs makes wrong arguments, and flags that exclude each other, usage errors of root
// and the commands below it, in words of ours. A command without a check takes no arguments.
// A check with words of its own returns an error that wraps [cmdenv.ErrUsage].
func checkArgs(root *cobra.Command) {
	check := root.Args
	if check == nil {
		check = cobra.NoArgs
	}
	root.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		switch {
		case errors.Is(err, cmdenv.ErrUsage):
			return err
		case err != nil:
			return fmt.Errorf("%w: %s", cmdenv.ErrUsage, wrongArgs(cmd, args, check))
		}
		if both := exclusive(cmd); both != "" {
			return fmt.Errorf("%w: %s cannot be used together", cmdenv.ErrUsage, both)
		}
		if wrong := wrongValue(cmd); wrong != "" {
			return fmt.Errorf("%w: %s", cmdenv.ErrUsage, wrong)
		}
		return nil
	}
	for _, cmd := range root.Commands() {
		checkArgs(cmd)
	}
}

// wrongArgs returns what is wrong with the arguments of a command, which check refuses: a
// command that does not exist, too many arguments, or too few. cobra's own words name neither
// the command nor its arguments.
func wrongArgs(cmd *cobra.Command, args []string, check cobra.PositionalArgs) string {
	// An argument of a command with commands below it is a command that does not exist.
	if cmd.HasAvailableSubCommands() && len(args) > 0 {
		var names []string
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				names = append(names, sub.Name())
			}
		}
		words := fmt.Sprintf("there is no command %s %s", cmd.CommandPath(), args[0])
		if near := spelling.Nearest(args[0], names); near != "" {
			words += fmt.Sprintf("; did you mean %s %s?", cmd.CommandPath(), near)
		}
		return words
	}
	use, _, _ := strings.Cut(cmd.Use, "\n")
	use = strings.TrimPrefix(cmd.CommandPath()+" "+use[len(cmd.Name()):], " ")
	use = strings.Join(strings.Fields(use), " ")
	// The check knows how many arguments there may be, and does not say it. It may want names.
	for more := range 3 {
		if check(cmd, slices.Concat(args, slices.Repeat([]string{"x"}, more+1))) == nil {
			return "an argument is missing: " + use
		}
	}
	return "too many arguments: " + use
}

// checkCompletion makes a shell that the command completion of root does not know a usage error.
// It must be called when the output of root is set, since cobra makes the command with it.
func checkCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() != "completion" {
			continue
		}
		var shells []string
		for _, sub := range cmd.Commands() {
			shells = append(shells, sub.Name())
		}
		cmd.Args = func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			words := fmt.Sprintf("there are no completions for %s, but for: %s", args[0], strings.Join(shells, ", "))
			if near := spelling.Nearest(args[0], shells); near != "" {
				words += "; did you mean " + near + "?"
			}
			return fmt.Errorf("%w: %s", cmdenv.ErrUsage, words)
		}
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() } // without it, Args is not asked
		checkArgs(cmd)
	}
}

// exclusive returns the flags that the user has set although they exclude each other, for
// people; "" if there are none.
func exclusive(cmd *cobra.Command) string {
	if cmd.ValidateFlagGroups() == nil {
		return ""
	}
	// cobra keeps the groups of a flag under this name, each as its flags with spaces between.
	const groups = "cobra_annotation_mutually_exclusive"
	var set []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		for _, group := range f.Annotations[groups] {
			for other := range strings.FieldsSeq(group) {
				if other != f.Name && cmd.Flags().Changed(other) && !slices.Contains(set, "--"+f.Name) {
					set = append(set, "--"+f.Name)
				}
			}
		}
	})
	return strings.Join(set, " and ")
}

// valuesAnnotation is the annotation of a flag with all values that it can have.
const valuesAnnotation = "holdline_values"

// isList reports whether a flag takes a list with commas.
func isList(f *pflag.Flag) bool {
	_, list := f.Value.(pflag.SliceValue)
	return list
}

// wrongValue returns what is wrong with the value of a flag that has few, with the one that may
// be meant; "" if all are right.
func wrongValue(cmd *cobra.Command) string {
	words := ""
	cmd.Flags().Visit(func(f *pflag.Flag) {
		values, given := f.Annotations[valuesAnnotation], []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			given = list.GetSlice()
		}
		for _, one := range given {
			if len(values) == 0 || one == "" || slices.Contains(values, one) || words != "" {
				continue
			}
			words = fmt.Sprintf("--%s: %q is not known; these are: %s", f.Name, one, strings.Join(values, ", "))
			if near := spelling.Nearest(one, values); near != "" {
				words += fmt.Sprintf("; did you mean %s?", near)
			}
		}
	})
	return words
}

// wrongFlag makes an error of the flags of a command a usage error, in words of ours. Of a flag
// that does not exist it says which one may be meant.
func wrongFlag(cmd *cobra.Command, err error) error {
	if bare, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return fmt.Errorf("%w: --%s of %s wants a value", cmdenv.ErrUsage, bare.GetFlag().Name, cmd.CommandPath())
	}
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		f := bad.GetFlag()
		return fmt.Errorf("%w: --%s of %s wants %s, not %q",
			cmdenv.ErrUsage, f.Name, cmd.CommandPath(), wanted(f.Value.Type()), bad.GetValue())
	}
	if bad, ok := errors.AsType[*pflag.InvalidSyntaxError](err); ok {
		return fmt.Errorf("%w: %s is no flag", cmdenv.ErrUsage, bad.GetSpecifiedFlag())
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return fmt.Errorf("%w: %w", cmdenv.ErrUsage, err)
	}
	name := unknown.GetSpecifiedName()
	if unknown.GetSpecifiedShortnames() != "" {
		return fmt.Errorf("%w: %s has no flag -%s", cmdenv.ErrUsage, cmd.CommandPath(), name)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	words := fmt.Sprintf("%s has no flag --%s", cmd.CommandPath(), name)
	if near := spelling.Nearest(name, names); near != "" {
		words += fmt.Sprintf("; did you mean --%s?", near)
	}
	return fmt.Errorf("%w: %s", cmdenv.ErrUsage, words)
}

// wanted says for people which values a flag of that type takes.
func wanted(kind string) string {
	switch kind {
	case "bool":
		return "true or false"
	case "int":
		return "a whole number"
	case "uint":
		return "a whole number, 0 or more"
	case "float64":
		return "a number"
	case "duration":
		return "a time such as 90s or 1h30m"
	case "time":
		return "how long ago, such as 10m, or a time such as 15:04 or \"2006-01-02 15:04\""
	}
	return "a value of another form" // such as a list with a quote that does not end
}
