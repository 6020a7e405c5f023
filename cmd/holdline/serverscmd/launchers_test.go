package serverscmd

import (
	"strings"
	"testing"
)

// TestShortCommand checks that a command line in few columns still says which server it is.
func TestShortCommand(t *testing.T) {
	for line, want := range map[string]string{
		"npx -y @modelcontextprotocol/server-filesystem /home/user/projects": "npx …/server-filesystem",
		"/usr/bin/npx -p typescript --yes tsc-server --port 3 and much more": "npx tsc-server --port 3 and much more",
		"uvx --from git+https://example.com/x/y mcp-y serve":                 "uvx mcp-y serve",
		"uv run --directory /srv/some/where mcp-z":                           "uv mcp-z",
		"pnpm --silent dlx @example/a-server-with-a-name":                    "pnpm …/a-server-with-a-name",
		"node --import tsx /home/user/projects/shop/server.js":               "node …/server.js",
		"python3 -u -m mcp_server_git --repository .":                        "python3 mcp_server_git --repository .",
		"python -c print(1)":          "python -c print(1)",
		"node -e 1":                   "node -e 1",
		"npx":                         "npx",
		"docker run -i --rm -e A m/x": "docker m/x",
		"my-server --token *** -y":    "my-server --token *** -y",
	} {
		if got := commandLine(strings.Fields(line)).Shorter(26); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
