package calls

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"holdline/protocol/bulk"
	"holdline/protocol/jsonrpc"
)

// ErrDamaged is wrapped by errors about records that cannot be believed.
var ErrDamaged = errors.New("damaged")

// The first line of a journal names its directory, the highest write whose record compaction has
// dropped, and how many lines the file had when it was made. Each line ends with its running number, which is 0 in the first one, and with a
// checksum of the line up to that. The checksum begins with the name of the directory: a line of
// another directory's journal does not match.
//
//	{"kind":"journal","dir":"sm0-1f","dropped":0,"lines":1,"line":0,"sum":3794112809}
//	{"write":1,"n":0,"kind":"initialize","line":1,"sum":2627618025}
const kindJournal = "journal"

// checksum returns the checksum of b, which belongs to the directory with the name dir.
func checksum(dir string, b []byte) uint32 {
	return bulk.AddSum(bulk.Sum([]byte(dir)), b)
}

// Keys that end each line.
const (
	keyLine = `,"line":`
	keySum  = `,"sum":`
)

// seal completes the line that begins at from in b, and ends with b: it appends its running number
// and its checksum.
func seal(b []byte, from int, dir string, number int64) []byte {
	b = strconv.AppendInt(append(b, keyLine...), number, 10)
	sum := checksum(dir, b[from:])
	b = strconv.AppendUint(append(b, keySum...), uint64(sum), 10)
	return append(b, "}\n"...)
}

// unsealed returns a line without what [seal] has appended to it.
func unsealed(line []byte) []byte {
	if i := bytes.LastIndex(line, []byte(keyLine)); i >= 0 {
		return line[:i]
	}
	return line
}

// isSealed reports whether a line, with or without its newline, has the checksum that [seal] gives it.
func isSealed(dir string, line []byte) bool {
	line = bytes.TrimSuffix(line, []byte("\n"))
	i := bytes.LastIndex(line, []byte(keySum))
	if i < 0 || !bytes.HasSuffix(line, []byte("}")) {
		return false
	}
	sum, err := strconv.ParseUint(string(line[i+len(keySum):len(line)-1]), 10, 32)
	return err == nil && uint32(sum) == checksum(dir, line[:i])
}

// header appends the first line of a journal to b.
func header(b []byte, dir string, dropped, lines int64) []byte {
	from := len(b)
	b = jsonrpc.AppendString(append(b, `{"kind":"`+kindJournal+`","dir":`...), dir)
	b = strconv.AppendInt(append(b, `,"dropped":`...), dropped, 10)
	b = strconv.AppendInt(append(b, `,"lines":`...), lines, 10)
	return seal(b, from, dir, 0)
}

// content is what the lines of a journal say.
type content struct {
	records         []placed // in the order of the file, without those that are done
	moved, detached []span   // see [Journal].latestOf, only the last one of each write, and [Journal].detached
	named           bool     // the first line is whole
	dropped         int64    // of the first line
	last            int64    // write id of the last record, done or not; 0 if there is none
	lines           int64    // the running number of the next line
	size            int      // bytes of the lines; behind that is one that is torn
	unended         bool     // the last line lacks nothing but its newline
	harm            error    // what is damaged first; nil if all lines are whole
}

// placed is a record, and where its line is in the file.
type placed struct {
	Record
	at span
}

// written is a line of the file.
type written struct {
	Record
	Dropped int64 `json:"dropped"`
	Lines   int64 `json:"lines"`
	Line    int64 `json:"line"`
}

// parse reads the journal of the directory with the name dir. It reads on behind lines that are
// damaged or missing; the records before those are doubtful.
func parse(dir string, b []byte) (c content) {
	harmed := 0 // so many records stand before the last damage
	harm := func(format string, args ...any) {
		if harmed = len(c.records); c.harm == nil {
			c.harm = fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
		}
	}
	off, made := 0, int64(0)
	for line := range bytes.Lines(b) {
		ended := bytes.HasSuffix(line, []byte("\n"))
		var w written
		whole := isSealed(dir, line) && json.Unmarshal(line, &w) == nil
		if !whole && !ended {
			break // its write was not begun, or the worker has taken more writes than are on record
		}
		at := span{w.Write, int32(off), int32(len(line))}
		off += len(line)
		c.unended = !ended
		switch {
		case !whole:
			harm("line %d", c.lines)
			c.lines++
			continue
		case w.Line < c.lines:
			harm("line %d comes again behind line %d", w.Line, c.lines-1)
		case w.Line > c.lines:
			harm("lines %d to %d are missing", c.lines, w.Line-1)
		}
		c.lines = w.Line + 1
		if w.Kind == kindJournal {
			c.named, c.dropped, made = true, w.Dropped, w.Lines
			continue
		}
		if w.Write > 0 {
			c.last = w.Write
		}
		c.records = append(c.records, placed{w.Record, at})
	}
	if c.lines < made {
		harm("lines %d to %d are missing", c.lines, made-1)
	}
	c.size = off
	for i := range c.records[:harmed] {
		c.records[i].Doubtful = true
	}
	c.resolve()
	return c
}

// resolve applies to the records what later lines say of them, and leaves only records of writes
// that are not done. It fills in moved and detached, without the lines for void records.
func (c *content) resolve() {
	done, deadlines, lines := map[int64]struct{}{}, map[int64]int64{}, map[int64]int64{}
	changed := map[int64]int64{}
	filed := map[int64]*placed{}
	// The lowest write of the records behind a line: they void what it says of that and of later writes.
	lowest := int64(math.MaxInt64)
	for i := len(c.records) - 1; i >= 0; i-- {
		r := &c.records[i]
		switch r.Kind {
		case KindDeadline:
			if _, later := deadlines[r.Call]; !later {
				deadlines[r.Call] = r.DeadlineBootMS
				if r.Call < lowest {
					c.moved = append(c.moved, span{r.Call, r.at.off, r.at.size})
				}
			}
		case KindChanged:
			if _, later := changed[r.Call]; !later && r.Call < lowest {
				changed[r.Call] = r.N
				c.moved = append(c.moved, span{r.Call, r.at.off, r.at.size})
			}
		case KindSubscribe, KindListen:
			if r.Write < lowest {
				r.Changed = changed[r.Write]
			}
		case KindDetach:
			lines[r.Call] = r.N
			if r.Call < lowest {
				c.detached = append(c.detached, span{r.Call, r.at.off, r.at.size})
			}
		case KindFiled:
			if r.Call < lowest {
				filed[r.Call] = r
				c.detached = append(c.detached, span{r.Call, r.at.off, r.at.size})
			}
		case KindCall:
			if f := filed[r.Write]; f != nil && r.Write < lowest {
				r.FileSize, r.FileSum = f.FileSize, f.FileSum
			}
			if deadline, ok := deadlines[r.Write]; ok {
				r.DeadlineBootMS = deadline
			}
			if n, ok := lines[r.Write]; ok {
				r.Detached, r.N = true, n // that line may have continued the call
			}
		}
		if r.Write > 0 {
			lowest = min(lowest, r.Write)
		}
		if _, ok := done[r.Write]; ok {
			r.Write = 0
		}
		for _, id := range r.Done { // they count although the record itself is done
			done[id] = struct{}{}
		}
		r.Done = nil
	}
	c.records = slices.DeleteFunc(c.records, func(r placed) bool { return r.Write == 0 })
}
