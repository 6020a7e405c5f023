// Floor is what the benchmarks of cmd/e2e compare holdline with: the simplest program in the
// place of each part. It only copies or answers lines.
//
//	floor nothing                 does nothing
//	floor PATH                    copies between its stdio and a socket, as a proxy does
//	floor relay LISTEN DIAL       between each connection and one of its own, as a daemon does
//	floor serve LISTEN COMMAND…   between each connection and a process of its own, as a worker does
//	floor answer PATH             listens, and answers each line, a request, with an empty result
//	floor client PATH             sends lines of its stdin and prints the answers; when the connection is
//	                              lost, it connects again and repeats the line that has no answer
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

// run plays a part until its input ends. The parts that listen end with the process.
func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "nothing":
		return nil
	case len(args) == 1:
		conn, err := dial(args[0])
		if err != nil {
			return err
		}
		go copyLines(conn, os.Stdin)
		copyLines(os.Stdout, conn)
		return nil
	case len(args) < 2:
		return errors.New("a part and a path are needed")
	case args[0] == "client":
		return client(args[1])
	}
	_ = os.Remove(args[1])
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: args[1], Net: "unix"})
	if err != nil {
		return err
	}
	for {
		conn, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			switch args[0] {
			case "relay":
				relay(conn, args[2])
			case "serve":
				serve(conn, args[2:])
			case "answer":
				answer(conn)
			}
		}()
	}
}

// dial connects to the socket at path.
func dial(path string) (net.Conn, error) {
	return net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
}

// relay copies between a connection and one to the socket at path.
func relay(conn net.Conn, path string) {
	next, err := dial(path)
	if err != nil {
		return
	}
	defer next.Close()
	go copyLines(next, conn)
	copyLines(conn, next)
}

// serve copies between a connection and the stdio of a command.
func serve(conn net.Conn, command []string) {
	cmd := exec.CommandContext(context.Background(), command[0], command[1:]...)
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if errIn != nil || errOut != nil || cmd.Start() != nil {
		return
	}
	go copyLines(in, conn)
	copyLines(conn, out)
	_ = cmd.Wait()
}

// answer answers each request, whose id has to come before its params.
func answer(conn net.Conn) {
	for lines := bufio.NewReaderSize(conn, 64<<10); ; {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return
		}
		_, rest, _ := bytes.Cut(line, []byte(`"id":`))
		id, _, _ := bytes.Cut(rest, []byte(","))
		if _, err := fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":%s,"result":{}}`+"\n", id); err != nil {
			return
		}
	}
}

// client sends one line after the other, until the end of its input.
func client(path string) error {
	var conn net.Conn
	var answers *bufio.Reader
	for lines := bufio.NewReader(os.Stdin); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return nil //nolint:nilerr // the end of the input is the end of the client
		}
		for {
			if conn != nil {
				_, _ = conn.Write(line)
				if answer, err := answers.ReadString('\n'); err == nil {
					_, _ = os.Stdout.WriteString(answer)
					break
				}
			}
			next, err := dial(path)
			if err != nil {
				<-time.After(time.Millisecond)
				continue
			}
			conn, answers = next, bufio.NewReader(next)
		}
	}
}

// copyLines copies line by line, and closes one direction of what it writes to at the end.
// A line longer than its buffer is copied in pieces.
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
			break
		}
	}
	switch to := to.(type) {
	case *net.UnixConn:
		_ = to.CloseWrite()
	case io.Closer:
		_ = to.Close()
	}
}
