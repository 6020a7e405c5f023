package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// floorMain is the simplest program in the place of each part of the line: it only copies
// lines.
//
//	PATH                    between its stdio and a socket, as a proxy does
//	relay LISTEN DIAL       between each connection and one of its own, as a daemon does
//	serve LISTEN COMMAND…   between each connection and a process of its own, as a worker does
func floorMain(args []string) int {
	if len(args) == 1 {
		conn, err := net.Dial("unix", args[0])
		if err != nil {
			return 1
		}
		go func() { copyLines(conn, os.Stdin); _ = conn.(*net.UnixConn).CloseWrite() }()
		copyLines(os.Stdout, conn)
		return 0
	}
	ln, err := net.Listen("unix", args[1])
	if err != nil {
		return 1
	}
	for {
		conn, err := ln.Accept()
		if err != nil {
			return 1
		}
		go func() {
			defer conn.Close()
			if args[0] == "relay" {
				next, err := net.Dial("unix", args[2])
				if err != nil {
					return
				}
				defer next.Close()
				go func() { copyLines(next, conn); _ = next.(*net.UnixConn).CloseWrite() }()
				copyLines(conn, next)
				return
			}
			cmd := exec.CommandContext(context.Background(), args[2], args[3:]...)
			in, errIn := cmd.StdinPipe()
			out, errOut := cmd.StdoutPipe()
			if errIn != nil || errOut != nil || cmd.Start() != nil {
				return
			}
			go func() { copyLines(in, conn); _ = in.Close() }()
			copyLines(conn, out)
			_ = cmd.Wait()
		}()
	}
}

// copyLines copies line by line. A line longer than its buffer is copied in pieces.
func copyLines(to io.Writer, from io.Reader) {
	r := bufio.NewReaderSize(from, 64<<10)
	for {
		line, err := r.ReadSlice('\n')
		if len(line) > 0 {
			if _, err := to.Write(line); err != nil {
				return
			}
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// floor starts a proxy that only copies, before a server that answers each line.
func (p *place) floor(b *testing.B) *agent {
	b.Helper()
	path := filepath.Join(p.dir, "floor")
	if !exists(path) {
		ln, err := net.Listen("unix", path)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { ln.Close() })
		go func() { // ends with the listener
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				go answerLines(conn)
			}
		}()
	}
	return p.agentOf(p.program("floor", path))
}

// answerLines answers each line with an empty result, until the connection ends.
func answerLines(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewReaderSize(conn, 64<<10)
	for n := 1; ; n++ {
		if _, err := lines.ReadSlice('\n'); err != nil {
			return
		}
		if _, err := fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":%d,"result":{}}`+"\n", n); err != nil {
			return
		}
	}
}

// middle sorts took and returns its median, in microseconds.
func middle(took []time.Duration) float64 {
	slices.Sort(took)
	return float64(took[len(took)/2].Nanoseconds()) / 1000
}

// BenchmarkPing measures a request that the daemon answers itself, beside a copying proxy
// before a process that answers each line.
func BenchmarkPing(b *testing.B) {
	const rounds, calls = 40, 50
	p := newPlace(b)
	p.daemon()
	floor, proxy := p.floor(b), p.agent().shake()
	took := map[*agent][]float64{}
	for range rounds {
		for _, a := range []*agent{floor, proxy} {
			var round []time.Duration
			for range calls {
				begin := time.Now()
				a.begin("ping", map[string]any{})
				a.read()
				round = append(round, time.Since(begin))
			}
			took[a] = append(took[a], middle(round))
		}
	}
	record(b, line{
		load: "ping, p50", unit: "µs", chain: medianOf(took[floor]), holdline: medianOf(took[proxy]),
		ratio: medianOf(quotients(took[proxy], took[floor])),
	})
}

// BenchmarkStart measures mcp-stdio from its start to its first answer, beside the start of
// a copying proxy.
func BenchmarkStart(b *testing.B) {
	const rounds = 100
	p := newPlace(b)
	p.daemon()
	took := map[string][]float64{}
	for range rounds {
		for name, start := range map[string]func() *agent{
			"floor": func() *agent { return p.floor(b) }, "mcp-stdio": func() *agent { return p.agent() },
		} {
			begin := time.Now()
			a := start()
			a.begin("ping", map[string]any{})
			a.read()
			took[name] = append(took[name], time.Since(begin).Seconds()*1000)
			_ = a.cmd.Process.Kill()
			_ = a.cmd.Wait()
		}
	}
	record(b, line{
		load: "start of `mcp-stdio` to its first answer, p50", unit: "ms",
		chain: medianOf(took["floor"]), holdline: medianOf(took["mcp-stdio"]),
		ratio: medianOf(quotients(took["mcp-stdio"], took["floor"])),
	})
}
