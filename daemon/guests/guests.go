// Package guests serves the sockets of the configuration. Agents in containers and on other
// machines connect there. What such a guest is depends on its socket, and not on its greeting: its
// identity, and the project that its working directory stands for. What it may use is decided by
// package policy.
//
// [Manager.Run] owns all goroutines.
package guests

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"holdline/daemon/config"
	"holdline/daemon/listener"
	"holdline/protocol"
	"holdline/protocol/control"
	"holdline/protocol/lockcheck"
	"holdline/protocol/socket"
)

// retryEvery is how often a socket is looked after that cannot be listened at, or whose file is gone.
const retryEvery = 2 * time.Second

// Options are the settings of a manager.
type Options struct {
	Log     *slog.Logger
	UID     int
	Private string                          // the daemon's runtime directory, which no guest may see
	Dir     string                          // of the sockets that have no path
	Current func() map[string]config.Socket // the sockets of the configuration in force
	Serve   listener.Handler                // of role "mcp"
	Expel   func(socket string)             // ends the sessions of a socket
}

// Manager listens at the sockets. Make it with [New].
type Manager struct {
	o       Options
	changed chan struct{}  // holds a token when the configuration has changed
	serving sync.WaitGroup // the goroutines of Run
	room    *listener.Room // for long messages of all guests

	mu      lockcheck.Mutex
	shares  map[string]*listener.Share // of room, by socket; guarded by mu
	trouble map[string]string          // why a socket is not listened at; guarded by mu
	forward map[forwarding]int         // how many commands do that; guarded by mu
}

// forwarding is what a command does that forwards a socket to a host.
type forwarding struct{ socket, host string }

// New returns a manager that does not listen yet.
func New(o Options) *Manager {
	return &Manager{
		o: o, changed: make(chan struct{}, 1), room: listener.NewRoom(), shares: map[string]*listener.Share{},
		trouble: map[string]string{}, forward: map[forwarding]int{},
	}
}

// Changed makes [Manager.Run] look at the configuration.
func (m *Manager) Changed() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// door is a socket at which the manager listens.
type door struct {
	socket config.Socket
	ln     *socket.Listener
	stop   context.CancelFunc // ends the listening, and no session
}

// Run listens at the sockets until ctx is done, and then blocks until all their connections have
// ended. A socket that is disabled, or no longer in the configuration, is closed, and its guests are
// disconnected.
func (m *Manager) Run(ctx context.Context) error {
	doors, closed := map[string]*door{}, map[string]bool{}
	defer m.serving.Wait()
	tick := time.NewTicker(retryEvery)
	defer tick.Stop()
	for {
		m.update(ctx, doors, closed)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		case <-m.changed:
		}
	}
}

// update makes doors those of the configuration. closed has the sockets that were open once: a
// guest that came at the moment when one was closed is disconnected at the next update.
func (m *Manager) update(ctx context.Context, doors map[string]*door, closed map[string]bool) {
	wanted := m.o.Current()
	for name, d := range doors {
		s, there := wanted[name]
		there = there && !s.Disabled
		closed[name] = !there
		if there && !sameGuests(&d.socket, &s) {
			m.o.Expel(name) // they are other guests now
		}
		if there && m.same(name, &d.socket, &s) && d.ln.Still() {
			d.socket = s
			continue
		}
		if !there {
			m.o.Log.InfoContext(ctx, "socket closed, its guests are disconnected", "socket", name)
		}
		d.stop()
		_ = d.ln.Close() // by now, since the path may be wanted again below
		delete(doors, name)
	}
	for name := range closed {
		if closed[name] {
			m.o.Expel(name)
		}
	}
	trouble := map[string]string{}
	for name, s := range wanted {
		if doors[name] != nil || s.Disabled {
			continue
		}
		d, err := m.open(ctx, name, s)
		if err != nil {
			trouble[name] = err.Error()
			if m.trouble[name] != trouble[name] { // only this goroutine writes it
				m.o.Log.WarnContext(ctx, "no guest can connect", "socket", name, "err", err)
			}
			continue
		}
		doors[name] = d
	}
	m.mu.Lock()
	m.trouble = trouble
	m.mu.Unlock()
}

