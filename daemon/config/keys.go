package config

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdline/daemon/redact"

	"holdline/daemon/plural"
)

// row is what the table says of one key. Its type is that of the struct's field with
// the same name in its json tag.
//
// check is one of
//
//	LOW..HIGH     the range of a number or a duration
//	a | b         the values of a string, or of each in a list
//	path, paths   from the root or the home directory
//	program       a name to be looked up, or a path
//	word          one word that is no option
//	globs         patterns of names
//	env           variables of an environment
//	home          any text; a leading ~/ stands for the home directory
//	engine        names of engines, which agent.go checks
//
// or empty. What involves several keys is checked in check.go.
type row struct{ name, preset, check, help string }

// typeNames are the types of a server, as the clients that entries are copied from write them.
const typeNames = "stdio | http | streamable-http | streamableHttp | streamable_http | local | remote | sse"

// table describes every key of the configuration, by the struct that holds it. To add a
// key, add a row here and a field there; a test holds both together. The decoder, the
// defaults, `config check`, `config get`, `config set`, `config unset`, `servers get` and the
// reference page follow the table.
var table = map[reflect.Type][]row{
	reflect.TypeFor[Config](): {
		{"identities", "", "", "rights and budgets of clients, by identity"},
		{"limits", "", "", "limits of what clients can make the daemon hold"},
		{"server_limits", "", "", "limits of each hosted server whose own limits do not say otherwise"},
		{"consult", "", "", "how consults run"},
		{"telemetry", "", "", "what the call log records"},
		{"log", "", "", "the daemon's own log"},
		{"notifications", "", "", "desktop notifications: true, or a list of consults, servers, tools"},
		{"logins", "", "", "logins to remote servers"},
		{"views", "", "", "what sessions see that choose a view, by its name"},
		{"sockets", "", "", "more sockets, by name: for agents in containers and on other machines"},
		{"commands", "", "", "commands that print secrets, by name: ${cmd:NAME} in env and headers of servers"},
		{"mcpServers", "", "", "the hosted MCP servers, by name"},
	},
	reflect.TypeFor[View](): {
		{"servers", "", "", "only these servers"},
		{"allow", "", "globs", "only these tools, prompts and resources, as in identities"},
		{"deny", "", "globs", "not these; overrides allow"},
		{"rename", "", "", "by SERVER__TOOL: the name that sessions see of the tool"},
	},
	reflect.TypeFor[Socket](): {
		{
			"path", "", "path",
			"of the socket, in a directory of its own; default guests/NAME/daemon.sock beside the daemon's",
		},
		{"identity", "", "word", "identity of all its guests; default guest:NAME"},
		{"servers", "", "", "only these servers"},
		{"allow", "", "globs", "only these tools, prompts and resources; holdline's own tools are denied otherwise"},
		{"deny", "", "globs", "not these; overrides allow"},
		{"uids", "", "", "numbers of the users who may connect; default your own"},
		{"paths", "", "", "by directory of the guest: the project here; elsewhere it has shared servers only"},
		{"connections", "64", "1..65536", "guests at the same time"},
		{"in_flight", "8", "1..4096", "calls of all its guests at the same time"},
		{"disabled", "false", "", "nobody can connect"},
	},
	reflect.TypeFor[Command](): {
		{"command", "", "", "program and arguments; its output is one line, the secret"},
	},
	reflect.TypeFor[Identity](): {
		{"token", "", "", "secret that a client must present to use this identity"},
		{"allow", "", "globs", "only these tools, prompts and resources"},
		{"deny", "", "globs", "not these; overrides allow"},
		{"budget", "", "", "limits of what the identity may use"},
		{"expose", "all", "all | search", "search offers find_tools and call_tool instead of all hosted tools"},
	},
	reflect.TypeFor[Budget](): {
		{"calls", "", "1..1000000000", "calls of hosted tools by one client process, until it is restarted"},
		{"consults_per_day", "", "1..1000000", "consults per day"},
		{"max_usd_per_day", "", "0.01..1000000", "cost of consults per day, in US dollars"},
		{"max_usd_per_session", "", "0.01..1000000", "cost of consults per session, in US dollars"},
	},
	reflect.TypeFor[Limits](): {
		{"connections", "1024", "1..65536", "sessions at the same time, and as many commands"},
		{"in_flight", "256", "1..4096", "calls of one client process at the same time"},
	},
	reflect.TypeFor[Bounds](): {
		{"memory", "", "64MiB..1024TiB", "memory that all its processes may use together, such as 2GiB"},
		{"processes", "", "32..1000000", "its processes and their threads, at the same time"},
		{"cpu_weight", "", "1..10000", "its share of a busy processor; 100 is that of others"},
	},
	reflect.TypeFor[Consult](): {
		{"engine", "claude", "engine", "program that answers, unless the call names one"},
		{"claude_bin", "", "program", "name or path of claude"},
		{"codex_bin", "", "program", "name or path of codex"},
		{"codex_config", "", "", "settings for Codex, each as for codex -c: key=value"},
		{"model", "", "word", "model of the engine"},
		{"effort", "", "word", "effort of the engine"},
		{"max_concurrent", "4", "1..64", "consults at the same time; each takes about 200 MB"},
		{"timeout", "20m", "1s..24h", "deadline of a consult, unless the call names one"},
		{"wait", "100s", "0s..24h", "how long a call waits before the consult continues in the background"},
		{"max_turns", "0", "0..10000", "turns of the model in a consult; 0 is no limit"},
		{"max_usd", "", "0.01..10000", "cost of each consult, in US dollars"},
		{"level", "read", "read | shell", "level of rights, unless the call names one"},
		{"roots", "", "paths", "directories that a consult may read, besides the client's project"},
		{"web", "true", "", "the consult may use web tools"},
		{"env", "", "env", "environment variables of the consult program"},
		{"env_file", "", "path", "file with more such variables; must have mode 0600"},
		{"keep", "", "", "how many finished consults are kept, and how long"},
		{
			"share", ShareProject, "project | identity",
			"which consults agents see and continue: their identity's in the project, or in all projects",
		},
		{"allow", "", "", "what identities may ask of consults, by identity; * is for those without an entry"},
		{"agents", "", "", "agents that speak the Agent Client Protocol, by name: NAME is the engine acp:NAME"},
	},
	reflect.TypeFor[Agent](): {
		{"command", "", "program", "name or path of the agent's program"},
		{"args", "", "", "arguments of the program, such as --acp"},
		{"env", "", "", "environment variables of the agent alone; ${NAME} and ${NAME:-default} expand"},
		{"login", "", "paths", "files of your home directory that its private home has, too, read-only"},
		{"writable", "", "paths", "directories that the agent may write to; every answer names them"},
		{"mode", "", "word", "mode to ask for, as the agent names it; no claim rests on it"},
		{"auth", "", "word", "its method to log in by, if it wants to be told"},
		{"fs", "false", "", "the agent may read files of the consult's directories through Holdline"},
		{"model", "", "word", "model of the agent, unless the call names one"},
	},
	reflect.TypeFor[Allow](): {
		{"engines", "", "engine", "only these engines"},
		{"models", "", "globs", "only these models; a call must name one, unless consult.model does"},
		{"levels", "", "read | shell", "only these levels; without the list read, and consult.level"},
		{
			"efforts", "", "low | medium | high | xhigh | max",
			"only these efforts; a call must name one, unless consult.effort does",
		},
		{"max_timeout", "", "1s..24h", "longest deadline"},
	},
	reflect.TypeFor[Keep](): {
		{"count", "200", "1..100000", "finished consults that are kept"},
		{"age", "720h", "0s..87600h", "age up to which finished consults are kept"},
	},
	reflect.TypeFor[Telemetry](): {
		{"paths", "false", "", "the call log names paths: the project's, the calls' and those in faults"},
		{"max_bytes", "8388608", "65536..1073741824", "size at which the call log is rotated"},
		{"keep", "3", "1..100", "number of rotated call logs that are kept"},
	},
	reflect.TypeFor[Log](): {
		{"level", "info", "debug | info | warn | error", "lowest level that is logged"},
	},
	reflect.TypeFor[Server](): {
		{"type", "", typeNames, "transport; default by command or url"},
		{"command", "", "home", "program that runs the server"},
		{"args", "", "", "arguments of the program"},
		{
			"env", "", "",
			"environment variables of the program; ${NAME} and ${NAME:-default} expand; {\"command\": [...]} is run",
		},
		{"env_file", "", "path", "file of variables for ${NAME}; must have mode 0600"},
		{"cwd", "", "home", "working directory of the program; the project's root if not set"},
		{"url", "", "", "address of a server that speaks streamable HTTP"},
		{"headers", "", "", "headers of every request to url; with an Authorization nobody logs in"},
		{"oauth", "", "", "how to log in to the server at url; most servers need none of this"},
		{"enabled", "true", "", "whether the server is hosted"},
		{"disabled", "false", "", "the opposite of enabled, as some clients write it"},
		{"holdline", "", "", "how the server is shared and supervised"},
	},
	reflect.TypeFor[OAuth](): {
		{"clientId", "", "", "client that you have registered with the authorization server; ${NAME} expands"},
		{"client_id", "", "", "the same as clientId"},
		{"clientSecret", "", "", "its secret; ${NAME} expands"},
		{"client_secret", "", "", "the same as clientSecret"},
		{"callbackPort", "", "1..65535", "port of the redirect URI http://localhost:PORT/callback"},
		{"redirectUri", "", "", "redirect URI instead: http, on loopback, with a port"},
		{"scopes", "", "", "scopes to ask for, in place of those that the server asks for"},
		{"scope", "", "", "the same as scopes, with spaces between them"},
		{"issuer", "", "", "which authorization server, if there are several"},
		{"resource", "", "", "parameter resource, in place of the server's; an empty one is not sent"},
		{"account", "", "", "label that keeps two logins to one address apart"},
		{
			"authMethod", "", "none | client_secret_basic | client_secret_post | private_key_jwt",
			"how the client shows who it is",
		},
		{"assumePkce", "false", "", "the authorization server does PKCE, even though it does not say so"},
		{"grant", "", "", "client_credentials if nobody logs in, but this machine"},
		{"privateKeyFile", "", "path", "private key of the client (PEM); must have mode 0600"},
		{"keyId", "", "word", "name of that key at the authorization server"},
		{"alg", "", "ES256 | RS256", "how the key signs; default by its kind"},
	},
	reflect.TypeFor[Logins](): {
		{"key_command", "", "", "program and arguments that print the key (64 hex digits) which seals stored logins"},
		{"client_metadata_url", "", "", "address of a client metadata document that you have published"},
		{"ports", "", "", "ports on loopback for the way back from the browser (28123, 28124, 28125)"},
		{"browser", "", "", "program that opens the browser, or none"},
	},
	reflect.TypeFor[Hosting](): {
		{"disabled", "false", "", "the server is not hosted"},
		{"scope", ScopeProject, "project | shared | session", "which sessions share one process"},
		{"lazy", "false", "", "the server starts at its first use, not with the first session"},
		{"keep_alive", "10m", "0s..168h", "how long a process lives after its last session"},
		{"launcher", LauncherDirect, "direct | keep", "direct starts a server without npx and the like, once it is known what they start"},
		{"launcher_refresh", "24h", "1m..720h", "after that time the launcher looks again for a newer version"},
		{"card", "", "home", "path or URL of the server card"},
		{"contract", "", "", "by glob of tool names: convergent (safe to repeat after a crash) or never_replay"},
		{"allow", "", "globs", "only these tools, prompts and resources of the server"},
		{"deny", "", "globs", "not these; overrides allow"},
		{"projects", "", "paths", "directories in which the server is visible"},
		{"pin", PinWarn, "warn | block", "warn shows changed tools; block also keeps them from agents until accepted"},
		{"timeout", "300s", "1s..168h", "time limit of a call; progress restarts it"},
		{"max_timeout", "1h", "1s..168h", "time limit of a call in all, progress included"},
		{"task_after", "20s", "0s..168h", "when a call becomes a task of a client that takes tasks; 0s never"},
		{"start_timeout", "2m", "1s..168h", "limit of a start; stderr output extends it, to five times at most"},
		{"max_concurrent", "32", "1..4096", "calls in one process at the same time"},
		{"max_restarts", "5", "0..1000", "restarts within restart_window, after which the server is ejected"},
		{"restart_window", "5m", "1s..168h", "time in which restarts are counted"},
		{"circuit_threshold", "5", "1..1000", "failures in a row after which calls fail at once"},
		{"circuit_reset", "30s", "1ms..168h", "how long calls fail at once before one is tried"},
		{"inherit_env", InheritCore, "all | core | none", "which variables of the environment the process inherits"},
		{"env_file", "", "path", "the same as env_file of the server"},
		{"confine", ConfineOff, "off | read | project", "what the server may change: all, nothing, or its project"},
		{"write", "", "paths", "files and directories that a confined server may change, too"},
		{"network", "", "", "of a confined server: none, or a list of TCP ports to which it may connect"},
		{"host", "", "host", "runs it on a host of ssh, docker:NAME, podman:NAME or kube:POD, whose paths these are"},
		{"host_window", "24h", "1m..720h", "how long it lives there while no daemon can reach its host"},
		{"limits", "", "", "what the server, with all that it starts, may use of the machine"},
	},
}

