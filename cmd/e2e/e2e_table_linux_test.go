package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdline/daemon/config"
	"holdline/daemon/servertable"
	"holdline/protocol/control"
)

// tableCall is a call of a tool. In its arguments DIR stands for the directory of the trial.
type tableCall struct{ tool, args string }

// tableTrial is how a server of the table is tried.
type tableTrial struct {
	args []string // DIR stands for the directory, CHROMIUM for the browser
	env  map[string]string
	// also are made while the server is watched. They may fail: nothing but the registry of npm need be there.
	also []tableCall
	// mark leaves something behind, and look shows whether it is there.
	mark, look tableCall
	chromium   bool
	// elsewhere are arguments of tools that look like names of files, and are none on this machine.
	elsewhere []string
}

// tableTrials has a trial for each row of the table.
var tableTrials = map[string]tableTrial{
	"@antv/mcp-server-chart": {
		mark: tableCall{"generate_bar_chart", `{"data":[{"category":"a","value":1}]}`},
		look: tableCall{"generate_pie_chart", `{"data":[{"category":"a","value":1}]}`},
	},
	"@brave/brave-search-mcp-server": {
		env:  map[string]string{"BRAVE_API_KEY": "k"},
		mark: tableCall{"brave_news_search", `{"query":"y"}`},
		look: tableCall{"brave_web_search", `{"query":"x"}`},
	},
	"@eslint/mcp": {
		look: tableCall{"lint-files", `{"filePaths":["DIR/mark.txt"]}`},
	},
	"@hubspot/mcp-server": {
		env:  map[string]string{"PRIVATE_APP_ACCESS_TOKEN": "k"},
		mark: tableCall{"hubspot-list-objects", `{"objectType":"contacts"}`},
		look: tableCall{"hubspot-get-user-details", `{}`},
	},
	"@modelcontextprotocol/server-brave-search": {
		env:  map[string]string{"BRAVE_API_KEY": "k"},
		mark: tableCall{"brave_local_search", `{"query":"y"}`},
		look: tableCall{"brave_web_search", `{"query":"x"}`},
	},
	"@modelcontextprotocol/server-everything": {
		mark: tableCall{"toggle-simulated-logging", `{}`},
		look: tableCall{"echo", `{"message":"x"}`},
	},
	"@modelcontextprotocol/server-filesystem": {
		args: []string{"DIR"},
		look: tableCall{"list_allowed_directories", `{}`},
	},
	"@modelcontextprotocol/server-github": {
		env:       map[string]string{"GITHUB_PERSONAL_ACCESS_TOKEN": "k"},
		also:      []tableCall{{"create_or_update_file", `{"owner":"o","repo":"r","path":"mark.txt","content":"c","message":"m","branch":"b"}`}, {"push_files", `{"owner":"o","repo":"r","branch":"b","files":[{"path":"mark.txt","content":"c"}],"message":"m"}`}},
		mark:      tableCall{"get_file_contents", `{"owner":"o","repo":"r","path":"mark.txt"}`},
		look:      tableCall{"search_repositories", `{"query":"x"}`},
		elsewhere: []string{"path", "files"},
	},
	"@modelcontextprotocol/server-gitlab": {
		env:       map[string]string{"GITLAB_PERSONAL_ACCESS_TOKEN": "k"},
		also:      []tableCall{{"create_or_update_file", `{"project_id":"1","file_path":"mark.txt","content":"c","commit_message":"m","branch":"b"}`}, {"push_files", `{"project_id":"1","branch":"b","files":[{"file_path":"mark.txt","content":"c"}],"commit_message":"m"}`}},
		mark:      tableCall{"get_file_contents", `{"project_id":"1","file_path":"mark.txt"}`},
		look:      tableCall{"search_repositories", `{"search":"x"}`},
		elsewhere: []string{"file_path", "previous_path", "files"},
	},
	"@modelcontextprotocol/server-google-maps": {
		env:  map[string]string{"GOOGLE_MAPS_API_KEY": "k"},
		mark: tableCall{"maps_reverse_geocode", `{"latitude":1,"longitude":1}`},
		look: tableCall{"maps_geocode", `{"address":"Berlin"}`},
	},
	"@modelcontextprotocol/server-memory": {
		env:  map[string]string{"MEMORY_FILE_PATH": "DIR/../memory.jsonl"},
		mark: tableCall{"create_entities", `{"entities":[{"name":"x","entityType":"y","observations":["z"]}]}`},
		look: tableCall{"read_graph", `{}`},
	},
	"@modelcontextprotocol/server-puppeteer": {
		env:      map[string]string{"PUPPETEER_EXECUTABLE_PATH": "CHROMIUM", "ALLOW_DANGEROUS": "true", "PUPPETEER_LAUNCH_OPTIONS": "{\"headless\":true,\"executablePath\":\"CHROMIUM\",\"args\":[\"--no-sandbox\"]}"},
		mark:     tableCall{"puppeteer_navigate", `{"url":"data:text/html,<title>mark</title>"}`},
		look:     tableCall{"puppeteer_evaluate", `{"script":"document.title"}`},
		chromium: true,
	},
	"@modelcontextprotocol/server-sequential-thinking": {
		mark: tableCall{"sequentialthinking", `{"thought":"a","nextThoughtNeeded":true,"thoughtNumber":1,"totalThoughts":3}`},
		look: tableCall{"sequentialthinking", `{"thought":"b","nextThoughtNeeded":true,"thoughtNumber":1,"totalThoughts":3}`},
	},
	"@modelcontextprotocol/server-slack": {
		env:  map[string]string{"SLACK_BOT_TOKEN": "xoxb-1", "SLACK_TEAM_ID": "T1"},
		mark: tableCall{"slack_get_users", `{}`},
		look: tableCall{"slack_list_channels", `{}`},
	},
	"@mui/mcp": {
		mark: tableCall{"fetchDocs", `{"urls":["https://mui.com/y"]}`},
		look: tableCall{"fetchDocs", `{"urls":["https://mui.com/x"]}`},
	},
	"@notionhq/notion-mcp-server": {
		env:  map[string]string{"NOTION_TOKEN": "ntn_1"},
		mark: tableCall{"API-get-users", `{}`},
		look: tableCall{"API-get-self", `{}`},
	},
	"@perplexity-ai/mcp-server": {
		env:  map[string]string{"PERPLEXITY_API_KEY": "k"},
		mark: tableCall{"perplexity_ask", `{"messages":[{"role":"user","content":"x"}]}`},
		look: tableCall{"perplexity_search", `{"query":"x"}`},
	},
	"@playwright/mcp": {
		args:     []string{"--headless", "--executable-path=CHROMIUM", "--no-sandbox", "--isolated"},
		mark:     tableCall{"browser_navigate", `{"url":"data:text/html,<title>mark</title>"}`},
		look:     tableCall{"browser_evaluate", `{"function":"() => document.title"}`},
		chromium: true,
	},
	"@sentry/mcp-server": {
		env:  map[string]string{"SENTRY_ACCESS_TOKEN": "k"},
		mark: tableCall{"find_projects", `{"organizationSlug":"o"}`},
		look: tableCall{"find_organizations", `{}`},
	},
	"@sylphx/pdf-reader-mcp": {
		look: tableCall{"read_pdf", `{"sources":[{"path":"mark.txt"}]}`},
	},
	"@upstash/context7-mcp": {
		env:  map[string]string{"CONTEXT7_API_KEY": "ctx7sk-1"},
		mark: tableCall{"query-docs", `{"libraryId":"/facebook/react","query":"x"}`},
		look: tableCall{"resolve-library-id", `{"query":"x","libraryName":"react"}`},
	},
	"airtable-mcp-server": {
		env:  map[string]string{"AIRTABLE_API_KEY": "k"},
		mark: tableCall{"list_tables", `{"baseId":"x"}`},
		look: tableCall{"list_bases", `{}`},
	},
	"chrome-devtools-mcp": {
		args:     []string{"--headless", "--executablePath=CHROMIUM", "--isolated", "--chromeArg=--no-sandbox"},
		mark:     tableCall{"new_page", `{"url":"data:text/html,<title>mark</title>"}`},
		look:     tableCall{"list_pages", `{}`},
		chromium: true,
	},
	"exa-mcp-server": {
		env:  map[string]string{"EXA_API_KEY": "k"},
		mark: tableCall{"web_search_exa", `{"query":"y"}`},
		look: tableCall{"web_search_exa", `{"query":"x"}`},
	},
	"figma-developer-mcp": {
		args: []string{"--stdio"},
		env:  map[string]string{"FIGMA_API_KEY": "k"},
		mark: tableCall{"download_figma_images", `{"fileKey":"abc","nodes":[{"nodeId":"1:1","fileName":"a.png"}],"localPath":"img"}`},
		look: tableCall{"get_figma_data", `{"fileKey":"abc"}`},
	},
	"firecrawl-mcp": {
		env:  map[string]string{"FIRECRAWL_API_KEY": "fc-k"},
		mark: tableCall{"firecrawl_search", `{"query":"x"}`},
		look: tableCall{"firecrawl_map", `{"url":"https://example.com"}`},
	},
	"mcp-searxng": {
		env:  map[string]string{"SEARXNG_URL": "http://127.0.0.1:1"},
		mark: tableCall{"web_url_read", `{"url":"http://127.0.0.1:1/"}`},
		look: tableCall{"searxng_web_search", `{"query":"x"}`},
	},
	"tavily-mcp": {
		env:       map[string]string{"TAVILY_API_KEY": "k"},
		mark:      tableCall{"tavily_extract", `{"urls":["https://example.com"]}`},
		look:      tableCall{"tavily_search", `{"query":"x"}`},
		elsewhere: []string{"select_paths"},
	},
}

