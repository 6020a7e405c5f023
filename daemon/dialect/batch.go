package dialect

import (
	"encoding/json"

	"holdline/protocol/jsonrpc"
)

// Batch returns the messages of a line that is a list of them, as servers of 2025-03-26 send it. They are parts of the
// line. It returns nil if the line is no such list: many servers write log lines that begin with [.
func Batch(line []byte) [][]byte {
	if len(line) == 0 || line[0] != '[' || !json.Valid(line) {
		return nil
	}
	var parts [][]byte
	all := true
	err := jsonrpc.Elements(line, func(part []byte) error {
		parts, all = append(parts, part), all && part[0] == '{'
		return nil
	})
	if err != nil || !all {
		return nil
	}
	return parts
}
