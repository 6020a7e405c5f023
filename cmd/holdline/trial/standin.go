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

// call is a use of a tool that the stand-in asks for: its name and its input, as the
// Messages API has them.
type call struct {
	Tool  string
	Input map[string]any
}

// standin answers in place of the model, as the Messages API does. Each answer asks
// for calls that were not made yet, until all were made. It is safe for concurrent
// use: the program may send several requests at the same time.
type standin struct {
	calls []call
	srv   http.Server
	url   string
	done  chan error

	mu       sync.Mutex     // guards the fields that follow
	outcomes map[int]string // what a call has returned, as JSON, by its number
	failed   error          // of requests that could not be read
}

// maxOutcome bounds what is kept of the outcome of a call, in bytes.
const maxOutcome = 4 << 10

// callsPerAnswer is how many calls one answer asks for.
const callsPerAnswer = 6

// lastAnswer is the text of the answer once all calls were made.
const lastAnswer = "All was tried."

// startStandin listens on a free port of loopback and serves until shutDown, which the
// caller must call. calls are what the answers ask for, in this order.
func startStandin(ctx context.Context, calls []call) (*standin, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen in place of the model: %w", err)
	}
	s := &standin{
		calls: calls, url: "http://" + ln.Addr().String(), done: make(chan error, 1), outcomes: map[int]string{},
	}
	s.srv = http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: 10 * time.Second}
	go func() { s.done <- s.srv.Serve(ln) }() // shutDown waits for it
	return s, nil
}

// shutDown ends the server and every connection, and waits for that.
func (s *standin) shutDown() error {
	err := s.srv.Close()
	if serve := <-s.done; !errors.Is(serve, http.ErrServerClosed) {
		return serve
	}
	return err
}

// results returns the outcomes of the calls so far, by number, and the errors of
// requests that could not be read. A call without an outcome was not made.
func (s *standin) results() (outcomes map[int]string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.outcomes), s.failed
}

// message is a message of a conversation. Its content is a text or a list of blocks.
type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// block is a part of a message. The result of a call is one, with the id of the call.
type block struct {
	Type    string          `json:"type"`
	ID      string          `json:"tool_use_id"`
	Content json.RawMessage `json:"content"`
}

// conversation is a request of the program: all messages so far. Only what the
// stand-in needs is decoded.
type conversation struct {
	Model    string    `json:"model"`
	Stream   bool      `json:"stream"`
	Messages []message `json:"messages"`
}

// serve answers a request of the Messages API, as a whole or as a stream. It counts no
// tokens and refuses all other requests.
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
	if err := decodeRequest(w, r, &c); err != nil {
		s.mu.Lock()
		s.failed = errors.Join(s.failed, err)
		s.mu.Unlock()
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	blocks := s.nextAnswer(&c)
	if c.Stream {
		stream(w, c.Model, blocks)
		return
	}
	reply(w, wholeAnswer(c.Model, blocks))
}

// decodeRequest reads the body of a request, which may be compressed, up to maxBody
// bytes.
func decodeRequest(w http.ResponseWriter, r *http.Request, c *conversation) error {
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

// callID returns the id of call i, by which its result is found in later requests.
func callID(i int) string { return fmt.Sprintf("toolu_selftest_%d", i) }

// nextAnswer records the outcomes that a conversation has, and returns the content of
// the next answer: at most callsPerAnswer calls, or the last answer once all calls
// were made. Each request repeats the whole conversation, so the same outcome may be
// recorded several times.
func (s *standin) nextAnswer(c *conversation) []map[string]any {
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
				s.outcomes[i] = string(b.Content[:min(len(b.Content), maxOutcome)])
			}
		}
	}
	var blocks []map[string]any
	for i, t := range s.calls {
		if _, made := s.outcomes[i]; !made && len(blocks) < callsPerAnswer {
			blocks = append(blocks, map[string]any{
				"type": "tool_use", "id": callID(i), "name": t.Tool, "input": t.Input,
			})
		}
	}
	if blocks == nil {
		return []map[string]any{{"type": "text", "text": lastAnswer}}
	}
	return blocks
}

// stopReason returns why an answer with this content ends: the model waits for the
// results of its calls, or its turn is over.
func stopReason(blocks []map[string]any) string {
	if blocks[0]["type"] == "text" {
		return "end_turn"
	}
	return "tool_use"
}

// wholeAnswer returns an answer in one piece, for a program that asks for no stream.
func wholeAnswer(model string, blocks []map[string]any) map[string]any {
	return map[string]any{
		"id": "msg_selftest", "type": "message", "role": "assistant", "model": model, "content": blocks,
		"stop_reason": stopReason(blocks), "stop_sequence": nil,
		"usage": map[string]any{"input_tokens": 1, "output_tokens": 1},
	}
}

// reply sends JSON.
func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // it fails if the program has ended
}

// stream sends an answer as server-sent events, in the order that the Messages API
// has: the start of the message, each block with its start, one delta and its end, and
// the end of the message. Errors are ignored: writing fails if the program has ended.
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
	begin := wholeAnswer(model, blocks)
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
		"delta": map[string]any{"stop_reason": stopReason(blocks), "stop_sequence": nil},
		"usage": map[string]any{"output_tokens": 1},
	})
	send("message_stop", map[string]any{})
}
