package claudetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"holdline/daemon/sandbox/writetest"
)

type osSignal = os.Signal

// price is what each request to the fake's model costs, in dollars.
const price = 0.0006

// turn answers one message. If end is true, the process must exit with f.code.
func (f *fake) turn(msg input) (end bool) {
	text := ""
	for _, p := range msg.Message.parts() {
		if p.Type == "text" {
			text = p.Text
		}
	}
	steps, ok := find(text)
	if !ok {
		if f.stubborn {
			return f.interruptible(forever)
		}
		steps = []Step{Say("fake answer: " + endOf(text) + Talk(f.talks))}
	}
	f.requests = 0
	f.emit(map[string]any{
		"type": "system", "subtype": "init", "model": f.model, "claude_code_version": "2.1.329", "cwd": cwd(),
		"tools": []string{"Read", "Grep", "Glob"}, "permissionMode": "dontAsk",
	})
	if strings.HasPrefix(text, "/") {
		f.result(map[string]any{"result": "not available in this environment", "num_turns": 0})
		return false
	}
	for k := 0; ; k++ {
		step := &steps[min(k, len(steps)-1)]
		if f.maxTurns > 0 && k >= f.maxTurns || k > 100 {
			f.fail(map[string]any{
				"subtype": "error_max_turns", "terminal_reason": "max_turns", "stop_reason": "tool_use",
				"errors": []string{fmt.Sprintf("Reached maximum number of turns (%d)", f.maxTurns)},
			})
			return false
		}
		if step.Delay > 0 {
			switch f.pause(step.Delay) {
			case interrupted:
				f.aborted()
				return false
			case terminated:
				f.code = 128 + int(syscall.SIGTERM)
				return true
			case timeUp:
			}
		}
		if step.Do != "" {
			done, end := f.do(step)
			if done {
				return end
			}
			continue
		}
		if step.Status != 0 {
			f.apiError(step)
			return false
		}
		f.requests++
		done, end := f.say(step)
		if done {
			return end
		}
	}
}

func endOf(text string) string { return end(text, 80) }

func cwd() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	return dir
}

// interruptible waits. An interrupt ends the turn, SIGTERM the process.
func (f *fake) interruptible(seconds float64) (end bool) {
	switch f.pause(seconds) {
	case interrupted:
		f.aborted()
	case terminated:
		f.code = 128 + int(syscall.SIGTERM)
		return true
	case timeUp:
	}
	return false
}

// say plays a step of the model: text, tool calls, or the end of the turn.
func (f *fake) say(s *Step) (done, end bool) {
	text := ""
	if s.Text != nil {
		text = *s.Text
		for _, more := range f.more {
			text += ", and heard: " + more
		}
		f.more = nil
	}
	if f.partial || s.ChunkDelay > 0 {
		if done, end := f.stream(s, text); done {
			return done, end
		}
	}
	if text != "" {
		f.assistant(map[string]any{"type": "text", "text": text})
	}
	calls := s.calls()
	for i, t := range calls {
		id := fmt.Sprintf("toolu_%d_%d", f.requests, i)
		f.assistant(map[string]any{"type": "tool_use", "id": id, "name": t.Name, "input": t.Input})
		f.emit(map[string]any{"type": "user", "message": map[string]any{"role": "user", "content": []any{
			map[string]any{"type": "tool_result", "tool_use_id": id, "content": "nothing"},
		}}})
	}
	if len(calls) > 0 {
		if f.hearMore() {
			f.aborted()
			return true, false
		}
		return false, false
	}
	if s.StopReason == "refusal" {
		f.synthetic("the request appears to violate a policy", "invalid_request", "refusal")
		f.fail(map[string]any{
			"subtype": "success", "stop_reason": "refusal", "result": "API Error: refused",
			"terminal_reason": "completed",
		})
		return true, false
	}
	f.result(map[string]any{"result": text, "stop_reason": stopReason(s)})
	return true, false
}

// hearMore gives the model the messages that came while it used its tools. Its next text says
// them. It reports whether the host sent an interrupt meanwhile.
func (f *fake) hearMore() (interrupt bool) {
	for more := true; more; {
		select {
		case in, ok := <-f.lines:
			if f.heard(in, ok) {
				return true
			}
		default:
			more = false
		}
	}
	for _, msg := range f.queue {
		f.replay(&msg)
		for _, p := range msg.Message.parts() {
			f.more = append(f.more, endOf(p.Text))
		}
	}
	f.queue = nil
	return false
}

// stream sends the text in pieces, as partial messages.
func (f *fake) stream(s *Step, text string) (done, end bool) {
	event := func(v map[string]any) {
		if f.partial {
			f.emit(map[string]any{"type": "stream_event", "event": v})
		}
	}
	size := s.Chunk
	if size <= 0 {
		size = 400
	}
	event(map[string]any{"type": "message_start", "message": map[string]any{"model": f.model}})
	for at := 0; at < len(text); at += size {
		upTo := min(at+size, len(text))
		event(map[string]any{
			"type": "content_block_delta", "delta": map[string]any{"type": "text_delta", "text": text[at:upTo]},
		})
		if s.ChunkDelay <= 0 {
			continue
		}
		switch f.pause(s.ChunkDelay) {
		case interrupted:
			f.assistant(map[string]any{"type": "text", "text": text[:upTo]})
			f.aborted()
			return true, false
		case terminated:
			f.code = 128 + int(syscall.SIGTERM)
			return true, true
		case timeUp:
		}
	}
	return false, false
}

