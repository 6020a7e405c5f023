package main

import (
	"bufio"
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

// floorMain is the least that a proxy can be: it copies bytes between its
// stdio and a socket.
func floorMain(path string) int {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return 1
	}
	go func() { _, _ = io.Copy(conn, os.Stdin) }()
	_, _ = io.Copy(os.Stdout, conn)
	return 0
}

// floor starts a bare copying proxy before a server that answers each line.
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
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1000, "µs/median")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1000, "µs/p99")
}

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

// BenchmarkStart times mcp-stdio from its start to its first answer.
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

// BenchmarkLines sends lines of a size as fast as they are taken.
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
