package servertable

import (
	"slices"
	"strings"
	"testing"
	"time"

	"holdline/daemon/config"
)

// TestTable_RowsAreWhole checks that each row says what was tried and when, and that the table is sorted, has each package
// once, and has at least the twenty that setup is to know.
func TestTable_RowsAreWhole(t *testing.T) {
	all := Rows()
	if len(all) < 20 {
		t.Errorf("%d rows", len(all))
	}
	if !slices.IsSortedFunc(all, func(a, b Row) int { return strings.Compare(a.Package, b.Package) }) {
		t.Error("the rows are not sorted by their packages")
	}
	scopes := map[string]int{}
	for i, r := range all {
		if i > 0 && all[i-1].Package == r.Package {
			t.Errorf("%s has two rows", r.Package)
		}
		if _, err := time.Parse(time.DateOnly, r.Tried); err != nil {
			t.Errorf("%s was tried on %q", r.Package, r.Tried)
		}
		if len(strings.Split(r.Version, ".")) != 3 || !likeTried(r.Version, r.Version) {
			t.Errorf("%s has the version %q", r.Package, r.Version)
		}
		scopes[r.Scope()]++
	}
	for _, scope := range []string{config.ScopeShared, config.ScopeProject, config.ScopeSession} {
		if scopes[scope] == 0 {
			t.Errorf("no row has the scope %s", scope)
		}
	}
}

// TestTable_ScopeFollowsFromWhatWasSeen checks that a server is shared only if nothing was seen that ties it to a
// directory or to a client, and that what it keeps of a client counts more than its directory.
func TestTable_ScopeFollowsFromWhatWasSeen(t *testing.T) {
	for _, c := range []struct {
		row  Row
		want string
	}{
		{Row{}, config.ScopeShared},
		{Row{Reads: ".env"}, config.ScopeProject},
		{Row{Roots: true}, config.ScopeProject},
		{Row{Files: true}, config.ScopeProject},
		{Row{Asks: true}, config.ScopeSession},
		{Row{Keeps: "its thoughts", Roots: true, Files: true, Reads: ".env"}, config.ScopeSession},
	} {
		if got := c.row.Scope(); got != c.want {
			t.Errorf("%+v: %s, want %s", c.row, got, c.want)
		}
		if c.row.seen() == "" {
			t.Errorf("%+v: nothing says why", c.row)
		}
	}
}

// TestTable_KnownServers checks the scopes of servers that everybody knows.
func TestTable_KnownServers(t *testing.T) {
	const official = "@modelcontextprotocol/server-"
	for name, want := range map[string]string{
		official + "memory": config.ScopeShared, official + "filesystem": config.ScopeProject,
		official + "sequential-thinking": config.ScopeSession,
	} {
		if r, ok := Find(name); !ok || r.Scope() != want {
			t.Errorf("%s: %v, %s, want %s", name, ok, r.Scope(), want)
		}
	}
	if r, ok := Find("memory"); ok {
		t.Errorf("memory is %+v", r)
	}
}

