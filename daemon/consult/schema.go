package consult

import (
	"encoding/json"

	"holdline/daemon/adapter/engine"
	"holdline/daemon/tool"
	"holdline/protocol/fault"
)

// maxSchema bounds a schema in bytes: it stands on a command line, where one
// word has 128 KiB at most.
const maxSchema = 64 << 10

// checkSchema refuses a schema that nothing can be checked against.
func checkSchema(schema json.RawMessage) error {
	switch {
	case len(schema) == 0:
		return nil
	case len(schema) > maxSchema:
		return invalid("schema: %d bytes are too many, at most %d can be taken", len(schema), maxSchema)
	}
	if _, err := tool.NewForm(schema); err != nil {
		return invalid("schema: is no JSON Schema: %v", err)
	}
	return nil
}

// judge makes an answer that is not what the schema asks for a fault, with the
// text that there is kept. The program has checked it too, if it could.
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
	form, err := tool.NewForm(schema)
	if err == nil {
		err = form.Check(out.Structured)
	}
	if err != nil {
		wrong(fault.DownstreamFailure, fault.BadOutput, "the answer is not what schema asks for: %v", err)
	}
}
