// Package farwire is what a daemon says to the machine on which workers run for it, and what it
// is answered.
//
// The daemon runs `holdline far ORIGIN` there, with ssh or the like, and talks to it over stdin
// and stdout. What is there first says [Hello]. Then each [Request], one line of JSON, has one
// [Reply], one line of JSON. Behind the reply to [Connect] the line is the connection to a
// worker, as package workerwire has it, and nothing else.
//
// ORIGIN names the state directory of the daemon. It keeps the workers of several machines
// apart that use the same one.
package farwire

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"holdline/protocol/jsonrpc"
	"holdline/protocol/process"
)

// Version is that of the requests and replies.
const Version = 1

// Times of a connection to a worker. Whoever dialled sends something every PingEvery at least.
// A side that has heard nothing for Silence takes the connection for lost.
const (
	PingEvery = 15 * time.Second
	Silence   = 45 * time.Second
)

// Operations.
const (
	List    = "list"    // IDs of the workers of this origin, dead or alive
	Start   = "start"   // starts the worker of Spec, whose strings are as they stand in the configuration
	Look    = "look"    // Alive
	End     = "end"     // kills the worker ID with all that it left, and sends its state and its spool
	Remove  = "remove"  // kills the worker ID, and removes its directory
	Connect = "connect" // to the worker ID
)

// Request is what the daemon asks.
type Request struct {
	Op   string        `json:"op"`
	ID   string        `json:"id,omitempty"`
	Spec *process.Spec `json:"spec,omitempty"`
	// Env are variables for the child, NAME=VALUE, not expanded yet. They are written to no file.
	Env []string `json:"env,omitempty"`
}

// Reply is the answer to a [Request].
type Reply struct {
	Code  string   `json:"code,omitempty"`  // of an error, as package workerwire has them; then the rest is empty
	Error string   `json:"error,omitempty"` // in words
	IDs   []string `json:"ids,omitempty"`
	Alive bool     `json:"alive,omitempty"`
	// State is what the worker wrote last; nil if it wrote none, or is not known there.
	State *process.State `json:"state,omitempty"`
	Spool int64          `json:"spool,omitempty"` // bytes of the spool, which follow this line
}

// Hello is what the other side says first.
type Hello struct {
	Version int    `json:"version"` // of requests and replies
	Workers int    `json:"workers"` // newest version of the protocol of workers
	Node    string `json:"node"`    // name of the machine
	Program string `json:"program"` // version, for people
}

// mark comes before a [Hello]: profiles and banners may have written something before it, also on
// the same line.
const mark = "holdline-far "

// maxNoise bounds what may come before a [Hello], and maxLine a line, in bytes.
const (
	maxNoise = 64 << 10
	maxLine  = 8 << 20
)

// ErrNoise says that something else than a [Hello] came.
var ErrNoise = errors.New("something else than Holdline answers there")

// WriteHello sends h.
func WriteHello(w io.Writer, h Hello) error {
	_, err := io.WriteString(w, mark+string(jsonrpc.Encode(h))+"\n")
	return err
}

// ReadHello reads up to the end of the [Hello].
func ReadHello(r *bufio.Reader) (h Hello, err error) {
	for left := maxNoise; left > 0; {
		line, err := readLine(r, left)
		if err != nil {
			return h, err
		}
		left -= len(line)
		if _, text, ok := strings.Cut(string(line), mark); ok {
			if err := json.Unmarshal([]byte(text), &h); err != nil {
				return h, fmt.Errorf("%w: %w", ErrNoise, err)
			}
			return h, nil
		}
	}
	return h, ErrNoise
}

// Write sends a [Request] or a [Reply].
func Write(w io.Writer, v any) error {
	_, err := w.Write(append(jsonrpc.Encode(v), '\n'))
	return err
}

// Read reads a [Request] or a [Reply] into v. At the end of input it returns io.EOF.
func Read(r *bufio.Reader, v any) error {
	line, err := readLine(r, maxLine)
	if err != nil {
		return err
	}
	return json.Unmarshal(line, v)
}

// readLine reads a line of at most limit bytes.
func readLine(r *bufio.Reader, limit int) (line []byte, err error) {
	if line, err = jsonrpc.ReadLine(r, limit); errors.Is(err, jsonrpc.ErrTooLong) {
		return nil, fmt.Errorf("%w: a line of more than %d bytes", ErrNoise, limit)
	}
	return line, err
}
