package process

import (
	"hash/fnv"
	"path/filepath"
)

// A Mark says to which worker a process belongs. It is the highest RLIMIT_RTTIME that a process may have,
// in microseconds: 146,000 years or more, so that it limits nothing. Unlike a variable of its environment a
// process keeps it through each fork and exec, and only root can raise it. It is 0 for a process without
// one. What a worker's child starts has its mark, and so has what that starts.
//
// Bits 0 to 39 stand for the name of the worker's directory, and 40 to 55 for that of the directory above. Bits 56 to
// 62 are markFirst, and one less for a worker below another one: a limit can only become lower.
type Mark uint64

const (
	markFirst = 0x7f
	markLast  = 0x40
	nameBits  = 40
	markBits  = 56
)

// markOf returns the bits below the highest ones of the mark of a worker's directory.
func markOf(dir string) Mark {
	return hash(filepath.Dir(dir), markBits-nameBits)<<nameBits | hash(filepath.Base(dir), nameBits)
}

// hash returns so many bits for a text.
func hash(text string, bits int) Mark {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	sum := h.Sum64()
	return Mark((sum>>bits ^ sum) & (1<<bits - 1))
}

// Is reports whether the mark is that of the worker of dir.
func (m Mark) Is(dir string) bool { return m != 0 && m&(1<<markBits-1) == markOf(dir) }

// Under reports whether the mark is that of a worker whose directory is in parent.
func (m Mark) Under(parent string) bool {
	return m != 0 && m>>nameBits&(1<<(markBits-nameBits)-1) == hash(parent, markBits-nameBits)
}

// Carried are the processes that say to which worker they belong, see [Carriers].
type Carried struct {
	byDir  map[string][]Proc // by the value of [EnvWorker]
	marked []Marked          // of the others
}

// Marked is a process with a mark, and without [EnvWorker].
type Marked struct {
	Proc
	Mark Mark
}

// Of returns the processes of the worker of dir.
func (c *Carried) Of(dir string) (procs []Proc) {
	procs = append(procs, c.byDir[dir]...)
	for _, m := range c.marked {
		if m.Mark.Is(dir) {
			procs = append(procs, m.Proc)
		}
	}
	return procs
}

// ByDir returns the processes that have [EnvWorker], by its value.
func (c *Carried) ByDir() map[string][]Proc { return c.byDir }

// Marked returns the other ones, which have nothing but their mark.
func (c *Carried) Marked() []Marked { return c.marked }
