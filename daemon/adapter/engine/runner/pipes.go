package runner

import (
	"os"
	"slices"
	"syscall"

	"holdline/daemon/adapter/engine"
)

// maxPipes bounds the pipes that are watched.
const maxPipes = 100

// pipes are named pipes that the model reads. A pipe is no file: the program would wait for a writer until
// the run has stalled. So it gets the end of the pipe at once, and takes it for an empty file.
type pipes struct {
	paths []string
	turn  int // of the model, in which it has named them
}

// note takes a path that the model reads. In a later turn the earlier reads are over.
func (p *pipes) note(e *engine.Event) {
	if e.Turn > p.turn {
		p.turn, p.paths = e.Turn, nil
	}
	if e.Path == "" || len(p.paths) >= maxPipes || slices.Contains(p.paths, e.Path) {
		return
	}
	if at, err := os.Stat(e.Path); err == nil && at.Mode()&os.ModeNamedPipe != 0 {
		p.paths = append(p.paths, e.Path)
	}
}

// end ends the pipes for those who wait for a writer: it opens each one and closes it again. Without a
// reader nothing can be opened.
func (p *pipes) end() {
	for _, path := range p.paths {
		if at, err := os.Stat(path); err != nil || at.Mode()&os.ModeNamedPipe == 0 {
			continue
		}
		if f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0); err == nil {
			_ = f.Close()
		}
	}
}