func (f *fake) assistant(b map[string]any) {
	f.emit(map[string]any{"type": "assistant", "message": map[string]any{
		"id": fmt.Sprintf("msg_%d", f.requests), "type": "message", "role": "assistant", "model": f.model,
		"content": []any{b},
	}})
}

func (f *fake) synthetic(text, word, stop string) {
	f.emit(map[string]any{"type": "assistant", "error": word, "message": map[string]any{
		"model": "<synthetic>", "role": "assistant", "stop_reason": stop,
		"content": []any{map[string]any{"type": "text", "text": text}},
	}})
}

// result ends a turn with success. The fields in v replace or extend the usual ones.
func (f *fake) result(v map[string]any) {
	cost := price * float64(f.requests)
	used := map[string]any{}
	if f.requests > 0 {
		used[f.model] = map[string]any{
			"inputTokens": 100 * f.requests, "outputTokens": 10 * f.requests, "costUSD": cost, "costBasis": "list",
		}
	}
	out := map[string]any{
		"type": "result", "subtype": "success", "is_error": false, "num_turns": max(f.requests, 1), "duration_ms": 12,
		"duration_api_ms": 7, "stop_reason": "end_turn", "terminal_reason": "completed", "api_error_status": nil,
		"total_cost_usd": cost, "modelUsage": used, "model_usage_since_last_result": used,
		"permission_denials": []any{},
		"result_index":       f.results,
	}
	maps.Copy(out, v)
	f.results++
	f.code = 0
	if out["is_error"] == true {
		f.code = 1
	}
	f.emit(out)
}

func (f *fake) fail(v map[string]any) {
	v["is_error"] = true
	f.result(v)
}

func (f *fake) aborted() {
	f.fail(map[string]any{
		"subtype": "error_during_execution", "terminal_reason": "aborted_streaming", "stop_reason": nil,
		"errors": []string{"interrupted"},
	})
}

// apiError plays a step in which the API refuses the request.
func (f *fake) apiError(s *Step) {
	var status any = s.Status
	if s.Status < 0 {
		status = nil
	}
	word := map[int]string{
		-1: "server_error", 400: "invalid_request", 401: "authentication_failed", 403: "authentication_failed",
		404: "model_not_found", 413: "invalid_request", 429: "rate_limit", 500: "server_error", 529: "server_error",
	}[s.Status]
	if s.Type != "" {
		word = s.Type
	}
	if s.Status == 429 && s.N > 0 {
		f.emit(map[string]any{"type": "rate_limit_event", "rate_limit_info": map[string]any{
			"status": "rejected", "rateLimitType": "five_hour", "resetsAt": time.Now().Unix() + int64(s.N),
			"utilization": 1,
		}})
	}
	if s.Status < 0 || s.Status == 401 || s.Status >= 429 {
		for i := range f.retries {
			f.emit(map[string]any{
				"type": "system", "subtype": "api_retry", "attempt": i + 1, "max_retries": f.retries,
				"retry_delay_ms": 500.5, "error_status": status, "error": word,
			})
		}
	}
	text := "API Error: " + fmt.Sprint(s.Status) + " " + s.Message
	f.synthetic(text, word, "stop_sequence")
	v := map[string]any{
		"subtype": "success", "terminal_reason": "api_error", "stop_reason": "stop_sequence",
		"api_error_status": status, "result": text,
	}
	if s.Status < 0 {
		v["api_error"] = "connection_failed"
	}
	f.fail(v)
}

