package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// echoLine is the length in bytes of a line of which the echo server reads all.
const echoLine = 1 << 16

// echoServerMain is an MCP server with one tool, echo, which answers with the given text
// and this many further bytes. It is as fast as a server can be, so that the benchmarks
// measure what is in front of it: of a line longer than [echoLine] it reads the beginning,
// counts the rest, and answers with how much that was.
func echoServerMain(stdin io.Reader, stdout io.Writer) int {
	lines := bufio.NewReaderSize(stdin, echoLine)
	var answer []byte // for answers, which may be large
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			id := append([]byte(nil), echoID(line)...)
			size := len(line)
			for errors.Is(err, bufio.ErrBufferFull) {
				line, err = lines.ReadSlice('\n')
				size += len(line)
			}
			answer = fmt.Appendf(answer[:0],
				`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%d bytes"}]}}`+"\n", id, size)
		} else if err == nil {
			answer = echoAnswer(answer[:0], line)
		}
		if err != nil {
			return 0
		}
		if _, err := stdout.Write(answer); err != nil {
			return 1
		}
	}
}

// echoID returns the id of a request of which this is the beginning, and whose id comes
// before its params, as in all that clients and holdline write.
func echoID(line []byte) []byte {
	_, rest, _ := bytes.Cut(line, []byte(`"id":`))
	id, _, _ := bytes.Cut(rest, []byte(","))
	return id
}

// echoAnswer appends the answer to a line. It is empty if the line needs none.
func echoAnswer(to, line []byte) []byte {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct {
			ProtocolVersion string
			Arguments       struct {
				Text  string
				Bytes int
			}
		}
	}
	if json.Unmarshal(line, &m) != nil || m.ID == nil {
		return to
	}
	to = append(append(to, `{"jsonrpc":"2.0","id":`...), m.ID...)
	switch m.Method {
	case "initialize":
		return fmt.Appendf(to,
			`,"result":{"protocolVersion":%q,"capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}}}`+"\n",
			m.Params.ProtocolVersion)
	case "tools/list":
		return append(to, `,"result":{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}}`+"\n"...)
	case "tools/call":
		text, _ := json.Marshal(m.Params.Arguments.Text)
		to = append(append(to, `,"result":{"content":[{"type":"text","text":`...), text[:len(text)-1]...)
		for range m.Params.Arguments.Bytes {
			to = append(to, 'x')
		}
		return append(to, `"}]}}`+"\n"...)
	}
	return append(to, `,"error":{"code":-32601,"message":"not here"}}`+"\n"...)
}
