package e2e

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// walkPoints are the points that a call passes on its way from the proxy's stdin to the
// child's and back, in order. Each stands where one of the goroutines works that
// daemon/doc.go counts.
var walkPoints = []string{
	"proxy.read", "proxy.forwarded",
	"session.read", "write.recorded", "write.sent",
	"worker.read", "worker.taken", "worker.written",
	"worker.output",
	"attach.received", "hosted.answered", "session.pursued", "session.written",
	"proxy.answered", "proxy.copied",
}

// recorded returns the goroutines that have passed each point since the record was begun, as
// pid and number.
func (p *place) recorded() map[string]string {
	passed := map[string]string{}
	b, _ := os.ReadFile(filepath.Join(p.dir, faultDir, faultRecord))
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && passed[f[2]] == "" {
			passed[f[2]] = f[0] + " " + f[1]
		}
	}
	return passed
}

// stations counts the goroutines that the call passes one after the other, from one of the
// points to another.
func stations(passed map[string]string, from, to string) int {
	n, last := 0, ""
	for _, point := range walkPoints[slices.Index(walkPoints, from) : slices.Index(walkPoints, to)+1] {
		if passed[point] != last {
			n, last = n+1, passed[point]
		}
	}
	return n
}

// TestStations checks that a call on an idle machine passes no more goroutines than
// daemon/doc.go says: ten from the proxy's stdin to the child's and back, with at most three
// hand-offs in the daemon each way.
func TestStations(t *testing.T) {
	t.Parallel()
	p := newPlace(t).faults()
	p.configure(map[string]any{"stray": p.strayEntry(hosting{"scope": "shared"})}).daemon()
	a := p.agent("--no-autostart").shake()
	p.untilReady("stray")
	a.wait(a.call("stray__say", map[string]any{"token": "first"}))
	least := map[string]string{}
	for range 5 { // the machine may be busy during some of them
		if err := os.WriteFile(filepath.Join(p.dir, faultDir, faultRecord), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		a.wait(a.call("stray__say", map[string]any{"token": "again"}))
		var passed map[string]string
		for _, point := range slices.Concat(walkPoints, []string{"session.acked"}) { // that of the call before may come late
			waitFor(t, point, func() bool {
				passed = p.recorded()
				return passed[point] != ""
			})
		}
		first, last := walkPoints[0], walkPoints[len(walkPoints)-1]
		if len(least) == 0 || stations(passed, first, last) < stations(least, first, last) {
			least = passed
		}
	}
	for _, way := range []struct {
		name, from, to string
		most           int
	}{
		{"all", "proxy.read", "proxy.copied", 10},
		{"the daemon's goroutines on the way in", "session.read", "write.sent", 1 + 3},
		{"the daemon's goroutines on the way out", "attach.received", "session.written", 1 + 3},
	} {
		n := stations(least, way.from, way.to)
		t.Logf("%s: %d stations", way.name, n)
		if n > way.most {
			t.Errorf("%s: %d stations, want at most %d: %v", way.name, n, way.most, least)
		}
	}
	goroutines := map[string]bool{}
	for _, point := range walkPoints {
		goroutines[least[point]] = true
	}
	if len(goroutines) > 10 {
		t.Errorf("%d goroutines, want at most 10: %v", len(goroutines), least)
	}
}

// TestWalkIsTrue checks that the walk in daemon/doc.go has ten numbered stations, and that
// each function that it names is in the source.
func TestWalkIsTrue(t *testing.T) {
	doc, err := os.ReadFile("../../daemon/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, walk, _ := strings.Cut(string(doc), "# The walk of a tools/call")
	walk, _, found := strings.Cut(walk, "// # ")
	if !found {
		t.Fatal("daemon/doc.go has no walk")
	}
	var numbers []string
	for _, m := range regexp.MustCompile(`(?m)^//\t *(\d+) (?:proxy|daemon|worker) `).FindAllStringSubmatch(walk, -1) {
		numbers = append(numbers, m[1])
	}
	want := []string{}
	for n := range 10 {
		want = append(want, strconv.Itoa(n+1))
	}
	if !slices.Equal(numbers, want) {
		t.Errorf("the stations are numbered %v, want 1 to 10", numbers)
	}
	declared := declarations(t)
	names := 0
	for _, name := range regexp.MustCompile(`[A-Za-z]+(?:\.[A-Za-z]+)*`).FindAllString(walk, -1) {
		if !strings.Contains(name, ".") && strings.ToLower(name[1:]) == name[1:] || strings.HasPrefix(name, "Test") {
			continue // a word, or a test
		}
		names++
		if !declared[name] {
			t.Errorf("the walk names %s, which is not in the source", name)
		}
	}
	if names < 20 {
		t.Errorf("the walk names %d functions only", names)
	}
}

// declarations returns the functions and methods of the packages through which a call goes, each
// by all names that the walk may give it: with and without its package and its receiver's type.
func declarations(t *testing.T) map[string]bool {
	t.Helper()
	declared := map[string]bool{}
	sources(t, func(path string, text []byte) {
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			owners := []string{file.Name.Name}
			if f.Recv != nil {
				at := f.Recv.List[0].Type
				if star, ok := at.(*ast.StarExpr); ok {
					at = star.X
				}
				owners = append(owners, fmt.Sprint(at), file.Name.Name+"."+fmt.Sprint(at))
			}
			declared[f.Name.Name] = true
			for _, owner := range owners {
				declared[owner+"."+f.Name.Name] = true
			}
		}
	})
	return declared
}