// TestScope_OnlyWhatIsKnownIsShared checks the scope of an entry: one that differs from what was tried has a process
// for each project, even if its package is known.
func TestScope_OnlyWhatIsKnownIsShared(t *testing.T) {
	const memory = "@modelcontextprotocol/server-memory"
	entry := func(line string) Entry {
		words := strings.Fields(line)
		return Entry{Command: words[0], Args: words[1:]}
	}
	with := func(e Entry, change func(*Entry)) Entry {
		change(&e)
		return e
	}
	npx := entry("npx -y " + memory)
	tried, _ := Find(memory)
	same := func(e *Entry) { e.Version = tried.Version } // as its package.json says
	for name, c := range map[string]struct {
		entry Entry
		want  string
		why   string // a part of it
	}{
		"as tried":              {npx, config.ScopeShared, "tried on"},
		"npx by its path":       {entry("/usr/bin/npx " + memory + "@latest"), config.ScopeShared, "tried on"},
		"npm exec":              {entry("npm exec " + memory), config.ScopeShared, "tried on"},
		"by its address":        {Entry{URL: "https://x/mcp"}, config.ScopeShared, "address"},
		"by a name like it":     {Entry{URL: "https://localhost.example/mcp"}, config.ScopeShared, "address"},
		"on this machine":       {Entry{URL: "http://localhost:8931/mcp"}, config.ScopeProject, "on this machine"},
		"below localhost":       {Entry{URL: "http://ide.LOCALHOST./mcp"}, config.ScopeProject, "on this machine"},
		"of the loopback":       {Entry{URL: "http://127.1.2.3:80/mcp"}, config.ScopeProject, "on this machine"},
		"of IPv6's loopback":    {Entry{URL: "http://[::1]:80/mcp"}, config.ScopeProject, "on this machine"},
		"of any interface":      {Entry{URL: "http://0.0.0.0:80/mcp"}, config.ScopeProject, "on this machine"},
		"of a variable":         {Entry{URL: "http://${HOST}/mcp"}, config.ScopeProject, "not known"},
		"a variable as a whole": {Entry{URL: "${ADDRESS}"}, config.ScopeProject, "not known"},
		"its file":              {with(npx, func(e *Entry) { e.Env = map[string]string{"MEMORY_FILE_PATH": "/m.jsonl"} }), config.ScopeShared, "tried on"},
		"a relative file":       {with(npx, func(e *Entry) { e.Env = map[string]string{"MEMORY_FILE_PATH": "m.jsonl"} }), config.ScopeProject, "MEMORY_FILE_PATH"},
		"a file by a tilde":     {with(npx, func(e *Entry) { e.Env = map[string]string{"MEMORY_FILE_PATH": "~/m.jsonl"} }), config.ScopeProject, "not an absolute path"},
		"a file of a variable":  {with(npx, func(e *Entry) { e.Env = map[string]string{"MEMORY_FILE_PATH": "${ROOT}/m"} }), config.ScopeProject, "MEMORY_FILE_PATH"},
		"a proxy":               {with(npx, func(e *Entry) { e.Env = map[string]string{"HTTPS_PROXY": "x"} }), config.ScopeShared, "tried on"},
		"another variable":      {with(npx, func(e *Entry) { e.Env = map[string]string{"NODE_OPTIONS": "-r ./x"} }), config.ScopeProject, "NODE_OPTIONS"},
		"a directory":           {with(npx, func(e *Entry) { e.Cwd = "/srv" }), config.ScopeProject, "directory"},
		"a path behind it":      {entry("npx -y " + memory + " /srv/x"), config.ScopeProject, "argument 1"},
		"an option behind it":   {entry("npx -y " + memory + " --root=."), config.ScopeProject, "argument 1"},
		"an unknown option":     {entry("npx --registry=http://x " + memory), config.ScopeProject, "command"},
		"another package":       {entry("npx -p x " + memory), config.ScopeProject, "command"},
		"an older major":        {entry("npx -y " + memory + "@0.6.3"), config.ScopeProject, "version"},
		"a newer one started":   {with(npx, func(e *Entry) { e.Version = "2027.1.0" }), config.ScopeProject, "version"},
		"one like it started":   {with(npx, func(e *Entry) { e.Version = "2026.9.1" }), config.ScopeShared, "tried on"},
		"a repository":          {with(entry("npx -y "+memory+"@github:me/memory"), same), config.ScopeProject, "from"},
		"a short repository":    {with(entry("npx -y "+memory+"@me/memory"), same), config.ScopeProject, "from"},
		"a repository by ssh":   {with(entry("npx -y "+memory+"@git+ssh://git@x/memory"), same), config.ScopeProject, "from"},
		"an archive":            {with(entry("npx -y "+memory+"@https://x/memory.tgz"), same), config.ScopeProject, "from"},
		"a file":                {with(entry("npx -y "+memory+"@file:../memory"), same), config.ScopeProject, "from"},
		"an alias":              {with(entry("npx -y "+memory+"@npm:@x/memory@1"), same), config.ScopeProject, "from"},
		"a tag":                 {entry("npx -y " + memory + "@next"), config.ScopeProject, "version"},
		"no launcher":           {entry("node /opt/" + memory + "/index.js"), config.ScopeProject, "command"},
		"a shell":               {entry("sh -c npx"), config.ScopeProject, "command"},
		"uvx":                   {entry("uvx " + memory), config.ScopeProject, "command"},
		"not in the table":      {entry("npx -y no-such-server"), config.ScopeProject, "table"},
		"a directory given":     {entry("npx -y @modelcontextprotocol/server-filesystem /srv"), config.ScopeProject, "tried on"},
		"with state":            {entry("npx -y @modelcontextprotocol/server-sequential-thinking"), config.ScopeSession, "in memory"},
	} {
		if got, why := Choose(c.entry); got != c.want || !strings.Contains(why, c.why) {
			t.Errorf("%s: %s, %s; want %s, %s", name, got, why, c.want, c.why)
		}
	}
}

// TestScope_ShowsNoValue checks that the reason for a scope shows neither arguments nor values of variables.
func TestScope_ShowsNoValue(t *testing.T) {
	e := Entry{
		Command: "npx", Args: []string{"-y", "@modelcontextprotocol/server-memory", "SECRET1"}, Env: map[string]string{"X": "SECRET2"},
	}
	_, one := Choose(e)
	e.Args = e.Args[:2]
	_, other := Choose(e)
	_, third := Choose(Entry{Command: "npx", Args: []string{"SECRET3"}})
	for _, why := range []string{one, other, third} {
		if strings.Contains(why, "SECRET") {
			t.Errorf("it shows %s", why)
		}
	}
}

// TestVersions checks which versions are like the one that was tried.
func TestVersions(t *testing.T) {
	for version, want := range map[string]bool{
		"": true, "latest": true, "1.4.2": true, "1.9.0": true, "1": true, "1.x": true, "^1.2.0": true, "~1.4": true,
		"2": false, "2.0.0": false, "0.9.0": false, "next": false, "1.4.2-beta.1": false, ">=1": false, "1 || 2": false, "*": false,
		"^2": false, "1.4.2.1": false, "v1": false,
	} {
		if got := likeTried(version, "1.4.2"); got != want {
			t.Errorf("%s is like 1.4.2: %v, want %v", version, got, want)
		}
	}
	for version, want := range map[string]bool{"0.6.2": true, "0.6.9": true, "^0.6": true, "0.7.0": false, "0": false, "0.x": false, "1.0.0": false} {
		if got := likeTried(version, "0.6.2"); got != want {
			t.Errorf("%s is like 0.6.2: %v, want %v", version, got, want)
		}
	}
	for spec, want := range map[string][2]string{
		"a": {"a", ""}, "a@1": {"a", "1"}, "@s/a": {"@s/a", ""}, "@s/a@1.2.3": {"@s/a", "1.2.3"}, "a@": {"a", ""},
		"@s/a@npm:@x/b@1": {"@s/a", "npm:@x/b@1"}, "": {"", ""}, "@s": {"@s", ""},
	} {
		if name, version := splitSpec(spec); name != want[0] || version != want[1] {
			t.Errorf("%s: %s and %s, want %q", spec, name, version, want)
		}
	}
}
