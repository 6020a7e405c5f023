package contrib_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"holdline/cmd/holdline/cmdenv"
	"holdline/daemon/config"
	"holdline/daemon/consult/answer"
)

// foreignNames are names with an underscore that belong to other programs or to MCP.
var foreignNames = []string{"list_changed", "github_create_issue", "ledger_record"}

var (
	// codePattern finds a fault code or a reason that a page names as one.
	codePattern = regexp.MustCompile("(?:faults?|codes?|reasons?)(?: is)? `([a-z_]+)`")
	namePattern = regexp.MustCompile(`^[a-z]+(_[a-z]+)+$`)
	exitPattern = regexp.MustCompile(`[Ee]xit(?:s with)?(?: codes?)?(?: is)? (\d+)`)
)

// constants returns the values of the constants in a directory whose names or types begin with
// prefix, as they stand in the source: texts without their quotes.
func constants(t *testing.T, dir, prefix string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repo, dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no files: %v", dir, err)
	}
	var found []string
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			typ, _ := spec.Type.(*ast.Ident)
			lit, isLit := spec.Values[0].(*ast.BasicLit)
			if isLit && (strings.HasPrefix(spec.Names[0].Name, prefix) || typ != nil && typ.Name == prefix) {
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					text = lit.Value // a number
				}
				found = append(found, text)
			}
			return true
		})
	}
	if len(found) < 5 {
		t.Fatalf("%s has only the constants %q of %s", dir, found, prefix)
	}
	return found
}

// TestDocs_NamedCodesExist checks that each fault code, reason and exit code that a page names is one of the
// program's, and that the guide and the help explain each exit code.
func TestDocs_NamedCodesExist(t *testing.T) {
	codes := append(constants(t, "protocol/fault", "Code"), constants(t, "protocol/fault", "Reason")...)
	exits, named := constants(t, "cmd/holdline/cmdenv", "Exit"), 0
	for name, p := range readPages(t) {
		text := strings.Join(p.lines, "\n")
		for _, m := range codePattern.FindAllStringSubmatch(strings.ReplaceAll(text, "\n", " "), -1) {
			if named++; !slices.Contains(codes, m[1]) {
				t.Errorf("%s: there is no fault code or reason %s", name, m[1])
			}
		}
		for _, m := range exitPattern.FindAllStringSubmatch(text, -1) {
			if named++; !slices.Contains(exits, m[1]) && name != "CHANGELOG.md" {
				t.Errorf("%s: there is no exit code %s (%s)", name, m[1], m[0])
			}
		}
	}
	if named < 15 {
		t.Errorf("found only %d codes in the pages", named)
	}
	list := fmt.Sprintf("%d done, %d failed, %d usage, %d no daemon, %d line lost",
		cmdenv.ExitOK, cmdenv.ExitFailure, cmdenv.ExitUsage, cmdenv.ExitNoDaemon, cmdenv.ExitLost)
	if guide := readText(t, "contrib/doc/guide.md"); !strings.Contains(guide, list) ||
		!strings.Contains(commandTree().Long, list) || len(exits) != strings.Count(list, ",")+1 {
		t.Errorf("the guide and holdline --help do not both have: %s", list)
	}
}

// TestDocs_NamesWithUnderscoreExist checks that each such name in backticks, of a key, a tool, an argument or a
// member of JSON, stands in the source.
func TestDocs_NamesWithUnderscoreExist(t *testing.T) {
	source := programSource(t)
	for name, p := range readPages(t) {
		for _, n := range slices.Sorted(maps.Keys(p.spans)) {
			for _, span := range p.spans[n] {
				if namePattern.MatchString(span) && !slices.Contains(foreignNames, span) &&
					!strings.Contains(source, `"`+span) && !strings.Contains(source, "`"+span) {
					t.Errorf("%s:%d: nothing has the name %s", name, n, span)
				}
			}
		}
	}
}

// programSource returns the text of all Go files of the program.
func programSource(t *testing.T) string {
	t.Helper()
	return sourceOf(t, func(name string) bool { return !strings.HasSuffix(name, "_test.go") })
}

