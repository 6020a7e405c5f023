package redact

import (
	"strings"
	"testing"
)

// TestArgs checks that arguments that look like secrets are hidden wherever they are, and
// that the rest of the command line is shown.
func TestArgs(t *testing.T) {
	const key = "k3y-0f-a-s3rv1ce"
	for _, x := range []struct{ args, want string }{
		{"-y @modelcontextprotocol/server-filesystem@2025.8.21 /home/me/project-2024-11-05", ""},
		{"run -i --rm ghcr.io/github/github-mcp-server stdio", ""},
		{"--token ${TOKEN} --api-key=${KEY} --header Authorization:${AUTH}", ""},
		{"--header Authorization:Bearer ${TOKEN}", ""},
		{"--port 8080 --key-file", ""},
		{"mcp-remote https://host.example/mcp?transport=sse --allow-http", ""},
		{"--token " + key, "--token ***"},
		{"--apiKey " + key + " --verbose", "--apiKey *** --verbose"},
		{"--password=" + key, "--password=***"},
		{"-e API_KEY=" + key, "-e API_KEY=***"},
		{"--header X-Api-Key:" + key, "--header X-Api-Key:***"},
		{"--token=${TOKEN:-" + key + "}", "--token=***"},
		{"postgresql://me:" + key + "@host/db", "postgresql://me:***@host/db"},
		{"https://" + key + "@host/x", "https://***@host/x"},
		{"https://host/mcp?exaApiKey=" + key + "&tools=a", "https://host/mcp?exaApiKey=***&tools=a"},
		{"https://host/s/Zm9vYmFyMTIzNDU2Nzg5MA12/mcp", "https://host/s/***/mcp"},
		{"--url=https://host/?token=" + key, "--url=https://host/?token=***"},
		{"ghp_0123456789abcdefghijklmnopqrstuvwxyz", "***"},
		{"sk-proj-abcdefghijkl", "***"},
		{"0123456789abcdef0123456789abcdef", "***"},
	} {
		want := x.want
		if want == "" {
			want = x.args
		}
		if got := strings.Join(Args(strings.Fields(x.args)), " "); got != want {
			t.Errorf("%s\nis shown as %s\nwant        %s", x.args, got, want)
		}
	}
	if got := Args([]string{"--header", "Authorization: Bearer " + key}); got[1] != "Authorization: Bearer ***" {
		t.Errorf("a header is shown as %q", got)
	}
}
