package importer

import (
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"holdline/cmd/holdline/clients"
	"holdline/daemon/clienttable"
	programs "holdline/daemon/command"
	"holdline/daemon/config"
	"holdline/daemon/config/resolve"
	"holdline/daemon/plural"
	"holdline/daemon/redact"
)

// setPassed finds what the client passes on to the server of its own environment, and Holdline's
// server would not have. Variables by which programs choose what they work on, and secrets, are kept, and
// so are those that the user has chosen; the others are counted for the plan.
//
// A variable is kept as a reference, so that the server follows the user's login shell. What is no
// secret has its present value behind that: a variable that only this shell has must not be lost without a
// word.
func (t *translation) setPassed() {
	if t.s.Command == "" {
		return
	}
	environ := t.c.Environment(t.o.Places, t.o.Environ)
	var kept []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		value, _ := clients.Lookup(environ, name)
		_, set := t.s.Env[name]
		switch chosen := slices.Contains(t.o.Keep, name); {
		case set, value == "", !variableName(name), !t.c.Passes(name), slices.Contains(kept, name):
		case resolve.Inherits(config.InheritCore, name), programs.Agents.Has(name), config.NeverInherited(name):
		case !chosen && programs.Passing.Has(name) && (name == "PWD" || !redact.NamesSecret(name)): // that is no password
		case !chosen && (slices.Contains(t.o.codexKeys, name) || !programs.Selecting.Has(name) && !redact.NamesSecret(name)):
			if !slices.Contains(t.left, name) {
				t.left = append(t.left, name)
			}
		case !chosen && (strings.HasPrefix(name, "HOLDLINE_") || strings.HasPrefix(name, "CLAUDE")):
		default:
			kept = append(kept, name)
			if t.s.passed == nil {
				t.s.passed = map[string]string{}
			}
			t.s.passed[name] = passed(name, value)
		}
	}
	if len(kept) > 0 {
		slices.Sort(kept)
		t.addNote("keeps %s of your environment: %s; %s passes them to each of its servers",
			plural.Noun(len(kept), "variable"), strings.Join(kept, ", "), t.c.Title)
	}
}

// ours are the variables by which holdline finds its files, its daemon, and what its user has chosen. A
// token is none of them: it is a secret.
var ours = []string{
	"XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME",
	"HOLDLINE_CONFIG", "HOLDLINE_SOCKET", "HOLDLINE_GUEST", "HOLDLINE_VIEW",
}

// withEnvironment returns the members of an entry that starts holdline, with those variables of this
// environment that its client would not pass on: without them it would look for another daemon. Not in a file
// that people share.
func (p *Plan) withEnvironment(f *File, fields []clients.Field) []clients.Field {
	if f.client.Inherits != clienttable.Some || f.Project != "" {
		return fields
	}
	inherited, env := programs.NewNames(f.client.Inherited...), map[string]string{}
	for _, name := range ours {
		if value := p.o.Getenv(name); value != "" && !inherited.Has(name) {
			env[name] = value
		}
	}
	if len(env) == 0 {
		return fields
	}
	return append(fields, clients.Field{Key: "env", Value: env})
}

// codexKeys returns the names of the variables with the keys of the providers that Codex' own configuration names. They
// are for Codex alone: a server gets them only because its client passes on all that it has.
func codexKeys(places clients.Places) (names []string) {
	home := places.Getenv("CODEX_HOME")
	if home == "" {
		home = filepath.Join(places.Home, ".codex")
	}
	var own struct {
		Providers map[string]struct {
			Key string `toml:"env_key"`
		} `toml:"model_providers"`
	}
	text, err := clients.ReadFile(filepath.Join(home, "config.toml"))
	if err != nil || toml.Unmarshal(text, &own) != nil {
		return nil
	}
	for _, provider := range own.Providers {
		names = append(names, provider.Key)
	}
	return names
}

// variableName reports whether a reference can have this name.
func variableName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) && (name[0] < '0' || name[0] > '9')
}

