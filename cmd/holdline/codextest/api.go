// Package codextest has a stand-in for OpenAI's Responses API, on loopback, with which
// tests run the real Codex without key or cost. The model that it plays follows a script.
//
// Nothing of this is linked into holdline itself.
package codextest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// maxBody is the limit of a request, in bytes.
const maxBody = 32 << 20

// Step is one answer of the scripted model: a tool call, an echo, or text.
type Step struct {
	Text string
	Call *Call
	More []Call // further calls at the same time as Call
	Echo bool   // answer with all tool results so far, as a JSON array of [Output]

	Status int // answer with this HTTP error instead
}

// Call is one tool call by the scripted model.
type Call struct {
	Namespace string // "mcp__" and the name of the MCP server
	Name      string
	Arguments map[string]any
	Code      string // instead of arguments, for a tool that takes free text
}

// Output is the result of a tool.
type Output struct {
	ID      string          `json:"call_id"`
	Content json.RawMessage `json:"output"`
}

// Request is one request to the model.
type Request struct {
	Body  []byte
	Tools []string // offered tools; those of a namespace as "namespace/name"
}

// API is a stand-in for the Responses API, on loopback. [StartAPI] starts one.
type API struct {
	srv   http.Server
	addr  string
	steps []Step
	done  chan error

	mu   sync.Mutex
	seen []Request
}

// StartAPI listens on a free loopback port and serves until Close. Every conversation gets
// the same steps: step k answers a request in which the model has spoken k times. The last
// step repeats.
func StartAPI(steps ...Step) (*API, error) {
	if len(steps) == 0 {
		return nil, errors.New("a script needs a step")
	}
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for the stand-in: %w", err)
	}
	a := &API{addr: ln.Addr().String(), steps: steps, done: make(chan error, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/responses", a.responses)
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []any{}, "models": []any{}})
	})
	a.srv = http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	var serve sync.WaitGroup
	serve.Go(func() { a.done <- a.srv.Serve(ln) })
	return a, nil
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

// Config returns the settings of Codex, in the form of its option -c, that make it talk to
// a and to no other address. Codex reads its key from the variable STAND_IN_KEY, which must
// not be empty.
func (a *API) Config() []string {
	return []string{
		`analytics.enabled=false`, `check_for_update_on_startup=false`, `model_provider="standin"`,
		`model_providers.standin={name="standin",base_url="http://` + a.addr +
			`/v1",env_key="STAND_IN_KEY",wire_api="responses",supports_websockets=false}`,
	}
}

// item is a piece of the conversation, with the fields that the stand-in reads.
type item struct {
	Type   string          `json:"type"`
	Role   string          `json:"role"`
	CallID string          `json:"call_id"`
	Output json.RawMessage `json:"output"`
	Tools  []offered       `json:"tools"`
}

// model reports whether the model said it.
func (i *item) model() bool {
	switch i.Type {
	case "function_call", "custom_tool_call", "reasoning":
		return true
	}
	return i.Role == "assistant"
}

// offered is a tool or a namespace of tools.
type offered struct {
	Type  string    `json:"type"`
	Name  string    `json:"name"`
	Tools []offered `json:"tools"`
}

