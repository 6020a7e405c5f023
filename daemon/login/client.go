package login

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"holdline/daemon/authorities"
	"holdline/daemon/sendonce"
)

// Limits of each request.
const (
	dialTimeout   = 10 * time.Second
	getTimeout    = 10 * time.Second
	postTimeout   = 30 * time.Second
	maxAnswer     = 256 << 10 // bytes
	maxHeader     = 64 << 10  // bytes
	maxURL        = 8 << 10   // bytes
	maxRedirects  = 3
	proxiedMarker = ctxKey("proxied")
)

// ctxKey is the type of keys of values in a context.
type ctxKey string

// ErrForbidden is wrapped by errors about an address that may not be asked or opened.
var ErrForbidden = errors.New("address not allowed")

// Client makes the requests of a login. It asks https addresses only, or http between
// loopback addresses; it asks addresses of the own network only if the server is there,
// too; and it bounds what it reads and how long. It never sends a request twice.
type Client struct {
	trusted []string // hosts that the user has named
	local   bool     // the server's own address is loopback
	version string
	http    *http.Client

	once  sync.Once
	reach reach // of the trusted hosts
}

// reach is how far from the public network an address is. An address may be asked if a
// host that the user has named is as far.
type reach int

const (
	public   reach = iota
	private        // of the own network
	loopback       // of this machine
	never          // link-local and the like: metadata services of clouds are there
)

// NewClient returns a client for the login of the server at an address. issuer is
// oauth.issuer of the configuration, or "": the user has named that, too. version is that
// of this program.
func NewClient(server, issuer, version string) *Client {
	c := &Client{version: version}
	for _, address := range []string{server, issuer} {
		if u, err := url.Parse(address); err == nil && u.Hostname() != "" {
			c.trusted = append(c.trusted, u.Hostname())
			c.local = c.local || address == server && IsLoopback(u.Hostname())
		}
	}
	dialer := &net.Dialer{Timeout: dialTimeout, ControlContext: c.control}
	c.http = &http.Client{
		Transport: &guard{c, &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext,
			// Without HTTP/2 and without connections that stay open, net/http has no
			// reason to send a request again by itself.
			DisableKeepAlives: true, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
			TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities.Pool()},
			TLSHandshakeTimeout: dialTimeout, MaxResponseHeaderBytes: maxHeader,
		}},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if via[0].Method != http.MethodGet || len(via) > maxRedirects || sendonce.Origin(req.URL) != sendonce.Origin(via[0].URL) {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
	return c
}

// Check returns an error that wraps [ErrForbidden] for an address that may neither be asked
// nor be opened in a browser: https with a host and without a user part, or http between
// loopback addresses if the server's own address is loopback, too.
func (c *Client) Check(address string) error {
	u, err := url.Parse(address)
	switch {
	case len(address) > maxURL:
		return fmt.Errorf("%w: it has more than %d bytes", ErrForbidden, maxURL)
	case err != nil || u.Hostname() == "" || u.User != nil || u.Opaque != "":
		return fmt.Errorf("%w: %s is no address of a host", ErrForbidden, Clean(address))
	case u.Scheme == "https":
		return nil
	case u.Scheme == "http" && c.local && IsLoopback(u.Hostname()):
		return nil
	}
	return fmt.Errorf("%w: %s does not begin with https", ErrForbidden, Clean(address))
}

// HTTP returns the client for libraries. It keeps all the guards but the time limit of a
// request, which is the caller's.
func (c *Client) HTTP() *http.Client { return c.http }

// Answer is what came back for a request.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Get reads a document. It follows at most three redirects within the origin; another
// redirect is the answer.
func (c *Client) Get(ctx context.Context, address string) (*Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %s is no address", ErrForbidden, Clean(address))
	}
	return c.Do(req, getTimeout)
}

// Post sends a body to an address. It follows no redirect.
func (c *Client) Post(ctx context.Context, address, kind string, body []byte) (*Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w: %s is no address", ErrForbidden, Clean(address))
	}
	req.Header.Set("Content-Type", kind)
	return c.Do(req, postTimeout)
}

