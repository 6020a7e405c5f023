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
		{"-y -p @scope/pkg2@1.2.3 -p typescript@5.4.2 -p lodash -p 8080 -p 127.0.0.1:8080:80/tcp -v", ""},
		{"-t streamable-http -t stdio -t 30s -t node:20-alpine -t mcp/server1 -p ./projects2 -p tsconfig2.json", ""},
		{"-port=8080 -timeout 30000ms -k ${KEY} -k https://host/x -it -m Qwen2.5-Coder-7B -e NODE_ENV=production", ""},
		{"--key-file /home/me/key.pem https://host/mcp?p=8080&t=stdio", ""},
		{"-p hunter2", "-p ***"},
		{"-u root -phunter2", "-u root -p***"},
		{"-p=hunter2 -k " + key, "-p=*** -k ***"},
		{"-t SECRET -K pa$$word", "-t *** -K ***"},
		{"-a Xk29fjQlm3Zp", "-a ***"},
		{"https://host/mcp?tok=abc&key=d&p=hunter2&q=a", "https://host/mcp?tok=***&key=***&p=***&q=a"},
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

// TestText checks that tokens are hidden in what a server says, and that words that explain
// its trouble stay.
func TestText(t *testing.T) {
	for _, x := range []struct{ text, want string }{
		{"npm_config_registry is not set; see npm_lifecycle_event", ""},
		{"Bearer token missing: Bearer authentication is required", ""},
		{"commit 0123456789abcdef0123456789abcdef01234567, key: 12 items, API_KEY= is empty", ""},
		{"GET https://registry.npmjs.org/@scope%2fpkg - 404 Not Found, port=8080, --token=${TOKEN}", ""},
		{"bad credentials: ghp_0123456789abcdefghij.", "bad credentials: ***"},
		{"key sk-proj-Ab12Cd34Ef56, xoxb-1234567890-abcd", "key ***, ***"},
		{"Authorization: Bearer abcdef0123456", "Authorization: Bearer ***"},
		{"api_key=abc, TOKEN='a b'; GITHUB_TOKEN=\"x\"", "api_key=***, TOKEN='***'; GITHUB_TOKEN=\"***\""},
		{"(https://host/mcp?tok=abc) and https://me:pw@host/x", "(https://host/mcp?tok=***) and https://me:***@host/x"},
	} {
		want := x.want
		if want == "" {
			want = x.text
		}
		if got := Text(x.text); got != want {
			t.Errorf("%s\nis shown as %s\nwant        %s", x.text, got, want)
		}
	}
}

// TestValuesThatPeopleNeed_AreNoSecrets checks which values of variables, whose names do not say that they are
// secret, are paths and addresses, or words.
func TestValuesThatPeopleNeed_AreNoSecrets(t *testing.T) {
	for value, want := range map[string]struct{ place, words bool }{
		"/home/ada/projects/shop":                          {true, false},
		"~/.kube/config":                                   {true, false},
		"./data/a b/x_1.json":                              {true, false},
		"/nix/store/0c1x2y3z4a5b6c7d8e9f0g1h2i3j4k5l-node": {true, false}, // a part of it looks like a key
		"/usr/local/bin:/usr/bin:/bin":                     {true, false},
		"https://db.internal:8080/v2/items":                {true, true},
		"postgres://db.internal/shop":                      {true, true},

		"postgres://ada:hunter22@db.internal/shop":       {false, false},
		"https://a.example/mcp?api_key=0123456789abcdef": {false, false},
		"/home/ada/sk-0123456789abcdef":                  {false, false},
		"/4Zk2nQpXw91LmT8":                               {false, false},

		"production":       {false, true},
		"eu-west-1":        {false, true},
		"db.internal:5432": {false, true},
		"read,write":       {false, true},

		"hunter2hunter2":                       {false, false},
		"dE4dBeefdE4dBeef":                     {false, false},
		"0f8fad5b-d9cb-469f-a165-70867728950e": {false, false},
		"ghp_abcdefghijklmnop0123":             {false, false},
		"12345678":                             {false, false},
		"":                                     {false, false},
	} {
		if got := IsPlace(value); got != want.place {
			t.Errorf("IsPlace(%q) = %v", value, got)
		}
		if got := IsWords(value); got != want.words {
			t.Errorf("IsWords(%q) = %v", value, got)
		}
	}
}
