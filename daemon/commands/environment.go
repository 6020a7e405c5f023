package commands

import (
	"context"

	"holdline/daemon/config/expand"
	"holdline/daemon/envfile"
	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// maxNames bounds the names that one request for the environment has.
const maxNames = 256

// showEnvironment answers in which directories servers' programs are looked for, where the
// programs of the request are, and which of its variables are not set. It first waits until
// the user's shell has been asked, for each program as a start of it would. It never
// answers with the value of a variable.
func (d *Daemon) showEnvironment(ctx context.Context, p control.EnvironmentParams, _ Progress) (any, error) {
	if len(p.Programs)+len(p.Variables) > maxNames {
		return nil, fault.New(fault.InvalidInput, fault.Host, control.Environment, "more than %d names", maxNames)
	}
	if err := d.Env.Await(ctx, ""); err != nil {
		return nil, err
	}
	answer := control.EnvironmentAnswer{Programs: []control.FoundProgram{}, Unset: []string{}}
	for _, name := range p.Programs {
		if err := d.Env.Await(ctx, name); err != nil {
			return nil, err
		}
		if path, source := d.Env.Find(name); path != "" {
			answer.Programs = append(answer.Programs, control.FoundProgram{Name: name, Path: path, Source: source})
		}
	}
	// If the file cannot be read, the start of a server says what is wrong with it.
	variables, _ := envfile.Read(envfile.Path(d.File.Path()))
	value := expand.Lookup(variables, d.Env.List())
	for _, name := range p.Variables {
		if _, set := value(name); !set {
			answer.Unset = append(answer.Unset, name)
		}
	}
	answer.Paths = d.Env.Paths()
	if err := d.Env.Failure(); err != nil {
		answer.Failure = err.Error()
	}
	return answer, nil
}
