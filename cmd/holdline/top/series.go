package top

import "time"

// keptRates is how many rates a series keeps, one a second.
const keptRates = 240

// series is how often something was called lately.
type series struct {
	calls int64 // as counted last
	at    time.Time
	rates []float64 // calls a second, the latest last
}

// add notes that there were that many calls by then. A count that is lower than the last one
// is that of another daemon.
func (s *series) add(calls int64, at time.Time) {
	took := at.Sub(s.at).Seconds()
	if !s.at.IsZero() && took > 0 {
		s.push(float64(max(0, calls-s.calls)) / took)
	}
	s.calls, s.at = calls, at
}

// push adds a rate, and drops the oldest one if there are too many.
func (s *series) push(r float64) {
	if len(s.rates) == keptRates {
		s.rates = append(s.rates[:0], s.rates[1:]...)
	}
	s.rates = append(s.rates, r)
}

// now returns the rate of the last three seconds.
func (s *series) now() float64 {
	last := s.rates[max(0, len(s.rates)-3):]
	sum := 0.0
	for _, r := range last {
		sum += r
	}
	return sum / float64(max(1, len(last)))
}

// allSeries are series by name. Those that are not renewed are forgotten.
type allSeries map[string]*series

// add adds to the series of that name, which it makes if there is none.
func (a allSeries) add(name string, calls int64, at time.Time) {
	if a[name] == nil {
		a[name] = &series{}
	}
	a[name].add(calls, at)
}

// of returns the series of that name, which is empty if it is not known.
func (a allSeries) of(name string) *series {
	if s := a[name]; s != nil {
		return s
	}
	return &series{}
}

// forget drops the series that were not renewed at that time.
func (a allSeries) forget(at time.Time) {
	for name, s := range a {
		if !s.at.Equal(at) {
			delete(a, name)
		}
	}
}
