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
	"strings"
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
	ln, err := net.Listen("unix", path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				r := bufio.NewReaderSize(conn, 64<<10)
				for n := 1; ; n++ {
					for {
						_, err := r.ReadSlice('\n')
						if err == nil {
							break
						}
						if !errors.Is(err, bufio.ErrBufferFull) {
							return
						}
					}
					if _, err := fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":%d,"result":{}}`+"\n", n); err != nil {
						return
					}
				}
			}()
		}
	}()
	cmd := exec.Command(filepath.Join(programs, "floor"), path)
	cmd.Env = p.env
	return p.agentOf(cmd)
}

// median reports the median of the round trips, in microseconds.
func median(b *testing.B, took []time.Duration) {
	b.Helper()
	b.ReportMetric(middle(took), "µs/median")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1000, "µs/p99")
}

// middle sorts took and returns its median, in microseconds.
func middle(took []time.Duration) float64 {
	slices.Sort(took)
	return float64(took[len(took)/2].Nanoseconds()) / 1000
}

// roundTrips makes b.N requests one after the other, and reports the median round trip.
func roundTrips(b *testing.B, a *agent, ask func() int) {
	b.Helper()
	for range 200 { // warm up
		ask()
		a.read()
	}
	took := make([]time.Duration, 0, b.N)
	b.ResetTimer()
	for range b.N {
		begin := time.Now()
		ask()
		a.read()
		took = append(took, time.Since(begin))
	}
	b.StopTimer()
	median(b, took)
}

func BenchmarkRoundTrip(b *testing.B) {
	p := newPlace(b)
	p.daemon()
	b.Run("floor", func(b *testing.B) {
		a := p.floor(b)
		roundTrips(b, a, func() int { return a.begin("ping", nil) })
	})
	b.Run("ping", func(b *testing.B) {
		a := p.agent().shake()
		roundTrips(b, a, func() int { return a.begin("ping", map[string]any{}) })
	})
	b.Run("health_snapshot", func(b *testing.B) {
		a := p.agent().shake()
		roundTrips(b, a, func() int { return a.begin("tools/call", map[string]any{"name": "health_snapshot"}) })
	})
}

// BenchmarkStart measures mcp-stdio from its start to its first answer.
func BenchmarkStart(b *testing.B) {
	p := newPlace(b)
	p.daemon()
	for _, name := range []string{"floor", "mcp-stdio"} {
		b.Run(name, func(b *testing.B) {
			took := make([]time.Duration, 0, b.N)
			for range b.N {
				begin := time.Now()
				var a *agent
				if name == "floor" {
					a = p.floor(b)
				} else {
					a = p.agent()
				}
				a.begin("ping", map[string]any{})
				a.read()
				took = append(took, time.Since(begin))
				_ = a.cmd.Process.Kill()
				_ = a.cmd.Wait()
				_ = os.Remove(filepath.Join(p.dir, "floor"))
			}
			median(b, took)
		})
	}
}

// BenchmarkLines sends lines of one size as fast as they are accepted.
func BenchmarkLines(b *testing.B) {
	p := newPlace(b)
	p.daemon()
	for _, size := range []int{1 << 10, 1 << 20} {
		for _, name := range []string{"floor", "mcp-stdio"} {
			b.Run(fmt.Sprintf("%d/%s", size, name), func(b *testing.B) {
				var a *agent
				if name == "floor" {
					a = p.floor(b)
					defer os.Remove(filepath.Join(p.dir, "floor"))
				} else {
					a = p.agent().shake()
				}
				pad := strings.Repeat("x", size-80)
				b.SetBytes(int64(size))
				done := make(chan struct{})
				b.ResetTimer()
				go func() {
					defer close(done)
					for range b.N {
						a.read()
					}
				}()
				for i := range b.N {
					a.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping","params":{"pad":%q}}`, i+1000, pad))
				}
				<-done
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lines/s")
			})
		}
	}
}
