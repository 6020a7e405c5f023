package claudetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
)

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Request-Id", "req_standin")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// apiError answers with an error in the API's form.
func apiError(w http.ResponseWriter, s *Step) {
	kind := s.Type
	if kind == "" {
		kind = errorType(s.Status)
	}
	text := s.Message
	if text == "" {
		text = "scripted " + kind
	}
	for k, v := range s.Headers {
		w.Header().Set(k, v)
	}
	writeJSON(w, s.Status, map[string]any{
		"type": "error", "error": map[string]any{"type": kind, "message": text}, "request_id": "req_standin",
	})
}

// errorType returns the API's error type for an HTTP status.
func errorType(status int) string {
	switch status {
	case http.StatusBadRequest:
		return "invalid_request_error"
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case 529:
		return "overloaded_error"
	}
	return "api_error"
}

// content returns the content blocks of an answer.
func content(q *asked, s *Step) []map[string]any {
	blocks := []map[string]any{}
	switch {
	case s.Echo != "":
		blocks = append(blocks, map[string]any{"type": "text", "text": q.echo(s.Echo)})
	case s.Text != nil:
		blocks = append(blocks, map[string]any{"type": "text", "text": *s.Text})
	}
	for i, t := range s.calls() {
		input := t.Input
		if input == nil {
			input = map[string]any{}
		}
		blocks = append(blocks, map[string]any{
			"type": "tool_use", "id": fmt.Sprintf("toolu_%d_%d", len(q.Messages), i), "name": t.Name, "input": input,
		})
	}
	return blocks
}

// stopReason returns the stop reason of a step.
func stopReason(s *Step) string {
	switch {
	case s.StopReason != "":
		return s.StopReason
	case len(s.calls()) > 0:
		return "tool_use"
	}
	return "end_turn"
}

func tokens(s *Step) map[string]any {
	u := map[string]any{
		"input_tokens": 100, "output_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
		"service_tier": "standard",
	}
	maps.Copy(u, s.Usage)
	return u
}

// whole returns an answer without streaming.
func whole(q *asked, s *Step) map[string]any {
	model := q.Model
	if s.Model != "" {
		model = s.Model
	}
	return map[string]any{
		"id": fmt.Sprintf("msg_standin_%d", len(q.Messages)), "type": "message", "role": "assistant", "model": model,
		"content": content(q, s), "stop_reason": stopReason(s), "stop_sequence": nil, "usage": tokens(s),
	}
}

// stream sends an answer as server-sent events.
func stream(w http.ResponseWriter, r *http.Request, q *asked, s *Step) {
	for k, v := range s.Headers {
		w.Header().Set(k, v)
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Request-Id", "req_standin")
	send := func(kind string, v map[string]any) {
		v["type"] = kind
		b, err := json.Marshal(v)
		if err != nil {
			return
		}
		_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, b)
		_ = http.NewResponseController(w).Flush()
	}
	msg := whole(q, s)
	blocks := content(q, s)
	msg["content"], msg["stop_reason"] = []any{}, nil
	send("message_start", map[string]any{"message": msg})
	if s.StreamError != "" {
		send("error",
			map[string]any{"error": map[string]any{"type": s.StreamError, "message": "scripted " + s.StreamError}})
		return
	}
	for i, b := range blocks {
		if b["type"] == "text" {
			text, _ := b["text"].(string)
			send("content_block_start",
				map[string]any{"index": i, "content_block": map[string]any{"type": "text", "text": ""}})
			if !pieces(r, s, text, func(piece string) {
				send("content_block_delta",
					map[string]any{"index": i, "delta": map[string]any{"type": "text_delta", "text": piece}})
			}) {
				return
			}
		} else {
			input, err := json.Marshal(b["input"])
			if err != nil {
				return
			}
			b["input"] = map[string]any{}
			send("content_block_start", map[string]any{"index": i, "content_block": b})
			send("content_block_delta", map[string]any{
				"index": i, "delta": map[string]any{"type": "input_json_delta", "partial_json": string(input)},
			})
		}
		send("content_block_stop", map[string]any{"index": i})
	}
	send("message_delta", map[string]any{
		"delta": map[string]any{"stop_reason": stopReason(s), "stop_sequence": nil}, "usage": tokens(s),
	})
	send("message_stop", map[string]any{})
}

// pieces sends a text in pieces, and cuts the connection where the script says so. It
// reports whether the caller should continue.
func pieces(r *http.Request, s *Step, text string, send func(string)) bool {
	size := s.Chunk
	if size <= 0 {
		size = 400
	}
	for {
		n := min(size, len(text))
		send(text[:n])
		text = text[n:]
		if s.Drop {
			panic(http.ErrAbortHandler)
		}
		if !wait(r.Context(), s.ChunkDelay) {
			return false
		}
		if text == "" {
			return true
		}
	}
}
