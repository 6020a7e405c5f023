package request

import (
	"slices"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/config"
	"holdline/daemon/config/glob"
	"holdline/protocol/fault"
)

// Permit returns the deadline of a request of an identity: timeout, or less if the
// configuration allows the identity less and the call names none. The error is a denied fault
// if the configuration does not allow the request; see [config.Consult.Allowed].
func (a *Arguments) Permit(
	set *config.Consult, identity, eng string, req *engine.Request, timeout time.Duration,
) (time.Duration, error) {
	may, key := set.Allowed(identity)
	for _, one := range []struct {
		arg, value, list string
		allowed          []string
	}{
		{"engine", eng, "engines", may.Engines},
		{"model", req.Model, "models", may.Models},
		{"level", req.Level, "levels", may.Levels},
		{"effort", req.Effort, "efforts", may.Efforts},
	} {
		named := func(pattern string) bool { return glob.Match(pattern, one.value) }
		switch {
		case len(one.allowed) == 0 || one.value != "" && slices.ContainsFunc(one.allowed, named):
		case one.value == "":
			return 0, denied("%s: %s must name one of %s, says %s.%s of the configuration",
				one.arg, identity, strings.Join(one.allowed, ", "), key, one.list)
		default:
			return 0, denied("%s: %s may not ask for %s; %s.%s of the configuration allows %s",
				one.arg, identity, one.value, key, one.list,
				strings.Join(slices.Compact(slices.Clone(one.allowed)), ", "))
		}
	}
	if most := may.MaxTimeout; most > 0 && timeout > most {
		if a.TimeoutS > 0 {
			return 0, denied("timeout_s: %s may ask for %.0f at most; %s.max_timeout of the configuration "+
				"sets the limit", identity, most.Seconds(), key)
		}
		return most, nil
	}
	return timeout, nil
}

// denied returns a denied fault of the tool consult.
func denied(format string, args ...any) error {
	return fault.New(fault.Denied, fault.Host, engine.Operation, format, args...)
}

// Enforceable returns a denied fault if the level that req asks for cannot be enforced on
// this machine. A run never falls back to a weaker level.
func Enforceable(req *engine.Request, info *engine.Info) error {
	if lacks := info.Level(req.Level).Lacks; lacks != "" {
		return fault.New(fault.Denied, fault.Host, engine.Operation, "level %s cannot be enforced on this machine: %s",
			req.Level, lacks)
	}
	return nil
}
