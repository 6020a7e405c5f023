package consult

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"holdline/daemon/calls"
	"holdline/daemon/consult/jobdir"
	"holdline/daemon/waiting"
	"holdline/protocol/faultpoint"
	"holdline/protocol/ownfile"
)

// Directories of jobs that could not be read at the start, for an error that passes. The daemon serves
// meanwhile: only what needs the record of such a job waits, and what needs the records of all, as the
// start of a consult needs what the others have cost.

// heard is what a session has said of its jobs while some could not be read.
type heard struct {
	session string
	apply   func(*Job) // the caller holds Manager.mu
}

// postpone notes that the directory of a job is to be read again, for why. Only load calls it.
func (m *Manager) postpone(dir string, why error) {
	m.opt.Log.Warn("a consult cannot be read yet: what needs it waits", "dir", dir, "err", why)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unread[filepath.Base(dir)] = make(chan struct{})
}

// resumeWithoutPanels goes on with jobs of earlier daemons, and returns the panels, which it leaves: a
// member that is yet to be read would be asked again.
func (m *Manager) resumeWithoutPanels(open []*Job) (panels []*Job) {
	single := slices.DeleteFunc(slices.Clone(open), (*Job).isPanel)
	m.resume(single)
	return slices.DeleteFunc(open, func(j *Job) bool { return !j.isPanel() })
}

// readLater reads again what could not be read, until nothing is left; once [ownfile.PassingTime] is over, an error
// is damage. Then it goes on with the panels, and with what waits for all jobs.
func (m *Manager) readLater(panels []*Job) {
	m.mu.Lock()
	left := make([]string, 0, len(m.unread))
	for id := range m.unread {
		left = append(left, id)
	}
	m.mu.Unlock()
	for len(left) > 0 {
		if waiting.Pause(m.open, ownfile.PassingPause) != nil {
			return // the next daemon reads them
		}
		patient := time.Since(m.begun) < ownfile.PassingTime
		if !patient {
			faultpoint.At("consult.unread")
		}
		left = slices.DeleteFunc(left, func(id string) bool {
			j, err := m.take(filepath.Join(m.opt.Dir, id), patient)
			if err != nil {
				return false
			}
			if m.catchUp(id, j) && j.isPanel() {
				panels = append(panels, j)
			}
			return true
		})
	}
	m.resumeAll(panels)
}

// catchUp applies to a job that was just read what its session has said meanwhile, goes on with it unless
// it is a panel, and then lets go on what waits for it. j is nil if there is no such job. catchUp reports
// whether the job is live.
func (m *Manager) catchUp(id string, j *Job) (live bool) {
	m.mu.Lock()
	for _, s := range m.said {
		if j != nil && j.Rec.Session == s.session {
			s.apply(j)
		}
	}
	m.mu.Unlock()
	live = j != nil && j.kept == nil
	if live && !j.isPanel() {
		m.resume([]*Job{j})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.unread[id])
	if delete(m.unread, id); len(m.unread) == 0 {
		m.said = nil
	}
	return live
}

// sayLocked applies what a session says of its jobs to those that are known, and notes it for those that
// are yet to be read.
func (m *Manager) sayLocked(session string, apply func(*Job)) {
	for _, j := range m.jobs {
		if j.Rec.Session == session {
			apply(j)
		}
	}
	if len(m.unread) > 0 {
		m.said = append(m.said, heard{session, apply})
	}
}

// Unread returns a channel that is closed once the job is read that line n of a session has begun, if it
// is yet to be read; nil otherwise. A line that has called a hosted server has begun none.
func (m *Manager) Unread(server, _, session string, n int64) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.unread) == 0 || server != "" && server != calls.AnyServer {
		return nil
	}
	return m.unreadLocked(jobdir.ID(session, n))
}

// unreadLocked returns a channel that is closed once a job is read, or with the id "" one more of all; nil
// if there is nothing to wait for.
func (m *Manager) unreadLocked(id string) <-chan struct{} {
	if id != "" {
		if got, yet := m.unread[id]; yet {
			return got
		}
		return nil
	}
	for _, got := range m.unread {
		return got
	}
	return nil
}

// awaitRead waits until a job is read, or all jobs with the id "". It returns an error if ctx ends before,
// or if the manager stops.
func (m *Manager) awaitRead(ctx context.Context, id string) error {
	for {
		m.mu.Lock()
		unread := m.unreadLocked(id)
		m.mu.Unlock()
		if unread == nil {
			return nil
		}
		select {
		case <-unread:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-m.open.Done():
			return context.Cause(m.open)
		}
	}
}
