package trial

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// maxBody bounds a request to the stand-in, in bytes.
const maxBody = 32 << 20

// call is a use of a tool that the stand-in asks for.
type call struct {
	Tool  string
	Input map[string]any
}

// standin answers in place of the model: each request with the calls that are
// due, until all were asked for. It is safe for concurrent use.
type standin struct {
	calls []call
	srv   http.Server
	url   string
	done  chan error

	mu     sync.Mutex
	told   map[int]string // what the program has told of a call, as JSON, by its number
	failed error          // requests that could not be read
}

// maxTold bounds what is kept of the outcome of a call, in bytes.
const maxTold = 4 << 10

// together is how many calls one answer asks for.
const together = 6

// answered is what it says when nothing is left to ask for.
const answered = "All was tried."

// startStandin listens on a free port of loopback and serves until close.
func startStandin(ctx context.Context, calls []call) (*standin, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen in place of the model: %w", err)
	}
	s := &standin{calls: calls, url: "http://" + ln.Addr().String(), done: make(chan error, 1), told: map[int]string{}}
	s.srv = http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: 10 * time.Second}
	go func() { s.done <- s.srv.Serve(ln) }() // close waits for it
	return s, nil
}

// close ends the server and every connection.
func (s *standin) close() error {
	err := s.srv.Close()
	if serve := <-s.done; !errors.Is(serve, http.ErrServerClosed) {
		return serve
	}
	return err
}

// outcomes are what the program has told of the calls, by number.
func (s *standin) outcomes() (told map[int]string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.told), s.failed
}

// message is one of a conversation, as far as it matters.
type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

type block struct {
	Type    string          `json:"type"`
	ID      string          `json:"tool_use_id"`
	Content json.RawMessage `json:"content"`
}

// conversation is what the program sends.
type conversation struct {
	Model    string    `json:"model"`
	Stream   bool      `json:"stream"`
	Messages []message `json:"messages"`
}

func (s *standin) serve(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodPost || !strings.HasPrefix(r.URL.Path, "/v1/messages"):
		http.NotFound(w, r)
		return
	case strings.HasSuffix(r.URL.Path, "/count_tokens"):
		reply(w, map[string]any{"input_tokens": 1})
		return
	}
	var c conversation
	if err := read(w, r, &c); err != nil {
		s.mu.Lock()
		s.failed = errors.Join(s.failed, err)
		s.mu.Unlock()
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	blocks := s.due(&c)
	if c.Stream {
		stream(w, c.Model, blocks)
		return
	}
	reply(w, answer(c.Model, blocks))
}

// read decodes a request.
func read(w http.ResponseWriter, r *http.Request, c *conversation) error {
	var body io.Reader = http.MaxBytesReader(w, r.Body, maxBody)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			return fmt.Errorf("a request of the program: %w", err)
		}
		body = io.LimitReader(z, maxBody)
	}
	if err := json.NewDecoder(body).Decode(c); err != nil {
		return fmt.Errorf("a request of the program: %w", err)
	}
	return nil
}

// callID is the id under which call i is asked for.
func callID(i int) string { return fmt.Sprintf("toolu_selftest_%d", i) }

// due notes the outcomes that a conversation tells, and returns the content of
// the next answer: calls, or the last word.
func (s *standin) due(c *conversation) []map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range c.Messages {
		var list []block
		if json.Unmarshal(m.Content, &list) != nil {
			continue // a text
		}
		for _, b := range list {
			var i int
			if _, err := fmt.Sscanf(b.ID, "toolu_selftest_%d", &i); err == nil && b.Type == "tool_result" {
				s.told[i] = string(b.Content[:min(len(b.Content), maxTold)])
			}
		}
	}
	var blocks []map[string]any
	for i, t := range s.calls {
		if _, told := s.told[i]; !told && len(blocks) < together {
			blocks = append(blocks, map[string]any{"type": "tool_use", "id": callID(i), "name": t.Tool, "input": t.Input})
		}
	}
	if blocks == nil {
		return []map[string]any{{"type": "text", "text": answered}}
	}
	return blocks
}

func stopReason(blocks []map[string]any) string {
	if blocks[0]["type"] == "text" {
		return "end_turn"
	}
	return "tool_use"
}

// answer is an answer in one piece.
func answer(model string, blocks []map[string]any) map[string]any {
	return map[string]any{
		"id": "msg_selftest", "type": "message", "role": "assistant", "model": model, "content": blocks,
		"stop_reason": stopReason(blocks), "stop_sequence": nil, "usage": map[string]any{"input_tokens": 1, "output_tokens": 1},
	}
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a program that is gone needs no answer
}

// stream is the same as server-sent events.
func stream(w http.ResponseWriter, model string, blocks []map[string]any) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	send := func(kind string, v map[string]any) {
		v["type"] = kind
		b, err := json.Marshal(v)
		if err != nil {
			return
		}
		_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, b)
	}
	begin := answer(model, blocks)
	begin["content"], begin["stop_reason"] = []any{}, nil
	send("message_start", map[string]any{"message": begin})
	for i, b := range blocks {
		var delta map[string]any
		if b["type"] == "text" {
			delta = map[string]any{"type": "text_delta", "text": b["text"]}
			b = map[string]any{"type": "text", "text": ""}
		} else {
			input, err := json.Marshal(b["input"])
			if err != nil {
				return
			}
			delta = map[string]any{"type": "input_json_delta", "partial_json": string(input)}
			b = map[string]any{"type": b["type"], "id": b["id"], "name": b["name"], "input": map[string]any{}}
		}
		send("content_block_start", map[string]any{"index": i, "content_block": b})
		send("content_block_delta", map[string]any{"index": i, "delta": delta})
		send("content_block_stop", map[string]any{"index": i})
	}
	send("message_delta", map[string]any{
		"delta": map[string]any{"stop_reason": stopReason(blocks), "stop_sequence": nil}, "usage": map[string]any{"output_tokens": 1},
	})
	send("message_stop", map[string]any{})
}
