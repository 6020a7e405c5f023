// Package masked shows what a hosted server says without the secrets that it was
// given: in faults, in quotations, and in what it wrote to stderr.
package masked

import (
	"slices"
	"strings"

	"holdline/daemon/redact"
	"holdline/protocol/fault"
)

// unknownSecrets stands for what a process said if it is not known what in it is
// secret: the process was started by an earlier entry of the configuration, and its
// worker was killed.
const unknownSecrets = "(not shown: the server's entry has changed since, so what is secret in it is not known)"

// minPart is the length in bytes from which on a part of a secret is hidden at an
// end of a line that may have been cut.
const minPart = 4

// Secrets are the words that must not be shown in the output of one process. They
// never change, so goroutines share them without a lock. A nil *Secrets hides no words, but
// tokens whose form gives them away, as any other does.
type Secrets struct {
	words   []string // the longest first
	unknown bool     // so nothing may be shown
}

// New returns the secrets that are these words, in all forms in which programs write them.
func New(words []string) *Secrets { return &Secrets{words: redact.Forms(words)} }

// Unknown returns secrets that are not known. Nothing that the process wrote is shown
// then.
func Unknown() *Secrets { return &Secrets{unknown: true} }

// IsUnknown reports whether the secrets are not known.
func (s *Secrets) IsUnknown() bool { return s != nil && s.unknown }

// known returns the words, or nil.
func (s *Secrets) known() []string {
	if s == nil {
		return nil
	}
	return s.words
}

// longest returns the length in bytes of the longest secret.
func (s *Secrets) longest() int {
	if words := s.known(); len(words) > 0 {
		return len(words[0])
	}
	return 0
}

// Text returns text of the process without its secrets. Call it before the text is
// cut: a cut could leave a part of a secret, which is not recognised.
func (s *Secrets) Text(text string) string {
	if s.IsUnknown() {
		return unknownSecrets
	}
	return redact.Mask(text, s.known())
}

// Fault returns a fault of the process without its secrets: the fault has the last
// words of the process.
func (s *Secrets) Fault(f *fault.Record) *fault.Record {
	if f == nil {
		return nil
	}
	out := *f
	out.Fault.Detail = redact.Mask(f.Fault.Detail, s.known())
	if f.Cause != nil {
		cause := *f.Cause
		cause.StderrTail = nil
		for _, line := range f.Cause.StderrTail {
			if s.IsUnknown() {
				line = unknownSecrets
			}
			cause.StderrTail = append(cause.StderrTail, maskCut(line, s.known()))
		}
		if s.IsUnknown() {
			cause.StderrTail = slices.Compact(cause.StderrTail)
		}
		out.Cause = &cause
	}
	return &out
}

// maskCut hides secrets, as [redact.Mask] does, in a line whose beginning and end may
// be missing. So it also hides the end of a secret at the line's beginning, and the
// beginning of a secret at the line's end, from [minPart] bytes on.
func maskCut(line string, words []string) string {
	line = redact.Mask(line, words)
	for _, secret := range words {
		for n := min(len(secret)-1, len(line)); n >= minPart; n-- {
			if strings.HasSuffix(line, secret[:n]) {
				line = line[:len(line)-n] + redact.Hidden
				break
			}
		}
		for n := min(len(secret)-1, len(line)); n >= minPart; n-- {
			if strings.HasPrefix(line, secret[len(secret)-n:]) {
				line = redact.Hidden + line[n:]
				break
			}
		}
	}
	return line
}
