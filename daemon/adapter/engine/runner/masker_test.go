package runner

import (
	"encoding/json"
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

// TestVariableIsANumber_OutcomeStaysJSON checks that an answer is not lost since a number in it, or in what the program
// counts, has the digits of a variable, and that a secret with quotes around it leaves the quotes of JSON.
func TestVariableIsANumber_OutcomeStaysJSON(t *testing.T) {
	r := &run{hide: newMasker([]string{"A=600000", "B=in-words", `C="in-quotes"`}, []string{"A", "B", "C"})}
	for _, c := range []struct{ text, answer, count string }{
		{`{"b":1600000.5,"a":["x in-words",7]}`, `{"a":["x ***",7],"b":"1***.5"}`, `{"a":["x ***",7],"b":1600000.5}`},
		{`{"a":"in-quotes"}`, `{"a":"***"}`, `{"a":"***"}`},
		{`{"a": "in-words 600000"}`, `{"a": "*** ***"}`, `{"a": "*** ***"}`},
		{"", "", ""},
	} {
		raw := json.RawMessage(c.text)
		out := engine.Outcome{Structured: raw, ModelUsage: raw, RateLimit: raw}
		r.maskOutcome(&out)
		if string(out.Structured) != c.answer || string(out.ModelUsage) != c.count || string(out.RateLimit) != c.count {
			t.Errorf("%s: %s, %s, %s", c.text, out.Structured, out.ModelUsage, out.RateLimit)
		}
		if _, err := json.Marshal(&out); err != nil {
			t.Errorf("%s: %v", c.text, err)
		}
	}
}
