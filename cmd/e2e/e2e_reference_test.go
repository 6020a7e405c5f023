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
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"holdline/protocol/mcp"
)

// reference is one of the reference servers, with the requests to make. What mask matches
// differs from one answer to the next, and is not compared.
type reference struct {
	name   string // of the package, without "server-"
	scope  string
	argv   []string // after the program
	env    map[string]string
	tools  []step
	asking []step   // tool calls that ask the client, made by a client that can be asked
	made   []string // resources that the calls create
	others []step
	masks  []string
}

// step is a request: a tool call, or a request with another method.
type step struct {
	what string // the tool or the method
	args string // the arguments or the params; names of prompts begin with PREFIX
}

// everythingSteps are the requests to server-everything. Its process belongs to one
// session, because its tools depend on the client's capabilities.
var everythingSteps = reference{
	name: "everything", scope: "session", argv: []string{"stdio"},
	tools: []step{
		{"echo", `{"message":"h\u00e9llo \"☃\" <&>"}`},
		{"echo", `{}`},
		{"get-annotated-message", `{"messageType":"error","includeImage":true}`},
		{"get-annotated-message", `{"messageType":"debug"}`},
		{"get-env", `{}`},
		{"get-resource-links", `{"count":3}`},
		{"get-resource-reference", `{"resourceType":"Text","resourceId":2}`},
		{"get-resource-reference", `{"resourceType":"Blob","resourceId":3}`},
		{"get-structured-content", `{"location":"Chicago"}`},
		{"get-structured-content", `{"location":"Rome"}`},
		{"get-sum", `{"a":1,"b":2.50}`},
		{"get-tiny-image", `{}`},
		{"gzip-file-as-resource", `{"name":"x.gz","data":"data:text/plain,hello","outputType":"resource"}`},
		{"gzip-file-as-resource", `{"name":"y.gz","data":"data:text/plain,hello"}`},
		{"simulate-research-query", `{"topic":"tea"}`}, // refused: it is a task, and holdline offers none
		{"toggle-simulated-logging", `{}`},
		{"toggle-simulated-logging", `{}`},
		{"toggle-subscriber-updates", `{}`},
		{"toggle-subscriber-updates", `{}`},
		{"trigger-long-running-operation", `{"duration":0.3,"steps":3}`},
	},
	asking: []step{
		{"get-roots-list", `{}`},
		{"trigger-elicitation-request", `{}`},
		{"trigger-elicitation-request-async", `{}`},
		{"trigger-sampling-request", `{"prompt":"say a word","maxTokens":7}`},
		{"trigger-sampling-request-async", `{"prompt":"say a word"}`},
		{"trigger-url-elicitation", `{"url":"https://example.org/","elicitationId":"e1"}`},
		{"trigger-url-elicitation", `{"url":"https://example.org/","elicitationId":"e2","errorPath":true}`},
	},
	made: []string{"demo://resource/session/x.gz", "demo://resource/session/y.gz"},
	others: []step{
		{mcp.ResourcesRead, `{"uri":"demo://resource/session/y.gz"}`},
		{mcp.ResourcesRead, `{"uri":"demo://resource/static/document/features.md"}`},
		{mcp.ResourcesRead, `{"uri":"demo://resource/dynamic/text/7"}`},
		{mcp.ResourcesRead, `{"uri":"demo://resource/dynamic/blob/8"}`},
		{mcp.ResourcesRead, `{"uri":"demo://resource/dynamic/text/none"}`},
		{mcp.PromptsGet, `{"name":"PREFIXsimple-prompt"}`},
		{mcp.PromptsGet, `{"name":"PREFIXargs-prompt","arguments":{"city":"Rome","state":"Lazio"}}`},
		{mcp.PromptsGet, `{"name":"PREFIXargs-prompt","arguments":{}}`},
		{mcp.PromptsGet, `{"name":"PREFIXcompletable-prompt","arguments":{"department":"Sales","name":"Eve"}}`},
		{mcp.PromptsGet, `{"name":"PREFIXresource-prompt","arguments":{"resourceType":"Text","resourceId":"4"}}`},
		{
			mcp.Complete,
			`{"ref":{"type":"ref/prompt","name":"PREFIXcompletable-prompt"},"argument":{"name":"department","value":"S"}}`,
		},
		{
			mcp.Complete,
			`{"ref":{"type":"ref/prompt","name":"PREFIXcompletable-prompt"},"argument":{"name":"name","value":"D"},"context":{"arguments":{"department":"Sales"}}}`,
		},
		{
			mcp.Complete,
			`{"ref":{"type":"ref/resource","uri":"demo://resource/dynamic/text/{resourceId}"},"argument":{"name":"resourceId","value":"12"}}`,
		},
	},
	masks: []string{
		`[0-9]{1,2}:[0-9]{2}:[0-9]{2} [AP]M`,                           // a time in a resource
		`"blob":"UmVzb3VyY2U[^"]*"`,                                    // the same in base64
		`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`, // the id of a question
		`\{\\n  \\"[A-Z_]+\\": (.|\n)*\\n\}`,                           // the server's environment
	},
}

