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
