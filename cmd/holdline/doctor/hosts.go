package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"holdline/daemon/config"
	"holdline/daemon/spelling"
	"holdline/daemon/supervisor/far"
	"holdline/protocol"
)

// checkHosts connects to the hosts of all enabled servers, at the same time, and returns a finding
// for each one. The servers of those that cannot be reached are added to o.missing. It takes [limit]
// at most.
func (o *Options) checkHosts(ctx context.Context) []Finding {
	if o.Loaded == nil {
		return nil
	}
	used := ServersByHost(o.Loaded)
	maps.DeleteFunc(used, func(host string, servers []string) bool {
		used[host] = slices.DeleteFunc(servers, func(name string) bool {
			s, _ := o.Loaded.Server(name)
			return !s.Enabled
		})
		return len(used[host]) == 0
	})
	ctx, cancel := context.WithTimeout(ctx, limit())
	defer cancel()
	found := make([]Finding, len(used))
	hosts := spelling.Sorted(maps.Keys(used))
	var all sync.WaitGroup
	for i, host := range hosts {
		all.Go(func() { found[i] = o.checkHost(ctx, host, strings.Join(used[host], ", ")) })
	}
	all.Wait()
	for i, host := range hosts {
		if found[i].State != OK {
			o.missing = append(o.missing, used[host]...)
		}
	}
	return found
}

// checkHost connects to a host as the daemon does, but with the environment of this shell. servers
// are for people.
func (o *Options) checkHost(ctx context.Context, host, servers string) Finding {
	f := Finding{Check: "host " + host, State: OK}
	begun := time.Now()
	err := far.Visit(ctx, host, o.Environ, 2*protocol.GreetingTimeout, func(s *far.Session) error {
		f.What = fmt.Sprintf("answers after %v, with holdline %s; its servers: %s",
			time.Since(begun).Round(time.Millisecond), s.Program, servers)
		return nil
	})
	if err == nil {
		return f
	}
	words := err.Error()
	if lost, ok := errors.AsType[*far.UnreachableError](err); ok {
		words = lost.Words
	}
	return f.with(Problem, "cannot be reached from this shell: "+words, "its servers cannot be used: "+servers,
		"holdline hosts doctor "+host)
}

// ServersByHost returns the names of the servers that run elsewhere, sorted, by their hosts.
func ServersByHost(c *config.Config) map[string][]string {
	used := map[string][]string{}
	for _, name := range spelling.Sorted(maps.Keys(c.Servers)) {
		if host := c.Servers[name].Holdline.Host; host != "" {
			used[host] = append(used[host], name)
		}
	}
	return used
}
