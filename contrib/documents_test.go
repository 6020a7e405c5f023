package contrib_test

import (
	"encoding/xml"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"holdline/daemon/config"
	"holdline/daemon/tool"
)

// repo is the directory of the repository, seen from this package.
const repo = ".."

// A page is a document for users, in Markdown.
type page struct {
	name  string // path in the repository, such as "contrib/doc/guide.md"
	lines []string
	// spans has what stands in backticks, and snippets what stands in code blocks: by
	// number of the line, from 1.
	spans, snippets map[int][]string
	anchors         map[string]bool // of the headings, as GitHub makes them
}

var (
	spanPattern   = regexp.MustCompile("`([^`]+)`")
	notInAnchor   = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	linkPattern   = regexp.MustCompile(`\]\(([^)]+)\)|(?:src|srcset|href)="([^"]+)"`)
	testPattern   = regexp.MustCompile(`^Test\w+$`)
	targetPattern = regexp.MustCompile(`(?:^|[ (])make ([a-z][a-z0-9-]*)((?: [A-Z]+=\S+)*)`)
	ownVariable   = regexp.MustCompile(`HOLDLINE_[A-Z_0-9]+`)
	pathPattern   = regexp.MustCompile(`^(\./)?(cmd|contrib|daemon|protocol|proxy)/[\w./-]+$`)
)

// readPages returns the README, the changelog and all pages of contrib/doc, by their names.
func readPages(t *testing.T) map[string]*page {
	t.Helper()
	names, err := filepath.Glob("doc/*.md")
	if err != nil || len(names) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	pages := map[string]*page{}
	for _, name := range []string{"README.md", "CHANGELOG.md"} {
		pages[name] = parsePage(name, readText(t, name))
	}
	for _, name := range names {
		name = "contrib/" + filepath.ToSlash(name)
		pages[name] = parsePage(name, readText(t, name))
	}
	return pages
}

// readText returns the text of a file of the repository.
func readText(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(repo, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// parsePage splits a document into its lines, spans, snippets and anchors. A line of a table
// writes \| for |, which is undone.
func parsePage(name, text string) *page {
	p := &page{
		name: name, lines: strings.Split(strings.TrimSuffix(text, "\n"), "\n"),
		spans: map[int][]string{}, snippets: map[int][]string{}, anchors: map[string]bool{},
	}
	fenced := false
	for i, line := range p.lines {
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
		case fenced, strings.HasPrefix(line, "    "):
			p.snippets[i+1] = []string{strings.TrimSpace(line)}
		default:
			line = strings.ReplaceAll(line, `\|`, "|")
			for _, m := range spanPattern.FindAllStringSubmatch(line, -1) {
				p.spans[i+1] = append(p.spans[i+1], m[1])
			}
			if heading := strings.TrimLeft(line, "#"); heading != line {
				heading = strings.TrimSpace(strings.ToLower(strings.ReplaceAll(heading, "`", "")))
				p.anchors[strings.ReplaceAll(notInAnchor.ReplaceAllString(heading, ""), " ", "-")] = true
			}
		}
	}
	return p
}

// TestPagesAreShort checks the lengths that keep the documents readable, and that the README
// leads to each page. The table of all keys, which is generated, does not count.
func TestPagesAreShort(t *testing.T) {
	readme := readText(t, "README.md")
	for name, p := range readPages(t) {
		most := 299
		if name == "README.md" {
			most = 170
		}
		written := len(p.lines)
		if i := slices.Index(p.lines, "## All keys"); i >= 0 {
			written = i
		}
		if written > most {
			t.Errorf("%s has %d lines before any generated table of keys, want at most %d", name, written, most)
		}
		if name != "README.md" && !strings.Contains(readme, "("+name+")") {
			t.Errorf("README.md does not link to %s", name)
		}
	}
}

// TestTablesHaveHeads checks that each table begins with a head: GitHub shows one without as text.
func TestTablesHaveHeads(t *testing.T) {
	for name, p := range readPages(t) {
		for i, line := range p.lines {
			begins := strings.HasPrefix(line, "|") && (i == 0 || !strings.HasPrefix(p.lines[i-1], "|"))
			if begins && (i+1 == len(p.lines) || !strings.HasPrefix(p.lines[i+1], "|---")) {
				t.Errorf("%s:%d: the table has no head", name, i+1)
			}
		}
	}
}

// TestLinksLeadSomewhere checks that each relative link of the documents leads to a file, and
// each anchor to a heading.
func TestLinksLeadSomewhere(t *testing.T) {
	pages := readPages(t)
	for name, p := range pages {
		for i, line := range p.lines {
			for _, m := range linkPattern.FindAllStringSubmatch(line, -1) {
				link := m[1] + m[2]
				if strings.Contains(link, "://") {
					continue
				}
				file, anchor, hasAnchor := strings.Cut(link, "#")
				target := path.Join(path.Dir(name), file)
				if file == "" {
					target = name
				}
				if _, err := os.Stat(filepath.Join(repo, target)); err != nil {
					t.Errorf("%s:%d: the link %s leads to no file", name, i+1, link)
				} else if hasAnchor && (pages[target] == nil || !pages[target].anchors[anchor]) {
					t.Errorf("%s:%d: the link %s leads to no heading", name, i+1, link)
				}
			}
		}
	}
}

// TestNamedThingsExist checks that what the documents name exists: make's targets and
// variables, paths of the repository, and variables of Holdline.
func TestNamedThingsExist(t *testing.T) {
	pages, makefile := readPages(t), readText(t, "Makefile")
	source := allSource(t)
	for name, p := range pages {
		for n, text := range p.code() {
			for _, m := range targetPattern.FindAllStringSubmatch(text, -1) {
				if !strings.Contains(makefile, "\n"+m[1]+":") {
					t.Errorf("%s:%d: make has no target %s", name, n, m[1])
				}
				for set := range strings.FieldsSeq(m[2]) {
					variable, _, _ := strings.Cut(set, "=")
					if !strings.Contains(makefile, "$("+variable+")") {
						t.Errorf("%s:%d: make has no variable %s", name, n, variable)
					}
				}
			}
			for _, variable := range ownVariable.FindAllString(text, -1) {
				if !strings.Contains(source, variable) {
					t.Errorf("%s:%d: no source knows the variable %s", name, n, variable)
				}
			}
			if pathPattern.MatchString(text) {
				if _, err := os.Stat(filepath.Join(repo, text)); err != nil {
					t.Errorf("%s:%d: there is no %s", name, n, text)
				}
			}
		}
	}
}

// code returns an iterator over all texts in backticks and code blocks, with the numbers of
// their lines.
func (p *page) code() func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		for _, texts := range []map[int][]string{p.spans, p.snippets} {
			for _, n := range slices.Sorted(maps.Keys(texts)) {
				for _, text := range texts[n] {
					if !yield(n, text) {
						return
					}
				}
			}
		}
	}
}