// rowOf returns the row of a key of a struct; it panics if there is none.
func rowOf(t reflect.Type, name string) row {
	i := slices.IndexFunc(table[t], func(r row) bool { return r.name == name })
	return table[t][i]
}

// setDefaults gives each field of the struct v that is zero its default. So a field of [Hosting]
// for which zero may be set is a pointer: the file's zero would be taken for the default.
func setDefaults(v reflect.Value) {
	for _, r := range table[v.Type()] {
		f := v.Field(field(v.Type(), r.name))
		switch {
		case f.Kind() == reflect.Struct:
			setDefaults(f)
		case r.preset != "" && f.IsZero():
			f.Set(parseValue(f.Type(), r.preset))
		}
	}
}

// parseValue returns the value of type t that a text of the table stands for. It
// panics for a text that stands for none, which the table's test finds.
func parseValue(t reflect.Type, text string) reflect.Value {
	v := reflect.New(t).Elem()
	var err error
	switch p := v.Addr().Interface().(type) {
	case *time.Duration:
		*p, err = time.ParseDuration(text)
	case *plural.Size:
		*p, err = plural.ParseSize(text)
	case *slog.Level:
		err = p.UnmarshalText([]byte(text))
	case *string:
		*p = text
	case *bool:
		*p, err = strconv.ParseBool(text)
	case *int:
		*p, err = strconv.Atoi(text)
	case *float64:
		*p, err = strconv.ParseFloat(text, 64)
	default: // a pointer
		v.Set(reflect.New(t.Elem()))
		v.Elem().Set(parseValue(t.Elem(), text))
	}
	if err != nil {
		panic(err) // the table is wrong, which its test finds
	}
	return v
}

