package setupcmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/console"
	"holdline/cmd/holdline/direct"
	"holdline/cmd/holdline/envcmd"
	"holdline/cmd/holdline/importer"
	"holdline/daemon/adapter/engines"
	"holdline/daemon/command"
	"holdline/daemon/config"
	"holdline/daemon/config/expand"
	"holdline/daemon/envfile"
	"holdline/daemon/launch"
	"holdline/daemon/redact"
	"holdline/protocol"
)

// offerVariables finds the variables that this shell has, that servers or consults use, and that the daemon will not
// have. On a terminal it offers to keep each of them, before servers are started without it. Elsewhere, and if the
// user wants no questions, it names them with the command that keeps them.
func (s *setup) offerVariables() error {
	ctx := s.cmd.Context()
	if err := checkVariables(s.look.Config); err != nil {
		return err
	}
	look := s.look
	look.Try = nil
	plan, err := importer.Look(ctx, look)
	if err != nil {
		return nil // the plan that follows says what is wrong
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l, err := direct.New(ctx, s.proc, s.look.Config, s.path)
	if err != nil {
		return err
	}
	if s.look.Daemon, err = l.Environ(ctx); err != nil {
		return err
	}
	shell, daemon := expand.Lookup(s.proc.Environ()), expand.Lookup(s.look.Daemon)
	var lacks []lacking
	for _, one := range usedVariables(plan, s.proc.Environ()) {
		value, _ := shell(one.name)
		now, _ := daemon(one.name)
		if value != "" && now == "" && !config.NeverInherited(one.name) && !strings.ContainsAny(value, "\r\n") {
			lacks = append(lacks, one)
		}
	}
	if len(lacks) == 0 || console.IsJSON(s.cmd) {
		return nil
	}
	if s.o.yes || s.o.dryRun {
		names := printLacking(s.cmd, lacks)
		console.Line(s.cmd.ErrOrStderr(), 4, "To keep %s: holdline env set %s", them(lacks),
			strings.Join(names, " "))
		return nil
	}
	return s.keepVariables(lacks, shell)
}

// lacking is a variable that this shell has and the daemon lacks.
type lacking struct {
	name string
	by   string // what uses it, for people
}

// them is the pronoun for variables.
func them(lacks []lacking) string {
	if len(lacks) == 1 {
		return "it"
	}
	return "them"
}

// printLacking says which variables the daemon lacks and what uses them, and returns their names.
func printLacking(cmd *cobra.Command, lacks []lacking) (names []string) {
	width := 0
	for _, one := range lacks {
		names, width = append(names, one.name), max(width, len(one.name))
	}
	errs := cmd.ErrOrStderr()
	if len(lacks) == 1 {
		console.Line(errs, 4, "Only this shell has %s, which is used by %s.", lacks[0].name, lacks[0].by)
		return names
	}
	console.Line(errs, 4, "Only this shell has these variables, which servers or consults use:")
	for _, one := range lacks {
		console.Line(errs, width+4, "  %-*s  %s", width, one.name, one.by)
	}
	return names
}

// keepVariables asks whether to keep the variables: once about all of them, or, if the user wants that, about each.
func (s *setup) keepVariables(lacks []lacking, shell func(string) (string, bool)) error {
	path, values := envfile.Path(s.look.Config), map[string]string{}
	printLacking(s.cmd, lacks)
	choice := "[Y/n] "
	if len(lacks) > 1 {
		choice = "[Y/n/d] "
	}
	line, err := console.Answer(s.cmd, s.proc.Stdin, fmt.Sprintf("Keep %s in %s, which you alone can read? %s",
		them(lacks), console.Tilde(path, s.look.Home), choice))
	if err != nil {
		return err
	}
	yes := func(line string) bool { return line == "" || line == "y" || line == "yes" }
	for _, one := range lacks {
		keep := yes(line)
		if line == "d" && len(lacks) > 1 {
			answer, err := console.Answer(s.cmd, s.proc.Stdin, fmt.Sprintf("Keep %s? [Y/n] ", one.name))
			if err != nil {
				return err
			}
			keep = yes(answer)
		}
		if keep {
			values[one.name], _ = shell(one.name)
			s.kept = append(s.kept, one.name)
		}
	}
	if err := envcmd.Keep(s.cmd, path, s.kept, values); err != nil {
		return err
	}
	for name, value := range values {
		s.look.Daemon = append(s.look.Daemon, name+"="+value)
	}
	return nil
}

// declined returns err, the reason why setup changes nothing. It takes back what keepVariables has stored.
func (s *setup) declined(err error) error {
	if ferr := s.forgetVariables(context.WithoutCancel(s.cmd.Context())); ferr != nil {
		return errors.Join(err, ferr)
	}
	return err
}

// forgetVariables takes back what keepVariables has stored.
func (s *setup) forgetVariables(ctx context.Context) error {
	var errs []error
	for _, name := range s.kept {
		_, err := envfile.Unset(ctx, envfile.Path(s.look.Config), name)
		errs = append(errs, err)
	}
	s.kept = nil
	return errors.Join(errs...)
}

// usedVariables returns the variables that servers which are to move or consults use, by their names, with what uses
// them.
func usedVariables(plan *importer.Plan, environ []string) (all []lacking) {
	used := map[string][]string{}
	for _, v := range plan.Variables() {
		if len(v.Servers) > 0 {
			used[v.Name] = append(used[v.Name], strings.Join(v.Servers, ", "))
		}
		if len(v.Passed) > 0 {
			used[v.Name] = append(used[v.Name], fmt.Sprintf("%s (passed on by %s)",
				strings.Join(v.Passed, ", "), strings.Join(v.Clients, ", ")))
		}
	}
	for name, programs := range consultVariables(environ) {
		used[name] = append([]string{"consults with " + strings.Join(programs, " and ")}, used[name]...)
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		all = append(all, lacking{name, strings.Join(used[name], "; ")})
	}
	return all
}

// consultVariables returns those variables of an environment by which the programs of consults log in, or reach their
// API or the network, each with the titles of the programs. What a cloud's programs have counts if one of the
// programs uses that cloud.
func consultVariables(environ []string) map[string][]string {
	programs := map[string][]string{}
	clouds := command.NewNames("AWS_*", "GOOGLE_*", "CLOUD_ML_*", "ANTHROPIC_*", "VERTEX_*")
	var usesCloud bool
	for _, kv := range environ {
		usesCloud = usesCloud || strings.HasPrefix(kv, "CLAUDE_CODE_USE_") && !strings.HasSuffix(kv, "=")
	}
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		says := command.Network.Has(name) || redact.NamesSecret(name) || strings.HasSuffix(name, "_BASE_URL") ||
			strings.HasPrefix(name, "CLAUDE_CODE_USE_") || usesCloud && clouds.Has(name) ||
			len(protocol.LoginVariables([]string{kv})) > 0
		for i := range engines.BuiltIn {
			e := &engines.BuiltIn[i]
			if says && launch.Uses(e, name) && !slices.Contains(programs[name], e.Title) {
				programs[name] = append(programs[name], e.Title)
			}
		}
	}
	return programs
}
