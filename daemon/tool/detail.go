package tool

import "encoding/json"

// Detail is how much of an answer a caller asks for, by the argument "detail".
type Detail int

// The details. The zero value is the default.
const (
	Concise Detail = iota
	Full
)

// Render is the form of an answer, which a caller chooses by the argument "render".
type Render int

// The renderings. The zero value is the default.
const (
	Porcelain Render = iota // short lines of text for a model to read
	JSON                    // structured content, and the same as text
)

// details and renders are the values of the arguments "detail" and "render". The schema
// lists only the first name of each meaning; the others are accepted, too.
var (
	details = map[string]Detail{
		"concise": Concise, "summary": Concise, "compact": Concise,
		"full": Full, "verbose": Full, "detailed": Full,
	}
	renders = map[string]Render{
		"porcelain": Porcelain, "text": Porcelain, "plain": Porcelain, "plain_text": Porcelain,
		"json": JSON, "structured": JSON,
	}
)

// parseName returns what a JSON string stands for, and false if it is no string or none
// of the names.
func parseName[T any](raw []byte, names map[string]T) (T, bool) {
	var name string
	if json.Unmarshal(raw, &name) != nil {
		name = ""
	}
	value, ok := names[name]
	return value, ok
}
