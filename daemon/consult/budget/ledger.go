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
	Lost string `json:"lost,omitempty"`
	Sum  string `json:"sum"` // of all the rest, set by [Ledger.Write]
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

// readTries is how often a file is read that cannot be read, as for a lack of descriptors.
const readTries = 3

// day returns the local date of a time. Budgets of a day begin anew at the user's
// midnight.
func day(t time.Time) string { return t.Local().Format(time.DateOnly) }

// Read returns the ledger that earlier daemons have written. A file that is missing gives an empty one: the
// user may remove it. One that is damaged or cannot be read gives an error, and a ledger in which the day of
// now is lost; the daemon starts all the same.
func Read(path string, now time.Time) (Ledger, error) {
	b, err := ownfile.Read(path, ownfile.MaxDocument)
	for try := 1; err != nil && !errors.Is(err, fs.ErrNotExist) && try < readTries; try++ {
		b, err = ownfile.Read(path, ownfile.MaxDocument)
	}
	var l Ledger
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return l, nil
	case err != nil:
		return Ledger{Lost: day(now)}, fmt.Errorf("what consults have cost cannot be read: %w", err)
	case json.Unmarshal(b, &l) != nil || l.Sum != l.sum():
		return Ledger{Lost: day(now)}, fmt.Errorf("%s: %w", path, ErrDamaged)
	}
	return l, nil
}

// IsLost reports whether what was spent on the day of now is not known.
func (l *Ledger) IsLost(now time.Time) bool { return l.Lost == day(now) }

// Write replaces the file of the ledger. Call it before the booked answers are removed. A
// daemon that dies in between counts these twice; the other order could count them not at
// all.
func (l *Ledger) Write(path string) error {
	l.Sum = l.sum()
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return statedir.WriteFile(path, append(b, '\n'))
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
	return &Ledger{Day: l.Day, Identities: maps.Clone(l.Identities), Sessions: maps.Clone(l.Sessions), Lost: l.Lost}
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
