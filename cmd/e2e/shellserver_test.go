package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"holdline/daemon/sandbox/writetest"
)

// shellServerMain is an MCP server with the tool attempt, which tries every way to write to a
// directory, the tool run, which runs a command of the shell for 60 seconds or those that are given, the tool reach, which tries one
// of [reaches], and the tool eat, which allocates memory without end. All others answer with text.
func shellServerMain(stdin io.Reader, stdout io.Writer) int {
	lines := bufio.NewScanner(stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Name      string
				Arguments struct{ Command, Within, Dir, Mine, How, At string }
			}
		}
		if json.Unmarshal(lines.Bytes(), &m) != nil || m.ID == nil {
			continue
		}
		var result any = map[string]any{}
		args := m.Params.Arguments
		switch m.Method {
		case "initialize":
			result = map[string]any{
				"protocolVersion": "2025-11-25", "capabilities": map[string]any{"tools": map[string]any{}},
				"serverInfo": map[string]any{"name": "shell", "version": "1"},
			}
		case "tools/list":
			var tools []any
			for _, name := range []string{"run", "attempt", "reach", "eat"} {
				tools = append(tools, map[string]any{"name": name, "inputSchema": map[string]any{"type": "object"}})
			}
			result = map[string]any{"tools": tools}
		case "tools/call":
			var text string
			switch m.Params.Name {
			case "run":
				cmd := exec.Command("timeout", "-k", "1", cmp.Or(args.Within, "60"), "bash", "-c", args.Command)
				cmd.WaitDelay = 5 * time.Second // what it leaves in the background keeps the pipe open
				out, err := cmd.CombinedOutput()
				text = fmt.Sprintf("%.4000s%v", strings.ToValidUTF8(string(out), ""), err)
			case "eat":
				for all := [][]byte{}; ; {
					all = append(all, bytes.Repeat([]byte("x"), 1<<20))
				}
			case "reach":
				text = fmt.Sprint(reaches[args.How](args.At))
			default:
				text = strings.Join(writetest.Attempt(args.Dir, args.Mine), "\n")
			}
			result = map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}}
		}
		b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})
		if err != nil {
			return 1
		}
		if _, err := stdout.Write(append(b, '\n')); err != nil {
			return 1
		}
	}
	return 0
}
