package rollout

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// Listener is the part of a listener that a [Gate] needs. In the daemon it is a
// [holdline/protocol/socket.Listener].
type Listener interface {
	AcceptUnix() (*net.UnixConn, error)
	SetDeadline(t time.Time) error
	Close() error
}

// Gate is a listener that can stop accepting for a while. Clients that connect
// meanwhile wait in the socket's backlog, for this program or for its successor: no
// connection is refused during a hand-over. Make it with [NewGate].
type Gate struct {
	Listener

	mu    sync.Mutex    // guards shut
	shut  chan struct{} // closed when the gate opens; nil while it is open
	ended chan struct{} // closed by Close
	once  sync.Once
}

// NewGate returns an open gate in front of ln. From then on the gate owns ln.
func NewGate(ln Listener) *Gate { return &Gate{Listener: ln, ended: make(chan struct{})} }

// AcceptUnix blocks until there is a connection and the gate is open. After Close it
// returns [net.ErrClosed].
func (g *Gate) AcceptUnix() (*net.UnixConn, error) {
	for {
		conn, err := g.Listener.AcceptUnix()
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, err
		}
		g.mu.Lock()
		shut := g.shut
		g.mu.Unlock()
		if shut != nil { // a connection may have come just before the deadline
			select {
			case <-shut:
			case <-g.ended:
				if conn != nil {
					_ = conn.Close()
				}
				return nil, net.ErrClosed
			}
		}
		if conn != nil {
			return conn, nil
		}
	}
}

// Shut stops accepting. It wakes a blocked AcceptUnix with a deadline in the past; that
// call then waits for Open or Close.
func (g *Gate) Shut() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
	return g.SetDeadline(time.Unix(1, 0))
}

// Open accepts again.
func (g *Gate) Open() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := g.SetDeadline(time.Time{})
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
	return err
}

// Close closes the listener and ends AcceptUnix, even if the gate is shut.
func (g *Gate) Close() error {
	g.once.Do(func() { close(g.ended) })
	return g.Listener.Close()
}
