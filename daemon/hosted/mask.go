package hosted

import (
	"slices"
	"strings"

	"holdline/daemon/config"
	"holdline/protocol/fault"
)

// unknownSecrets stands for what a process said of which it is not known what in it
// is secret: it was started by an earlier entry of the configuration, and its
// worker was killed.
const unknownSecrets = "(not shown: the server's entry has changed since, so what is secret in it is not known)"

// leastPart is the length, in bytes, from which on a part of a secret is hidden at
// an end of a line that may have been cut.
const leastPart = 4

// maskCut is [config.Mask] for a line whose beginning and end may be missing.
func maskCut(line string, secrets []string) string {
	line = config.Mask(line, secrets)
	for _, secret := range secrets {
		for n := min(len(secret)-1, len(line)); n >= leastPart; n-- {
			if strings.HasSuffix(line, secret[:n]) {
				line = line[:len(line)-n] + config.Hidden
				break
			}
		}
		for n := min(len(secret)-1, len(line)); n >= leastPart; n-- {
			if strings.HasPrefix(line, secret[len(secret)-n:]) {
				line = config.Hidden + line[n:]
				break
			}
		}
	}
	return line
}

// maskedLocked is a fault without the secrets that the process was given: its last
// words are in it.
func (u *upstream) maskedLocked(f *fault.Record) *fault.Record {
	if f == nil || len(u.secrets) == 0 && !u.withheld {
		return f
	}
	out := *f
	out.Fault.Detail = config.Mask(f.Fault.Detail, u.secrets)
	if f.Cause != nil {
		cause := *f.Cause
		cause.StderrTail = nil
		for _, line := range f.Cause.StderrTail {
			if u.withheld {
				line = unknownSecrets
			}
			cause.StderrTail = append(cause.StderrTail, maskCut(line, u.secrets))
		}
		if u.withheld {
			cause.StderrTail = slices.Compact(cause.StderrTail)
		}
		out.Cause = &cause
	}
	return &out
}

// secrets are what must not be shown of a process of an earlier daemon, by the
// entry that is configured now. It reports whether that is the process's own entry
// and can tell.
func (inst *instance) secrets() (secrets []string, ok bool) {
	s := inst.srv
	s.m.mu.Lock()
	configured := s.m.servers[s.spec.Name] == s
	s.m.mu.Unlock()
	if !configured || s.spec.Process == nil {
		return nil, false
	}
	p, err := s.spec.Process(inst.root)
	return p.Secrets, err == nil // if not, a variable is gone that stood there when the process began
}

// Remask looks up again what must not be shown of processes of earlier daemons:
// variables are known now that were not when they were adopted.
func (m *Manager) Remask() {
	m.mu.Lock()
	var withheld []*upstream
	for u := range m.processes {
		if u.withheld {
			withheld = append(withheld, u)
		}
	}
	m.mu.Unlock()
	for _, u := range withheld {
		secrets, known := u.inst.secrets()
		if !known {
			continue
		}
		m.mu.Lock()
		u.secrets, u.withheld = secrets, false
		m.mu.Unlock()
	}
}