// do plays a step that the API cannot bring about. If done is true, the turn is over.
func (f *fake) do(s *Step) (done, end bool) {
	n := s.N
	switch s.Do {
	case "garbage":
		for range max(n, 3) {
			f.printf("this is no JSON\n")
		}
		return true, true
	case "flood", "flood-line":
		f.flood(max(n, 1), s.Do == "flood-line")
		return true, true
	case "chatter":
		f.flood(max(n, 1), false)
		return false, false
	case "half":
		f.printf(`{"type":"result","subtype":"success","is_error":fal`)
		f.code = 1
		return true, true
	case "die":
		_ = f.out.Flush()
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		f.pause(forever)
	case "exit":
		_, _ = fmt.Fprintln(f.errOut, "error: told to exit")
		f.code = n
		return true, true
	case "silent":
		return true, true
	case "deaf":
		f.deaf()
		f.pause(forever)
	case "stubborn":
		f.stubborn = true
		return true, f.interruptible(forever)
	case "hang":
		return true, f.interruptible(forever)
	case "too-long":
		f.synthetic("Prompt is too long", "invalid_request", "stop_sequence")
		f.fail(map[string]any{
			"subtype": "success", "terminal_reason": "prompt_too_long", "api_error_status": 400,
			"result": "Prompt is too long",
		})
		return true, false
	case "grandchild":
		pid, err := grandchild(n > 0)
		if err != nil {
			pid = -1
		}
		f.assistant(map[string]any{"type": "text", "text": fmt.Sprintf("grandchild %d", pid)})
		return false, false
	case "stray":
		if out, err := exec.CommandContext(context.Background(), "sh", "-c", StrayScript, "sh", s.Message).CombinedOutput(); err != nil {
			f.assistant(map[string]any{"type": "text", "text": fmt.Sprintf("no stray: %v: %s", err, out)})
		}
		return false, false
	case "ledger":
		f.ledger(s)
		return false, false
	case "hear":
		f.hears = s.Message
		return false, false
	case "told":
		end := f.untilTold()
		return end, end
	case "linger":
		f.lingers = true
		return false, false
	case "talk":
		f.talk(n)
		return false, false
	case "env", "args", "cwd", "attempt":
		v := map[string]any{"env": f.env, "args": f.args, "cwd": cwd(), "attempt": f.attempt(s)}[s.Do]
		b, _ := json.Marshal(v) //nolint:errchkjson // strings
		f.requests++
		f.result(map[string]any{"result": string(b)})
		return true, false
	}
	return false, false
}

// untilTold waits until a message has come. An interrupt does not end the wait; the end of the input
// and SIGTERM end the process.
func (f *fake) untilTold() (end bool) {
	for len(f.queue) == 0 {
		select {
		case in, ok := <-f.lines:
			f.heard(in, ok)
			if !ok {
				return true
			}
		case <-f.term:
			f.code = 128 + int(syscall.SIGTERM)
			return true
		}
	}
	return false
}

// attempt tries to write to the directories that the step's message lists, except the first,
// in which it may write and through which some ways go. It returns, by directory, the ways
// that worked.
func (f *fake) attempt(s *Step) map[string][]string {
	could := map[string][]string{}
	if s.Do != "attempt" {
		return could
	}
	dirs := strings.Split(s.Message, "\n")
	for _, dir := range dirs[1:] {
		could[dir] = writetest.Attempt(dir, dirs[0])
	}
	return could
}

// ledger appends a line to the file that the step names: proof that the program got this
// far.
func (f *fake) ledger(s *Step) {
	text := ""
	if s.Text != nil {
		text = *s.Text + " "
	}
	f.appendLine(s.Message, fmt.Sprintf("%s%d", text, os.Getpid()))
}

// appendLine appends a line to a file.
func (f *fake) appendLine(path, line string) {
	out, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = out.WriteString(line + "\n")
		err = errors.Join(err, out.Close())
	}
	if err != nil {
		_, _ = fmt.Fprintln(f.errOut, "ledger:", err)
	}
}

// Talk returns the n KiB of text that the program says in a step "talk". All its lines differ.
func Talk(n int) string {
	var b strings.Builder
	for line := range n << 10 / 16 {
		_, _ = fmt.Fprintf(&b, "line %010d\n", line)
	}
	return b.String()
}

// TalkTools is the number of tools that the program uses in a step "talk".
const TalkTools = 100

// talk is one message of the model: a long text and many uses of a tool.
func (f *fake) talk(n int) {
	f.requests++
	f.talks = n
	f.assistant(map[string]any{"type": "text", "text": Talk(n)})
	for i := range TalkTools {
		f.assistant(map[string]any{
			"type": "tool_use", "id": fmt.Sprintf("toolu_%d_%d", f.requests, i), "name": "Read",
			"input": map[string]any{"file_path": fmt.Sprintf("%d.go", i)},
		})
	}
}

// flood prints n MiB of lines that are no JSON, or a single line of that size.
func (f *fake) flood(n int, oneLine bool) {
	chunk := []byte(strings.Repeat("x", 1023) + "\n")
	if oneLine {
		chunk[1023] = 'x'
	}
	for range n << 10 {
		if _, err := f.out.Write(chunk); err != nil {
			return
		}
	}
}

// StrayScript is a script of the shell that starts a process which is hard to find, and ends: it is in a
// session of its own, its environment is empty, and its parent has ended. Its pid is in the file $1.
const StrayScript = `(env -i setsid sh -c 'echo $$ >"$1.new"; mv "$1.new" "$1"; exec env -i sleep 600' sh "$1" </dev/null >/dev/null 2>&1 &)`

// grandchild starts a process in its own session that holds standard output open for ten
// minutes, and returns its pid. If tough, the process ignores SIGTERM.
func grandchild(tough bool) (int, error) {
	cmd := exec.CommandContext(context.Background(), "sleep", "600")
	if tough {
		cmd = exec.CommandContext(context.Background(), "sh", "-c", "trap '' TERM INT HUP; exec sleep 600")
	}
	cmd.Stdout = os.Stdout //nolint:forbidigo // to hold it open is the point
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	pid := cmd.Process.Pid // Release resets it
	return pid, cmd.Process.Release()
}
