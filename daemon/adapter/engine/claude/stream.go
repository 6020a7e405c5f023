package claude

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"holdline/daemon/adapter/engine"
	"holdline/protocol/fault"
)

// message is the union of the lines that matter, with the fields that the daemon reads.
// A comment behind a field names the subtypes or types that have it.
type message struct {
	Type    string `json:"type"`
	Subtype string `json:"subtype"`
	Session string `json:"session_id"`
	Parent  string `json:"parent_tool_use_id"` // set on what a subagent says

	// system
	Model         string          `json:"model"`          // init
	Attempt       int             `json:"attempt"`        // api_retry
	MaxRetries    int             `json:"max_retries"`    // api_retry
	RetryDelayMS  float64         `json:"retry_delay_ms"` // api_retry; some versions say fractions
	ErrorStatus   *int            `json:"error_status"`   // api_retry
	Error         json.RawMessage `json:"error"`          // api_retry, assistant: a word
	OriginalModel string          `json:"original_model"` // model_fallback
	FallbackModel string          `json:"fallback_model"` // model_fallback
	ToolName      string          `json:"tool_name"`      // permission_denied, tool_progress

	RateLimit json.RawMessage `json:"rate_limit_info"` // rate_limit_event
	Message   *spoken         `json:"message"`         // assistant
	Event     *partial        `json:"event"`           // stream_event

	result
}

// spoken is the model's message inside a line of type assistant.
type spoken struct {
	ID         string          `json:"id"`
	Model      string          `json:"model"`
	StopReason string          `json:"stop_reason"`
	Content    json.RawMessage `json:"content"` // a list of blocks; a string in lines of type user
}

// block is one part of a message's content: a text, or the use of a tool.
type block struct {
	Type  string          `json:"type"`
	Text  string          `json:"text"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

// partial is an event of the API's own stream inside a stream_event.
type partial struct {
	Type  string `json:"type"`
	Delta struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"delta"`
}

// result is the envelope that ends a turn.
type result struct {
	subtype string // of the line

	IsError        bool             `json:"is_error"`
	Answer         string           `json:"result"`
	Errors         []string         `json:"errors"`
	TerminalReason string           `json:"terminal_reason"`
	StopReason     string           `json:"stop_reason"`
	APIErrorStatus *int             `json:"api_error_status"`
	APIError       string           `json:"api_error"`
	NumTurns       int              `json:"num_turns"`
	DurationMS     float64          `json:"duration_ms"`
	DurationAPIMS  float64          `json:"duration_api_ms"`
	TotalCostUSD   *float64         `json:"total_cost_usd"`
	ModelUsage     map[string]usage `json:"modelUsage"`
	// SinceLast is nil where the version does not count by turn; ModelUsage
	// and TotalCostUSD then count this process alone.
	SinceLast map[string]usage `json:"model_usage_since_last_result"`
	Denials   []struct {
		ToolName string `json:"tool_name"`
	} `json:"permission_denials"`
	Structured json.RawMessage `json:"structured_output,omitempty"`
	FastMode   string          `json:"fast_mode_state"`
	UUID       string          `json:"uuid"`
}

// usage is what one model has used: tokens, and US dollars.
type usage struct {
	Input      int64   `json:"inputTokens"`
	Output     int64   `json:"outputTokens"`
	CacheRead  int64   `json:"cacheReadInputTokens"`
	CacheWrite int64   `json:"cacheCreationInputTokens"`
	CostUSD    float64 `json:"costUSD"`
	CostBasis  string  `json:"costBasis,omitempty"` // "unknown": the cost is not
}

// rateLimit is what a rate_limit_event says of a subscription's window.
type rateLimit struct {
	Status      string  `json:"status"` // allowed, allowed_warning, rejected
	ResetsAt    float64 `json:"resetsAt"`
	Type        string  `json:"rateLimitType"`
	Utilization float64 `json:"utilization"`
}

// word returns the string in raw, and "" if raw is no string.
func word(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// blocks returns the content of a message, and nil if that is no list.
func (s *spoken) blocks() []block {
	var list []block
	if json.Unmarshal(s.Content, &list) != nil {
		return nil
	}
	return list
}

// describe returns in a few words what a tool is used on: "Read sub/main.go". Paths
// below cwd are relative to it.
func describe(b block, cwd string) string {
	var in map[string]json.RawMessage
	if json.Unmarshal(b.Input, &in) != nil {
		return b.Name
	}
	for _, key := range []string{"file_path", "pattern", "path", "url", "query", "description", "command"} {
		v := word(in[key])
		if v == "" {
			continue
		}
		if cwd != "" && (key == "file_path" || key == "path") {
			v = strings.TrimPrefix(v, strings.TrimSuffix(cwd, "/")+"/")
		}
		return b.Name + " " + fault.Short(v, 80)
	}
	return b.Name
}

// pathOf returns the path that a tool is used on, from cwd on; "" if there is none.
func pathOf(b block, cwd string) string {
	var in struct {
		File string `json:"file_path"`
		Path string `json:"path"`
	}
	if json.Unmarshal(b.Input, &in) != nil {
		return ""
	}
	switch path := cmp.Or(in.File, in.Path); {
	case path == "":
		return ""
	case filepath.IsAbs(path):
		return filepath.Clean(path)
	default:
		return filepath.Join(cwd, path)
	}
}

// retryText returns why and when the program asks its API again, for people.
func (m *message) retryText() string {
	why := word(m.Error)
	switch {
	case m.ErrorStatus != nil && why != "":
		why = fmt.Sprintf("%d %s", *m.ErrorStatus, why)
	case m.ErrorStatus != nil:
		why = fmt.Sprintf("status %d", *m.ErrorStatus)
	case why == "" || why == "unknown":
		why = "no connection"
	}
	wait := m.retryDelay().Round(100 * time.Millisecond)
	return fmt.Sprintf("API error (%s), retry %d of %d in %s", why, m.Attempt, m.MaxRetries, wait)
}

// retryDelay returns how long the program waits before it asks its API again.
func (m *message) retryDelay() time.Duration { return time.Duration(m.RetryDelayMS) * time.Millisecond }

// limitText describes a window that is limited, for people. It returns "" for one that
// is simply open.
func (r rateLimit) limitText() string {
	if r.Status == "" || r.Status == "allowed" {
		return ""
	}
	text := "rate limit " + r.Status
	if r.Type != "" {
		text += " (" + r.Type + ")"
	}
	if r.Utilization > 0 {
		text += fmt.Sprintf(", %.0f %% used", r.Utilization*100)
	}
	if r.ResetsAt > 0 {
		text += ", resets at " + time.Unix(int64(r.ResetsAt), 0).UTC().Format(time.RFC3339)
	}
	return text
}

// share returns the window in the form that engines share, and nil if the program has
// said nothing.
func (r rateLimit) share() *engine.Window {
	if r == (rateLimit{}) {
		return nil
	}
	return &engine.Window{Kind: r.Type, Status: r.Status, Used: r.Utilization, ResetUnixMS: int64(r.ResetsAt) * 1000}
}
