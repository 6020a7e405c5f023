package configcmd

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/attach"
	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/daemon/clienttable"
	"holdline/daemon/config"
	"holdline/daemon/listing"
	"holdline/daemon/plural"
	"holdline/daemon/policy"
	"holdline/daemon/spelling"
	"holdline/daemon/statedir"
	"holdline/daemon/tool"
	"holdline/daemon/trouble"
	"holdline/protocol/control"
)

// explanation is what config explain prints with --json: what the rules say about one identity
// and one tool. Members that do not apply are left out. The text for people has the settings of
// the server, too.
type explanation struct {
	Identity string          `json:"identity"`
	View     string          `json:"view,omitempty"`
	Shown    string          `json:"shown,omitempty"` // name that the view gives the tool
	Tool     string          `json:"tool"`
	Server   string          `json:"server,omitempty"`   // "" for holdline's own tools
	Names    []string        `json:"names,omitempty"`    // by which the rules know a server's tool
	Unlisted bool            `json:"unlisted,omitempty"` // the server is known to list no such tool
	Allowed  bool            `json:"allowed"`
	Why      string          `json:"why"`
	Contract string          `json:"contract"` // "" is the tool's own annotations
	Budget   int             `json:"budget"`   // calls a session; 0 is no limit
	Expose   string          `json:"expose"`   // all or search
	State    *control.Server `json:"state,omitempty"`

	unknown bool   // there is no such tool, or no such server
	near    string // a tool of the server, which was perhaps meant; or ""
}

// newConfigExplain returns the command config explain. file is the flag --config. The command
// asks the rules itself, and the daemon only for the state of the server: so it also explains a
// file that no daemon reads.
func newConfigExplain(proc *cmdenv.Process, file *string) *cobra.Command {
	var view, guest string
	cmd := console.WithJSON(&cobra.Command{
		Use:   "explain IDENTITY TOOL",
		Short: "Say whether an identity may use a tool, and why",
		Long: `Say by which rule an identity may or may not use a tool, whether its calls may run
again and are cached, and, if a daemon runs, whether the tool's server is well.

IDENTITY is the name of a client, such as codex, or what --identity of mcp-stdio says.
The exit code is 1 if there is no such tool or server.
TOOL is consult or another tool of holdline's own, or SERVER__TOOL of a hosted server,
as agents see it or by the server's own name. Rules hold by either name. With --view
the answer is for a session with that view, and TOOL may be the name that it gives.

With --json: identity, view, tool, shown (the name that the view gives it), server,
names (of a server's tool, by which rules are asked), unlisted (the server listed no
such tool last), allowed, why, contract (empty: what the tool's own annotations
say), budget (calls a session, 0 for no limit), expose (all: the identity is shown
all tools of hosted servers; search: it has find_tools and call_tool instead),
state (of the server, as in status).`,
		Args: func(cmd *cobra.Command, args []string) error {
			if guest != "" && len(args) == 1 {
				return nil
			}
			return cobra.ExactArgs(2)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := cmdenv.ConfigPath(*file, proc.Getenv)
			if err != nil {
				return err
			}
			cfg, err := config.Load(path)
			if err != nil {
				return err
			}
			if err := policy.NewRules(&cfg).CheckView(view); err != nil {
				return err
			}
			who := tool.Who{Identity: clienttable.Identity(args[0]), View: view, Guest: guest}
			name := args[len(args)-1]
			if s, there := cfg.Sockets[guest]; there {
				who.Identity, who.Homeless = s.IdentityOf(guest), len(s.Paths) == 0
			} else if guest != "" {
				return fmt.Errorf("the configuration has no socket %s", guest)
			}
			e, server := explain(&cfg, listedTools(proc), who, name)
			e.State = liveServer(cmd, proc, e.Server)
			err = console.Print(cmd, e, func(out io.Writer) { e.print(out, server) })
			if err == nil && e.unknown {
				return cmdenv.ExitWith(cmdenv.ExitFailure)
			}
			return err
		},
	})
	cmd.Flags().StringVar(&view, "view", "", "for a session with this view")
	cmd.Flags().StringVar(&guest, "guest", "", "for a guest of this socket: without IDENTITY, which the socket gives")
	return cmd
}

