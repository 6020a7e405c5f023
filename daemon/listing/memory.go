package listing

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"holdline/daemon/statedir"
	"holdline/protocol/jsonrpc"
	"holdline/protocol/mcp"
	"holdline/protocol/ownfile"
)

// Memory is a file with the lists of a server. There are two sorts. One per configured server
// is in the catalog directory: with it, a client that asks for lists starts no process. The
// other is in the directory of each worker, with the lists of that process.
type Memory struct {
	Version int             `json:"version"` // set by [Memory.Write]
	Key     string          `json:"key"`     // of the configuration entry
	Era     string          `json:"era,omitempty"`
	Lists   Lists           `json:"lists"`           // by [Kind]
	About   json.RawMessage `json:"about,omitempty"` // result of the handshake
	Pins    []Pin           `json:"pins,omitempty"`
	Sum     string          `json:"sum,omitempty"` // of the pins and the file's name, set by [Memory.Write]
	Cut     []string        `json:"cut,omitempty"` // notes for users: which entries are left out

	Lost string `json:"-"` // path of the file, if it cannot be believed, or be read: then nothing else is set
	Torn string `json:"-"` // path of the file, if it is damaged elsewhere than in the pins: then only these are set
}

// sum returns a sum of a part of the file at path, and of what the file belongs to: its name and that of
// its directory. One wrong bit in a pin must not make another tool of it, nor must another server's file.
func sum(path string, part []byte) string {
	h := sha256.New()
	_, _ = h.Write([]byte(filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path)) + "\n"))
	_, _ = h.Write(part)
	return hex.EncodeToString(h.Sum(nil))
}

// sumOfPins returns the sum of the pins for the file at path.
func (mem *Memory) sumOfPins(path string) string {
	b, _ := json.Marshal(mem.Pins) // texts and numbers
	return sum(path, b)
}

// keyWhole begins the last member of the file: the sum of all that stands before it.
const keyWhole = `,"whole":"`

// isWhole reports whether b is the file at path as [Memory.Write] has written it.
func isWhole(path string, b []byte) bool {
	i := bytes.LastIndex(b, []byte(keyWhole))
	return i >= 0 && string(b[i+len(keyWhole):]) == sum(path, b[:i])+`"}`
}

// ErrDamaged is wrapped by errors about a file that is not as [Memory.Write] has written it.
var ErrDamaged = errors.New("it is damaged")

// memoryVersion is the version of the format. A file of another one is not read.
const memoryVersion = 3

// ReadMemory reads the file at path. It returns nil without an error if there is no
// file: the lists are then unknown, and the server is asked again. So it is if the file is damaged
// elsewhere than in the pins, which [Memory.Torn] says.
func ReadMemory(path string) (*Memory, error) {
	b, err := ownfile.Read(path, ownfile.MaxDocument)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // nothing is remembered
	}
	mem := &Memory{}
	switch {
	case err != nil:
		return nil, err
	case json.Unmarshal(b, mem) != nil || mem.Version != memoryVersion || mem.Sum != mem.sumOfPins(path):
		return nil, fmt.Errorf("%s: %w", path, ErrDamaged)
	case !isWhole(path, b):
		return &Memory{Pins: mem.Pins, Torn: path}, nil
	}
	return mem, nil
}

// Write replaces the file at path. Listings keep their spelling except for white
// space. The caller must see to it that only one goroutine writes a path.
func (mem *Memory) Write(path string) error {
	mem.Version, mem.Sum = memoryVersion, mem.sumOfPins(path)
	b, err := jsonrpc.Marshal(mem)
	if err != nil {
		return fmt.Errorf("encoding what a server lists: %w", err)
	}
	b = b[:len(b)-1] // the brace
	whole := sum(path, b)
	return statedir.WriteFile(path, append(append(append(b, keyWhole...), whole...), `"}`...))
}

// Remembered returns the names of what a server listed last, as its memory in
// the catalog directory has them: its tools, and its prompts, resources and
// templates. known is false if there is no memory.
func Remembered(catalogDir, server string) (toolNames, others []string, known bool) {
	mem, err := ReadMemory(filepath.Join(catalogDir, server+".json"))
	if err != nil || mem == nil {
		return nil, nil, false
	}
	for k, list := range mem.Lists {
		for _, listing := range list {
			name, ok := mcp.String(jsonrpc.Field(listing, Kind(k).MCP().Key))
			switch {
			case !ok:
			case Kind(k) == Tools:
				toolNames = append(toolNames, name)
			default:
				others = append(others, name)
			}
		}
	}
	return toolNames, others, true
}
