package claudetest

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxBody is the limit of a request body in bytes, the same as the real API's.
const maxBody = 32 << 20

// API is a stand-in for the Messages API, on loopback. [StartAPI] starts one. It keeps no
// state of a conversation, since the prompt carries the script. So any number of programs
// may use it at once.
type API struct {
	srv  http.Server
	addr string
	done chan error

	mu    sync.Mutex
	seen  []Request
	count map[string]int // errors returned so far for steps with Times, by session and step
}

// Request is one request to the model, as the API received it.
type Request struct {
	Path    string
	Session string // the program's session id
	Body    []byte
	Tools   []string // names of the offered tools
	Model   string
}

// StartAPI listens on a free loopback port and serves until Close.
func StartAPI() (*API, error) {
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the stand-in API: %w", err)
	}
	a := &API{addr: ln.Addr().String(), done: make(chan error, 1), count: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", a.messages)
	mux.HandleFunc("POST /v1/messages/count_tokens", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"input_tokens": 100})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		apiError(w, &Step{Status: http.StatusNotFound})
	})
	a.srv = http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	var serve sync.WaitGroup
	serve.Go(func() { a.done <- a.srv.Serve(ln) })
	return a, nil
}

// URL returns the value for ANTHROPIC_BASE_URL.
func (a *API) URL() string { return "http://" + a.addr }

// Env returns the variables that make the real program talk to a and to no other address.
func (a *API) Env() []string {
	return []string{
		"ANTHROPIC_BASE_URL=" + a.URL(), "ANTHROPIC_API_KEY=stand-in",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_TELEMETRY=1",
	}
}

// Close stops the server, closes every connection, and waits for the accept loop.
func (a *API) Close() error {
	err := a.srv.Close()
	if serve := <-a.done; !errors.Is(serve, http.ErrServerClosed) {
		return serve
	}
	return err
}

// Requests returns the requests made to the model so far.
func (a *API) Requests() []Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.seen)
}

// turn is one message of a conversation.
type turn struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

type part struct {
	Type    string          `json:"type"`
	Text    string          `json:"text"`
	Content json.RawMessage `json:"content"`
	IsError bool            `json:"is_error"`
	Source  json.RawMessage `json:"source"`
}

// parts returns the content of a turn as a list, also if it was sent as a string.
func (t turn) parts() []part {
	var text string
	if json.Unmarshal(t.Content, &text) == nil {
		return []part{{Type: "text", Text: text}}
	}
	var list []part
	_ = json.Unmarshal(t.Content, &list)
	return list
}

// asked is the body of a request, with the fields that the stand-in reads.
type asked struct {
	Model    string          `json:"model"`
	Stream   bool            `json:"stream"`
	System   json.RawMessage `json:"system"`
	Messages []turn          `json:"messages"`
	Tools    []struct {
		Name string `json:"name"`
	} `json:"tools"`
}

// script returns the script in force and the number of the step that is due. A later user
// message without a script ends a script.
func (q *asked) script() ([]Step, int) {
	var steps []Step
	at := -1
	for i, m := range q.Messages {
		if m.Role != "user" {
			continue
		}
		human, found := false, false
		for _, p := range m.parts() {
			switch {
			case p.Type == "tool_result":
				human = false
			case p.Type != "text" || strings.HasPrefix(strings.TrimSpace(p.Text), "<system-reminder>"):
			case strings.HasPrefix(p.Text, "[Request interrupted"):
			default:
				human = true
				if s, ok := find(p.Text); ok {
					steps, at, found = s, i, true
				}
			}
		}
		if human && !found && !slices.ContainsFunc(m.parts(), func(p part) bool { return p.Type == "tool_result" }) {
			steps, at = nil, -1
		}
	}
	step, last := 0, ""
	for _, m := range q.Messages[at+1:] {
		if m.Role == "assistant" && last != m.Role {
			step++
		}
		last = m.Role
	}
	return steps, step
}

// said returns the text of the last user message.
func (q *asked) said() string {
	for _, m := range slices.Backward(q.Messages) {
		if m.Role != "user" {
			continue
		}
		for _, p := range slices.Backward(m.parts()) {
			if p.Type == "text" && !strings.HasPrefix(strings.TrimSpace(p.Text), "<system-reminder>") {
				return p.Text
			}
		}
	}
	return ""
}

// echo returns the part of the request that what names, as JSON.
func (q *asked) echo(what string) string {
	var v any
	switch what {
	case "system":
		v = q.System
	case "tools":
		v = q.Tools
	case "tool_results":
		var list []any
		for _, m := range q.Messages {
			for _, p := range m.parts() {
				if p.Type == "tool_result" {
					list = append(list, map[string]any{"content": p.Content, "is_error": p.IsError})
				}
			}
		}
		v = list
	default:
		v = q.Messages
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// messages answers a request to the model as the script says.
func (a *API) messages(w http.ResponseWriter, r *http.Request) {
	var body io.Reader = http.MaxBytesReader(w, r.Body, maxBody)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			apiError(w, &Step{Status: http.StatusBadRequest, Message: err.Error()})
			return
		}
		body = io.LimitReader(z, maxBody)
	}
	raw, err := io.ReadAll(body)
	var q asked
	if err == nil {
		err = json.Unmarshal(raw, &q)
	}
	if err != nil {
		apiError(w, &Step{Status: http.StatusBadRequest, Message: err.Error()})
		return
	}
	rec := Request{Path: r.URL.Path, Session: r.Header.Get("X-Claude-Code-Session-Id"), Body: raw, Model: q.Model}
	for _, t := range q.Tools {
		rec.Tools = append(rec.Tools, t.Name)
	}
	steps, k := q.script()
	a.mu.Lock()
	if len(a.seen) < 10_000 {
		a.seen = append(a.seen, rec)
	}
	step := a.pickLocked(steps, k, rec.Session)
	a.mu.Unlock()
	if step == nil && strings.Contains(q.said(), "no tool but StructuredOutput") &&
		slices.Contains(rec.Tools, "StructuredOutput") {
		step = &Step{Tool: Tool{Name: "StructuredOutput", Input: map[string]any{}}}
	}
	if step == nil {
		s := Say(fmt.Sprintf("stand-in answer (%s): %s", q.Model, end(q.said(), 80)))
		step = &s
	}
	if !wait(r.Context(), step.Delay) {
		return
	}
	switch {
	case step.Status != 0:
		apiError(w, step)
	case step.Cut:
		panic(http.ErrAbortHandler)
	case q.Stream:
		stream(w, r, &q, step)
	default:
		writeJSON(w, http.StatusOK, whole(&q, step))
	}
}

// pickLocked returns the step that is due; it skips error steps that were returned Times
// times already.
func (a *API) pickLocked(steps []Step, k int, session string) *Step {
	for len(steps) > 0 {
		k = min(k, len(steps)-1)
		s := &steps[k]
		if s.Status == 0 || s.Times == 0 {
			return s
		}
		key := fmt.Sprintf("%s/%d/%d", session, k, len(steps))
		a.count[key]++
		if a.count[key] <= s.Times {
			return s
		}
		steps = slices.Delete(slices.Clone(steps), k, k+1)
	}
	return nil
}

// wait waits for seconds, and reports whether the client is still connected.
func wait(ctx context.Context, seconds float64) bool {
	if seconds <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(time.Duration(seconds * float64(time.Second)))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
