package supervisor

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Generation is how many workers were started since the state directory was
// made.
func (s *Supervisor) Generation() int64 {
	s.generation.Lock()
	defer s.generation.Unlock()
	b, err := os.ReadFile(filepath.Join(s.o.StateDir, "generation"))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
