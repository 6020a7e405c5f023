package e2e

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// layerMap is the map of the program: a package imports packages of lower
// layers only, never of its own. What it needs from the side or from above it
// declares as a small interface or func, which package daemon fills in.
//
// A line of the map is the layer, the package, and perhaps a remark.
const layerMap = `
13 cmd/demo
13 cmd/dist
13 cmd/e2e (tests only)
13 cmd/e2e/floor (for benchmarks)
13 cmd/holdline
13 cmd/picture
13 cmd/holdline-stdio
13 cmd/holdline-top
9 cmd/holdline/top
12 cmd/holdline/cli
11 cmd/holdline/configcmd
11 cmd/holdline/consultcmd
11 cmd/holdline/daemoncmd
11 cmd/holdline/guestcmd
11 cmd/holdline/farside
11 cmd/holdline/hostscmd
10 cmd/holdline/envcmd
11 cmd/holdline/metricscmd
11 cmd/holdline/serverscmd
11 cmd/holdline/setupcmd
8 cmd/holdline/stdio
9 cmd/holdline/small
10 cmd/holdline/direct
9 cmd/holdline/attach
1 cmd/holdline/early
0 cmd/holdline/pair
0 cmd/holdline/project
8 cmd/holdline/editor
0 cmd/holdline/screen
7 cmd/holdline/starter
7 cmd/holdline/console
8 cmd/holdline/glance
7 cmd/holdline/doctor
6 cmd/holdline/cmdenv
4 cmd/holdline/clients
6 cmd/holdline/importer
5 cmd/holdline/importer/variables
8 cmd/holdline/planview
5 cmd/holdline/codextest (for tests)
8 cmd/holdline/install
5 cmd/holdline/metricstest (for tests)
8 cmd/holdline/trial
5 cmd/holdline/ttytest (for tests)
10 daemon
9 daemon/commands
5 daemon/adapter/engine/acp/acptest (for tests)
5 daemon/adapter/engine/claude/claudetest (for tests and the demo)
5 daemon/worker/workertest (for tests)
4 daemon/place
4 daemon/guests
4 daemon/launch
4 daemon/sandbox/writetest (for tests)
5 daemon/session
2 daemon/session/outbox
2 daemon/session/peer
0 daemon/session/crew
2 daemon/session/age
2 daemon/session/executor
1 daemon/session/flight
3 daemon/session/link
3 daemon/session/profile
2 daemon/session/reply
0 daemon/session/agents
4 daemon/session/held
2 daemon/session/listen
2 daemon/session/returning
2 daemon/tasks
0 daemon/hosted/sight
0 daemon/config/foreign
0 daemon/waiting
1 daemon/hosted/verdict
3 daemon/hosted/entry
7 daemon/hosted/signin
4 daemon/hosted/files
5 daemon/hosted/handshake
2 daemon/hosted/question
3 daemon/hosted/background
3 daemon/hosted/records
3 daemon/hosted/detached
6 daemon/hosted/serverlog
2 daemon/hosted/group
3 daemon/hosted/output
4 daemon/hosted/earlier
6 daemon/hosted/startup
0 daemon/hosted/stage
0 daemon/hosted/hang
5 daemon/hosted/upstream
5 daemon/hosted/asklogin
6 daemon/hosted/dispatch
7 daemon/hosted/catalog
6 daemon/hosted/relist
4 daemon/dialect
7 daemon/consult
5 daemon/hosted/private
8 daemon/hosted
3 daemon/listener
3 daemon/listing
3 daemon/rollout
3 daemon/service
4 daemon/worker
3 daemon/worker/detach
3 daemon/worker/gate
3 daemon/worker/spare
3 proxy
2 proxy/stream
2 daemon/adapter/engine/acp
2 daemon/adapter/engine/claude
2 daemon/adapter/engine/codex
1 daemon/adapter/engine/messages
2 daemon/adapter/engine/form
4 daemon/consult/answer
2 daemon/consult/budget
3 daemon/consult/jobdir
2 daemon/consult/material
2 daemon/consult/steps
4 daemon/consult/request
3 daemon/adapter/engines
3 daemon/adapter/engine/runner
2 daemon/adapter/remote
1 daemon/login/assertion
2 daemon/login
3 daemon/login/flow
3 daemon/login/logintest (for tests)
2 daemon/policy
0 daemon/logfile
2 daemon/spawn
3 daemon/spawn/execstep
3 daemon/supervisor
1 daemon/supervisor/near
2 daemon/supervisor/workdirs
1 daemon/supervisor/far
1 daemon/supervisor/finding
2 daemon/configfile
3 daemon/userenv
2 daemon/envfile
2 daemon/heap
1 daemon/adapter/engine
1 daemon/leaf
1 daemon/config
2 daemon/config/edit
0 daemon/config/expand
0 daemon/config/glob
0 daemon/config/hostname
2 daemon/config/resolve
2 daemon/servertable
1 daemon/gitguard
1 daemon/program
1 daemon/sandbox
1 daemon/calls
0 daemon/statedir
0 daemon/footprint
1 daemon/limits
1 daemon/telemetry
1 daemon/events
1 daemon/notify
1 daemon/tool
0 protocol/control
0 protocol/farwire
-1 protocol/process
0 protocol/workerwire
0 contrib
0 daemon/authorities
0 daemon/clienttable
0 daemon/command
0 daemon/filewatch
0 daemon/jsonedit
0 daemon/networds
0 daemon/plural
-1 daemon/lazyregexp
0 daemon/redact
0 daemon/sendonce
0 daemon/shellword
0 daemon/spelling
0 daemon/telling
1 daemon/trouble
2 daemon/lines
2 daemon/masked
-2 protocol
0 protocol/mcp
-1 protocol/rawio
-1 protocol/bulk
0 protocol/socket
1 protocol/socket/sockettest
-3 protocol/lockcheck (below all, which hold locks and open files)
0 protocol/lockcheck/lockchecktest
-1 protocol/programtest
-1 protocol/ownfile/ownfiletest
-2 protocol/bootclock (below all, which read the time)
-1 protocol/fault
-3 protocol/faultpoint (below all, which all pass through points)
-3 protocol/jsonrpc
-4 protocol/idlemem
-2 protocol/ownfile (below all, which open files)
-1 protocol/project
`