// checkRow refuses a value of the file that its row does not allow; at is its path. In a row that
// lists values an empty string stands for the default, which checkRow then sets.
func (d *decoder) checkRow(r row, v reflect.Value, at string) {
	if low, high, ok := strings.Cut(r.check, ".."); ok {
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		d.checkRange(v, parseValue(v.Type(), low), parseValue(v.Type(), high), at)
		return
	}
	if v.Kind() == reflect.String && v.IsZero() && (r.check == "engine" || strings.Contains(r.check, "|")) {
		v.SetString(r.preset)
		return
	}
	if names := strings.Split(r.check, " | "); len(names) > 1 {
		checkOne := func(at, s string) {
			if !slices.Contains(names, s) {
				d.wrong(at, "wants one of %s", strings.Join(names, ", "))
			}
		}
		if v.Kind() == reflect.String {
			checkOne(at, v.String())
		}
		for i, s := range stringsOf(v) {
			checkOne(fmt.Sprintf("%s[%d]", at, i), s)
		}
		return
	}
	switch r.check {
	case "path":
		d.path(at, v.String())
	case "paths":
		d.paths(at, stringsOf(v))
	case "program":
		d.program(at, v.String())
	case "word":
		d.word(at, v.String())
	case "host":
		d.host(at, v.String())
	case "globs":
		d.globs(at, stringsOf(v))
	case "env":
		env, _ := reflect.TypeAssert[map[string]redact.Secret](v)
		d.env(at, env)
	}
}

