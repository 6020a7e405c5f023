// Package budget adds up what consults have cost, and says what a further one may cost.
package budget

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"holdline/daemon/statedir"
	"holdline/protocol/ownfile"
)

// maxEntries bounds the identities, and the sessions, of a ledger.
const maxEntries = 4096

// Cost is what one consult has cost.
type Cost struct {
	Identity string
	Session  string // hash of the session that asked; "" if that was not noted
	USD      *float64
	Ended    time.Time // now if it has not ended
}

// Spent is a sum of costs.
type Spent struct {
	USD      float64 `json:"usd"`
	Consults int     `json:"consults"`
	Day      string  `json:"day,omitempty"` // when it was last booked
}

// Ledger holds sums of costs. The one on disk has the costs of answers that are not kept
// any more: without it the budget of a day would grow back as answers are removed. It has
// no lock of its own.
type Ledger struct {
	Day        string           `json:"day"`        // of Identities
	Identities map[string]Spent `json:"identities"` // on that day
	Sessions   map[string]Spent `json:"sessions"`   // ever, by hash
	// Lost is the day on which the file was found damaged: what was spent before is not known. On that day
	// each budget counts as used up.
	Lost   string `json:"lost,omitempty"`
	Writes int64  `json:"writes"` // counted by who writes it: of two files the one with more is newer
	Sum    string `json:"sum"`    // of all the rest, set by [Ledger.Write]
}

// sum returns a sum of the ledger: one wrong bit must not make a budget larger.
func (l *Ledger) sum() string {
	rest := *l
	rest.Sum = ""
	b, _ := json.Marshal(rest) // texts and finite numbers
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// ErrDamaged is wrapped by errors about a file that is not as [Ledger.Write] has written it.
var ErrDamaged = errors.New("what consults have cost is lost, since the file is damaged")

// day returns the local date of a time. Budgets of a day begin anew at the user's
// midnight.
func day(t time.Time) string { return t.Local().Format(time.DateOnly) }

// copyOf returns the path of the copy of the file at path, which has the same content.
func copyOf(path string) string { return path + ".copy" }

// Read returns the ledger that earlier daemons have written, in two files of which one is enough. If the first
// one is missing, damaged, older than the copy, or cannot be read, Read returns what the copy says, with an
// error. If neither can be believed, it returns an error, and a ledger in which the day of now is lost; the
// daemon starts all the same.
//
// Where there is neither, nothing was spent. So it is if the first file is missing and the copy cannot be believed or
// says that the day is lost: users are told to remove the first one to begin anew.
func Read(path string, now time.Time) (Ledger, error) {
	first, err := read(path)
	second, copyErr := read(copyOf(path))
	absent := errors.Is(err, fs.ErrNotExist)
	switch {
	case err == nil && (copyErr != nil || first.Writes >= second.Writes):
		return first, nil //nolint:nilerr // one good file is enough
	case absent && (copyErr != nil || second.IsLost(now)):
		return Ledger{Writes: second.Writes}, nil //nolint:nilerr // see above
	case copyErr != nil || second.IsLost(now):
		return Ledger{Lost: day(now), Writes: second.Writes}, err
	case err == nil:
		err = fmt.Errorf("%s is older than its copy", path)
	}
	return second, err
}

// read returns the ledger in one file.
func read(path string) (l Ledger, err error) {
	var b []byte
	err = ownfile.Again(func() (err error) {
		b, err = ownfile.Read(path, ownfile.MaxDocument)
		return err
	})
	switch {
	case err != nil:
		return l, fmt.Errorf("what consults have cost cannot be read: %w", err)
	case json.Unmarshal(b, &l) != nil || l.Sum != l.sum():
		return Ledger{}, fmt.Errorf("%s: %w", path, ErrDamaged)
	}
	return l, nil
}

// IsLost reports whether what was spent on the day of now is not known.
func (l *Ledger) IsLost(now time.Time) bool { return l.Lost == day(now) }

// Write replaces the file of the ledger, and then its copy. Call it before the booked answers are removed. A
// daemon that dies in between counts these twice; the other order could count them not at
// all.
func (l *Ledger) Write(path string) error {
	l.Sum = l.sum()
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	b = append(b, '\n')
	return errors.Join(statedir.WriteFile(path, b), statedir.WriteFile(copyOf(path), b))
}

// Add books the cost of an answer that is about to be removed. If there are too many
// sessions or identities, the entry that was booked least recently is dropped.
func (l *Ledger) Add(c Cost, now time.Time) {
	l.bookCost(c, now)
	for _, m := range []map[string]Spent{l.Sessions, l.Identities} {
		if len(m) > maxEntries {
			delete(m, slices.MinFunc(slices.Collect(maps.Keys(m)), func(a, b string) int {
				return cmp.Or(strings.Compare(m[a].Day, m[b].Day), strings.Compare(a, b))
			}))
		}
	}
}

// Clone returns a copy that shares nothing with l.
func (l *Ledger) Clone() *Ledger {
	c := *l
	c.Identities, c.Sessions = maps.Clone(l.Identities), maps.Clone(l.Sessions)
	return &c
}

// With returns a ledger with more costs: what identities have spent today, and sessions
// ever.
func (l *Ledger) With(costs iter.Seq[Cost], now time.Time) *Ledger {
	sum := l.Clone()
	sum.beginDay(now)
	for c := range costs {
		sum.bookCost(c, now)
	}
	return sum
}

// beginDay empties the table of identities if it is not of today, and makes the tables that
// are missing.
func (l *Ledger) beginDay(now time.Time) {
	if today := day(now); l.Day != today || l.Identities == nil {
		l.Day, l.Identities = today, map[string]Spent{}
	}
	if l.Sessions == nil {
		l.Sessions = map[string]Spent{}
	}
}

// bookCost adds a cost to its session, and to its identity if the consult has ended today.
func (l *Ledger) bookCost(c Cost, now time.Time) {
	l.beginDay(now)
	add := func(m map[string]Spent, key string) {
		s := m[key]
		s.Consults, s.Day = s.Consults+1, l.Day
		if c.USD != nil {
			s.USD += *c.USD
		}
		m[key] = s
	}
	if c.Session != "" {
		add(l.Sessions, c.Session)
	}
	if c.Identity != "" && day(c.Ended) == l.Day {
		add(l.Identities, c.Identity)
	}
}
