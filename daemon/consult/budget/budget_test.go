package budget

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/config"
	"holdline/protocol/control"
	"holdline/protocol/fault"
)

// noon is a time of a day.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.Local)

// fakeEngine can hold a limit on its cost if holds is true. Nothing else is asked of it.
type fakeEngine struct {
	engine.Engine
	holds bool
}

func (e fakeEngine) Fits(req engine.Request) error {
	if req.MaxUSD > 0 && !e.holds {
		return errors.New("it cannot hold a limit")
	}
	return nil
}

// TestLedgerFull checks that a full ledger keeps the sessions of today: otherwise a
// session's budget would not be enforced.
func TestLedgerFull(t *testing.T) {
	var l Ledger
	book := func(session string, days int) {
		now := noon.AddDate(0, 0, days)
		l.Add(Cost{Identity: "a", Session: session, USD: new(0.5), Ended: now}, now)
	}
	book("old", 0)
	for i := range maxEntries - 1 {
		book(fmt.Sprint(i), 1+i%7)
	}
	book("today", 9)
	book("today", 9)
	if _, there := l.Sessions["old"]; there || len(l.Sessions) != maxEntries {
		t.Errorf("%d sessions, the oldest among them: %t", len(l.Sessions), there)
	}
	if got := l.Sessions["today"]; got.USD != 1 || got.Consults != 2 {
		t.Errorf("today %+v", got)
	}
}

// TestWith checks that a sum has the costs of the ledger and of the consults beside it,
// of today for identities and of all days for sessions, and that the ledger stays as it
// was. A ledger that was written is read as it was.
func TestWith(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spent.json")
	l, err := Read(path, noon)
	if err != nil {
		t.Fatal(err)
	}
	l.Add(Cost{Identity: "a", Session: "one", USD: new(0.5), Ended: noon}, noon)
	l.Add(Cost{Identity: "a", Session: "one", USD: new(0.5), Ended: noon.AddDate(0, 0, -1)}, noon)
	if err := l.Write(path); err != nil {
		t.Fatal(err)
	}
	more := slices.Values([]Cost{
		{Identity: "a", Session: "one", USD: new(0.25), Ended: noon},
		{Identity: "b", Ended: noon}, // of an engine that reports no cost
	})
	sum := l.With(more, noon)
	if a, b, s := sum.Identities["a"], sum.Identities["b"], sum.Sessions["one"]; a.USD != 0.75 || a.Consults != 2 ||
		b.USD != 0 || b.Consults != 1 || s.USD != 1.25 || s.Consults != 3 || len(sum.Sessions) != 1 {
		t.Errorf("sum %+v", sum)
	}
	if read, err := Read(path, noon); err != nil || !reflect.DeepEqual(read, l) {
		t.Errorf("read %+v, written %+v", read, l)
	}
	next := noon.AddDate(0, 0, 1)
	if sum := l.With(slices.Values([]Cost{}), next); len(sum.Identities) != 0 || sum.Sessions["one"].USD != 1 {
		t.Errorf("the next day %+v", sum)
	}
}

// TestAfford checks that a run may cost what is left of the smallest budget, and that a
// budget that is used up refuses it.
func TestAfford(t *testing.T) {
	var empty Ledger
	l := empty.With(slices.Values([]Cost{{Identity: "a", Session: "one", USD: new(0.5), Ended: noon}}), noon)
	for name, tt := range map[string]struct {
		budget  config.Budget
		asks    float64 // in US dollars
		untold  bool    // the engine cannot hold a limit on its cost
		want    float64
		refused string // name of the limit
	}{
		"no budget":        {asks: 3, want: 3},
		"of the day":       {budget: config.Budget{MaxUSDPerDay: 2}, want: 1.5},
		"of the session":   {budget: config.Budget{MaxUSDPerDay: 2, MaxUSDPerSession: 1}, asks: 3, want: 0.5},
		"less is asked":    {budget: config.Budget{MaxUSDPerDay: 2}, asks: 0.25, want: 0.25},
		"no limit held":    {budget: config.Budget{MaxUSDPerDay: 2}, untold: true},
		"the day is spent": {budget: config.Budget{MaxUSDPerDay: 0.5}, refused: "US cents a day"},
		"too many":         {budget: config.Budget{ConsultsPerDay: 1}, untold: true, refused: "consults a day"},
		"the session is spent": {
			budget: config.Budget{MaxUSDPerDay: 2, MaxUSDPerSession: 0.5}, refused: "US cents a session",
		},
	} {
		eng := fakeEngine{holds: !tt.untold}
		got, err := l.Afford(tt.budget, "a", "one", eng, engine.Request{MaxUSD: tt.asks}, noon)
		if f, ok := errors.AsType[*fault.Record](err); ok != (tt.refused != "") || got != tt.want ||
			ok && (f.Limit == nil || f.Limit.Name != tt.refused || f.Fault.Code != fault.BudgetExceeded) {
			t.Errorf("%s: %v, %v", name, got, err)
		} else if ok && (f.RetryAfterMS == nil) != (name == "the session is spent") {
			t.Errorf("%s: to be tried again after %v", name, f.RetryAfterMS)
		}
	}
	want := []control.Spending{{Identity: "a", CostUSD: 0.5, Consults: 1, MaxUSD: 2}}
	if got := l.Spendings(map[string]config.Identity{"a": {Budget: config.Budget{MaxUSDPerDay: 2}}, "b": {}}); !slices.
		Equal(got, want) {
		t.Errorf("spendings %+v", got)
	}
}

