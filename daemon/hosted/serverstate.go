package hosted

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"holdline/daemon/statedir"
	"holdline/protocol/fault"
	"holdline/protocol/ownfile"
)

// A serverState is the content of a server's file in the state directory. It outlives
// every process of the server: whether the user has stopped it, and which scopes were
// ejected.
type serverState struct {
	Version int      `json:"version"`
	Key     string   `json:"key,omitempty"`     // of the spec that was ejected
	Stopped bool     `json:"stopped,omitempty"` // by a user; stays so until it is started
	Ejected []string `json:"ejected,omitempty"` // scopes whose process ended too often

	Fault   *fault.Record `json:"fault,omitempty"` // with Ejected: of the last process that ended or did not start
	FaultMS int64         `json:"fault_unix_ms,omitempty"`
}

// serverStateVersion is the version of the state file's format.
const serverStateVersion = 1

// stateFile returns the path of the server's state file.
func (s *server) stateFile() string { return filepath.Join(s.m.o.StateDir, s.spec.Name+".json") }

// recall reads the server's state file. A server whose entry has changed since is no
// longer ejected. Call it before other goroutines know the server.
func (s *server) recall() error {
	b, err := ownfile.Read(s.stateFile(), ownfile.MaxDocument)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var st serverState
	if err == nil {
		err = json.Unmarshal(b, &st)
	}
	if s.stopped = st.Stopped; st.Key == "" || st.Key == s.spec.Key { // else it is fixed, as far as is known
		s.ejected = st.Ejected
	}
	if len(s.ejected) > 0 && st.Fault != nil {
		s.fault, s.faultAt = st.Fault, time.UnixMilli(st.FaultMS)
	}
	return err
}

// serverStateLocked returns the present content for the server's state file.
func (s *server) serverStateLocked() serverState {
	st := serverState{
		Version: serverStateVersion, Key: s.spec.Key, Stopped: s.stopped,
		Ejected: slices.Clone(s.ejected),
	}
	for key, inst := range s.m.instances {
		if key.server == s.spec.Name && key.scope != Session && inst.guards.restarts.Ejected() &&
			!slices.Contains(st.Ejected, key.of) {
			st.Ejected = append(st.Ejected, key.of)
		}
	}
	slices.Sort(st.Ejected)
	if len(st.Ejected) > 0 && s.fault != nil {
		st.Fault, st.FaultMS = s.fault, s.faultAt.UnixMilli()
	}
	return st
}

// write writes the server's state file, or removes it if there is nothing to
// remember. A server that was removed from the configuration has nothing to remember.
// The caller must not hold the hub's mutex.
func (s *server) write() error {
	s.m.filing.Lock()
	defer s.m.filing.Unlock()
	s.m.hub.Mu.Lock()
	now := s.m.servers[s.spec.Name]
	var st serverState
	if now != nil {
		st = now.serverStateLocked()
	}
	path := s.stateFile()
	s.m.hub.Mu.Unlock()
	if st.Stopped || len(st.Ejected) > 0 {
		b, err := json.Marshal(st)
		if err != nil {
			return err
		}
		return statedir.WriteFile(path, append(b, '\n'))
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// persist writes the server's state file, and logs a failure.
func (s *server) persist() {
	if err := s.write(); err != nil {
		s.m.hub.Log.Warn("how a server stands cannot be written down", "server", s.spec.Name, "err", err)
	}
}
