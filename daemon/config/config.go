// Package config reads and checks the configuration file. It holds plain data
// and knows nothing of who uses them; it reads no environment variable.
//
// The file is JSON with comments and trailing commas. Every key must be known
// and stand once, every value must be of its type and in its range; what is
// wrong is reported with line and column, all of it at once. Tokens and the
// values of environment variables and headers are [Secret]: no way of printing
// a [Config] shows them.
package config

import (
	"cmp"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Config is what a configuration file says, with defaults for what it does
// not say. It is read-only once made.
type Config struct {
	Identities map[string]Identity `json:"identities"`
	Limits     Limits              `json:"limits"`
	Consult    Consult             `json:"consult"`
	Telemetry  Telemetry           `json:"telemetry"`
	Log        Log                 `json:"log"`
	Servers    map[string]Server   `json:"mcpServers"`
}

// Identity is what a client may be and do under a name.
type Identity struct {
	Token Secret   `json:"token"` // "" if anybody may claim the name
	Allow []string `json:"allow"` // globs of names; nil allows all
	Deny  []string `json:"deny"`  // globs of names, stronger than Allow

	Budget Budget `json:"budget"`
	Expose string `json:"expose"` // how tools of hosted servers are shown: ExposeAll or ExposeSearch; "" is ExposeAll
}

// How an identity is shown the tools of hosted servers.
const (
	ExposeAll    = "all"    // each in the list of tools
	ExposeSearch = "search" // none: one tool finds them by words, another calls them
)

// Budget is what an identity may spend.
type Budget struct {
	Calls int `json:"calls"` // of hosted servers' tools, in one session; 0 is no limit

	ConsultsPerDay   int     `json:"consults_per_day"`    // 0 is no limit
	MaxUSDPerDay     float64 `json:"max_usd_per_day"`     // of consults; 0 is no limit
	MaxUSDPerSession float64 `json:"max_usd_per_session"` // of consults; 0 is no limit
}

// Limits bound what clients can make the daemon hold.
type Limits struct {
	Connections int `json:"connections"` // of sessions at once, and as many of commands
	InFlight    int `json:"in_flight"`   // calls at once of one client process
}

// The programs that answer consults.
const (
	EngineClaude = "claude"
	EngineCodex  = "codex"
)

// Consult is how consults run.
type Consult struct {
	Engine        string            `json:"engine"`       // that answers if a call names none: EngineClaude or EngineCodex
	ClaudeBin     string            `json:"claude_bin"`   // name or path; "" finds claude on PATH
	CodexBin      string            `json:"codex_bin"`    // name or path; "" finds codex on PATH
	CodexConfig   []string          `json:"codex_config"` // settings as for its option -c: key=value
	Model         string            `json:"model"`        // of Engine; "" leaves it to the program
	Effort        string            `json:"effort"`       // of Engine; "" leaves it to the program
	MaxConcurrent int               `json:"max_concurrent"`
	Timeout       time.Duration     `json:"timeout"`   // a consult's deadline if the call names none
	Wait          time.Duration     `json:"wait"`      // how long a call waits for the answer
	MaxTurns      int               `json:"max_turns"` // 0 is no limit
	MaxUSD        float64           `json:"max_usd"`   // what a consult may cost; 0 is no limit
	Level         string            `json:"level"`     // "read" or "shell", if the call names none
	Roots         []string          `json:"roots"`     // directories allowed besides the client's project
	Web           bool              `json:"web"`       // web tools are allowed
	Env           map[string]Secret `json:"env"`
	EnvFile       string            `json:"env_file"`
	Keep          Keep              `json:"keep"`
}

// Keep bounds which finished consults are kept: none that is older than Age,
// and never more than Count.
type Keep struct {
	Count int           `json:"count"`
	Age   time.Duration `json:"age"`
}

// Telemetry is what is written down about calls.
type Telemetry struct {
	Paths    bool `json:"paths"`     // log the paths that calls name
	MaxBytes int  `json:"max_bytes"` // of the log before it is rotated
	Keep     int  `json:"keep"`      // rotated logs
}

// Log is what the daemon's own log shows.
type Log struct {
	Level slog.Level `json:"level"`
}

// Server is a hosted MCP server, in the shape that other clients use too.
// ${NAME} and ${NAME:-default} in its strings expand when it is started.
type Server struct {
	Type     string            `json:"type"` // "stdio", "http" or "sse"; "" follows from the rest
	Command  string            `json:"command"`
	Args     []string          `json:"args"`
	Env      map[string]Secret `json:"env"`
	EnvFile  string            `json:"env_file"` // variables for ${NAME}
	Cwd      string            `json:"cwd"`
	URL      string            `json:"url"`
	Headers  map[string]Secret `json:"headers"`
	Enabled  *bool             `json:"enabled"`
	Disabled bool              `json:"disabled"`
	Holdline Hosting           `json:"holdline"`
}

// Hosting is how a server is shared and supervised. Its zero values stand for
// the defaults, which [Config.Server] fills in.
type Hosting struct {
	Disabled         bool          `json:"disabled"`
	Scope            string        `json:"scope"` // "project", "shared" or "session"
	Lazy             *bool         `json:"lazy"`
	KeepAlive        time.Duration `json:"keep_alive"`
	Card             string        `json:"card"`     // path or URL
	Contract         Contracts     `json:"contract"` // by tool glob; "*" is the server's
	Allow            []string      `json:"allow"`    // globs of the server's tool names
	Deny             []string      `json:"deny"`
	Projects         []string      `json:"projects"` // directories; nil is everywhere
	Pin              string        `json:"pin"`      // what becomes of a tool that has changed: PinWarn or PinBlock; "" is PinWarn
	Timeout          time.Duration `json:"timeout"`
	MaxTimeout       time.Duration `json:"max_timeout"`
	StartTimeout     time.Duration `json:"start_timeout"`
	MaxConcurrent    int           `json:"max_concurrent"`
	MaxRestarts      *int          `json:"max_restarts"`
	RestartWindow    time.Duration `json:"restart_window"`
	CircuitThreshold int           `json:"circuit_threshold"`
	CircuitReset     time.Duration `json:"circuit_reset"`
	InheritEnv       string        `json:"inherit_env"` // "all", "core" or "none"
	EnvFile          string        `json:"env_file"`    // as that of the server
}

// Contracts is a replay contract for each tool glob. In the file a plain
// string stands for {"*": string}.
type Contracts map[string]string

// Default is the configuration of an empty file.
func Default() Config {
	return Config{
		Limits: Limits{Connections: 1024, InFlight: 256},
		Consult: Consult{
			Engine: EngineClaude, MaxConcurrent: 4, Level: "read", Web: true,
			Timeout: 20 * time.Minute, Wait: 100 * time.Second,
			Keep: Keep{Count: 200, Age: 720 * time.Hour},
		},
		Telemetry: Telemetry{MaxBytes: 8 << 20, Keep: 3},
		Log:       Log{Level: slog.LevelInfo},
	}
}

// WithHome is c with a leading ~/ of every path replaced by home, which must
// be absolute. The original is not changed.
func (c Config) WithHome(home string) Config {
	path := func(p string) string {
		if p == "~" {
			return home
		}
		if rest, ok := strings.CutPrefix(p, "~/"); ok {
			return strings.TrimSuffix(home, "/") + "/" + rest
		}
		return p
	}
	list := func(in []string) []string {
		out := slices.Clone(in)
		for i := range out {
			out[i] = path(out[i])
		}
		return out
	}
	c.Consult.ClaudeBin, c.Consult.CodexBin = path(c.Consult.ClaudeBin), path(c.Consult.CodexBin)
	c.Consult.EnvFile = path(c.Consult.EnvFile)
	c.Consult.Roots = list(c.Consult.Roots)
	c.Servers = maps.Clone(c.Servers)
	for name, s := range c.Servers {
		s.Command, s.Cwd, s.EnvFile = path(s.Command), path(s.Cwd), path(s.EnvFile)
		s.Holdline.EnvFile, s.Holdline.Card = path(s.Holdline.EnvFile), path(s.Holdline.Card)
		s.Holdline.Projects = list(s.Holdline.Projects)
		c.Servers[name] = s
	}
	return c
}

// Equal tells whether two configurations say the same.
func (c Config) Equal(other Config) bool { return reflect.DeepEqual(c, other) }

// LogValue is a summary: names and counts, never a value of the file that
// could be secret.
func (c Config) LogValue() slog.Value {
	tokens := 0
	for _, id := range c.Identities {
		if id.Token != "" {
			tokens++
		}
	}
	return slog.GroupValue(
		slog.Any("identities", slices.Sorted(maps.Keys(c.Identities))),
		slog.Int("tokens", tokens),
		slog.Any("servers", slices.Sorted(maps.Keys(c.Servers))),
		slog.Any("consult_env", slices.Sorted(maps.Keys(c.Consult.Env))),
		slog.String("log_level", c.Log.Level.String()),
	)
}

// String is the summary of [Config.LogValue].
func (c Config) String() string { return "config" + c.LogValue().String() }

// Secret is a string that printing, logging and encoding do not show. Reveal
// is the only way to it.
type Secret string

// hidden stands for a secret that is set.
const hidden = "***"

// Reveal is the secret itself.
func (s Secret) Reveal() string { return string(s) }

// String hides the secret and tells only whether there is one.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hidden
}

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return cmp.Or(s.String(), `""`) }

// LogValue hides the secret from logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText hides the secret from JSON.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Reveal is env with its values in the open, for the environment of a child.
func Reveal(env map[string]Secret) map[string]string {
	out := make(map[string]string, len(env))
	for name, value := range env {
		out[name] = value.Reveal()
	}
	return out
}
