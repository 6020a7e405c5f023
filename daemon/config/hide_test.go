package config

import (
	"slices"
	"strings"
	"testing"
)

// TestHideArgs: what seems to be a secret is not shown, wherever it stands; what
// tells people what runs is.
func TestHideArgs(t *testing.T) {
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
		if got := strings.Join(HideArgs(strings.Fields(x.args)), " "); got != want {
			t.Errorf("%s\nis shown as %s\nwant        %s", x.args, got, want)
		}
	}
	if got := HideArgs([]string{"--header", "Authorization: Bearer " + key}); got[1] != "Authorization: Bearer ***" {
		t.Errorf("a header is shown as %q", got)
	}
}

// TestProcessSecrets: what is hidden in arguments, and what variables with such
// names put there, is hidden in what the process says, too; of a secret of
// several lines each of them.
func TestProcessSecrets(t *testing.T) {
	s := Settings{
		Name: "s", Transport: Stdio, Command: "x", Args: []string{"--token", "in-full-1", "--root", "${HOME}", "--", "${MY_TOKEN}"},
		Env: map[string]Secret{"KEY": "first line\nsecond line\n-\n"},
	}
	p, err := s.Process(Around{Environ: []string{"HOME=/home/somebody", "MY_TOKEN=from-variable"}, Home: "/", Root: "/"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"in-full-1", "from-variable", "first line", "second line"} {
		if !slices.Contains(p.Secrets, want) {
			t.Errorf("%q is no secret: %q", want, p.Secrets)
		}
	}
	if slices.Contains(p.Secrets, "/home/somebody") || slices.Contains(p.Secrets, "-") {
		t.Errorf("too much is secret: %q", p.Secrets)
	}
	s = Settings{Name: "s", Transport: HTTP, URL: "https://host/mcp?key=in-full-1&other=${MY_TOKEN}"}
	a, err := s.Address(Around{Environ: []string{"MY_TOKEN=from-variable"}})
	if err != nil || !slices.Contains(a.Secrets, "in-full-1") || !slices.Contains(a.Secrets, "from-variable") {
		t.Errorf("of an address: %q, %v", a.Secrets, err)
	}
}