// tableSeen is what a trial has shown.
type tableSeen struct {
	reads []string // names in the directory, or relative ones, and places in the program that ask for the directory
	asked []string // methods of the server's requests
	files []string // arguments of its tools that name files
	alone string   // text of its answer before anything else
	keeps string   // how its answer differs after another client's call; "" if it does not
}

// tableServer is the process of one trial.
type tableServer struct {
	*agent

	dir   string
	asked []string
	last  answer // to a call
}

// said returns the text of an answer, or of its error.
func (x answer) said() string {
	if x.Error != nil {
		return x.Error.Message
	}
	return x.text()
}

// cwdProbe notes who asks Node for the working directory. Node itself does at each start.
const cwdProbe = `
const fs = require("fs"), cwd = process.cwd;
process.cwd = function () {
  const from = new Error().stack.split("\n").slice(2).map(l => l.trim()).find(l => !/node:|\(internal/.test(l));
  if (from) fs.appendFileSync(process.env.TABLE_PROBE, from.replace(/.*node_modules./, "") + "\n");
  return cwd.apply(this, arguments);
};
`

// asksPeople reports whether a request of a server is a question to a model, or to a person.
func asksPeople(method string) bool {
	return method == "sampling/createMessage" || method == "elicitation/create"
}

// ignoredReads are places that ask for the directory and do nothing with it but to write messages about their own use.
var ignoredReads = regexp.MustCompile(`^depd/`)