// Do makes a request and reads its answer, within the limit and ctx of the request.
func (c *Client) Do(req *http.Request, limit time.Duration) (*Answer, error) {
	ctx, cancel := context.WithTimeout(req.Context(), limit)
	defer cancel()
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "application/json")
	}
	resp, err := c.http.Do(req.WithContext(ctx))
	if err != nil {
		// The whole error contains the address, which may hold a secret.
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err
		}
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil && resp.StatusCode/100 == 2 { // another status says by itself that nothing was given out
		return nil, err
	}
	return &Answer{resp.StatusCode, resp.Header, b}, nil
}

// guard checks each request, and bounds each answer.
type guard struct {
	c    *Client
	next http.RoundTripper
}

// RoundTrip makes one request, which may be one of several redirects.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := g.c.Check(req.URL.String()); err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.Header.Set("User-Agent", "holdline/"+g.c.version)
	if proxy, err := http.ProxyFromEnvironment(req); err == nil && proxy != nil {
		// The proxy looks up names. The address that is dialled is its own.
		if ip, err := netip.ParseAddr(req.URL.Hostname()); err == nil {
			if err := g.c.allow(req.Context(), ip); err != nil {
				return nil, err
			}
		}
		req = req.WithContext(context.WithValue(req.Context(), proxiedMarker, true))
	}
	resp, err := g.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body = &bounded{resp.Body, maxAnswer}
	return resp, nil
}

// bounded fails once more than left bytes are read.
type bounded struct {
	io.ReadCloser
	left int
}

// errTooLarge is the error of an answer that is too large.
var errTooLarge = fmt.Errorf("the answer has more than %d bytes", maxAnswer)

// Read reads up to the bound.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	if b.left -= n; b.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}

// control refuses to dial an address that may not be asked. It sees addresses after the
// names were looked up, so no answer of a name server gets around it.
func (c *Client) control(ctx context.Context, _, address string, _ syscall.RawConn) error {
	if ctx.Value(proxiedMarker) != nil {
		return nil
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s", ErrForbidden, address)
	}
	return c.allow(ctx, at.Addr())
}

// allow returns an error for an address that may not be asked.
func (c *Client) allow(ctx context.Context, ip netip.Addr) error {
	r := reachOf(ip)
	if r == never || r > c.reachOfTrusted(ctx) {
		return fmt.Errorf("%w: %s is not on the public network", ErrForbidden, ip)
	}
	return nil
}

// reachOfTrusted returns the widest reach of the hosts that the user has named. It looks them up once.
func (c *Client) reachOfTrusted(ctx context.Context) reach {
	c.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout)
		defer cancel()
		for _, host := range c.trusted {
			ips, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", host) // the dial says the error
			if r := nearest(ips); r != never {
				c.reach = max(c.reach, r)
			}
		}
	})
	return c.reach
}

// nearest returns the reach of a host with these addresses: that of the one nearest to the public network.
// So one more address of a public server opens nothing. Without addresses it is never.
func nearest(ips []netip.Addr) reach {
	r := never
	for _, ip := range ips {
		r = min(r, reachOf(ip))
	}
	return r
}

// reachOf returns how far an address is from the public network.
func reachOf(ip netip.Addr) reach {
	ip = ip.Unmap().WithZone("")
	switch {
	case ip.IsLinkLocalUnicast(), ip.IsMulticast(), ip.IsUnspecified(), !ip.IsValid(),
		ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}), ip.Is4() && ip.As4()[0] == 0:
		return never
	case ip.IsLoopback():
		return loopback
	case ip.IsPrivate(), netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64}), 10).Contains(ip): // CGNAT
		return private
	}
	if four, ok := embedded(ip); ok {
		return reachOf(four)
	}
	return public
}

// embedded returns the IPv4 address that a NAT64 or 6to4 address leads to.
func embedded(ip netip.Addr) (netip.Addr, bool) {
	b := ip.As16()
	switch {
	case !ip.Is6():
	case strings.HasPrefix(string(b[:]), "\x00\x64\xff\x9b\x00\x00\x00\x00\x00\x00\x00\x00"):
		return netip.AddrFrom4([4]byte(b[12:])), true
	case b[0] == 0x20 && b[1] == 0x02:
		return netip.AddrFrom4([4]byte(b[2:6])), true
	}
	return netip.Addr{}, false
}

// IsLoopback reports whether a host of an address is this machine by its spelling.
func IsLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
