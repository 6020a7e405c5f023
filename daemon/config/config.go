// Package config reads, checks and edits the configuration file. It holds plain data
// and does not know which parts use them; it reads no environment variable.
//
// The file is JSON with comments and trailing commas. Every key must be known and stand once, every
// value must be of its type and in its range; what is wrong is reported with line and column, all
// of it at once. Tokens and the values of environment variables and headers are [redact.Secret]: no
// way of printing a [Config] shows them.
//
// # Keys
//
// A key is a field of a struct in this file and a row of the table in keys.go. The
// row has its default, its check and its help text; the decoder, the defaults,
// `config check`, `config get`, `config set`, `config unset`, `servers get` and the reference
// page follow the table. What involves several keys is checked in check.go.
//
// # Servers
//
// [Config.Server] returns the [Settings] of one server, with defaults. Package resolve
// makes of them what each start of the server needs.
//
// # Edits
//
// [AddServer], [RemoveServer], [EnableServer] and [Swap] edit the file. They keep its comments, its
// layout and its mode, wait for each other, and replace it only by a valid file.
package config

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"holdline/daemon/plural"
	"holdline/daemon/redact"
)

// Config is what a configuration file says, with defaults for what it does not say. It is read-only
// once made. What its keys mean, and their defaults, is in the table of keys.go.
type Config struct {
	Identities map[string]Identity `json:"identities"`
	Limits     Limits              `json:"limits"`
	Bounds     Bounds              `json:"server_limits"` // of each hosted server that has none of its own
	Consult    Consult             `json:"consult"`
	Telemetry  Telemetry           `json:"telemetry"`
	Log        Log                 `json:"log"`
	Notify     Notify              `json:"notifications"`
	Logins     Logins              `json:"logins"`
	Views      map[string]View     `json:"views"`
	Sockets    map[string]Socket   `json:"sockets"`
	Commands   map[string]Command  `json:"commands"`
	Servers    map[string]Server   `json:"mcpServers"`
}

// Identity is what a client may be and do under a name.
type Identity struct {
	Token  redact.Secret `json:"token"` // "" if any client may use the name
	Allow  []string      `json:"allow"` // nil allows all
	Deny   []string      `json:"deny"`
	Budget Budget        `json:"budget"`
	Expose string        `json:"expose"` // ExposeAll or ExposeSearch; "" is ExposeAll
}

// How an identity is shown the tools of hosted servers.
const (
	ExposeAll    = "all"    // each in the list of tools
	ExposeSearch = "search" // none: one tool finds them by words, another calls them
)

// Budget is what an identity may spend. 0 is no limit.
type Budget struct {
	Calls            int     `json:"calls"`
	ConsultsPerDay   int     `json:"consults_per_day"`
	MaxUSDPerDay     float64 `json:"max_usd_per_day"`
	MaxUSDPerSession float64 `json:"max_usd_per_session"`
}

// Limits bound what clients can make the daemon hold.
type Limits struct {
	Connections int `json:"connections"`
	InFlight    int `json:"in_flight"`
}

// Consult is how consults run.
type Consult struct {
	Engine        string                   `json:"engine"`     // answers unless a call names another one
	ClaudeBin     string                   `json:"claude_bin"` // "" finds claude on PATH
	CodexBin      string                   `json:"codex_bin"`  // "" finds codex on PATH
	CodexConfig   []string                 `json:"codex_config"`
	Model         string                   `json:"model"`  // "" leaves it to the program
	Effort        string                   `json:"effort"` // "" leaves it to the program
	MaxConcurrent int                      `json:"max_concurrent"`
	Timeout       time.Duration            `json:"timeout"`
	Wait          time.Duration            `json:"wait"`
	MaxTurns      int                      `json:"max_turns"` // 0 is no limit
	MaxUSD        float64                  `json:"max_usd"`   // 0 is no limit
	Level         string                   `json:"level"`     // "read" or "shell"
	Roots         []string                 `json:"roots"`
	Web           bool                     `json:"web"`
	Env           map[string]redact.Secret `json:"env"`
	EnvFile       string                   `json:"env_file"`
	Keep          Keep                     `json:"keep"`
	Share         string                   `json:"share"` // ShareProject or ShareIdentity
	Allow         map[string]Allow         `json:"allow"` // by identity; see [Consult.Allowed]
	Agents        map[string]Agent         `json:"agents"`
}

// Allow is what an identity may ask of consults. A list that is empty allows all, but for Levels.
type Allow struct {
	Engines    []string      `json:"engines"`
	Models     []string      `json:"models"` // globs
	Levels     []string      `json:"levels"` // empty is "read", and the level of the configuration
	Efforts    []string      `json:"efforts"`
	MaxTimeout time.Duration `json:"max_timeout"` // 0 is no limit
}

// Everyone is the name in [Consult.Allow] for identities that it does not name.
const Everyone = "*"

// Allowed returns what an identity may ask of consults, and under which key that stands.
func (c *Consult) Allowed(identity string) (a Allow, key string) {
	a, named := c.Allow[identity]
	if key = identity; !named {
		a, key = c.Allow[Everyone], Everyone
	}
	if len(a.Levels) == 0 {
		a.Levels = []string{"read", c.Level}
	}
	return a, Key{"consult", "allow", key}.String()
}

// Which earlier consults a client sees, and may continue from.
const (
	ShareProject  = "project"  // those of its identity in its project
	ShareIdentity = "identity" // those of its identity
)

