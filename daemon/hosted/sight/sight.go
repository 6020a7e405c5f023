// Package sight remembers which projects see a server.
//
// Whether they do depends on the file system, which may hang: an NFS home does. So a
// [Table] looks in goroutines of its own, and its methods go by what is known. Only
// [Await] blocks, and it does so once for each look.
package sight

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// Wait bounds how long a request waits for what is not known yet. It is waited for
	// once: later requests go by what is known.
	Wait = time.Second
	// maxAge is how old an answer may be before it is looked for again.
	maxAge = 10 * time.Second
)

// A Table knows for one server which projects see it. It is safe for concurrent use.
// Its mutex is the innermost one: the table calls its functions without it.
type Table struct {
	// looked is called after each look that is still wanted, with the project's root.
	// news reports that requests went by another answer before, or by none.
	looked func(root string, news bool)

	mu       sync.Mutex
	visible  func(root string) bool // of the configuration in force; nil shows the server to all
	version  int                    // counts the configurations, from 1
	projects map[string]*project    // by root
}

// A project is what is known of one project. The table's mutex guards it. It is unknown
// while version is 0, stale while version is not the table's or at is long ago, and
// else known.
type project struct {
	version int // of the configuration that the answer is for; 0 if there is no answer yet
	visible bool
	at      time.Time     // of the answer
	looking chan struct{} // closed when the look under way is over; nil if there is none
	late    bool          // a request has gone on without the answer
}

// New returns a table for a server that visible shows to projects, or that all see if
// it is nil. visible may block.
func New(visible func(root string) bool, looked func(root string, news bool)) *Table {
	return &Table{looked: looked, visible: visible, version: 1, projects: map[string]*project{}}
}

// Configure makes the table ask another function. Until it has answered, the earlier
// answers stand.
func (t *Table) Configure(visible func(root string) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.visible = visible
	t.version++
}

// Sees reports whether a project sees the server, by what is known, and whether that is
// known at all. It starts a look if the answer is missing or stale.
func (t *Table) Sees(root string) (visible, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.project(root)
	if p == nil {
		return true, true
	}
	return p.visible, p.version != 0
}

// project returns what is known of a project, or nil if all projects see the server. It
// starts a look if the answer is missing or stale. The caller must hold t.mu.
func (t *Table) project(root string) *project {
	if t.visible == nil {
		return nil
	}
	p := t.projects[root]
	if p == nil {
		p = &project{}
		t.projects[root] = p
	}
	if p.looking == nil && (p.version != t.version || time.Since(p.at) > maxAge) {
		p.looking = make(chan struct{})
		// Its end is not waited for: a look that hangs cannot be cancelled. There is one
		// at most for each project.
		go t.look(p, root, t.visible, t.version)
	}
	return p
}

// look asks visible, and stores the answer.
func (t *Table) look(p *project, root string, visible func(root string) bool, version int) {
	sees := visible(root)
	t.mu.Lock()
	news := p.visible != sees || p.version == 0
	close(p.looking)
	*p = project{version: version, visible: sees, at: time.Now()}
	if version != t.version {
		t.project(root) // it was configured otherwise meanwhile
	}
	t.mu.Unlock()
	t.looked(root, news)
}

// Keep forgets the projects that are not in roots.
func (t *Table) Keep(roots map[string]struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for root, p := range t.projects {
		if _, ok := roots[root]; !ok && p.looking == nil {
			delete(t.projects, root)
		}
	}
}

// pending returns a channel that is closed when the look under way is over; nil if no
// request has to wait for one.
func (t *Table) pending(root string) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.project(root)
	if p == nil || p.looking == nil || p.late || p.version == t.version {
		return nil
	}
	return p.looking
}

// goOn records that a request has gone on without an answer that is still missing.
func (t *Table) goOn(root string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.projects[root]; p != nil {
		p.late = p.late || p.looking != nil
	}
}

// errLate is the cause of a context that ends with [Wait].
var errLate = errors.New("it is not known in time which servers a project sees")

// Await waits until all tables know whether a project sees their servers, for [Wait] at
// most. It reports false if that was not long enough, and true if ctx ended first.
func Await(ctx context.Context, root string, tables []*Table) bool {
	pending := map[*Table]<-chan struct{}{}
	for _, t := range tables { // all begin to look
		if looking := t.pending(root); looking != nil {
			pending[t] = looking
		}
	}
	if len(pending) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeoutCause(ctx, Wait, errLate)
	defer cancel()
	for _, looking := range pending {
		select {
		case <-looking:
			continue
		case <-ctx.Done():
		}
		for t := range pending {
			t.goOn(root)
		}
		return !errors.Is(context.Cause(ctx), errLate)
	}
	return true
}