// readLayers reads [layerMap]. The text is no Go map so that two branches that add a package
// each do not conflict over its columns.
func readLayers() map[string]int {
	layers := map[string]int{}
	for line := range strings.Lines(strings.TrimSpace(layerMap)) {
		fields := strings.Fields(line)
		layer, err := strconv.Atoi(fields[0])
		if err != nil {
			panic(err) // the text is above
		}
		layers[fields[1]] = layer
	}
	return layers
}

// TestImportMap holds every package to its layer, for both systems, since
// files may differ. Imports of tests are free.
func TestImportMap(t *testing.T) {
	const module = "holdline/"
	layers := readLayers()
	for _, system := range []string{"linux", "darwin"} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-e",
			"-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, module+"...")
		cmd.Env = append(cmd.Environ(), "GOOS="+system, "CGO_ENABLED=0")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		if len(out) == 0 {
			t.Fatal("go list names no package")
		}
		for line := range strings.Lines(string(out)) {
			fields := strings.Fields(line)
			pkg := strings.TrimPrefix(fields[0], module)
			layer, ok := layers[pkg]
			if !ok {
				t.Errorf("package %s is not on the map", pkg)
				continue
			}
			for _, imp := range fields[1:] {
				imp, ours := strings.CutPrefix(imp, module)
				if !ours {
					continue
				}
				if below, known := layers[imp]; known && below >= layer {
					t.Errorf("%s (layer %d) imports %s (layer %d) on %s", pkg, layer, imp, below, system)
				}
			}
		}
	}
}

