package consult

import (
	"encoding/json"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// maxSchema bounds a schema, in bytes. The schema is one word of a command line, and
// Linux allows 128 KiB for a word.
const maxSchema = 64 << 10

// checkSchema returns an invalid_input fault for a schema that is too large or is no
// JSON Schema.
func checkSchema(schema json.RawMessage) error {
	switch {
	case len(schema) == 0:
		return nil
	case len(schema) > maxSchema:
		return invalid("schema: %d bytes are too many, at most %d can be taken", len(schema), maxSchema)
	}
	if _, err := tool.Compile(schema, nil); err != nil {
		return invalid("schema: is no JSON Schema: %v", err)
	}
	return nil
}

// judge checks the structured answer of out against the schema that the caller gave. If
// it does not fit, judge sets a fault and keeps the text as a partial answer. The
// program may have checked the answer as well, but the daemon does not rely on that.
// Without a schema, or with a fault in out, judge changes nothing.
func judge(out *engine.Outcome, schema json.RawMessage) {
	if len(schema) == 0 || out.Fault != nil {
		return
	}
	wrong := func(code fault.Code, reason fault.Reason, format string, args ...any) {
		out.Fault = fault.New(code, fault.Engine, operation, format, args...).WithReason(reason)
		out.Partial, out.Structured = out.Answer != "", nil
	}
	switch {
	case len(out.Structured) == 0 && out.Partial:
		wrong(fault.Timeout, fault.Deadline, "time was up before there was an answer of the form that schema asks for")
		return
	case len(out.Structured) == 0:
		wrong(fault.DownstreamFailure, fault.BadOutput, "the model answered, but not in the form that schema asks for")
		return
	}
	var answer any
	form, err := tool.Compile(schema, nil)
	if err == nil {
		err = json.Unmarshal(out.Structured, &answer)
	}
	if err == nil {
		err = form.Validate(answer)
	}
	if err != nil {
		wrong(fault.DownstreamFailure, fault.BadOutput, "the answer is not what schema asks for: %v", err)
	}
}
