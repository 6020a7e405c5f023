package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Generation is how many workers were started since the state directory was
// made; 0 if that cannot be read.
func (s *Supervisor) Generation() int64 {
	s.generation.Lock()
	defer s.generation.Unlock()
	n, err := s.readGeneration()
	if err != nil {
		return 0
	}
	return n
}

func (s *Supervisor) generationFile() string { return filepath.Join(s.o.StateDir, "generation") }

// readGeneration reads the counter, which is 0 before the first start. The
// caller holds generation.
func (s *Supervisor) readGeneration() (int64, error) {
	b, err := os.ReadFile(s.generationFile())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("generation counter: %w", err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("generation counter: %w", err)
	}
	return n, nil
}
