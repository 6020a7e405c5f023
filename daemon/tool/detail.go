package tool

// Detail is how much of an answer a caller asks for.
type Detail int

// The details. The zero value is the default.
const (
	Concise Detail = iota
	Full
)

// String returns the value of the argument "detail" that stands for it.
func (d Detail) String() string {
	if d == Full {
		return "full"
	}
	return "concise"
}

// ParseDetail reads a detail by its name or by one of the aliases that are
// accepted but not listed. The empty string is the default.
func ParseDetail(s string) (Detail, bool) {
	switch s {
	case "", "concise", "summary", "compact":
		return Concise, true
	case "full", "verbose", "detailed":
		return Full, true
	}
	return Concise, false
}

// Render is the form of an answer.
type Render int

// The renderings. The zero value is the default.
const (
	Porcelain Render = iota // short lines of text for a model to read
	JSON                    // structured content, and the same as text
)

// String returns the value of the argument "render" that stands for it.
func (r Render) String() string {
	if r == JSON {
		return "json"
	}
	return "porcelain"
}

// ParseRender reads a rendering by its name or by one of the aliases that are
// accepted but not listed. The empty string is the default.
func ParseRender(s string) (Render, bool) {
	switch s {
	case "", "porcelain", "text", "plain", "plain_text":
		return Porcelain, true
	case "json", "structured":
		return JSON, true
	}
	return Porcelain, false
}
