package contrib

import (
	"embed"
	"io/fs"
)

//go:embed clients
var clients embed.FS

// Clients has one file for each MCP client that there is a snippet for, such as
// codex.toml: what its configuration needs in order to start holdline.
func Clients() fs.FS {
	sub, err := fs.Sub(clients, "clients")
	if err != nil { // the name is one that was embedded
		panic(err)
	}
	return sub
}