// checkRange refuses a number or a duration below low or above high.
func (d *decoder) checkRange(v, low, high reflect.Value, at string) {
	outside := v.CanInt() && (v.Int() < low.Int() || v.Int() > high.Int()) ||
		v.CanFloat() && (v.Float() < low.Float() || v.Float() > high.Float())
	if outside {
		d.wrong(at, "wants %v to %v", low, high)
	}
}

// stringsOf returns the list of strings in v, or nil.
func stringsOf(v reflect.Value) []string {
	list, _ := reflect.TypeAssert[[]string](v)
	return list
}

// WithHome returns c with a leading ~/ of every path replaced by home, which must be absolute.
// Which values are paths is in the table. It does not change c, nor maps and lists that c shares.
func (c Config) WithHome(home string) Config {
	expandHome(reflect.ValueOf(&c).Elem(), home)
	c.Consult.Agents = maps.Clone(c.Consult.Agents)
	for name, a := range c.Consult.Agents {
		expandHome(reflect.ValueOf(&a).Elem(), home)
		c.Consult.Agents[name] = a
	}
	c.Sockets = maps.Clone(c.Sockets)
	for name, s := range c.Sockets {
		expandHome(reflect.ValueOf(&s).Elem(), home)
		s.Paths = maps.Clone(s.Paths)
		for guest, dir := range s.Paths {
			s.Paths[guest] = InHome(dir, home)
		}
		c.Sockets[name] = s
	}
	c.Servers = maps.Clone(c.Servers)
	for name, s := range c.Servers {
		there := s
		expandHome(reflect.ValueOf(&s).Elem(), home)
		if s.Holdline.Host != "" { // these are paths of that machine
			s.Command, s.Cwd = there.Command, there.Cwd
			s.EnvFile, s.Holdline.EnvFile = there.EnvFile, there.Holdline.EnvFile
		}
		c.Servers[name] = s
	}
	return c
}