// TestE2ETable_EachRowIsAsItWasTried starts the server of each row of the table in the version of that row, and compares
// what it does with the row: which names it reads relative to its working directory, what it asks its client, whether it
// shows one client what another one did, and whether two clients can use it at once as its scope has them.
func TestE2ETable_EachRowIsAsItWasTried(t *testing.T) {
	e2eCache(t)
	if os.Getenv("HOLDLINE_LONG") == "" {
		t.Skip("HOLDLINE_LONG=1 is not set: it installs all servers of the table from npm, and takes minutes")
	}
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skipf("needs strace: %v", err)
	}
	for _, r := range servertable.Rows() {
		t.Run(r.Package, func(t *testing.T) {
			trial, ok := tableTrials[r.Package]
			if !ok {
				t.Fatal("the row has no trial")
			}
			if trial.chromium && tableChromium() == "" {
				t.Skip("neither chromium-headless-shell nor chromium is on the PATH")
			}
			p := newPlace(t)
			argv := trial.argv(t, r.Package, r.Version)
			seen := trial.watch(t, p, argv)
			t.Logf("reads %q\nasked %q\nfiles %q\nkeeps %q", seen.reads, seen.asked, seen.files, seen.keeps)
			// A browser reads by relative names, too, which says nothing of its server.
			if got := len(seen.reads) > 0; got != (r.Reads != "") && !trial.chromium {
				t.Errorf("it reads %q of its directory, and the row says %q", seen.reads, r.Reads)
			}
			if got := slices.Contains(seen.asked, "roots/list"); got != r.Roots {
				t.Errorf("it asked for roots: %v, and the row says %v", got, r.Roots)
			}
			if got := slices.ContainsFunc(seen.asked, asksPeople); got != r.Asks {
				t.Errorf("it asked %q, and the row says %v", seen.asked, r.Asks)
			}
			if got := len(seen.files) > 0; got != r.Files {
				t.Errorf("its tools take files %q, and the row says %v", seen.files, r.Files)
			}
			if (seen.keeps != "") != (r.Keeps != "") {
				t.Errorf("it keeps of its client %q, and the row says %q", seen.keeps, r.Keeps)
			}
			if r.Scope() == config.ScopeShared {
				if env := slices.Sorted(maps.Keys(trial.env)); !slices.Equal(env, slices.Sorted(slices.Values(r.Env))) {
					t.Errorf("it was tried with the variables %q, and the row has %q", env, r.Env)
				}
				if !slices.Equal(trial.args, r.Args) {
					t.Errorf("it was tried with the arguments %q, and the row has %q", trial.args, r.Args)
				}
				if trial.mark.tool == "" {
					t.Error("nothing has shown whether it keeps something of its client")
				}
			}
			trial.share(t, p, argv, r.Scope(), seen.alone)
		})
	}
}