// explain returns what the rules of cfg say about a session and a tool, and the settings of
// the tool's server, nil if it has none. listed returns the tools that a server has listed
// last, by the server's own names, or none if they are not known.
//
// The name is one that agents see. It may be an altered form of the tool's own name, so it is
// also compared with the names that agents see of each listed tool.
func explain(
	cfg *config.Config, listed func(server string) []string, who tool.Who, name string,
) (explanation, *config.Settings) {
	e := explanation{
		Identity: who.Identity, View: who.View, Tool: name, Expose: config.ExposeAll,
		Budget: cfg.Identities[who.Identity].Budget.Calls,
	}
	rules := policy.NewRules(cfg)
	if rules.Searches(who) {
		e.Expose = config.ExposeSearch
	}
	// A tool of holdline's own has no server and no settings but the rules.
	if _, exists := tool.OwnDispatch(name); exists {
		e.Allowed, e.Why = rules.Explain(who, "", name)
		return e, nil
	}
	name = rules.Original(who, name)
	server, own, hosted := tool.SplitShown(name)
	known := listed(server)
	for of := range cfg.Servers { // agents may see an altered name, with an altered server name in it
		if tool.MayBeAltered(name) && tool.MayBeOf(of, name) {
			tools := listed(of)
			if i := slices.IndexFunc(tools, func(own string) bool { return tool.Shown(of, own) == name }); i >= 0 {
				server, own, hosted, known = of, tools[i], true, tools
			}
		}
	}
	s, configured := cfg.Server(server)
	switch {
	case !hosted:
		e.Why = "Holdline has no tool " + name + ", and those of servers are called SERVER__TOOL"
		if near := spelling.Nearest(name, tool.OwnNames()); near != "" {
			e.Why += "; did you mean " + near + "?"
		}
		e.unknown = true
		return e, nil
	case !configured:
		e.Why = config.NoServer(server, cfg).Error()
		e.unknown = true
		return e, nil
	}
	e.Server, e.Unlisted = server, len(known) > 0 && !slices.Contains(known, own)
	if e.unknown = e.Unlisted; e.Unlisted {
		e.near = spelling.Nearest(own, known)
	}
	for _, other := range []string{name, server + "__" + own, tool.Shown(server, own)} {
		if !slices.Contains(e.Names, other) {
			e.Names = append(e.Names, other)
		}
	}
	e.Shown = rules.Renamed(who, server, own)
	e.Contract, _ = s.Contract(own)
	e.Allowed, e.Why = rules.Explain(who, server, own)
	// These outweigh what the rules say.
	switch err := s.Unusable(); {
	case err != nil:
		e.Allowed, e.Why = false, "mcpServers."+server+": "+err.Error()
	case !s.Enabled:
		e.Allowed, e.Why = false, "mcpServers."+server+" is disabled: holdline servers enable "+server
	case e.Allowed && !rules.Reaches(who, server):
		e.Allowed, e.Why = false, "the lists of "+who.String()+" hide the whole server"
	}
	return e, &s
}

// listedTools returns a function for the tools that a server has listed last, by the server's
// own names. It reads what a daemon has kept in the state directory, and returns nil for a
// server that was never asked.
func listedTools(proc *cmdenv.Process) func(server string) []string {
	return func(server string) []string {
		dir, err := cmdenv.StateDir(proc.Getenv)
		if err != nil {
			return nil
		}
		tools, _, _ := listing.Remembered(statedir.In(dir).Catalog, server)
		return tools
	}
}

// liveServer returns the status of a server. It returns nil if no daemon runs or the daemon
// does not host the server. An error is no reason to fail: the rules are known without it.
func liveServer(cmd *cobra.Command, proc *cmdenv.Process, name string) *control.Server {
	if name == "" {
		return nil
	}
	status, err := attach.Ask[control.StatusAnswer](cmd, proc, control.Status, nil)
	if err != nil {
		return nil
	}
	for i := range status.Servers {
		if status.Servers[i].Name == name {
			return &status.Servers[i]
		}
	}
	return nil
}

// listed returns how the identity gets to know a hosted server's tool, for people: from its
// tools/list, or by a search.
func (e *explanation) listed() string {
	if e.Expose == config.ExposeSearch {
		return fmt.Sprintf("no: identities.%s.expose is %q, so find_tools finds it and call_tool calls it",
			e.Identity, e.Expose)
	}
	return "yes, with all tools that the identity may use"
}

// print writes the explanation as a table, with one row for each thing that applies. s has the
// settings of the tool's server, nil for a tool of no server.
func (e *explanation) print(out io.Writer, s *config.Settings) {
	verdict := "may use it"
	if !e.Allowed {
		verdict = "may not use it"
	}
	t := console.NewDetails(out, "IDENTITY", e.Identity)
	if e.View != "" {
		t.Row("view", e.View)
	}
	t.Row("tool", e.Tool)
	if e.Shown != "" {
		t.Row("shown as", e.Shown)
	}
	if len(e.Names) > 1 {
		t.Row("also called", strings.Join(e.Names[1:], ", "))
	}
	t.Row("verdict", verdict)
	t.Row("why", e.Why)
	if e.Unlisted {
		but := "the server listed no such tool when it was last asked"
		if e.near != "" {
			but += "; did you mean " + tool.Shown(e.Server, e.near) + "?"
		}
		t.Row("but", but+"; those that it has: holdline servers tools "+e.Server)
	}
	// Without a budget there is no limit, and no row.
	if e.Budget > 0 {
		t.Row("budget", plural.Count(e.Budget, "call")+" in each session")
	}
	if s == nil {
		t.Row("server", "none: one of holdline's own tools, or of no server that is configured")
		t.Flush()
		return
	}
	t.Row("server", fmt.Sprintf("%s, scope %s", e.Server, s.Scope))
	if e.Allowed {
		t.Row("listed", e.listed())
	}
	// The contract decides what becomes of a call whose process was lost. If the configuration
	// says nothing, the tool's own annotations do, which are known only when it is listed.
	switch e.Contract {
	case "":
		t.Row("after a loss", "runs again if the tool says that it may "+
			"(io.libmcp/effect, readOnlyHint or idempotentHint); else the outcome is said to be unknown")
	case "convergent":
		t.Row("after a loss", "runs again, as the configuration says")
	default:
		t.Row("after a loss", "never runs again, as the configuration says: the outcome is said to be unknown")
	}
	t.Row("cached", "if it may run again, and its answers carry ttlMs")
	t.Row("limits", fmt.Sprintf("%d calls at once, %s without progress, %s in all",
		s.MaxConcurrent, config.Duration(s.Timeout), config.Duration(s.MaxTimeout)))
	if e.State != nil {
		now := []string{e.State.State}
		for _, one := range trouble.OfServer(e.State) {
			now = append(now, one.What)
		}
		t.Row("now", strings.Join(append(now, plural.Count(e.State.Restarts, "restart")), "; "))
	}
	t.Flush()
}
