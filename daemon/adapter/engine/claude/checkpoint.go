package claude

import (
	"encoding/json"
	"fmt"
	"time"

	"holdline/daemon/adapter/engine"
)

// checkpoint is a [Run] on disk.
type checkpoint struct {
	Session   string           `json:"session,omitempty"`
	Model     string           `json:"model,omitempty"`
	Started   bool             `json:"started,omitempty"`
	Said      []string         `json:"said,omitempty"`
	Live      string           `json:"live,omitempty"`
	Results   int              `json:"results,omitempty"`
	Subtype   string           `json:"subtype,omitempty"`
	Last      result           `json:"last"`
	Spent     map[string]usage `json:"spent"`
	Cost      float64          `json:"cost"`
	CostKnown bool             `json:"cost_known,omitempty"`
	Turns     int              `json:"turns,omitempty"`
	API       time.Duration    `json:"api_ns,omitempty"`
	APIError  string           `json:"api_error,omitempty"`
	Stop      string           `json:"stop,omitempty"`
	Retry     *message         `json:"retry,omitempty"`
	Limit     json.RawMessage  `json:"limit,omitempty"`
	Denied    []engine.Denial  `json:"denied,omitempty"`
	Noise     int              `json:"noise,omitempty"`
	Turn      int              `json:"turn,omitempty"`
	Speaking  string           `json:"speaking,omitempty"`
}

// Checkpoint is what has been read so far.
func (r *Run) Checkpoint() ([]byte, error) {
	return json.Marshal(checkpoint{
		Session: r.session, Model: r.model, Started: r.started, Said: r.said.List(), Live: r.live.String(),
		Results: r.results, Subtype: r.last.subtype, Last: r.last, Spent: r.spent, Cost: r.cost, CostKnown: r.costKnown,
		Turns: r.turns, API: r.api, APIError: r.apiError, Stop: r.stop, Retry: r.retry, Limit: r.limit,
		Denied: r.denied, Noise: r.noise, Turn: r.turn, Speaking: r.speaking,
	})
}

// Restore goes on from a checkpoint of a run of the same request.
func (r *Run) Restore(b []byte) error {
	var c checkpoint
	if err := json.Unmarshal(b, &c); err != nil {
		return fmt.Errorf("reading a run's checkpoint: %w", err)
	}
	if c.Spent == nil {
		c.Spent = map[string]usage{}
	}
	r.session, r.model, r.started, r.results = c.Session, c.Model, c.Started, c.Results
	r.said = engine.Texts{}
	for _, text := range c.Said {
		r.said.Add(text)
	}
	r.turn, r.speaking = c.Turn, c.Speaking
	r.live.Reset()
	r.live.WriteString(c.Live)
	r.last, r.last.subtype = c.Last, c.Subtype
	r.spent, r.cost, r.costKnown, r.turns, r.api = c.Spent, c.Cost, c.CostKnown, c.Turns, c.API
	r.apiError, r.stop, r.retry, r.limit, r.denied, r.noise = c.APIError, c.Stop, c.Retry, c.Limit, c.Denied, c.Noise
	return nil
}