// references returns all servers. Their paths are the same with and without holdline.
func references(p *place) []reference {
	file := func(name string) string { return filepath.Join(p.project, name) }
	q := func(name string) string { return fmt.Sprintf("%q", file(name)) }
	return []reference{
		everythingSteps,
		{
			name: "filesystem", scope: "project", argv: []string{p.project},
			tools: []step{
				{"list_allowed_directories", `{}`},
				{"write_file", `{"path":` + q("new.txt") + `,"content":"one\ntwo\nthree\n"}`},
				{"read_file", `{"path":` + q("new.txt") + `}`},
				{"read_text_file", `{"path":` + q("new.txt") + `,"head":2}`},
				{"read_media_file", `{"path":` + q("a.png") + `}`},
				{"read_multiple_files", `{"paths":[` + q("new.txt") + `,` + q("none.txt") + `]}`},
				{"edit_file", `{"path":` + q("new.txt") + `,"edits":[{"oldText":"two","newText":"2"}]}`},
				{"create_directory", `{"path":` + q("dir") + `}`},
				{"move_file", `{"source":` + q("new.txt") + `,"destination":` + q("dir/moved.txt") + `}`},
				{"list_directory", `{"path":` + q("") + `}`},
				{"list_directory_with_sizes", `{"path":` + q("dir") + `}`},
				{"directory_tree", `{"path":` + q("") + `}`},
				{"search_files", `{"path":` + q("") + `,"pattern":"**/*.txt"}`},
				{"get_file_info", `{"path":` + q("dir/moved.txt") + `}`},
				{"read_file", `{"path":"/etc/passwd"}`},
			},
			masks: []string{`(created|modified|accessed): [^\\]*GMT[^\\]*`},
		},
		{
			name: "memory", scope: "shared", env: map[string]string{"MEMORY_FILE_PATH": file("memory.jsonl")},
			tools: []step{
				{
					"create_entities",
					`{"entities":[{"name":"Ann","entityType":"person","observations":["tall"]},{"name":"Bob","entityType":"person","observations":[]}]}`,
				},
				{"create_relations", `{"relations":[{"from":"Ann","to":"Bob","relationType":"knows"}]}`},
				{"add_observations", `{"observations":[{"entityName":"Bob","contents":["short","old"]}]}`},
				{"search_nodes", `{"query":"short"}`},
				{"open_nodes", `{"names":["Ann"]}`},
				{"read_graph", `{}`},
				{"delete_observations", `{"deletions":[{"entityName":"Bob","observations":["old"]}]}`},
				{"delete_relations", `{"relations":[{"from":"Ann","to":"Bob","relationType":"knows"}]}`},
				{"delete_entities", `{"entityNames":["Ann"]}`},
				{"read_graph", `{}`},
			},
			others: []step{{mcp.ResourcesRead, `{"uri":"memory://knowledge-graph"}`}},
		},
		{
			name: "sequential-thinking", scope: "session",
			tools: []step{
				{
					"sequentialthinking",
					`{"thought":"first","nextThoughtNeeded":true,"thoughtNumber":1,"totalThoughts":2}`,
				},
				{
					"sequentialthinking",
					`{"thought":"second","nextThoughtNeeded":false,"thoughtNumber":2,"totalThoughts":2,"branchFromThought":1,"branchId":"b"}`,
				},
				{
					"sequentialthinking",
					`{"thought":"bad","nextThoughtNeeded":true,"thoughtNumber":0,"totalThoughts":2}`,
				},
			},
		},
	}
}

