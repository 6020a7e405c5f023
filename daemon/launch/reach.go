package launch

import (
	"context"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/command"
	"holdline/protocol/fault"
)

// lookupTime is how long the address of a host is looked for.
const lookupTime = 3 * time.Second

// reachable returns a fault that names a host which has no address, if the environment of a consult program has one
// for its API, or for the proxy through which it reaches that. The program itself would try for long, and not say
// which host it was. title names the program.
func reachable(ctx context.Context, environ []string, title string) error {
	names := []string{}
	for _, kv := range environ {
		if name, _, _ := strings.Cut(kv, "="); strings.HasSuffix(name, "_BASE_URL") {
			names = append(names, name)
		}
	}
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		if command.Variable(environ, name) != "" {
			names = []string{name} // which looks up the other hosts
			break
		}
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	slices.Sort(names)
	for _, name := range names {
		u, err := url.Parse(command.Variable(environ, name))
		if err != nil || u.Hostname() == "" {
			continue // the program says what is wrong with it
		}
		if _, err := net.DefaultResolver.LookupHost(ctx, u.Hostname()); err != nil {
			return fault.New(fault.DownstreamFailure, fault.Engine, engine.Operation,
				"%s cannot reach %s: no address was found for that host, which %s names. Correct the variable, or see "+
					"whether this machine is online: holdline doctor", title, u.Hostname(), name).
				WithReason(fault.Unreachable)
		}
	}
	return nil
}
