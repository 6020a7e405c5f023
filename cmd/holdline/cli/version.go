package cli

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/cmd/holdline/console"
	"holdline/daemon/calls"
	"holdline/daemon/rollout"
	"holdline/protocol"
	"holdline/protocol/mcp"
	"holdline/protocol/process"
)

// versions is what `holdline version --json` prints. A running daemon asks a
// new binary for it before it hands over, and rejects one that does not know a
// version in use: the new daemon could not read what proxies and workers write.
type versions struct {
	Version  string   `json:"version"`
	Commit   string   `json:"commit"`   // of the source; "" if the build did not say it
	Go       string   `json:"go"`       // the toolchain
	OS       string   `json:"os"`       // as GOOS
	Arch     string   `json:"arch"`     // as GOARCH
	MCP      []string `json:"mcp"`      // versions of MCP that it speaks
	Greeting []int    `json:"greeting"` // versions of the greeting that it speaks
	Worker   []int    `json:"worker"`   // versions of the protocol between daemon and worker
	Record   []int    `json:"record"`   // versions of the records of calls
	Handover []int    `json:"handover"` // versions of what a daemon leaves to its successor
}

// newVersionCommand returns the command version. Unlike the flag --version it has --json. It
// reads nothing and needs no daemon.
func newVersionCommand() *cobra.Command {
	return console.WithJSON(&cobra.Command{
		Use:   "version",
		Short: "Print the version, and with --json the protocol versions",
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions{
				Version: cmdenv.Version, Commit: cmdenv.Commit,
				Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
				MCP: mcp.Supported(), Greeting: []int{protocol.Version},
				Worker: process.Known(), Record: []int{calls.RecordVersion},
				Handover: []int{rollout.Version},
			}
			return console.Print(cmd, v, func(out io.Writer) { _ = printVersion(out) })
		},
	})
}

// printVersion prints the version for people.
func printVersion(out io.Writer) error {
	_, err := fmt.Fprintf(out, "holdline %s\n", cmdenv.Version)
	return err
}
