package claudetest

import (
	"encoding/json"
	"strings"
)

// mark stands before a script in a prompt.
const mark = "@@FAKE"

// Tool is one call of a tool by the scripted model.
type Tool struct {
	Name  string         `json:"tool"`
	Input map[string]any `json:"input"`
}

// Step is one answer of the scripted model.
type Step struct {
	Text  *string `json:"text,omitempty"`
	Tool          // one call
	Tools []Tool  `json:"tools,omitempty"` // several

	Status      int               `json:"error,omitempty"`        // an HTTP error instead
	Type        string            `json:"type,omitempty"`         // of the error; by default the status's own
	Message     string            `json:"message,omitempty"`      // of the error
	Times       int               `json:"times,omitempty"`        // the error only so often, then the next step
	StreamError string            `json:"stream_error,omitempty"` // an error event inside the stream
	Drop        bool              `json:"drop,omitempty"`         // the stream is cut; a request without stream is answered
	Cut         bool              `json:"cut,omitempty"`          // every kind of request is cut
	Echo        string            `json:"echo,omitempty"`         // prompts, tool_results, tools, system: that part of the request as text
	Headers     map[string]string `json:"headers,omitempty"`
	Delay       float64           `json:"delay,omitempty"`       // seconds before anything is sent
	ChunkDelay  float64           `json:"chunk_delay,omitempty"` // seconds after each piece of text
	Chunk       int               `json:"chunk,omitempty"`       // bytes in a piece; by default 400
	StopReason  string            `json:"stop_reason,omitempty"`
	Model       string            `json:"model,omitempty"`
	Usage       map[string]any    `json:"usage,omitempty"`

	// Do is for the fake program alone: see [FakeMain].
	Do string `json:"do,omitempty"`
	N  int    `json:"n,omitempty"`
}

// calls are the tool calls of a step.
func (s *Step) calls() []Tool {
	if s.Name != "" {
		return append([]Tool{s.Tool}, s.Tools...)
	}
	return s.Tools
}

// Prompt is text with a script behind it.
func Prompt(text string, steps ...Step) string {
	b, err := json.Marshal(steps)
	if err != nil {
		return text + " " + mark + " [" + err.Error() + "]"
	}
	return text + " " + mark + " " + string(b)
}

// Say is a step that answers with text.
func Say(text string) Step { return Step{Text: &text} }

// find is the script in a text; ok tells whether there is one.
func find(text string) (steps []Step, ok bool) {
	_, rest, ok := strings.Cut(text, mark)
	if !ok {
		return nil, false
	}
	if err := json.NewDecoder(strings.NewReader(rest)).Decode(&steps); err != nil || len(steps) == 0 {
		return []Step{Say("claudetest: bad script")}, true
	}
	return steps, true
}

// end is the last n bytes of s, for an answer to a prompt without a script.
func end(s string, n int) string {
	return strings.ToValidUTF8(s[max(len(s)-n, 0):], "")
}
