package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdline/protocol"
	"holdline/proxy/stream"
)

// benchLine starts a proxy between pipes and a daemon on a real socket that answers every
// request with a result of the same size.
func benchLine(b *testing.B, size int) (in io.Writer, out *bufio.Reader, request string) {
	b.Helper()
	dir, err := os.MkdirTemp("", "hl")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		b.Fatal(err)
	}
	pad := strings.Repeat("x", size)
	request = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":"` + pad +
		`"}}}` + "\n"
	answer := []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"` + pad + `"}]}}` + "\n")
	served := make(chan struct{})
	go func() {
		defer close(served)
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		br := bufio.NewReaderSize(conn, 64<<10)
		br.ReadSlice('\n')
		io.WriteString(conn, welcomeLine+"\n")
		for {
			line, err := br.ReadSlice('\n')
			request := len(line) > 2 && line[2] == 'j' // not for control lines
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = br.ReadSlice('\n')
			}
			if err != nil {
				return
			}
			if request {
				conn.Write(answer)
			}
		}
	}()
	inR, inW, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	stdin, err := stream.New(inR)
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := stream.New(outW)
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan int, 1)
	go func() {
		ended <- Run(context.WithoutCancel(b.Context()), Options{
			In: stdin, Out: stdout, Err: io.Discard, Greeting: protocol.Greeting{Session: testSession},
			Dial: func(context.Context) (net.Conn, error) { return net.Dial("unix", ln.Addr().String()) },
			Log:  slog.New(slog.DiscardHandler),
			Down: func(error) Down { return DownRefused }, ReconnectTimeout: time.Minute,
		})
	}()
	b.Cleanup(func() {
		inW.Close()
		if code := <-ended; code != ExitDone {
			b.Errorf("exit %d", code)
		}
		<-served
		for _, c := range []io.Closer{ln, inR, outR, outW} {
			c.Close()
		}
	})
	return inW, bufio.NewReaderSize(outR, 64<<10), request
}

// skipLine reads a line of any length.
func skipLine(b *testing.B, br *bufio.Reader) {
	b.Helper()
	_, err := br.ReadSlice('\n')
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = br.ReadSlice('\n')
	}
	if err != nil {
		b.Error(err)
	}
}

// BenchmarkRoundTrip measures one request and its answer at a time.
func BenchmarkRoundTrip(b *testing.B) {
	for _, size := range []int{64, 1 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			in, out, request := benchLine(b, size)
			b.SetBytes(int64(len(request)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := io.WriteString(in, request); err != nil {
					b.Fatal(err)
				}
				skipLine(b, out)
			}
		})
	}
}

// BenchmarkStream measures as many lines as fit, in both directions at once.
func BenchmarkStream(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			in, out, request := benchLine(b, size)
			b.SetBytes(int64(len(request)))
			b.ReportAllocs()
			done := make(chan struct{})
			n := b.N
			go func() {
				defer close(done)
				for range n {
					skipLine(b, out)
				}
			}()
			for range n {
				if _, err := io.WriteString(in, request); err != nil {
					b.Fatal(err)
				}
			}
			<-done
		})
	}
}
