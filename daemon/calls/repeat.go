package calls

// A Repetition is a call that is made again, although its process lives: its answer was in output
// that is lost. Until the new write is on record, the worker must keep the place where the output is
// missing: else the next daemon would find the first write alone, and wait for its answer for ever.
// Its methods are called with the lock held that guards the call (hub.Mu).
type Repetition struct{ *Call }

// Repeat says that the process cannot answer the call, which is to be made again.
func (c *Call) Repeat() Repetition {
	c.repeating = true
	c.Apply(Lose)
	return Repetition{c}
}

// Repeated says that the write by which the call is made again is on record.
func (c *Call) Repeated() { c.repeating = false }

// NeedsLine reports whether the worker must keep the place.
func (r Repetition) NeedsLine() bool {
	return r.repeating && r.phase != Answered && r.phase != Over
}

// BeginWriting returns false: there is nothing to write to a file.
func (Repetition) BeginWriting() bool { return false }
