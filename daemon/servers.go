package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"time"

	"holdline/daemon/adapter/remote"
	"holdline/daemon/config"
	"holdline/daemon/hosted"
	"holdline/daemon/place"
	"holdline/daemon/policy"
	"holdline/daemon/tool"
	"holdline/protocol/mcp"
)

// buildServers makes the part that hosts other MCP servers, and reads what
// earlier daemons have left of it.
func (l *life) buildServers(ctx context.Context, cfg *config.Config) error {
	l.servers = hosted.New(hosted.Options{
		Log: l.Log, Workers: l.workers, Watch: l.telemetry,
		WorkersDir: l.place.File(place.WorkersDir), CatalogDir: l.dirs.Catalog, StateDir: l.dirs.Servers,
		Info:    mcp.Implementation{Name: "holdline", Title: "Holdline", Version: l.Version},
		Servers: l.serverSpecs(ctx, cfg), Gone: l.goneSpec(), Touch: l.crashes.Touch, Careful: l.crashes.Crashed(),
		Prepared: l.env.Known,
		Budget:   func(identity string) int { return l.config.Load().Identities[identity].Budget.Calls },
		Rules:    rules{&l.config},
	})
	if err := l.servers.Load(ctx); err != nil {
		return err
	}
	if l.servers.Unread() {
		return l.place.RenewStore()
	}
	return nil
}

// configureServers has the servers be those of another configuration.
func (l *life) configureServers(ctx context.Context, before, after *config.Config) {
	l.servers.Configure(l.serverSpecs(ctx, after))
	if !reflect.DeepEqual(before.Identities, after.Identities) {
		l.servers.Changed()
	}
}

// replaceWait bounds how long a command waits until edited servers are replaced.
const replaceWait = 10 * time.Second

// keptServers returns, by name, why servers go on as they were although their
// entries were edited. A server that takes long to come up is not waited for.
func (l *life) keptServers(ctx context.Context) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, replaceWait)
	defer cancel()
	failed, _ := l.servers.Replaced(ctx)
	kept := map[string]string{}
	for name, err := range failed {
		kept[name] = err.Error()
	}
	return kept
}

// serverSpecs are the servers that the configuration names.
func (l *life) serverSpecs(ctx context.Context, cfg *config.Config) []hosted.Spec {
	var specs []hosted.Spec
	for _, name := range slices.Sorted(maps.Keys(cfg.Servers)) {
		s, _ := cfg.Server(name)
		switch {
		case !s.Enabled:
		case s.Transport == config.SSE:
			l.Log.WarnContext(ctx, "server left out: the transport sse is not spoken; most such servers speak http, too", "server", name)
		default:
			specs = append(specs, l.serverSpec(s))
		}
	}
	return specs
}

// goneSpec is the spec of a server that the configuration does not name: the
// default limits, and nothing that could be started.
func (l *life) goneSpec() hosted.Spec {
	s, _ := config.Config{}.Server("")
	spec := l.serverSpec(s)
	spec.Process, spec.Ready, spec.Visible, spec.Contract, spec.Offers = nil, nil, nil, nil, nil
	return spec
}

func (l *life) serverSpec(s config.Settings) hosted.Spec {
	spec := hosted.Spec{
		Name: s.Name, Scope: hosted.Scope(s.Scope), Key: serverKey(&s), Remote: s.Transport == config.HTTP, Timeout: s.Timeout, MaxTimeout: s.MaxTimeout,
		StartTimeout: s.StartTimeout, BlockChanged: s.Pin == config.PinBlock,
		Lazy: s.Lazy, KeepAlive: s.KeepAlive, MaxConcurrent: s.MaxConcurrent, MaxRestarts: s.MaxRestarts, RestartWindow: s.RestartWindow,
		CircuitThreshold: s.CircuitThreshold, CircuitReset: s.CircuitReset,
		Process: func(root string) (config.Process, error) { return l.serverProcess(&s, root) },
		Ready:   func(ctx context.Context, root string) error { return l.serverReady(ctx, &s, root) },
		Contract: func(own string) tool.Contract {
			c, _ := s.Contract(own)
			return tool.Contract(c)
		},
		Offers: func(names ...string) bool {
			ok, _ := policy.NewRules(l.config.Load()).Offers(s.Name, names...)
			return ok
		},
	}
	if s.Projects != nil {
		spec.Visible = s.VisibleIn
	}
	return spec
}

// serverProcess resolves what the start of a server needs.
func (l *life) serverProcess(s *config.Settings, root string) (config.Process, error) {
	from := Launch{Config: *l.file.Load(), Home: l.Home, Image: l.Image, Environ: l.environ()}
	return from.Process(s, root)
}

// Launch is what decides, besides its settings, how a server is started.
type Launch struct {
	Config  string   // path of the configuration, beside which the file of variables is
	Home    string   // the user's home directory
	Image   string   // path of this program, which stands for servers by address
	Environ []string // the environment that servers inherit from
}

// Process resolves what the start of a server needs. Root is the directory of
// its project, or "".
func (l *Launch) Process(s *config.Settings, root string) (config.Process, error) {
	a := config.Around{Environ: l.Environ, Home: l.Home, Root: root}
	var err error
	if a.Variables, err = config.ReadEnvFile(config.VariablesFile(l.Config)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return config.Process{}, err
	}
	if s.EnvFile != "" {
		if a.EnvFile, err = config.ReadEnvFile(s.EnvFile); err != nil {
			return config.Process{}, fmt.Errorf("env_file: %w", err)
		}
	}
	if s.Transport == config.HTTP {
		return l.remoteProcess(s, a)
	}
	return s.Process(a)
}

// remoteProcess is the process that stands for a server by address: this
// program, which speaks with it. So what holds for processes holds for it, and
// calls to it outlive the daemon, too.
func (l *Launch) remoteProcess(s *config.Settings, a config.Around) (config.Process, error) {
	address, err := s.Address(a)
	if err != nil {
		return config.Process{}, err
	}
	target := remote.Target{Name: s.Name, URL: address.URL, Headers: address.Headers}
	return config.Process{
		Command: l.Image, Args: []string{"remote"}, Dir: l.Home, Secrets: address.Secrets,
		Env: config.Environment(config.InheritCore, a.Environ, map[string]string{remote.EnvTarget: target.Encode()}),
	}, nil
}

// serverKey is equal for entries whose processes may stand for each other. The
// daemon's own environment is no part of it: it may be another one after each
// start.
func serverKey(s *config.Settings) string {
	spec := []any{s.Command, s.Args, config.Reveal(s.Env), s.Cwd, s.InheritEnv, s.EnvFile}
	if s.URL != "" {
		spec = append(spec, s.URL, config.Reveal(s.Headers))
	}
	b, err := json.Marshal(spec)
	if err != nil { // strings encode
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// runServers keeps the hosted servers until the daemon stops, and then leaves
// them to the next daemon, or ends them if that was asked for.
func (l *life) runServers(ctx context.Context) error {
	<-ctx.Done()
	why := context.Cause(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	var err error
	if l.endAll.Load() {
		err = l.servers.EndAll(ctx)
	}
	return errors.Join(why, err, l.servers.Close(ctx))
}
