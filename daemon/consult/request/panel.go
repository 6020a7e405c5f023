package request

import (
	"errors"
	"strings"

	"holdline/daemon/adapter/engine"
	"holdline/protocol/fault"
)

// JudgeLabel is the label of a panel's judge. The other members are A, B and so on.
const JudgeLabel = "judge"

// Seat is an engine of a panel, with the model that it is asked for.
type Seat struct {
	Label string
	Name  string // as the caller has named it: the engine, or the engine, a slash and the model
}

// Seats returns the members of the panel that a call asks for, the judge as the last one, and
// nil for a call that asks one engine. The error is an invalid_input fault.
func (a *Arguments) Seats() (seats []Seat, err error) {
	switch {
	case len(a.Engines) == 0 && a.Judge == "":
		return nil, nil
	case len(a.Engines) == 0:
		return nil, engine.Invalid("judge: it judges the answers of several engines; name them in engines")
	case a.Engine != "" || a.Model != "" || a.Session != "":
		return nil, engine.Invalid("engines: goes with neither engine nor model nor session; a model is named with " +
			"its engine, as in claude/opus")
	}
	for i, name := range a.Engines {
		seats = append(seats, Seat{string(rune('A' + i)), name})
	}
	if a.Judge != "" {
		seats = append(seats, Seat{JudgeLabel, a.Judge})
	}
	return seats, nil
}

// For returns the arguments of a member of a panel. The judge gets none of the material: it
// is given the answers of the others. An engine that cannot hold a limit in dollars gets none.
func (a *Arguments) For(s Seat, find func(string) (engine.Engine, error)) Arguments {
	its := *a
	its.Engines, its.Judge = nil, ""
	its.Engine, its.Model, _ = strings.Cut(s.Name, "/")
	if s.Label == JudgeLabel {
		its.Files, its.Diff, its.Schema, its.Level = nil, "", nil, engine.LevelRead
	}
	if eng, err := find(its.Engine); err == nil && eng.Fits(engine.Request{MaxUSD: its.MaxUSD}) != nil {
		its.MaxUSD = 0
	}
	return its
}

// Refused returns err, a fault about this member of a panel, with the name of the member.
func (s Seat) Refused(err error) error {
	f, ok := errors.AsType[*fault.Record](err)
	if !ok {
		return err
	}
	its := *f
	its.Fault.Detail = "engines: " + s.Name + ": " + f.Fault.Detail
	return &its
}
