package hosted

import (
	"strings"

	"holdline/protocol/fault"
)

// hidden stands for a secret.
const hidden = "***"

// mask hides secrets, the longest of which come first.
func mask(s string, secrets []string) string {
	for _, secret := range secrets {
		s = strings.ReplaceAll(s, secret, hidden)
	}
	return s
}

// masked is a fault without the secrets that the server's environment was
// given: its last words are in it.
func masked(f *fault.Record, secrets []string) *fault.Record {
	if f == nil || len(secrets) == 0 {
		return f
	}
	out := *f
	out.Fault.Detail = mask(f.Fault.Detail, secrets)
	if f.Cause != nil {
		cause := *f.Cause
		cause.StderrTail = nil
		for _, line := range f.Cause.StderrTail {
			cause.StderrTail = append(cause.StderrTail, mask(line, secrets))
		}
		out.Cause = &cause
	}
	return &out
}

// secrets are what must not be shown of a process of an earlier daemon.
func (inst *instance) secrets() []string {
	if inst.srv.spec.Process == nil { // it is configured no more
		return nil
	}
	p, err := inst.srv.spec.Process(inst.root)
	if err != nil { // a variable is gone: it stood there when the process began
		return nil
	}
	return p.Secrets
}