// TestLedgerDamagedOnce_NothingIsForgotten damages one of the two files of costs in each way: what was spent is
// known by the other one. It is said, if that is the copy, and the next daemon has two good files again.
func TestLedgerDamagedOnce_NothingIsForgotten(t *testing.T) {
	for name, damage := range map[string]func(path string, old []byte) error{
		"missing":     func(path string, _ []byte) error { return os.Remove(path) },
		"emptied":     func(path string, _ []byte) error { return os.Truncate(path, 0) },
		"an old copy": func(path string, old []byte) error { return os.WriteFile(path, old, 0o600) },
		"a directory": func(path string, _ []byte) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
	} {
		for _, second := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, the copy: %t", name, second), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "spent.json")
				var spent Ledger
				write := func() []byte {
					t.Helper()
					spent.Writes++
					spent.Add(Cost{Identity: "a", Session: "one", USD: new(5.0), Ended: noon}, noon)
					if err := spent.Write(path); err != nil {
						t.Fatal(err)
					}
					b, err := os.ReadFile(path)
					if err != nil {
						t.Fatal(err)
					}
					return b
				}
				old := write()
				write()
				damaged := path
				if second {
					damaged = copyOf(path)
				}
				if err := damage(damaged, old); err != nil {
					t.Fatal(err)
				}
				l, err := Read(path, noon)
				if (err == nil) != second || err != nil && !strings.Contains(err.Error(), path) {
					t.Errorf("read: %v", err)
				}
				if l.Lost != "" || l.Identities["a"].USD != 10 || l.Sessions["one"].Consults != 2 {
					t.Errorf("what is known: %+v", l)
				}
				if name == "a directory" {
					return
				}
				if err := l.Write(path); err != nil {
					t.Fatal(err)
				}
				for _, file := range []string{path, copyOf(path)} {
					if l, err := read(file); err != nil || l.Identities["a"].USD != 10 {
						t.Errorf("%s is %+v, %v", file, l, err)
					}
				}
			})
		}
	}
}

// TestLedgerDamaged_NoBudgetGrowsBack damages both files of costs in each way: it is said, and on that day nothing
// is left of any budget, also for the next daemon; consults without a budget go on. A file that the user has
// removed begins anew, and so does the next day.
func TestLedgerDamaged_NoBudgetGrowsBack(t *testing.T) {
	for name, damage := range map[string]func(path string, text []byte) error{
		"emptied":    func(path string, _ []byte) error { return os.WriteFile(path, nil, 0o600) },
		"halved":     func(path string, b []byte) error { return os.WriteFile(path, b[:len(b)/2], 0o600) },
		"other JSON": func(path string, _ []byte) error { return os.WriteFile(path, []byte(`{"day":"2026-01-01"}`), 0o600) },
		"a list":     func(path string, _ []byte) error { return os.WriteFile(path, []byte("[]"), 0o600) },
		"one bit": func(path string, b []byte) error {
			at := bytes.Index(b, []byte(`"usd":5`))
			b[at+len(`"usd":`)] ^= 4 // 5 becomes 1
			return os.WriteFile(path, b, 0o600)
		},
		"a directory":        func(path string, _ []byte) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
		"readable by others": func(path string, _ []byte) error { return os.Chmod(path, 0o666) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "spent.json")
			var spent Ledger
			spent.Add(Cost{Identity: "a", Session: "one", USD: new(5.0), Ended: noon}, noon)
			if err := spent.Write(path); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(damage(path, bytes.Clone(text)), damage(copyOf(path), text)); err != nil {
				t.Fatal(err)
			}
			l, err := Read(path, noon)
			if err == nil || !strings.Contains(err.Error(), path) {
				t.Fatalf("read: %v", err)
			}
			if name != "a directory" { // the next daemon reads what this one has written
				if err := l.Write(path); err != nil {
					t.Fatal(err)
				}
				if l, err = Read(path, noon.Add(time.Hour)); err != nil {
					t.Fatal(err)
				}
			}
			for what, tt := range map[string]struct {
				budget  config.Budget
				days    int
				refused bool
			}{
				"no budget":                {},
				"dollars of the day":       {config.Budget{MaxUSDPerDay: 6}, 0, true},
				"consults of the day":      {config.Budget{ConsultsPerDay: 9}, 0, true},
				"dollars of a session":     {config.Budget{MaxUSDPerSession: 6}, 0, true},
				"dollars of the next day":  {config.Budget{MaxUSDPerDay: 6}, 1, false},
				"consults of the next day": {config.Budget{ConsultsPerDay: 9}, 1, false},
			} {
				now := noon.AddDate(0, 0, tt.days)
				_, err := l.With(slices.Values([]Cost{}), now).Afford(tt.budget, "a", "one", fakeEngine{}, engine.Request{}, now)
				f, refused := errors.AsType[*fault.Record](err)
				if refused != tt.refused || refused && (f.Fault.Code != fault.BudgetExceeded || f.RetryAfterMS == nil ||
					!strings.Contains(f.Fault.Detail, "spent.json")) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
			if l, err := Read(path, noon); err != nil || l.Lost != "" {
				t.Errorf("after it was removed: %+v, %v", l, err)
			}
		})
	}
}
