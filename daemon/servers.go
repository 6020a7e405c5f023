package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"slices"

	"holdline/daemon/config"
	"holdline/daemon/hosted"
	"holdline/daemon/tool"
	"holdline/protocol/mcp"
)

// buildServers makes the part that hosts other MCP servers, and reads what
// earlier daemons have left of it.
func (l *life) buildServers(ctx context.Context, cfg *config.Config) error {
	l.servers = hosted.New(hosted.Options{
		Log: l.Log, Workers: l.workers, Watch: l.telemetry,
		WorkersDir: filepath.Join(l.place.dir.Path(), workersDir), CatalogDir: l.dirs.Catalog,
		Info:    mcp.Implementation{Name: "holdline", Title: "Holdline", Version: l.Version},
		Servers: l.serverSpecs(cfg),
	})
	return l.servers.Load(ctx)
}

// serverSpecs are the servers that the configuration names and that run as
// processes.
func (l *life) serverSpecs(cfg *config.Config) []hosted.Spec {
	var specs []hosted.Spec
	for _, name := range slices.Sorted(maps.Keys(cfg.Servers)) {
		s := cfg.Servers[name]
		if s.Holdline.Disabled || s.Command == "" {
			continue
		}
		specs = append(specs, l.serverSpec(name, s))
	}
	return specs
}

func (l *life) serverSpec(name string, s config.Server) hosted.Spec {
	h := s.Holdline
	spec := hosted.Spec{
		Name: name, Argv: append([]string{s.Command}, s.Args...), Cwd: s.Cwd, Scope: hosted.Project,
		Key: serverKey(s), Timeout: h.Timeout, MaxTimeout: h.MaxTimeout,
		Contract: func(own string) tool.Contract { return tool.Contract(contractOf(h.Contract, own)) },
	}
	if h.Scope != "" {
		spec.Scope = hosted.Scope(h.Scope)
	}
	spec.Env = func() ([]string, error) {
		env := slices.Clone(l.Environ)
		for key, value := range s.Env {
			env = append(env, key+"="+value.Reveal())
		}
		return env, nil
	}
	return spec
}

// serverKey is equal for entries whose processes may stand for each other.
func serverKey(s config.Server) string {
	env := map[string]string{}
	for key, value := range s.Env {
		env[key] = value.Reveal()
	}
	b, err := json.Marshal([]any{s.Command, s.Args, s.Cwd, env, s.Holdline.InheritEnv, s.Holdline.EnvFile})
	if err != nil { // strings encode
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// contractOf is what the operator says of a tool: of the globs that match it
// the longest counts.
func contractOf(c config.Contracts, own string) string {
	best, found := "", ""
	for glob, contract := range c {
		if ok, err := filepath.Match(glob, own); err == nil && ok && len(glob) >= len(best) {
			best, found = glob, contract
		}
	}
	return found
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
