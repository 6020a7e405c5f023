package runner

import (
	"strings"
	"testing"

	"holdline/daemon/adapter/engine"
)

// TestPiecesMasked checks that a secret which comes in pieces is masked in the transcript, no
// matter where it is cut, and that all other text is there.
func TestPiecesMasked(t *testing.T) {
	const secret, text = "abcabd-secret", "key abcabcabd-secret, abcab and abcabd-secretabcabd-secret."
	for size := 1; size <= len(text); size++ {
		dir := t.TempDir()
		log, err := engine.CreateTranscript(dir, engine.Entry{})
		if err != nil {
			t.Fatal(err)
		}
		r := &run{o: &Options{}, log: log, hide: newMasker([]string{"KEY=" + secret, "SHORT=key"}, []string{"KEY", "SHORT"})}
		for rest := text; rest != ""; {
			piece := rest[:min(size, len(rest))]
			rest = rest[len(piece):]
			r.piece.WriteString(piece)
			r.flushPiece()
		}
		log.Close()
		said, err := engine.ReadTranscript(dir)
		if want := strings.ReplaceAll(text, secret, "***"); err != nil || said.Text != want {
			t.Errorf("pieces of %d: %q, %v; want %q", size, said.Text, err, want)
		}
	}
}

// TestSecretsMasked checks that a secret which begins with another one is masked whole, and one
// that lies where a line of stderr is cut.
func TestSecretsMasked(t *testing.T) {
	m := newMasker([]string{"A=abcdef", "B=abcdef-and-more"}, []string{"A", "B"})
	if got, want := m.Replace("key abcdef-and-more"), "key ***"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	dir := t.TempDir()
	log, err := engine.CreateTranscript(dir, engine.Entry{})
	if err != nil {
		t.Fatal(err)
	}
	r := &run{o: &Options{}, log: log, hide: m}
	for at := maxStderrLine - 20; at < maxStderrLine+20; at++ {
		r.errLines = nil
		r.keepStderr([]byte(strings.Repeat("x", at) + "abcdef-and-more\n"))
		if line := r.errLines[0]; strings.Contains(line, "a") {
			t.Errorf("a secret at byte %d: %q", at, line[maxStderrLine-30:])
		}
	}
	log.Close()
}