// allSource returns the text of all Go files of the repository.
func allSource(t *testing.T) string {
	t.Helper()
	return sourceOf(t, func(string) bool { return true })
}

// sourceOf returns the text of the Go files of the repository that wanted takes.
func sourceOf(t *testing.T, wanted func(name string) bool) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range []string{"cmd", "daemon", "protocol", "proxy"} {
		err := filepath.WalkDir(filepath.Join(repo, dir), func(name string, _ os.DirEntry, err error) error {
			if err != nil || filepath.Ext(name) != ".go" || !wanted(name) {
				return err
			}
			b, err := os.ReadFile(name)
			all.Write(b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

// TestGuaranteesNameTheirTests checks that each row of the guarantees names tests that exist, in
// the package that the row names or else in cmd/e2e.
func TestGuaranteesNameTheirTests(t *testing.T) {
	rows := 0
	for i, line := range readPages(t)["contrib/doc/guarantees.md"].lines {
		cells := strings.Split(line, " | ")
		if len(cells) != 3 || strings.HasPrefix(line, "| what happens") {
			continue
		}
		rows++
		named := 0
		for group := range strings.SplitSeq(cells[2], "; ") {
			dirs := []string{"cmd/e2e"}
			before, after, ok := strings.Cut(group, "`: ")
			if ok {
				dirs, group = nil, after
				for _, m := range spanPattern.FindAllStringSubmatch(before+"`", -1) {
					dirs = append(dirs, m[1])
				}
			}
			for _, m := range spanPattern.FindAllStringSubmatch(group, -1) {
				if !testPattern.MatchString(m[1]) {
					continue
				}
				named++
				for _, dir := range dirs {
					if !hasTest(t, dir, m[1]) {
						t.Errorf("guarantees.md:%d: package %s has no test %s", i+1, dir, m[1])
					}
				}
			}
		}
		if named == 0 {
			t.Errorf("guarantees.md:%d: the row names no test", i+1)
		}
	}
	if rows < 30 {
		t.Errorf("guarantees.md has %d rows, want all guarantees", rows)
	}
}

// hasTest reports whether a package has a test of that name.
func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repo, dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		b, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(b), "\nfunc "+name+"(")
	})
}

// TestExampleConfigurationIsValid checks that the example in the page of the configuration can
// be used as it is.
func TestExampleConfigurationIsValid(t *testing.T) {
	_, text, ok := strings.Cut(readText(t, "contrib/doc/configuration.md"), "```jsonc\n")
	text, _, closed := strings.Cut(text, "\n```")
	if !ok || !closed {
		t.Fatal("the page has no example")
	}
	if _, err := config.Parse("configuration.md", []byte(text)); err != nil {
		t.Error(err)
	}
}

// TestGuideListsOwnTools checks that the guide has a row for each of Holdline's own tools.
func TestGuideListsOwnTools(t *testing.T) {
	guide := readText(t, "contrib/doc/guide.md")
	for _, name := range tool.OwnNames() {
		if !strings.Contains(guide, "\n| `"+name+"` |") {
			t.Errorf("guide.md has no row for the tool %s", name)
		}
	}
}

// TestPicturesAreSmall checks that the pictures are well-formed and load fast, and that the
// recording of the demo tells the whole story.
func TestPicturesAreSmall(t *testing.T) {
	for _, name := range []string{"contrib/doc/parts.svg", "contrib/doc/demo.svg"} {
		text := readText(t, name)
		if len(text) > 200<<10 {
			t.Errorf("%s has %d bytes, want at most 200 KiB", name, len(text))
		}
		if err := xml.Unmarshal([]byte(text), new(struct{ XMLName xml.Name })); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(text, "<script") || strings.Contains(text, "href=") {
			t.Errorf("%s needs a script or another file", name)
		}
	}
	story := readText(t, "contrib/doc/demo.svg")
	for _, part := range []string{
		">$ make demo", "kill -9", "has adopted", "gets its answer, once", "has restarted it", "nothing is left",
	} {
		_, after, found := strings.Cut(story, part)
		if !found {
			t.Errorf("demo.svg does not show %q behind what it has to show before; run make picture", part)
		}
		story = after
	}
}