// TestTable_EachRowHasATrial checks that the table has a row for each trial, and no other.
func TestTable_EachRowHasATrial(t *testing.T) {
	var packages []string
	for _, r := range servertable.Rows() {
		packages = append(packages, r.Package)
	}
	if trials := slices.Sorted(maps.Keys(tableTrials)); !slices.Equal(trials, packages) {
		t.Errorf("there are trials of %q, and rows of %q", trials, packages)
	}
}

// tableChromium returns the path of a browser, or "".
func tableChromium() string {
	shell, _ := exec.LookPath("chromium-headless-shell")
	full, _ := exec.LookPath("chromium")
	return cmp.Or(shell, full)
}

// argv installs a package, and returns the command that its launcher would run.
func (trial *tableTrial) argv(t *testing.T, name, version string) []string {
	t.Helper()
	root := npmInstall(t, "table-"+strings.ReplaceAll(name, "/", "+")+"@"+version, name+"@"+version)
	at := filepath.Join(root, "node_modules", name)
	b, err := os.ReadFile(filepath.Join(at, "package.json"))
	var about struct{ Bin json.RawMessage }
	if err == nil {
		err = json.Unmarshal(b, &about)
	}
	if err != nil {
		t.Fatal(err)
	}
	var one string
	many := map[string]string{}
	if json.Unmarshal(about.Bin, &one) != nil && json.Unmarshal(about.Bin, &many) != nil {
		t.Fatalf("%s has the programs %s", name, about.Bin)
	}
	for _, bin := range many { // npm takes the only one, or that of the package's name
		one = cmp.Or(many[name[strings.LastIndexByte(name, '/')+1:]], bin)
	}
	argv := []string{"node", filepath.Join(at, one)}
	for _, arg := range trial.args {
		argv = append(argv, strings.ReplaceAll(arg, "CHROMIUM", tableChromium()))
	}
	return argv
}

// in returns a list with a directory in the place of DIR.
func in(dir string, list []string) (out []string) {
	for _, s := range list {
		out = append(out, strings.ReplaceAll(s, "DIR", dir))
	}
	return out
}

// environ returns the variables of the trial.
func (trial *tableTrial) environ(dir string) (env []string) {
	for _, name := range slices.Sorted(maps.Keys(trial.env)) {
		env = append(env, name+"="+strings.NewReplacer("DIR", dir, "CHROMIUM", tableChromium()).Replace(trial.env[name]))
	}
	return env
}

// start starts a server by itself in a directory, and makes the handshake of a client that can everything.
func (trial *tableTrial) start(t *testing.T, p *place, dir string, argv ...string) *tableServer {
	t.Helper()
	argv = in(dir, argv)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), argv[0], argv[1:]...)
	cmd.Dir, cmd.WaitDelay = dir, 5*time.Second
	cmd.Env = append(slices.Clone(p.env), trial.environ(dir)...)
	s := &tableServer{agent: p.agentOf(cmd), dir: dir}
	s.request("initialize", map[string]any{
		"protocolVersion": "2025-06-18", "clientInfo": map[string]string{"name": "test", "version": "1"},
		"capabilities": map[string]any{
			"roots": map[string]any{"listChanged": true}, "sampling": map[string]any{}, "elicitation": map[string]any{},
		},
	})
	s.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return s
}

// request asks the server, and answers what it asks meanwhile.
func (s *tableServer) request(method string, params any) answer {
	s.t.Helper()
	id := s.begin(method, params)
	for {
		if x := s.take(s.read()); x.answers(id) {
			return x
		}
	}
}

// call calls a tool, and returns the text of its answer.
func (s *tableServer) call(c tableCall) string {
	s.t.Helper()
	if c.tool == "" {
		return ""
	}
	x := s.request("tools/call", map[string]any{
		"name": c.tool, "arguments": json.RawMessage(strings.ReplaceAll(c.args, "DIR", s.dir)),
	})
	var m struct{ Result, Error json.RawMessage }
	if err := json.Unmarshal([]byte(x.raw), &m); err != nil {
		s.t.Fatal(err)
	}
	s.last = x
	return string(m.Result) + string(m.Error)
}