// Keep bounds which finished consults are kept: none that is older than Age, and never
// more than Count.
type Keep struct {
	Count int           `json:"count"`
	Age   time.Duration `json:"age"`
}

// Telemetry is what is written down about calls.
type Telemetry struct {
	Paths    bool `json:"paths"`
	MaxBytes int  `json:"max_bytes"`
	Keep     int  `json:"keep"`
}

// Notify is which notifications are shown on the desktop: names of notifyKinds. In the file
// true stands for all of them, and false for none.
type Notify []string

// notifyKinds are what notifications can be about: consults that have ended in the background,
// servers that were given up, tools that have changed.
var notifyKinds = []string{"consults", "servers", "tools"}

// Log is what the daemon's own log shows.
type Log struct {
	Level slog.Level `json:"level"`
}

// Server is a hosted MCP server, in the shape that other clients use too.
type Server struct {
	Type     string                   `json:"type"`
	Command  string                   `json:"command"`
	Args     []string                 `json:"args"`
	Env      map[string]Variable      `json:"env"`
	EnvFile  string                   `json:"env_file"`
	Cwd      string                   `json:"cwd"`
	URL      string                   `json:"url"`
	Headers  map[string]redact.Secret `json:"headers"`
	OAuth    OAuth                    `json:"oauth"`
	Enabled  *bool                    `json:"enabled"`
	Disabled bool                     `json:"disabled"`
	Holdline Hosting                  `json:"holdline"`

	wrong string // what is wrong with the entry, a line for each mistake; "" if nothing is
}

// Hosting is how a server is shared and supervised. In a [Server] zero values stand for
// the defaults, which [Config.Server] fills in.
type Hosting struct {
	Disabled         bool           `json:"disabled"`
	Scope            string         `json:"scope"`
	Lazy             bool           `json:"lazy"`
	KeepAlive        *time.Duration `json:"keep_alive"` // nil is the default, since 0 means not at all
	Launcher         string         `json:"launcher"`   // LauncherDirect or LauncherKeep
	LauncherRefresh  time.Duration  `json:"launcher_refresh"`
	Card             string         `json:"card"`
	Contracts        Contracts      `json:"contract"` // see [Settings.Contract]
	Allow            []string       `json:"allow"`    // nil allows all
	Deny             []string       `json:"deny"`
	Projects         []string       `json:"projects"` // nil is everywhere
	Pin              string         `json:"pin"`      // PinWarn or PinBlock
	Timeout          time.Duration  `json:"timeout"`
	MaxTimeout       time.Duration  `json:"max_timeout"`
	TaskAfter        *time.Duration `json:"task_after"` // nil is the default, since 0 means never
	StartTimeout     time.Duration  `json:"start_timeout"`
	MaxConcurrent    int            `json:"max_concurrent"`
	MaxRestarts      *int           `json:"max_restarts"` // nil is the default, since 0 means none
	RestartWindow    time.Duration  `json:"restart_window"`
	CircuitThreshold int            `json:"circuit_threshold"`
	CircuitReset     time.Duration  `json:"circuit_reset"`
	InheritEnv       string         `json:"inherit_env"` // InheritAll, InheritCore or InheritNone
	EnvFile          string         `json:"env_file"`
	Confine          string         `json:"confine"` // ConfineOff, ConfineRead or ConfineProject
	Write            []string       `json:"write"`
	Network          Network        `json:"network"`
	Host             string         `json:"host"` // "" is this machine
	HostWindow       time.Duration  `json:"host_window"`
	Bounds           Bounds         `json:"limits"`
}

// How a server is started that a launcher, such as npx, starts.
const (
	LauncherDirect = "direct" // without it, once it is known what it starts
	LauncherKeep   = "keep"   // as the entry says
)

// What a hosted server, and what it starts, may change.
const (
	ConfineOff     = "off"     // what its user may
	ConfineRead    = "read"    // its own cache, and what Write names
	ConfineProject = "project" // also its project
)

// Network is the TCP ports to which a confined server may connect: nil for any network, and
// empty, which is "none" in the file, for none at all.
type Network []int

// String returns the ports with spaces between them, or "none", or "" for any network.
func (n Network) String() string {
	if n != nil && len(n) == 0 {
		return "none"
	}
	return strings.Trim(fmt.Sprint([]int(n)), "[]")
}

// Bounds is what a hosted server, with all that it starts, may use of the machine; 0 is no limit.
type Bounds struct {
	Memory    plural.Size `json:"memory"`
	Processes int         `json:"processes"` // with their threads
	CPUWeight int         `json:"cpu_weight"`
}

// or returns b with the limits of c in place of those that it does not have.
func (b Bounds) or(c Bounds) Bounds {
	return Bounds{cmp.Or(b.Memory, c.Memory), cmp.Or(b.Processes, c.Processes), cmp.Or(b.CPUWeight, c.CPUWeight)}
}

// Contracts is a replay contract for each tool glob. In the file a plain
// string stands for {"*": string}.
type Contracts map[string]string

// Default returns the configuration of an empty file.
func Default() Config {
	var c Config
	setDefaults(reflect.ValueOf(&c).Elem())
	return c
}

// Equal reports whether two configurations say the same.
func (c Config) Equal(other Config) bool { return reflect.DeepEqual(c, other) }

// LogValue returns a summary for logs: names and counts, and no value of the file that
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

// String returns the summary of [Config.LogValue], so that no way of printing shows
// arguments or addresses, which may be secret.
func (c Config) String() string { return "config" + c.LogValue().String() }
