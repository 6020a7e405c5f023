package tool

import (
	"encoding/json"

	"github.com/google/jsonschema-go/jsonschema"
)

// Form is a JSON Schema that an answer must match. It is safe for concurrent use.
type Form struct{ checker *jsonschema.Resolved }

// NewForm reads a schema. An error says what is wrong with it.
func NewForm(schema json.RawMessage) (*Form, error) {
	s := new(jsonschema.Schema)
	if err := json.Unmarshal(schema, s); err != nil {
		return nil, err
	}
	r, err := s.Resolve(nil)
	if err != nil {
		return nil, err
	}
	return &Form{checker: r}, nil
}

// Check returns what is wrong with an answer, or nil.
func (f *Form) Check(answer json.RawMessage) error {
	var value any
	if err := json.Unmarshal(answer, &value); err != nil {
		return err
	}
	return f.checker.Validate(value)
}
