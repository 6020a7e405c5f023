package hosted

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"holdline/daemon/config"
	"holdline/daemon/listing"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
	"holdline/protocol/mcp"
	"holdline/protocol/ownfile"
	"holdline/protocol/process"
)

// Offers returns the tools of one server or, without a name, those of each server
// that the caller sees. Servers that have never listed are asked at the same time.
func (m *Manager) Offers(ctx context.Context, c tool.Caller, name string) ([]listing.ServerTools, error) {
	var asked []*server
	if name != "" {
		s, err := m.server(name)
		if err != nil {
			return nil, err
		}
		asked = append(asked, s)
	} else {
		asked = m.visible(&c)
	}
	all := make([]listing.ServerTools, len(asked))
	var asking sync.WaitGroup
	for i, s := range asked {
		asking.Go(func() { all[i] = s.offered(ctx, c) })
	}
	asking.Wait()
	return all, nil
}

// visible returns the servers that a caller sees, by name.
func (m *Manager) visible(c *tool.Caller) []*server {
	m.awaitSights(m.life, c)
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(m.inOrderLocked(), func(s *server) bool { return !s.visible(c) })
}

// offered returns the tools that a server offers a caller. A server that has never
// listed is asked first.
func (s *server) offered(ctx context.Context, c tool.Caller) listing.ServerTools {
	view := s.view(&c)
	if view.Offering == nil {
		if err := s.listFor(ctx, c, s.spec.Name); err != nil {
			return noTools(s.spec.Name, fault.From(err, fault.Server, operation(s.spec.Name)))
		}
		view = s.view(&c)
	}
	return view.Tools()
}

// noTools returns what is shown of a server whose tools are not known.
func noTools(server string, why *fault.Record) listing.ServerTools {
	return listing.ServerTools{Server: server, Tools: []listing.ServerTool{}, Fault: why}
}

// Tool returns a tool of a server by its own name, or by the one that sessions see.
// A server that has never listed is asked first.
func (m *Manager) Tool(ctx context.Context, c tool.Caller, server, name string) (*tool.Remote, error) {
	s, err := m.server(server)
	if err != nil {
		return nil, err
	}
	if out := s.offered(ctx, c); out.Fault != nil {
		return nil, out.Fault
	}
	view := s.view(&c)
	if o := view.Offering.Tool(name); o != nil {
		return &o.Remote, nil
	}
	return nil, fault.New(fault.UnknownTool, fault.Server, mcp.ToolsCall+":"+name,
		"server %s offers no tool %q: holdline servers tools %s shows those that it does", server, name, server)
}

// Log is what one process of a server wrote to stderr.
type Log struct {
	Worker string
	PID    int // of the server
	Root   string
	Text   string
	Next   int64 // where to go on
}

// Limits of a look into logs, in bytes of each.
const (
	maxLog  = 1 << 20
	maxPart = 64 << 10 // of one that is followed
)

// Logs is what the processes of a server wrote to stderr since the places in
// after, by worker, or the end of it; without the secrets of its environment.
// A line that is not whole is left out if the log is followed. If there is no
// process, the fault holds the last words of the one that ended; it is nil if
// there was none.
func (m *Manager) Logs(name string, after map[string]int64, follow bool) ([]Log, *fault.Record, error) {
	s, err := m.server(name)
	if err != nil {
		return nil, nil, err
	}
	m.mu.Lock()
	var running []*upstream
	for u := range m.processes {
		if u.inst.key.server == name && u.state != exited {
			running = append(running, u)
		}
	}
	last := s.fault
	m.mu.Unlock()
	slices.SortFunc(running, func(a, b *upstream) int { return cmp.Compare(a.id, b.id) })
	var logs []Log
	for _, u := range running {
		from, known := after[u.id]
		l, err := u.readLog(from, known, follow)
		if err != nil {
			return nil, nil, fmt.Errorf("log of %s: %w", u.id, err)
		}
		logs = append(logs, l)
	}
	return logs, last, nil
}

// readLog reads what the process wrote to stderr.
func (u *upstream) readLog(from int64, known, follow bool) (Log, error) {
	u.m.mu.Lock()
	secrets, w, withheld := u.secrets, u.w, u.withheld
	u.m.mu.Unlock()
	l := Log{Worker: u.id, Root: u.inst.root, Next: from}
	if w == nil || withheld { // what is secret in it is not known: its worker has yet to tell, or is gone
		return l, nil
	}
	l.PID = w.Status().ChildPID
	f, err := ownfile.Open(filepath.Join(u.dir, process.FileStderr))
	if errors.Is(err, os.ErrNotExist) { // it has written nothing
		return l, nil
	} else if err != nil {
		return l, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return l, err
	}
	size := info.Size()
	most := max(int64(maxPart), 2*int64(longest(secrets)))
	if !known {
		from, most = max(0, size-maxLog), maxLog
	} else if size < from { // another file took its place
		from = 0
	}
	// What lies around the part is read, too: a secret may begin before it or end
	// behind it.
	around := int64(max(longest(secrets)-1, 0))
	begin := max(0, from-around)
	b := make([]byte, from-begin+most+around)
	n, err := f.ReadAt(b, begin)
	if err != nil && !errors.Is(err, io.EOF) {
		return l, err
	}
	b = b[:n]
	first := int(min(from-begin, int64(n)))
	last := first + int(min(most, int64(n-first)))
	switch end := bytes.LastIndexByte(b[first:last], '\n') + 1; {
	case follow && (end > 0 || n == last): // whole lines
		last = first + end
	case follow && begin+int64(n) >= size: // what may be the beginning of a secret waits for the rest
		last = max(first, min(last, n-int(around)))
	}
	text, last := maskPart(b, first, last, secrets)
	l.Text, l.Next = strings.ToValidUTF8(text, "\uFFFD"), begin+int64(last)
	return l, nil
}

// longest is the length of the longest secret, which is the first.
func longest(secrets []string) int {
	if len(secrets) == 0 {
		return 0
	}
	return len(secrets[0])
}

// maskPart returns b[first:last] without secrets: also without the parts of those
// that begin before it or end behind it. It returns where the next part begins.
func maskPart(b []byte, first, last int, secrets []string) (string, int) {
	var out strings.Builder
	for at := 0; at < last; {
		n := 0
		for _, secret := range secrets {
			if bytes.HasPrefix(b[at:], []byte(secret)) {
				n = len(secret)
				break
			}
		}
		switch {
		case n > 0:
			if at+n > first {
				out.WriteString(config.Hidden)
			}
			at += n
			last = max(last, at)
		case at >= first:
			out.WriteByte(b[at])
			at++
		default:
			at++
		}
	}
	return out.String(), last
}
