package setupcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

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
	var lacks []string
	for _, name := range slices.Concat(plan.Variables(), consultVariables(s.proc.Environ())) {
		value, _ := shell(name)
		now, _ := daemon(name)
		if value != "" && now == "" && !config.NeverInherited(name) && !strings.ContainsAny(value, "\r\n") &&
			!slices.Contains(lacks, name) {
			lacks = append(lacks, name)
		}
	}
	if len(lacks) == 0 || console.IsJSON(s.cmd) {
		return nil
	}
	if s.o.yes || s.o.dryRun {
		console.Line(s.cmd.ErrOrStderr(), 4, "Only this shell has %s, which servers or consults use. To keep it for them: "+
			"holdline env set %s", strings.Join(lacks, ", "), strings.Join(lacks, " "))
		return nil
	}
	return s.keepVariables(lacks, shell)
}

// keepVariables asks about each variable, and keeps those that the user wants to be kept.
func (s *setup) keepVariables(names []string, shell func(string) (string, bool)) error {
	path, values := envfile.Path(s.look.Config), map[string]string{}
	for _, name := range names {
		question := fmt.Sprintf("Only this shell has %s, which servers or consults use.\n"+
			"Keep it for them in %s, which you alone can read? [Y/n] ", name, path)
		line, err := console.Answer(s.cmd, s.proc.Stdin, question)
		if err != nil {
			return err
		}
		if line == "" || line == "y" || line == "yes" {
			values[name], _ = shell(name)
			s.kept = append(s.kept, name)
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

// consultVariables returns the names of those variables of an environment by which the programs of consults log in,
// or reach their API or the network, sorted. What a cloud's programs have counts if one of the programs uses that
// cloud.
func consultVariables(environ []string) (names []string) {
	clouds := command.NewNames("AWS_*", "GOOGLE_*", "CLOUD_ML_*", "ANTHROPIC_*", "VERTEX_*")
	var usesCloud bool
	for _, kv := range environ {
		usesCloud = usesCloud || strings.HasPrefix(kv, "CLAUDE_CODE_USE_") && !strings.HasSuffix(kv, "=")
	}
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		used := slices.ContainsFunc(engines.BuiltIn, func(e engines.Engine) bool { return launch.Uses(&e, name) })
		says := command.Network.Has(name) || redact.NamesSecret(name) || strings.HasSuffix(name, "_BASE_URL") ||
			strings.HasPrefix(name, "CLAUDE_CODE_USE_") || usesCloud && clouds.Has(name) ||
			len(protocol.LoginVariables([]string{kv})) > 0
		if used && says && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
