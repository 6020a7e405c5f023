package limits

import (
	"context"
	"errors"

	"holdline/protocol/process"
)

// Group is the control group of a worker, which this system does not have.
type Group struct{}

// Place always fails: this system has no control groups, and its limits of processes are of
// the address space, which node and others reserve far beyond what they use.
func (Placer) Place(context.Context, int, string, *process.Bounds) (data int64, err error) {
	return 0, errors.New("limits: macOS has none for the memory of several processes together")
}

// GroupOf returns nil: there is none.
func GroupOf(int, string) *Group { return nil }

// Held returns that nothing holds the limits b.
func (*Group) Held(b *process.Bounds) Held {
	h := Held{by: map[string]string{}}
	for _, k := range kinds {
		if k.value(b) > 0 {
			h.by[k.name] = ""
		}
	}
	return h
}

// Reached returns "": no limit is held.
func (*Group) Reached(*process.Bounds) string { return "" }

// Remove does nothing.
func Remove(string) {}