// TestDocs_NamedKeysExist checks that each key of the configuration that a page names, and each that it gets or sets by
// a command, is in the reference, which is made from the code.
func TestDocs_NamedKeysExist(t *testing.T) {
	reference, named := readText(t, "contrib/doc/configuration.md"), 0
	var tops []string
	for f := range reflect.TypeFor[config.Config]().Fields() {
		top, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		tops = append(tops, top)
	}
	key := regexp.MustCompile(`^(?:config (?:get|set|unset) |holdline config (?:get|set|unset) )?((?:` +
		strings.Join(tops, "|") + `)(?:\.[\w-]+)+)(?: |$)`)
	// The user's own name stands where the reference has NAME.
	keys := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(reference, -1)
	isKey := func(path string) bool {
		return slices.ContainsFunc(keys, func(k []string) bool {
			pattern := strings.ReplaceAll(regexp.QuoteMeta(k[1]), "NAME", `[\w-]+`)
			if object, _, ok := strings.Cut(pattern, `[\w-]+`); ok { // `mcpServers.github` as a whole
				pattern += "|" + object + `[\w-]+`
			}
			return regexp.MustCompile("^(" + pattern + ")$").MatchString(path)
		})
	}
	for name, p := range readPages(t) {
		for n, text := range p.code() {
			if m := key.FindStringSubmatch(text); m != nil && filepath.Ext(text) != ".jsonl" {
				if named++; !isKey(m[1]) {
					t.Errorf("%s:%d: the configuration has no key %s", name, n, m[1])
				}
			}
		}
	}
	if named < 30 {
		t.Errorf("found only %d keys in the pages", named)
	}
}

// TestDocs_EveryCommandIsOnAPage checks that a page shows each command of the tree, with those below others.
func TestDocs_EveryCommandIsOnAPage(t *testing.T) {
	root, shown := commandTree(), map[string]bool{}
	for name, p := range readPages(t) {
		if name == "CHANGELOG.md" {
			continue
		}
		var last []string // words of the last command in the line, without its own name
		line := 0
		for n, text := range p.code() {
			if n != line {
				line, last = n, nil
			}
			m := commandStart.FindStringSubmatch(text)
			words := commandWords(text)
			if m != nil {
				words = commandWords(m[1])
				last = nil
			} else if last == nil && !slices.Contains(topCommands(root), first(words)) {
				continue
			}
			before := last
			for _, words := range alternatives(words) {
				cmd, _, err := root.Find(slices.Concat(before, words))
				if err != nil || len(strings.Fields(cmd.CommandPath())) <= len(before)+1 {
					cmd, _, err = root.Find(words) // `env unset` behind `holdline env`
				}
				if err != nil {
					continue
				}
				for c := cmd; c != nil; c = c.Parent() {
					shown[c.CommandPath()] = true
				}
				if m != nil && cmd != root {
					path := strings.Fields(cmd.CommandPath())[1:]
					last = path[:len(path)-1]
				}
			}
		}
	}
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			if sub.Hidden || slices.Contains(undocumented, sub.Name()) || sub.Parent().Name() == "completion" {
				continue
			}
			if !shown[sub.CommandPath()] {
				t.Errorf("no page shows %s", sub.CommandPath())
			}
			look(sub)
		}
	}
	look(root)
}

// topCommands returns the names of the commands right below root.
func topCommands(root *cobra.Command) (names []string) {
	for _, cmd := range root.Commands() {
		names = append(names, cmd.Name())
	}
	return names
}

// first returns the first word, or "".
func first(words []string) string { return append(slices.Clone(words), "")[0] }

// TestDocs_FieldsOfAnswers checks that the page of consults names each field that detail full adds to an answer.
func TestDocs_FieldsOfAnswers(t *testing.T) {
	page := readPages(t)["contrib/doc/consults.md"]
	named := map[string]bool{}
	for _, spans := range page.spans {
		for _, span := range spans {
			named[span] = true
		}
	}
	for f := range reflect.TypeFor[answer.Details]().Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if key = cmp.Or(key, f.Name); !named[key] {
			t.Errorf("consults.md does not name %s", key)
		}
	}
}
