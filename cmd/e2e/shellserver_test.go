package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"

	"holdline/daemon/sandbox/writetest"
)

// shellServerMain is an MCP server with the tool attempt, which tries every way to write to a
// directory, the tool run, which runs a command of the shell for 60 seconds or those that are given, the
// tool reach, which tries one of [reaches], and the tool eat, which allocates memory without end. All
// others answer with text.
func shellServerMain(stdin io.Reader, stdout io.Writer) int {
	keepThreads(8)
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
				out, err := runShell(cmp.Or(args.Within, "60"), args.Command)
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

// outputEnd is what a process of the server writes behind the output of a command.
var outputEnd = []byte("\x00end of output\x00")

// runShell runs a command of the shell for so many seconds at most, and returns what it has printed by
// then. What it leaves in the background keeps the pipe open, so that the pipe has no end.
func runShell(within, command string) ([]byte, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	defer w.Close()
	read := make(chan []byte, 1)
	go func() { // until the end of the output, or of the pipe
		var all []byte
		for part := make([]byte, 1<<16); ; {
			n, err := r.Read(part)
			all = append(all, part[:n]...)
			if out, _, ended := bytes.Cut(all, outputEnd); ended || err != nil {
				read <- out
				return
			}
		}
	}()
	cmd := exec.Command("timeout", "-k", "1", within, "bash", "-c", command)
	cmd.Stdout, cmd.Stderr = w, w
	err = cmd.Run()
	if _, werr := w.Write(outputEnd); werr != nil {
		return nil, werr
	}
	return <-read, err
}

// keepThreads starts n threads of the operating system, which the runtime uses later: it ends the process
// if it needs another thread and may not start one, as where the shell has started all that it may.
func keepThreads(n int) {
	var there, over sync.WaitGroup
	release := make(chan struct{})
	there.Add(n)
	for range n {
		over.Go(func() {
			runtime.LockOSThread() // so that each has its own
			defer runtime.UnlockOSThread()
			there.Done()
			<-release
		})
	}
	there.Wait()
	close(release)
	over.Wait()
}