// path returns the path of a socket.
func (m *Manager) path(name string, s *config.Socket) string {
	return cmp.Or(s.Path, filepath.Join(m.o.Dir, name, "daemon.sock"))
}

// sameGuests reports whether the guests of a socket whose entry was a, and is b, are who they were.
// The rules for them are read from the configuration at each question.
func sameGuests(a, b *config.Socket) bool {
	return a.Identity == b.Identity && maps.Equal(a.Paths, b.Paths)
}

// same reports whether one can go on to listen for a socket whose entry was a, and is b.
func (m *Manager) same(name string, a, b *config.Socket) bool {
	return m.path(name, a) == m.path(name, b) && slices.Equal(a.UIDs, b.UIDs) && a.Connections == b.Connections
}

// resolved returns a path without links, as far as it is there.
func resolved(path string) string {
	dir := filepath.Dir(path)
	if to, err := filepath.EvalSymlinks(path); err == nil || dir == path {
		return cmp.Or(to, path)
	}
	return filepath.Join(resolved(dir), filepath.Base(path))
}

// open begins to listen at a socket.
func (m *Manager) open(ctx context.Context, name string, s config.Socket) (*door, error) {
	uids, path := s.UIDs, m.path(name, &s)
	if len(uids) == 0 {
		uids = []int{m.o.UID}
	}
	// The directory is to be mounted: there must be nothing else in it.
	private := []string{m.o.Private, m.o.Dir}
	for other, o := range m.o.Current() {
		if other != name && !o.Disabled {
			private = append(private, filepath.Dir(m.path(other, &o)))
		}
	}
	within := strings.TrimSuffix(resolved(filepath.Dir(path)), "/") + "/"
	for _, dir := range private {
		if strings.HasPrefix(resolved(dir)+"/", within) {
			return nil, fmt.Errorf("the path %s needs a directory of its own: guests would find %s there", path, dir)
		}
	}
	ln, err := socket.ListenFor(path, slices.ContainsFunc(uids, func(uid int) bool { return uid != m.o.UID }))
	if err != nil {
		return nil, err
	}
	d := &door{socket: s, ln: ln}
	listening, stop := context.WithCancel(ctx)
	d.stop = stop
	l := listener.New(listener.Options{
		Log: m.o.Log.With("socket", name), UIDs: uids, MaxConns: cmp.Or(s.Connections, config.GuestLimit), Strict: true,
		Handlers: map[string]listener.Handler{
			// A session does not end with the listening, but with the daemon.
			protocol.RoleMCP: func(_ context.Context, c *listener.Conn) { m.serve(ctx, name, c) },
		},
	})
	m.serving.Go(func() {
		if err := l.Serve(listening, ln); err != nil {
			m.o.Log.WarnContext(ctx, "socket given up", "socket", name, "err", err)
		}
	})
	m.o.Log.InfoContext(ctx, "socket for guests open", "socket", name, "path", ln.Path())
	return d, nil
}

// serve serves a guest.
func (m *Manager) serve(ctx context.Context, name string, c *listener.Conn) {
	if err := m.admit(name, c); err != nil {
		m.o.Log.WarnContext(ctx, "guest refused", "socket", name, "err", err)
		listener.Refuse(c.Socket, err)
		return
	}
	m.o.Serve(ctx, c)
}