// expandHome replaces a leading ~/ of every path in the struct v, and in the structs in it. A list
// of paths is copied first, since v may share it with another configuration.
func expandHome(v reflect.Value, home string) {
	for _, r := range table[v.Type()] {
		f := v.Field(field(v.Type(), r.name))
		switch {
		case f.Kind() == reflect.Struct:
			expandHome(f, home)
		case r.check == "path", r.check == "program", r.check == "home":
			f.SetString(InHome(f.String(), home))
		case r.check == "paths":
			list := slices.Clone(stringsOf(f))
			for i := range list {
				list[i] = InHome(list[i], home)
			}
			f.Set(reflect.ValueOf(list))
		}
	}
}

// InHome returns the path p with home in place of a leading ~.
func InHome(p, home string) string {
	if p == "~" {
		return home
	}
	if rest, ok := strings.CutPrefix(p, "~/"); ok {
		return strings.TrimSuffix(home, "/") + "/" + rest
	}
	return p
}

// Value is one setting of a hosted server as it is in force.
type Value struct {
	Key  string
	Text string // for people
	JSON any    // a duration is in milliseconds
	Set  bool   // false for the zero value of a key that has no default
}

// JSONKey returns the key for JSON, which ends in _ms for a duration.
func (v Value) JSONKey() string {
	if _, duration := v.JSON.(int64); duration {
		return v.Key + "_ms"
	}
	return v.Key
}

// Values returns the settings of the holdline object, with their defaults, in the
// order of the table. A list is shown with spaces between its elements.
func (s Settings) Values() []Value {
	v := reflect.ValueOf(s.Hosting)
	var all []Value
	for _, r := range table[v.Type()] {
		f := v.Field(field(v.Type(), r.name))
		if f.Kind() == reflect.Pointer {
			f = f.Elem()
		}
		one := Value{Key: r.name, Text: fmt.Sprint(f), JSON: f.Interface(), Set: r.preset != "" || !f.IsZero()}
		switch x := f.Interface().(type) {
		case time.Duration:
			one.Text, one.JSON = Duration(x), x.Milliseconds()
		case []string:
			one.Text = strings.Join(x, " ")
		case Contracts:
			one.Text = x.String()
		case Network:
			one.Text = x.String()
		case Bounds:
			one.JSON = plain(f)
			one.Text = strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(one.JSON), "map["), "]")
		}
		all = append(all, one)
	}
	return all
}

// String returns the contracts as "glob=contract", sorted.
func (c Contracts) String() string {
	var out []string
	for _, glob := range sorted(c) {
		out = append(out, glob+"="+c[glob])
	}
	return strings.Join(out, " ")
}

// effective returns the hosting settings with defaults. max_timeout is never below
// timeout, and env_file may be a key of the server or of its holdline object.
func (h Hosting) effective(s Server) Hosting {
	setDefaults(reflect.ValueOf(&h).Elem())
	h.MaxTimeout = max(h.MaxTimeout, h.Timeout)
	h.EnvFile = cmp.Or(s.EnvFile, h.EnvFile)
	return h
}

// Duration returns a time limit without the zeros at its end: 5m, and not 5m0s.
func Duration(d time.Duration) string {
	text := d.String()
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = short + "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}
	return text
}