// take reads a line of the server, and answers a request.
func (s *tableServer) take(line string) answer {
	s.t.Helper()
	var x answer
	if err := json.Unmarshal([]byte(line), &x); err != nil { // some write messages for people to stdout
		return answer{}
	}
	x.raw = line
	if x.Method == "" || x.ID == nil {
		return x
	}
	if !slices.Contains(s.asked, x.Method) {
		s.asked = append(s.asked, x.Method)
	}
	result := map[string]string{
		"roots/list":             `{"roots":[{"uri":"file://` + s.dir + `"}]}`,
		"sampling/createMessage": `{"role":"assistant","model":"m","content":{"type":"text","text":"x"}}`,
		"elicitation/create":     `{"action":"decline"}`,
	}[x.Method]
	id, err := json.Marshal(x.ID)
	if err != nil {
		s.t.Fatal(err)
	}
	s.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, cmp.Or(result, "{}")))
	return x
}

// quiet answers what the server asks by itself, until it has been quiet for two seconds. Nothing says that it will ask
// nothing more.
func (s *tableServer) quiet() {
	s.t.Helper()
	for {
		select {
		case line, ok := <-s.lines:
			if !ok {
				s.t.Fatalf("the server has ended: %s", s.errs)
			}
			s.take(line)
		case <-time.After(2 * time.Second):
			return
		}
	}
}

// end ends the server as its client does.
func (s *tableServer) end() {
	s.t.Helper()
	_ = s.stdin.Close()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for range s.lines {
		}
	}()
	select {
	case <-gone:
	case <-time.After(5 * time.Second): // some do not end with their input
		_ = s.cmd.Process.Kill()
	}
	_ = s.cmd.Wait()
}

// endAll kills what servers that are gone have left in the place, such as a server whose strace was killed, or a browser.
func (p *place) endAll() {
	p.t.Helper()
	waitFor(p.t, "the end of what the server has left", func() bool {
		left := p.processes()
		for pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended with another one
		}
		return len(left) == 0
	})
}

