package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"holdline/protocol/ownfile"
)

// Generation returns how many workers were started since the state directory was made;
// 0 if that cannot be read.
func (s *Supervisor) Generation() int64 {
	s.generation.Lock()
	defer s.generation.Unlock()
	n, err := s.readGeneration()
	if err != nil {
		return 0
	}
	return n
}

// generationFile returns the path of the generation counter.
func (s *Supervisor) generationFile() string { return filepath.Join(s.o.StateDir, "generation") }

// readGeneration returns the counter, which is 0 before the first start. In place of a
// damaged one it returns the time. The caller must hold s.generation.
func (s *Supervisor) readGeneration() (int64, error) {
	b, err := ownfile.Read(s.generationFile(), ownfile.MaxNumber)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	var n int64
	if err == nil {
		n, err = strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	}
	if _, damaged := errors.AsType[*strconv.NumError](err); damaged || errors.Is(err, ownfile.ErrRefused) {
		// No generation may come again: the clock has shown more seconds than
		// there were workers. The next count replaces what is there.
		n = time.Now().Unix()
		s.o.Log.Warn("the generation counter cannot be read, counting on from the clock", "err", err, "generation", n)
		return n, nil
	}
	if err != nil {
		return 0, fmt.Errorf("generation counter: %w", err)
	}
	return n, nil
}