// TestConsultKnowsNoWorkers checks that package consult and its parts leave workers to the
// host of private calls: only the verdict over a job's directory asks what a worker left. Nor
// is there a checkpoint in the daemon: how far a run is, its engine process alone keeps.
func TestConsultKnowsNoWorkers(t *testing.T) {
	root := filepath.Join("..", "..", "daemon")
	verdict := filepath.Join(root, "consult", "jobdir", "verdict.go")
	asks := false
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if bytes.Contains(b, []byte("Checkpoint")) {
			t.Errorf("%s speaks of a checkpoint", path)
		}
		if strings.HasPrefix(path, filepath.Join(root, "consult")+string(filepath.Separator)) && strings.HasSuffix(path, ".go") &&
			!strings.HasSuffix(path, "_test.go") && bytes.Contains(b, []byte(`"holdline/daemon/supervisor`)) {
			asks = true
			if path != verdict {
				t.Errorf("%s imports supervisor or a part of it, which only %s may", path, verdict)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !asks {
		t.Errorf("%s does not import supervisor: this test looks in the wrong place", verdict)
	}
}

// TestLayersOfParts keeps test support out of the program.
func TestLayersOfParts(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-e", "-deps", "holdline/cmd/holdline").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for dep := range strings.FieldsSeq(string(out)) {
		if strings.HasSuffix(dep, "test") && strings.HasPrefix(dep, "holdline/") {
			t.Errorf("the program links %s, which is for tests", dep)
		}
	}
}

// TestSmallProgram holds what is linked into holdline-stdio, of which many run: each package
// that initialises something takes memory in every one of them. The lists have all packages
// that are not of the standard library, and those of the standard library that must stay out.
func TestSmallProgram(t *testing.T) {
	want := []string{
		"golang.org/x/sys/unix", "holdline/cmd/holdline-stdio", "holdline/cmd/holdline/cmdenv",
		"holdline/cmd/holdline/pair", "holdline/cmd/holdline/screen",
		"holdline/cmd/holdline/small", "holdline/cmd/holdline/starter", "holdline/cmd/holdline/stdio",
		"holdline/daemon/logfile", "holdline/daemon/shellword", "holdline/daemon/spawn", "holdline/daemon/spelling",
		"holdline/daemon/statedir",
		"holdline/daemon/waiting", "holdline/daemon/worker", "holdline/daemon/worker/detach",
		"holdline/daemon/worker/gate", "holdline/daemon/worker/spare",
		"holdline/protocol", "holdline/protocol/bootclock", "holdline/protocol/bulk", "holdline/protocol/control",
		"holdline/protocol/fault", "holdline/protocol/faultpoint", "holdline/protocol/idlemem", "holdline/protocol/jsonrpc",
		"holdline/protocol/lockcheck", "holdline/protocol/mcp", "holdline/protocol/ownfile", "holdline/protocol/process",
		"holdline/protocol/project", "holdline/protocol/rawio", "holdline/protocol/socket", "holdline/protocol/workerwire", "holdline/proxy",
		"holdline/proxy/stream",
	}
	heavy := []string{
		"net/http", "crypto/tls", "crypto/x509", "regexp", "text/template", "html", "encoding/xml", "encoding/gob",
		"encoding/csv", "compress/flate", "embed", "net/url", "runtime/metrics", "expvar", "testing",
	}
	for _, system := range []string{"linux", "darwin"} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
			"{{.ImportPath}} {{.Standard}}", "holdline/cmd/holdline-stdio")
		cmd.Env = append(cmd.Environ(), "GOOS="+system, "CGO_ENABLED=0")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		var got []string
		for line := range strings.Lines(string(out)) {
			pkg, standard, _ := strings.Cut(strings.TrimSpace(line), " ")
			if standard == "false" {
				got = append(got, pkg)
			}
			if slices.Contains(heavy, pkg) {
				t.Errorf("holdline-stdio links %s on %s", pkg, system)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("holdline-stdio links on %s\n%s\nwant\n%s", system, strings.Join(got, "\n"),
				strings.Join(want, "\n"))
		}
	}
}