// passed returns the value of a variable that is kept, as holdline's file has it.
func passed(name, value string) string {
	if redact.NamesSecret(name) || redact.Text(value) != value || strings.ContainsAny(value, "${}\n\r") {
		return optional(name)
	}
	return "${" + name + ":-" + value + "}"
}

// withPassed returns the settings of the server with the variables that the client would have passed on, as holdline's
// file will have them.
func (s *server) withPassed(settings config.Settings) config.Settings {
	if len(s.passed) == 0 {
		return settings
	}
	env := maps.Clone(settings.Env)
	if env == nil {
		env = map[string]redact.Secret{}
	}
	for name, value := range s.passed {
		env[name] = redact.Secret(value)
	}
	settings.Env = env
	return settings
}

// written returns the members of the entry as holdline's file gets them: with the variables that the
// client would have passed on.
func (s *server) written() []clients.Field {
	whole := *s
	if len(s.passed) > 0 {
		whole.Env = maps.Clone(s.passed)
		maps.Copy(whole.Env, s.Env)
	}
	return whole.fields()
}

// longLimits returns the client's limits of a call and of the server's start, as durations
// for holdline's file: those that are longer than holdline's defaults, else "". A shorter
// limit is not copied: it stays with the client, and the client keeps to it.
//
// What the entry says counts first, then a variable of the client, then how long the client waits if
// nothing is said.
func (t *translation) longLimits() (call, start string) {
	call = t.longLimit(t.c.CallKeys, t.c.CallVariables, 300*time.Second)
	if call == "" && !t.limited(t.c.CallKeys, t.c.CallVariables) {
		own := t.c.Call
		if t.c.Silence > 0 {
			own = min(own, t.c.Silence)
			if silence, ok := t.variableLimit(t.c.SilenceVariable); ok {
				own = silence
			}
		}
		if own > 300*time.Second && own <= maxLimit {
			call = own.String()
		}
	}
	return call, t.longLimit(t.c.StartKeys, t.c.StartVariables, 2*time.Minute)
}

// maxLimit is the longest limit that holdline's file may say.
const maxLimit = 168 * time.Hour

// longLimit returns the limit that the first of the keys sets, or else the first of the variables, as a
// duration for holdline's file. It returns "" if no limit is above a default and at most what holdline's file
// may say.
func (t *translation) longLimit(keys []clienttable.Limit, variables []string, least time.Duration) string {
	for _, key := range keys {
		if limit, ok := t.keyLimit(key); ok {
			return between(limit, least)
		}
	}
	for _, name := range variables {
		if limit, ok := t.variableLimit(name); ok {
			return between(limit, least)
		}
	}
	return ""
}

// between returns a limit above least and at most maxLimit as a duration, else "".
func between(limit, least time.Duration) string {
	if limit > least && limit <= maxLimit {
		return limit.String()
	}
	return ""
}

// limited reports whether the user has set one of these limits.
func (t *translation) limited(keys []clienttable.Limit, variables []string) bool {
	return slices.ContainsFunc(keys, func(key clienttable.Limit) bool { _, ok := t.keyLimit(key); return ok }) ||
		slices.ContainsFunc(variables, func(name string) bool { _, ok := t.variableLimit(name); return ok })
}

// keyLimit returns the limit that a member of the entry sets.
func (t *translation) keyLimit(key clienttable.Limit) (time.Duration, bool) {
	text, ok := scalar(t.keys[key.Key])
	if !ok {
		return 0, false
	}
	return limitOf(text, key.Unit)
}

// variableLimit returns the limit that a variable of the client sets, in milliseconds.
func (t *translation) variableLimit(name string) (time.Duration, bool) {
	text, _ := clients.Lookup(t.c.Environment(t.o.Places, t.o.Environ), name)
	return limitOf(text, time.Millisecond)
}

// limitOf returns a number of units as a duration.
func limitOf(text string, unit time.Duration) (time.Duration, bool) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n <= 0 || n > 1e10 {
		return 0, false
	}
	return time.Duration(min(n*float64(unit), float64(100*maxLimit))), true
}