// admit makes of a connection that of a guest: of its greeting only what brings back a session, and
// what narrows it to a server, stays. Its process is not looked at: it may be on another
// machine, or that of a program that forwards the socket.
func (m *Manager) admit(name string, c *listener.Conn) *protocol.Refusal {
	s, there := m.o.Current()[name]
	switch {
	case !there, s.Disabled:
		return &protocol.Refusal{Code: protocol.RefusedIdentity, Message: "this socket is closed"}
	case c.Anonymous:
		return &protocol.Refusal{
			Code: protocol.RefusedGreeting, Message: "a guest connects by: holdline mcp-stdio --guest PATH",
		}
	}
	g := c.Greeting
	c.Greeting = protocol.Greeting{
		Holdline: g.Holdline, Role: g.Role, Session: g.Session, Resume: g.Resume, Store: g.Store, Next: g.Next,
		Pending: g.Pending, Server: g.Server, Version: g.Version, Identity: s.IdentityOf(name),
	}
	c.Guest = &listener.Guest{Socket: name, InFlight: cmp.Or(s.InFlight, config.GuestCalls), Room: m.shareOf(name)}
	c.Peer.PID = 0
	dir, err := m.projectOf(s.ProjectOf(g.Cwd))
	if err != nil {
		m.o.Log.Warn("a project of guests cannot be used", "socket", name, "err", err)
		return &protocol.Refusal{
			Code:    protocol.RefusedGreeting,
			Message: "the directory for which " + g.Cwd + " stands cannot be used on the machine of the daemon",
		}
	}
	c.Greeting.Cwd, c.Greeting.Project = dir, projectKey(name, dir)
	return nil
}

// shareOf returns the room of a socket. It stays that of the name for good: what guests of before hold
// of it may not be given back yet.
func (m *Manager) shareOf(name string) *listener.Share {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shares[name] == nil {
		m.shares[name] = m.room.Share()
	}
	return m.shares[name]
}

// projectOf returns the real path of a project of guests; "" for "". It refuses one that lies in the
// project of other guests, who could replace it by a link to elsewhere.
func (m *Manager) projectOf(project string) (string, error) {
	if project == "" {
		return "", nil
	}
	dir, err := filepath.EvalSymlinks(project)
	if err != nil {
		return "", err
	}
	above, err := filepath.EvalSymlinks(filepath.Dir(filepath.Clean(project)))
	if err != nil {
		return "", err
	}
	for name, s := range m.o.Current() {
		for _, other := range s.Paths {
			theirs, err := filepath.EvalSymlinks(other)
			if err == nil && strings.HasPrefix(above+"/", strings.TrimSuffix(theirs, "/")+"/") {
				return "", fmt.Errorf("%s lies in %s, a project of the socket %s", project, other, name)
			}
		}
	}
	return dir, nil
}

// projectKey returns the key of a guest's project. It is another one than that of the same
// directory for clients here, so that guests share processes only with guests of their socket.
func projectKey(name, dir string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "guest\x00%s\x00%s", name, dir))
	return hex.EncodeToString(sum[:8])
}

// Forwarded records that a command forwards a socket to a host, until the caller calls done. It
// returns an error if there is no such socket.
func (m *Manager) Forwarded(name, host string) (done func(), err error) {
	if _, there := m.o.Current()[name]; !there {
		return nil, fmt.Errorf("the configuration has no socket %s", name)
	}
	f := forwarding{name, host}
	count := func(n int) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.forward[f] += n; m.forward[f] == 0 {
			delete(m.forward, f)
		}
	}
	count(1)
	return func() { count(-1) }, nil
}

// Status returns the sockets of the configuration, in the order of their names.
func (m *Manager) Status() []control.Socket {
	wanted := m.o.Current()
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []control.Socket
	for name, s := range wanted {
		one := control.Socket{
			Name: name, Path: m.path(name, &s), Identity: s.IdentityOf(name), Disabled: s.Disabled,
		}
		if !s.Disabled {
			one.Trouble = m.trouble[name]
		}
		for f := range m.forward {
			if f.socket == name {
				one.Hosts = append(one.Hosts, f.host)
			}
		}
		slices.Sort(one.Hosts)
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b control.Socket) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