// watch tries the server by itself.
func (trial *tableTrial) watch(t *testing.T, p *place, argv []string) (seen tableSeen) {
	t.Helper()
	trace, probe, notes := filepath.Join(p.dir, "trace"), filepath.Join(p.dir, "probe.cjs"), filepath.Join(p.dir, "notes")
	for path, text := range map[string]string{probe: cwdProbe, notes: "", filepath.Join(p.project, "mark.txt"): "here\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	watched := *trial
	watched.env = maps.Clone(trial.env)
	if watched.env == nil {
		watched.env = map[string]string{}
	}
	watched.env["NODE_OPTIONS"], watched.env["TABLE_PROBE"] = "--require="+probe, notes
	s := watched.start(t, p, p.project, append([]string{
		"strace", "-f", "-qq", "-s", "4096", "-e", "signal=none", "-e", "trace=%file", "-o", trace,
	}, argv...)...)
	seen.files = s.fileArguments(trial)
	for _, c := range trial.also {
		t.Logf("%s: %.300s", c.tool, s.call(c))
	}
	t.Logf("%s: %.300s", trial.look.tool, s.call(trial.look))
	s.quiet()
	s.end()
	p.endAll()
	seen.asked = s.asked
	seen.reads = tableReads(t, p.project, trace, notes)

	// What a client leaves behind for the next one of the same process, and not for one of another process.
	s = trial.start(t, p, p.project, argv...)
	t.Logf("%s: %.300s", trial.mark.tool, s.call(trial.mark))
	same := s.call(trial.look)
	other := trial.start(t, p, p.project, argv...)
	another := other.call(trial.look)
	if same != another {
		seen.keeps = fmt.Sprintf("%.300s, and without that %.300s", same, another)
	}
	seen.alone = other.last.said()
	other.end()
	s.end()
	p.endAll()
	return seen
}

// namesFile matches the names of arguments that name files or directories.
var namesFile = regexp.MustCompile(`(?i)(path|file|files|filename|dir|directory|directories|folder|cwd|root|workspace)s?$`)

// fileArguments returns the arguments of the server's tools that name files, by their names.
func (s *tableServer) fileArguments(trial *tableTrial) []string {
	s.t.Helper()
	x := s.request("tools/list", map[string]any{})
	var m struct {
		Result struct {
			Tools []struct {
				Name        string
				InputSchema any
			}
		}
	}
	if err := json.Unmarshal([]byte(x.raw), &m); err != nil || len(m.Result.Tools) == 0 {
		s.t.Fatalf("tools/list = %.300s, %v", x.raw, err)
	}
	found := map[string]bool{}
	var walk func(tool string, v any)
	walk = func(tool string, v any) {
		switch v := v.(type) {
		case map[string]any:
			if properties, ok := v["properties"].(map[string]any); ok {
				for name := range properties {
					if namesFile.MatchString(name) && !slices.Contains(trial.elsewhere, name) {
						found[tool+"."+name] = true
					}
				}
			}
			for _, member := range v {
				walk(tool, member)
			}
		case []any:
			for _, member := range v {
				walk(tool, member)
			}
		}
	}
	for _, tool := range m.Result.Tools {
		walk(tool.Name, tool.InputSchema)
	}
	return slices.Sorted(maps.Keys(found))
}

// inTrace matches a path in a line of strace.
var inTrace = regexp.MustCompile(`^\d+ +(\w+)\((?:(AT_FDCWD|\d+)[^"]*, )?"((?:[^"\\]|\\.)*)"`)

// tableReads returns what the traces say of a process and its directory.
func tableReads(t *testing.T, dir, trace, notes string) (reads []string) {
	t.Helper()
	b, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	asked, err := os.ReadFile(notes)
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, "getcwd(") {
			count++
		}
		m := inTrace.FindStringSubmatch(line)
		if m == nil || m[3] == "" || m[2] != "" && m[2] != "AT_FDCWD" {
			continue
		}
		switch path := filepath.Clean(m[3]); {
		case m[1] == "getcwd", path == filepath.Join(dir, "package.json"): // Node reads it for the probe, as for each --require
		case !filepath.IsAbs(path), path == dir, strings.HasPrefix(path, dir+"/"):
			reads = append(reads, m[1]+" "+path)
		}
	}
	for line := range strings.Lines(string(asked)) {
		if line = strings.TrimSpace(line); !ignoredReads.MatchString(line) {
			reads = append(reads, line)
		}
	}
	t.Logf("getcwd: %d", count)
	slices.Sort(reads)
	return slices.Compact(reads)
}

// share has two agents of two projects, and a third in the first project, use the server at once through Holdline, with
// its scope. Each gets an answer, and there are as many processes as the scope says.
func (trial *tableTrial) share(t *testing.T, p *place, argv []string, scope, alone string) {
	t.Helper()
	other := filepath.Join(p.dir, "q")
	if err := os.MkdirAll(filepath.Join(other, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	argv = in(p.project, argv)
	env := map[string]string{}
	for _, kv := range trial.environ(p.project) {
		name, value, _ := strings.Cut(kv, "=")
		env[name] = value
	}
	p.configure(map[string]any{"tried": map[string]any{
		"command": argv[0], "args": argv[1:], "env": env, "holdline": hosting{"scope": scope},
	}})
	p.daemon()
	var agents []*agent
	for _, dir := range []string{p.project, other, p.project} {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(programs, "holdline"), "mcp-stdio")
		cmd.Env, cmd.Dir, cmd.WaitDelay = p.env, dir, 5*time.Second
		agents = append(agents, p.agentOf(cmd).shake())
	}
	want := map[string]int{config.ScopeShared: 1, config.ScopeProject: 2, config.ScopeSession: 3}[scope]
	serving := func(s control.StatusAnswer) (n int) {
		for _, w := range s.Workers {
			if w.Name == "tried" && w.State == "ready" {
				n++
			}
		}
		return n
	}
	p.until("all processes of the server", func(s control.StatusAnswer) bool { return serving(s) >= want })
	var calls []int
	for _, a := range agents {
		calls = append(calls, a.begin("tools/call", map[string]any{
			"name": "tried__" + trial.look.tool, "arguments": json.RawMessage(strings.ReplaceAll(trial.look.args, "DIR", p.project)),
		}))
	}
	for i, a := range agents {
		if x := a.wait(calls[i]); scope != config.ScopeProject && x.said() != alone {
			t.Errorf("agent %d: %.600s, and without other agents %.600s", i, x.raw, alone)
		}
	}
	if got := serving(p.status()); got != want {
		t.Errorf("scope %s: %d processes, want %d", scope, got, want)
	}
	end(agents)
}