// responses answers a request to the model with the step that is due.
func (a *API) responses(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var q struct {
		Model string    `json:"model"`
		Input []item    `json:"input"`
		Tools []offered `json:"tools"`
	}
	if err == nil {
		err = json.Unmarshal(raw, &q)
	}
	if err != nil {
		writeJSON(w, http.StatusBadRequest,
			map[string]any{"error": map[string]any{"type": "invalid_request_error", "message": err.Error()}})
		return
	}
	rec := Request{Body: raw}
	for _, it := range q.Input {
		q.Tools = append(q.Tools, it.Tools...) // some models get their tools here
	}
	for _, t := range q.Tools {
		rec.Tools = append(rec.Tools, names(t)...)
	}
	a.mu.Lock()
	if len(a.seen) < 10_000 {
		a.seen = append(a.seen, rec)
	}
	n := len(a.seen)
	a.mu.Unlock()

	k, speaking := 0, false
	outputs := []Output{}
	for _, it := range q.Input {
		if it.model() && !speaking {
			k++
		}
		speaking = it.model()
		if it.Type == "function_call_output" || it.Type == "custom_tool_call_output" {
			outputs = append(outputs, Output{ID: it.CallID, Content: it.Output})
		}
	}
	step := &a.steps[min(k, len(a.steps)-1)]
	if step.Status != 0 {
		writeJSON(w, step.Status,
			map[string]any{"error": map[string]any{"type": "stand_in", "message": "as the script says"}})
		return
	}
	out, err := step.item(strconv.Itoa(n), outputs)
	if err != nil {
		writeJSON(w, http.StatusInternalServerError,
			map[string]any{"error": map[string]any{"type": "server_error", "message": err.Error()}})
		return
	}
	all := []map[string]any{out}
	for i := range step.More {
		more := Step{Call: &step.More[i]}
		if out, err = more.item(fmt.Sprintf("%d_%d", n, i), nil); err == nil {
			all = append(all, out)
		}
	}
	stream(w, "resp_"+strconv.Itoa(n), q.Model, all)
}

// names returns the names of an offered tool, or of all tools of a namespace.
func names(t offered) []string {
	if t.Name == "" {
		return []string{t.Type}
	}
	if t.Tools == nil {
		return []string{t.Name}
	}
	var list []string
	for _, inner := range t.Tools {
		list = append(list, t.Name+"/"+inner.Name)
	}
	return list
}

// item returns a step as an item of the conversation. Its ids are made from id.
func (s *Step) item(id string, outputs []Output) (map[string]any, error) {
	if s.Call != nil && s.Call.Code != "" {
		return map[string]any{
			"type": "custom_tool_call", "id": "ctc_" + id, "call_id": "call_" + id,
			"name": s.Call.Name, "input": s.Call.Code, "status": "completed",
		}, nil
	}
	if s.Call != nil {
		args := s.Call.Arguments
		if args == nil {
			args = map[string]any{}
		}
		b, err := json.Marshal(args)
		if err != nil {
			return nil, fmt.Errorf("encoding the arguments of %s: %w", s.Call.Name, err)
		}
		call := map[string]any{
			"type": "function_call", "id": "fc_" + id, "call_id": "call_" + id,
			"name": s.Call.Name, "arguments": string(b), "status": "completed",
		}
		if s.Call.Namespace != "" {
			call["namespace"] = s.Call.Namespace
		}
		return call, nil
	}
	text := s.Text
	if s.Echo {
		b, err := json.Marshal(outputs)
		if err != nil {
			return nil, fmt.Errorf("encoding the outputs: %w", err)
		}
		text = string(b)
	}
	return map[string]any{
		"type": "message", "id": "msg_" + id, "role": "assistant", "status": "completed",
		"content": []any{map[string]any{"type": "output_text", "text": text, "annotations": []any{}}},
	}, nil
}

// stream answers with items, as server-sent events.
func stream(w http.ResponseWriter, id, model string, all []map[string]any) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	send := func(kind string, v map[string]any) {
		v["type"] = kind
		b, err := json.Marshal(v)
		if err != nil {
			return // cannot happen: the values were decoded or written here
		}
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, b)
		_ = http.NewResponseController(w).Flush()
	}
	send("response.created", map[string]any{"response": map[string]any{"id": id, "status": "in_progress"}})
	for i, out := range all {
		send("response.output_item.added", map[string]any{"output_index": i, "item": out})
		if content, ok := out["content"].([]any); ok {
			part, _ := content[0].(map[string]any)
			send("response.output_text.delta", map[string]any{
				"item_id": out["id"], "output_index": i, "content_index": 0, "delta": part["text"],
			})
		}
		send("response.output_item.done", map[string]any{"output_index": i, "item": out})
	}
	send("response.completed", map[string]any{"response": map[string]any{
		"id": id, "object": "response", "status": "completed", "model": model, "output": all,
		"usage": map[string]any{
			"input_tokens": 100, "input_tokens_details": map[string]any{"cached_tokens": 0},
			"output_tokens": 10, "output_tokens_details": map[string]any{"reasoning_tokens": 0},
			"total_tokens": 110,
		},
	}})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