// entry returns the server as an entry of the configuration.
func (r *reference) entry(t *testing.T) map[string]any {
	t.Helper()
	e := map[string]any{
		"command": "node", "args": append([]string{r.program(t)}, r.argv...), "holdline": hosting{"scope": r.scope},
	}
	if r.env != nil {
		e["env"] = r.env
	}
	return e
}

// program returns the path of the server's program. All packages are installed together.
func (r *reference) program(tb testing.TB) string {
	tb.Helper()
	const packages = "@modelcontextprotocol/server-"
	var specs []string
	for _, name := range []string{"everything", "filesystem", "memory", "sequential-thinking"} {
		specs = append(specs, packages+name+"@"+referenceVersion)
	}
	root := npmInstall(tb, "servers-"+referenceVersion, specs...)
	return filepath.Join(root, "node_modules", packages+r.name, "dist", "index.js")
}

// direct returns the command that runs the server without holdline.
func (r *reference) direct(t *testing.T, p *place) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "node", append([]string{r.program(t)}, r.argv...)...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = slices.Clone(p.env), p.project, 5*time.Second
	for k, v := range r.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	return cmd
}

// fresh restores the project's files before a server is asked.
func (p *place) fresh() {
	p.t.Helper()
	entries, err := os.ReadDir(p.project)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != ".git" {
			_ = os.RemoveAll(filepath.Join(p.project, e.Name()))
		}
	}
	for name, content := range map[string]string{"a.txt": "a file\n", "a.png": "\x89PNG no picture"} {
		if err := os.WriteFile(filepath.Join(p.project, name), []byte(content), 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
}

// asker is a client that keeps notifications, and answers the requests of servers.
type asker struct {
	*agent
	modern bool
	able   bool   // has capabilities to be asked
	root   string // of the project
	prefix string // of the names of tools and prompts
	about  json.RawMessage
	notes  []string // notifications since the last look
	asked  []string // methods of the servers' requests
}

// abilities are the capabilities of a client that answers every request.
const abilities = `{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{},
	"tasks":{"requests":{"sampling":{"createMessage":{}},"elicitation":{"create":{}}}}}`

func (c *asker) capabilities() json.RawMessage {
	if c.able {
		return json.RawMessage(abilities)
	}
	return json.RawMessage(`{}`)
}

// meet makes the handshake.
func (c *asker) meet() *asker {
	c.t.Helper()
	if c.modern {
		c.about, _ = c.result(mcp.Discover, map[string]any{})
		return c
	}
	c.about, _ = c.result(mcp.Initialize, map[string]any{
		"protocolVersion": "2025-11-25", "capabilities": c.capabilities(),
		"clientInfo": map[string]string{"name": "test", "version": "1"},
	})
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c
}

// result makes a request, and returns its result or its error as received.
func (c *asker) result(method string, params map[string]any) (result, failure json.RawMessage) {
	c.t.Helper()
	if c.modern {
		meta, _ := params["_meta"].(map[string]any)
		meta = maps.Clone(meta)
		if meta == nil {
			meta = map[string]any{}
		}
		meta[mcp.MetaVersion], meta[mcp.MetaCapabilities] = mcp.Modern, c.capabilities()
		params = maps.Clone(params)
		params["_meta"] = meta
	}
	id := c.begin(method, params)
	for {
		line := c.read()
		var m struct {
			ID, Result, Error json.RawMessage
			Method            string
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			c.t.Fatalf("%q: %v", line, err)
		}
		switch {
		case m.Method != "" && m.ID != nil:
			c.asked = append(c.asked, m.Method)
			c.send(c.reply(m.ID, m.Method))
		case m.Method != "":
			c.notes = append(c.notes, line)
		case string(m.ID) == fmt.Sprint(id):
			return m.Result, m.Error
		}
	}
}

// reply answers a request of the server.
func (c *asker) reply(id json.RawMessage, method string) string {
	result := map[string]string{
		mcp.RootsList: fmt.Sprintf(`{"roots":[{"uri":"file://%s","name":%q}]}`, c.root,
			filepath.Base(c.root)),
		"sampling/createMessage": `{"role":"assistant","content":{"type":"text","text":"a word"},"model":"m"}`,
		"elicitation/create":     `{"action":"accept","content":{"name":"Ann"}}`,
	}[method]
	if result == "" {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown method"}}`, id)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

// lists returns all list entries by name, as received but for the prefix.
func (c *asker) lists() map[string]string {
	c.t.Helper()
	all := map[string]string{}
	for _, list := range []struct{ method, member, key string }{
		{mcp.ToolsList, "tools", "name"},
		{mcp.PromptsList, "prompts", "name"},
		{mcp.ResourcesList, "resources", "uri"},
		{mcp.TemplatesList, "resourceTemplates", "uriTemplate"},
	} {
		result, _ := c.result(list.method, map[string]any{})
		var members map[string]json.RawMessage
		if result != nil {
			decode(c.t, string(result), &members)
		}
		var entries []json.RawMessage
		if members[list.member] != nil {
			decode(c.t, string(members[list.member]), &entries)
		}
		for _, e := range entries {
			var keys map[string]any
			decode(c.t, string(e), &keys)
			name, entry := keys[list.key].(string), withoutContract(string(e))
			if list.key != "name" || c.prefix == "" {
				all[list.member+" "+name] = entry
			} else if own, ok := strings.CutPrefix(name, c.prefix); ok {
				all[list.member+" "+own] = strings.Replace(entry, fmt.Sprintf(`"name":%q`, name),
					fmt.Sprintf(`"name":%q`, own), 1)
			}
		}
	}
	return all
}

// withoutContract returns a listing as the server spelled it, without what holdline adds.
func withoutContract(listing string) string {
	notes := `"annotations":\{"holdline":\{"replayContract":"[a-z_]+"\}\},|"holdline":\{"replayContract":"[a-z_]+"\},?`
	return regexp.MustCompile(notes).ReplaceAllString(listing, "")
}

// answers makes the steps, and returns their results and the progress.
func (c *asker) answers(r *reference) (got []string) {
	c.t.Helper()
	masks := regexp.MustCompile(cmp.Or(strings.Join(r.masks, "|"), "$^"))
	note := func(s step, result, failure json.RawMessage) {
		came := string(result)
		if failure != nil {
			came = "error " + string(failure)
		} else if c.modern {
			came = c.plainly(s.what, came)
		}
		got = append(got, s.what+" "+s.args+"\n\t"+masks.ReplaceAllString(came, "…"))
		for _, n := range c.notes {
			if strings.Contains(n, `"`+mcp.ProgressNote+`"`) {
				var m struct{ Params json.RawMessage }
				decode(c.t, n, &m)
				got = append(got, "progress "+string(m.Params))
			}
		}
		c.notes = nil
	}
	calls := r.tools
	if c.able {
		calls = slices.Concat(calls, r.asking)
	}
	for _, s := range calls {
		result, failure := c.result(mcp.ToolsCall, map[string]any{
			"name": c.prefix + s.what, "arguments": json.RawMessage(s.args),
			"_meta": map[string]any{"progressToken": "mine"},
		})
		note(s, result, failure)
	}
	for _, uri := range r.made {
		c.untilListed(uri)
	}
	for _, s := range r.others {
		var params map[string]any
		decode(c.t, strings.ReplaceAll(s.args, "PREFIX", c.prefix), &params)
		result, failure := c.result(s.what, params)
		note(s, result, failure)
	}
	return got
}

// untilListed waits until a resource with this URI is listed.
func (c *asker) untilListed(uri string) {
	c.t.Helper()
	deadline := time.Now().Add(waitLimit)
	for c.lists()["resources "+uri] == "" {
		if time.Now().After(deadline) {
			c.t.Fatalf("no resource %s is listed", uri)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// plainly returns a result without the members that holdline adds for modern clients.
func (c *asker) plainly(method, result string) string {
	c.t.Helper()
	for _, want := range []string{`"resultType":"complete"`, `"ttlMs":0`, `"cacheScope":"private"`} {
		if !strings.HasPrefix(want, `"res`) && method != mcp.ResourcesRead {
			continue
		}
		rest, ok := strings.CutPrefix(result, "{"+want)
		if !ok {
			c.t.Errorf("%s for a modern client lacks %s: %s", method, want, clip(result))
		}
		result = "{" + strings.TrimPrefix(rest, ",")
	}
	return result
}

// called checks that each listed tool was called.
func (r *reference) called(t *testing.T, lists map[string]string) {
	t.Helper()
	n := 0
	for name := range lists {
		if own, ok := strings.CutPrefix(name, "tools "); ok {
			n++
			if !slices.ContainsFunc(slices.Concat(r.tools, r.asking), func(s step) bool { return s.what == own }) {
				t.Errorf("%s has a tool %s, which no step calls", r.name, own)
			}
		}
	}
	if n == 0 {
		t.Errorf("%s has no tools", r.name)
	}
}

// heard is all that a client got from a server.
type heard struct {
	about   json.RawMessage
	lists   map[string]string
	answers []string
	asked   []string
}

// ask makes all requests to a server, and returns what the client got.
func (r *reference) ask(t *testing.T, p *place, c *asker) (x heard) {
	t.Helper()
	p.fresh()
	if c.root = p.project; c.about == nil {
		c.meet()
	}
	x.about, x.lists = c.about, c.lists()
	x.answers = c.answers(r)
	for _, method := range c.asked {
		if method != mcp.RootsList { // servers choose the time of this one themselves
			x.asked = append(x.asked, method)
		}
	}
	c.asked = nil
	return x
}

// known waits until the server has listed what it offers, as long as that takes: a handshake does not
// wait for a server that is starting, and repeats what the server's last process said. What that offers
// depends on whether its first client is able to answer its requests.
func (r *reference) known(t *testing.T, p *place, able bool) {
	t.Helper()
	first := (&asker{agent: p.agent("--server", r.name), able: able, root: p.project}).meet()
	waitFor(t, r.name+" to be known", func() bool { return len(first.lists()) > 0 })
	first.leave()
}

// directly returns what a client of the legacy era gets without holdline.
func (r *reference) directly(t *testing.T, p *place, able bool) heard {
	t.Helper()
	c := &asker{agent: p.agentOf(r.direct(t, p)), able: able}
	x := r.ask(t, p, c)
	r.called(t, x.lists)
	c.leave()
	return x
}

// like compares what came through holdline with what came without it. If all is true, the
// session has other servers, which have resources, too.
func (got *heard) like(t *testing.T, want *heard, all bool) {
	t.Helper()
	for name, listing := range got.lists {
		of, _, _ := strings.Cut(name, " ")
		if own := want.lists[name]; listing != own && (own != "" || !all || of == "tools" || of == "prompts") {
			t.Errorf("%s is listed as %s, by itself as %q", name, listing, own)
		}
	}
	for name := range want.lists {
		if got.lists[name] == "" {
			t.Errorf("%s is not listed", name)
		}
	}
	for i := range max(len(got.answers), len(want.answers)) {
		g, w := "nothing", "nothing"
		if i < len(got.answers) {
			g = got.answers[i]
		}
		if i < len(want.answers) {
			w = want.answers[i]
		}
		if g != w {
			t.Errorf("through holdline:\n%s\nwithout it:\n%s", clip(g), clip(w))
		}
	}
	if !slices.Equal(got.asked, want.asked) {
		t.Errorf("the client was asked for %q, without holdline for %q", got.asked, want.asked)
	}
}

// introduced compares the server's introduction in a session for that server alone with the
// original one. Tasks, an experiment of one version, are not offered.
func (got *heard) introduced(t *testing.T, want *heard) {
	t.Helper()
	var through, itself map[string]any
	decode(t, string(got.about), &through)
	decode(t, string(want.about), &itself)
	delete(itself["capabilities"].(map[string]any), "tasks")
	if !reflect.DeepEqual(through, itself) {
		t.Errorf("introduced as\n%v, by itself as\n%v", through, itself)
	}
}

// hostReferences returns a place with the reference servers and a daemon.
func hostReferences(t *testing.T) *place {
	t.Helper()
	p := newPlace(t)
	servers := map[string]any{}
	for _, r := range references(p) {
		servers[r.name] = r.entry(t)
	}
	p.configure(servers)
	return p
}

// TestE2EReferenceServers checks that a client gets the same from the reference servers
// with and without holdline, except that names begin with the server's name.
func TestE2EReferenceServers(t *testing.T) {
	t.Parallel()
	p := hostReferences(t)
	p.daemon()
	all := references(p)
	for _, r := range all {
		r.known(t, p, true)
	}
	c := &asker{agent: p.agent(), able: true}
	for _, r := range all {
		t.Run(r.name, func(t *testing.T) {
			c.t = t
			want := r.directly(t, p, true)
			c.prefix = r.name + "__"
			got := r.ask(t, p, c)
			got.like(t, &want, true)
		})
	}
	c.t = t
	c.rest()
}

// TestE2EReferenceServersAlone checks the same for sessions of a single server, which have
// its own names.
func TestE2EReferenceServersAlone(t *testing.T) {
	t.Parallel()
	p := hostReferences(t)
	p.daemon()
	for _, r := range references(p) {
		t.Run(r.name, func(t *testing.T) {
			want := r.directly(t, p, true)
			r.known(t, p, true)
			c := &asker{agent: p.agent("--server", r.name), able: true}
			got := r.ask(t, p, c)
			got.like(t, &want, false)
			got.introduced(t, &want)
			c.rest()
		})
	}
}

// TestE2EReferenceServersModern checks the same for modern clients of these legacy servers.
func TestE2EReferenceServersModern(t *testing.T) {
	t.Parallel()
	p := hostReferences(t)
	p.daemon()
	for _, r := range references(p) {
		t.Run(r.name, func(t *testing.T) {
			want := r.directly(t, p, false)
			r.known(t, p, false)
			c := &asker{agent: p.agent("--server", r.name), modern: true}
			got := r.ask(t, p, c)
			got.like(t, &want, false)
			c.rest()
		})
	}
}

// TestE2EReferenceServersOutlive checks that a server still has what was in its memory
// after the daemon was killed, because its process lives on.
func TestE2EReferenceServersOutlive(t *testing.T) {
	t.Parallel()
	p := hostReferences(t)
	p.fresh()
	d := p.daemon()
	c := (&asker{agent: p.agent(), able: true, root: p.project}).meet()
	call := func(tool, args string) string {
		t.Helper()
		result, failure := c.result(mcp.ToolsCall, map[string]any{"name": tool, "arguments": json.RawMessage(args)})
		if failure != nil {
			t.Errorf("%s: %s", tool, failure)
		}
		return string(result)
	}
	think := func(n int) {
		t.Helper()
		got := call("sequential-thinking__sequentialthinking",
			fmt.Sprintf(`{"thought":"t","nextThoughtNeeded":true,"thoughtNumber":%d,"totalThoughts":9}`, n))
		if want := fmt.Sprintf(`"thoughtHistoryLength":%d}`, n); !strings.Contains(got, want) {
			t.Errorf("thought %d: %s", n, got)
		}
	}
	call("memory__create_entities", `{"entities":[{"name":"Ann","entityType":"person","observations":["tall"]}]}`)
	think(1)
	memory := p.untilReady("memory")
	kill9(t, d.Process.Pid)
	p.daemon()
	if got := call("memory__read_graph", `{}`); !strings.Contains(got,
		`"entities":[{"name":"Ann","entityType":"person","observations":["tall"]}]`) {
		t.Errorf("the graph is %s", got)
	}
	think(2)
	if now := p.untilReady("memory"); now != memory {
		t.Errorf("process %d became %d", memory, now)
	}
	c.rest()
}

// TestE2EReferenceServersLog checks that a server's log messages reach the client that has
// set a level.
func TestE2EReferenceServersLog(t *testing.T) {
	t.Parallel()
	p := hostReferences(t)
	p.daemon()
	c := (&asker{agent: p.agent("--server", "everything"), able: true, root: p.project}).meet()
	if _, failure := c.result(mcp.SetLevel, map[string]any{"level": "debug"}); failure != nil {
		t.Fatalf("%s", failure)
	}
	for range 2 { // on, with a message at once, and off again
		if _, failure := c.result(mcp.ToolsCall, map[string]any{"name": "toggle-simulated-logging"}); failure != nil {
			t.Fatalf("%s", failure)
		}
	}
	c.untilTold(`"method":"notifications/message","params":\{"level":"[a-z]+","data":"[A-Z][a-z]+[- ]level[- ]message"`)
	c.rest()
}

// TestE2EReferenceServersSubscribed checks that a change of a resource reaches the client
// that has subscribed to it, whoever made the change and whichever daemon serves.
func TestE2EReferenceServersSubscribed(t *testing.T) {
	t.Parallel()
	p := hostReferences(t)
	p.fresh()
	d := p.daemon()
	one := (&asker{agent: p.agent("--server", "memory")}).meet()
	other := (&asker{agent: p.agent("--server", "memory")}).meet()
	if _, failure := one.result(mcp.Subscribe, map[string]any{"uri": "memory://knowledge-graph"}); failure != nil {
		t.Fatalf("%s", failure)
	}
	kill9(t, d.Process.Pid)
	p.daemon()
	if _, failure := other.result(mcp.ToolsCall, map[string]any{"name": "create_entities", "arguments": map[string]any{
		"entities": []any{map[string]any{"name": "Ann", "entityType": "person", "observations": []string{}}},
	}}); failure != nil {
		t.Fatalf("%s", failure)
	}
	one.untilTold(`"method":"notifications/resources/updated","params":\{"uri":"memory://knowledge-graph"`)
	if other.result(mcp.Ping, map[string]any{}); len(other.notes) != 0 {
		t.Errorf("who has not subscribed is told %q", other.notes)
	}
	one.rest()
	other.rest()
}

// untilTold waits for a notification that matches.
func (c *asker) untilTold(what string) {
	c.t.Helper()
	match := regexp.MustCompile(what).MatchString
	for deadline := time.Now().Add(waitLimit); !slices.ContainsFunc(c.notes, match); time.Sleep(10 * time.Millisecond) {
		if c.result(mcp.Ping, map[string]any{}); time.Now().After(deadline) {
			c.t.Fatalf("waited for %s, and was told %q", what, c.notes)
		}
	}
}
