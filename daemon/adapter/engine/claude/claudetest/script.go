package claudetest

import (
	"encoding/json"
	"strings"
)

// mark stands before a script in a prompt.
const mark = "@@FAKE"

// Tool is one tool call of the scripted model.
type Tool struct {
	Name  string         `json:"tool"`
	Input map[string]any `json:"input"`
}

// Step is one answer of the scripted model.
type Step struct {
	Text  *string `json:"text,omitempty"`
	Tool          // a single tool call
	Tools []Tool  `json:"tools,omitempty"` // several tool calls

	Status      int               `json:"error,omitempty"`        // answer with this HTTP error instead
	Type        string            `json:"type,omitempty"`         // type of the error; by default the one of its status
	Message     string            `json:"message,omitempty"`      // message of the error
	Times       int               `json:"times,omitempty"`        // return it this often, then take the next step
	StreamError string            `json:"stream_error,omitempty"` // type of an error event inside the stream
	Drop        bool              `json:"drop,omitempty"`         // cut the stream, if the answer is one
	Cut         bool              `json:"cut,omitempty"`          // cut the connection for every kind of request
	Echo        string            `json:"echo,omitempty"`         // echo this: prompts, tool_results, tools or system
	Headers     map[string]string `json:"headers,omitempty"`
	Delay       float64           `json:"delay,omitempty"`       // seconds before anything is sent
	ChunkDelay  float64           `json:"chunk_delay,omitempty"` // seconds after each piece of text
	Chunk       int               `json:"chunk,omitempty"`       // bytes in a piece; by default 400
	StopReason  string            `json:"stop_reason,omitempty"`
	Model       string            `json:"model,omitempty"`
	Usage       map[string]any    `json:"usage,omitempty"`

	// Do is a step for the fake program alone: see [FakeMain].
	Do string `json:"do,omitempty"`
	N  int    `json:"n,omitempty"`
}

// calls returns the tool calls of a step.
func (s *Step) calls() []Tool {
	if s.Name != "" {
		return append([]Tool{s.Tool}, s.Tools...)
	}
	return s.Tools
}

// Prompt returns text with a script behind it.
func Prompt(text string, steps ...Step) string {
	b, err := json.Marshal(steps)
	if err != nil {
		return text + " " + mark + " [" + err.Error() + "]"
	}
	return text + " " + mark + " " + string(b)
}

// Say returns a step that answers with text.
func Say(text string) Step { return Step{Text: &text} }

// scripts has the scripts of [Script], by the prompt that they belong to.
var scripts = map[string][]Step{}

// Script sets the steps for every message that contains a prompt, which then needs no script of
// its own: people see the prompt. Call it before [StartAPI] and [FakeMain].
func Script(prompt string, steps ...Step) { scripts[prompt] = steps }

// find parses the script in a text, or finds the one that was set for it; ok reports whether there
// is one.
func find(text string) (steps []Step, ok bool) {
	_, rest, ok := strings.Cut(text, mark)
	if !ok {
		for prompt, steps := range scripts {
			if strings.Contains(text, prompt) {
				return steps, true
			}
		}
		return nil, false
	}
	if err := json.NewDecoder(strings.NewReader(rest)).Decode(&steps); err != nil || len(steps) == 0 {
		return []Step{Say("claudetest: bad script")}, true
	}
	return steps, true
}

// end returns the last n bytes of s, for an answer to a prompt without a script.
func end(s string, n int) string {
	return strings.ToValidUTF8(s[max(len(s)-n, 0):], "")
}
