package engine

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"holdline/protocol/jsonrpc"
	"holdline/protocol/ownfile"
)

// Kinds of transcript lines.
const (
	KindStart   = "start"   // before the program is started: Argv, Level, EnforcedBy, Notes
	KindSession = "session" // Session, Model
	KindText    = "text"    // a whole text of the model
	KindPiece   = "piece"   // a piece of a text that is being written; the text supersedes its pieces
	KindTool    = "tool"    // the model uses a tool; never what the tool answers
	KindNote    = "note"    // a retry, a fallback, a rate limit
	KindTurn    = "turn"    // the end of a turn: Turn, CostUSD
	KindLadder  = "ladder"  // the run is being ended: Text says why
	KindStderr  = "stderr"
	KindSaid    = "said"  // a message was passed on to the program: ID
	KindHeard   = "heard" // the program has taken it: ID
	KindCut     = "cut"   // the transcript is full; nothing follows but the end
	KindEnd     = "end"
)

// Entry is one line of a transcript. Which fields are set depends on its kind.
type Entry struct {
	Seq        int64    `json:"q"`
	UnixMS     int64    `json:"t"`
	Kind       string   `json:"k"`
	ID         string   `json:"id,omitempty"`
	Text       string   `json:"text,omitempty"`
	Session    string   `json:"session,omitempty"`
	Model      string   `json:"model,omitempty"`
	Turn       int      `json:"turn,omitempty"`
	CostUSD    *float64 `json:"cost_usd,omitempty"`
	Argv       []string `json:"argv,omitempty"`
	Level      string   `json:"level,omitempty"`
	EnforcedBy string   `json:"enforced_by,omitempty"`
	Notes      []string `json:"notes,omitempty"`
}

// maxTranscript bounds a transcript, in bytes.
const maxTranscript = 16 << 20

// Transcript writes the file of what happens in a run. The daemon reads it if the
// engine process dies. A nil Transcript writes nothing. One goroutine at a time may use
// it; the caller must close it.
type Transcript struct {
	f    *os.File
	seq  int64
	size int
	full bool
	torn bool // the last line is not whole: the next one must not stand behind it
}

// CreateTranscript makes the file in dir and writes its first line, start, to
// the disk. It must return before the program is started: a directory without
// that line proves, after a power cut too, that nothing was started.
func CreateTranscript(dir string, start Entry) (*Transcript, error) {
	f, err := ownfile.OpenFile(filepath.Join(dir, FileTranscript), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND)
	if err != nil {
		return nil, fmt.Errorf("making the transcript: %w", err)
	}
	t := &Transcript{f: f}
	start.Kind = KindStart
	if err = t.Write(start); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("writing the transcript: %w", err)
	}
	return t, nil
}

// syncDir writes the entries of a directory to the disk. Without it a power cut could
// lose the name of a file whose content is safe.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Write appends one line and fills in its number and time. When the transcript is full,
// Write appends the line "cut" once and drops the lines that follow, except those that
// always fit: "end", and what became of messages, of which nothing else is proof. There are
// few of them, and they are short. It does not sync.
func (t *Transcript) Write(e Entry) error {
	fits := e.Kind == KindEnd || e.Kind == KindSaid || e.Kind == KindHeard
	if t == nil || t.full && !fits {
		return nil
	}
	e.Seq, e.UnixMS = t.seq+1, time.Now().UnixMilli()
	b, err := json.Marshal(e)
	if err == nil && t.size+len(b) > maxTranscript && !fits {
		t.full = true
		b, err = json.Marshal(Entry{Seq: e.Seq, UnixMS: e.UnixMS, Kind: KindCut})
	}
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if t.torn {
		b = append([]byte{'\n'}, b...)
	}
	n, err := t.f.Write(b)
	t.size += n
	t.torn = n > 0 && n < len(b) || n == 0 && t.torn
	t.seq = e.Seq
	return err
}

// Seq returns the number of the last line, and 0 if there is none.
func (t *Transcript) Seq() int64 {
	if t == nil {
		return 0
	}
	return t.seq
}

// Close closes the file. Later writes return [os.ErrClosed].
func (t *Transcript) Close() {
	if t != nil {
		_ = t.f.Close()
	}
}

// Said is what the transcript says of a run whose process has died.
type Said struct {
	Began   bool // the program was started, or was about to be: there is a transcript, whatever is in it
	Start   Entry
	Session string
	Model   string
	Text    string
	Turns   int
	CostUSD *float64
	Heard   map[string]bool // the ids of messages that the program has taken
}

// ReadTranscript reads the transcript in a job's directory. Without the file it returns
// an empty Said and no error: then the program was never started. A torn last line is
// left out, and so is a line that is not JSON. Pieces of a text that was never finished
// count as a text.
func ReadTranscript(dir string) (Said, error) {
	var s Said
	f, err := ownfile.Open(filepath.Join(dir, FileTranscript))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	defer f.Close()
	s.Began = true
	var texts Texts
	var pieces strings.Builder
	lines := jsonrpc.NewLines(bufio.NewReader(f), 2*maxTranscript)
	lines.DropTail = true
	for {
		line, err := lines.Next()
		if err != nil {
			break // the end, or a line that is too long to be one of ours
		}
		var e Entry
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		switch e.Kind {
		case KindStart:
			s.Start = e
		case KindSession:
			s.Session, s.Model = e.Session, e.Model
		case KindText:
			pieces.Reset()
			texts.Add(e.Text)
		case KindPiece:
			pieces.WriteString(e.Text)
		case KindTurn:
			s.Turns++
		case KindHeard:
			if s.Heard == nil {
				s.Heard = map[string]bool{}
			}
			s.Heard[e.ID] = true
		}
		if e.CostUSD != nil {
			s.CostUSD = e.CostUSD
		}
	}
	if strings.TrimSpace(pieces.String()) != "" {
		texts.Add(pieces.String())
	}
	s.Text = strings.Join(texts.List(), "\n\n")
	return s, nil
}
