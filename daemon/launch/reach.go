package launch

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/command"
	"holdline/protocol/fault"
)

// lookupTime is how long the address of a host is looked for.
const lookupTime = 3 * time.Second

// hosts finds the addresses of hosts. The zero value is not ready, see [reachable].
type hosts struct {
	lookup  func(ctx context.Context, host string) ([]string, error)
	sources string // file that says where this machine's programs look for hosts
	time    time.Duration
}

// reachable returns a fault that names a host which has no address, if the program of eng reaches its API by that: by
// the address that a variable of its environment gives for the API, or by its proxy. The program itself would try for
// long, and not say which host it was. title names the program. It may also return the cause of ctx.
func reachable(ctx context.Context, eng engine.Engine, title string) error {
	h := hosts{net.DefaultResolver.LookupHost, "/etc/nsswitch.conf", lookupTime}
	return h.check(ctx, eng, title)
}

// check is [reachable] with these sources. A lookup that fails otherwise is no reason to refuse a consult: the
// program may have more luck, or says itself what is wrong.
func (h *hosts) check(ctx context.Context, eng engine.Engine, title string) error {
	r, ok := eng.(interface{ Route() engine.Route })
	if !ok {
		return nil
	}
	name, host := firstHost(r.Route())
	if host == "" {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, h.time)
	defer cancel()
	_, err := h.lookup(limited, host)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil, !h.isNowhere(host, err):
		return nil
	}
	return fault.New(fault.DownstreamFailure, fault.Engine, engine.Operation,
		"%s cannot reach %s: no address was found for that host, which %s names. Correct the variable, or see "+
			"whether this machine is online: holdline doctor", title, host, name).
		WithReason(fault.Unreachable)
}

// firstHost returns the host that a program with this route has to find first, and the variable that names it. Both
// are "" if no variable does, or if it is not certain which one counts.
func firstHost(r engine.Route) (variable, host string) {
	hostOf := func(name string) string {
		value := command.Variable(r.Environ, name)
		u, err := url.Parse(value)
		if err == nil && u.Host == "" && !strings.Contains(value, "://") { // proxies may lack the scheme
			u, err = url.Parse("http://" + value)
		}
		if err != nil {
			return "" // the program says what is wrong with it
		}
		return u.Hostname()
	}
	apis := r.Hosts
	if r.Address != "" {
		if host = hostOf(r.Address); host == "" {
			return "", ""
		}
		apis = []string{host}
	}
	for _, proxy := range r.Proxies {
		if command.Variable(r.Environ, proxy) == "" {
			continue
		}
		around := command.Variable(r.Environ, "no_proxy") + "," + command.Variable(r.Environ, "NO_PROXY")
		switch {
		case len(strings.Trim(around, ", ")) > 0 && len(apis) == 0:
			return "", ""
		case !slices.ContainsFunc(apis, func(host string) bool { return isAround(around, host) }):
			return proxy, hostOf(proxy) // which looks up the other hosts
		}
		break
	}
	return r.Address, host
}

// isAround reports whether a program reaches a host without its proxy. around is the value of NO_PROXY.
func isAround(around, host string) bool {
	host = strings.ToLower(host)
	addr, err := netip.ParseAddr(host)
	if host == "localhost" || err == nil && addr.IsLoopback() {
		return true
	}
	return slices.ContainsFunc(strings.FieldsFunc(strings.ToLower(around), func(r rune) bool {
		return r == ',' || r == ' ' || r == ';'
	}), func(entry string) bool {
		if block, err := netip.ParsePrefix(entry); err == nil {
			return block.Contains(addr)
		}
		if bare, port, err := net.SplitHostPort(entry); err == nil {
			if port != "443" { // for requests to that port alone
				return false
			}
			entry = bare
		}
		end := strings.TrimPrefix(strings.TrimPrefix(entry, "*"), ".")
		return end == "" || host == end || strings.HasSuffix(host, "."+end)
	})
}

// isNowhere reports whether a lookup of a host that has failed shows that no program on this machine finds the host.
// This program asks only files and DNS, while others may know more sources, and names of other scripts.
func (h *hosts) isNowhere(host string, err error) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	failure, ok := errors.AsType[*net.DNSError](err)
	switch {
	case strings.HasSuffix(host, ".invalid"): // which no source has: RFC 6761
		return true
	case !ok, !failure.IsNotFound, strings.HasSuffix(host, ".local"),
		strings.ContainsFunc(host, func(r rune) bool { return r > '~' }):
		return false
	}
	text, err := os.ReadFile(h.sources)
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	return !slices.ContainsFunc(sourcesOf(text), func(source string) bool { return !isCovered(source, host) })
}

// criteria are what a line of nsswitch.conf has in brackets, behind a source.
var criteria = regexp.MustCompile(`\[[^\]]*\]`)

// sourcesOf returns the sources of hosts that a text in the form of nsswitch.conf names.
func sourcesOf(text []byte) (sources []string) {
	for line := range bytes.Lines(text) {
		line, _, _ = bytes.Cut(line, []byte("#"))
		name, value, _ := strings.Cut(string(line), ":")
		if strings.TrimSpace(name) == "hosts" {
			sources = append(sources, strings.Fields(criteria.ReplaceAllString(value, " "))...)
		}
	}
	return sources
}

// isCovered reports whether a source of hosts knows no such host either if files and DNS do not.
func isCovered(source, host string) bool {
	switch source {
	case "files", "dns":
		return true
	case "mdns_minimal", "mdns4_minimal", "mdns6_minimal": // for .local alone
		return !strings.HasSuffix(host, ".local")
	case "myhostname": // for this machine and its gateway alone
		own, err := os.Hostname()
		return err == nil && host != strings.ToLower(own) && strings.Contains(host, ".") &&
			!strings.HasSuffix(host, ".localhost") && !strings.HasSuffix(host, ".localdomain")
	}
	return false
}
