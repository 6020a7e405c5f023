package policy

import (
	"encoding/json"
	"net/url"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"holdline/daemon/config"
	"holdline/daemon/tool"
)

// TestNormalURI checks the normal form of URIs. "" is none.
func TestNormalURI(t *testing.T) {
	for uri, want := range map[string]string{
		// They are in normal form.
		"file:///secret/k": "file:///secret/k", "mem://one": "mem://one", "mem:one": "mem:one", "db://t/a%2Fb": "db://t/a%2Fb",
		"http://h/a//b?x=1#y": "http://h/a//b?x=1#y", "urn:isbn:1": "urn:isbn:1", "http://h/": "http://h/",
		"file:///C:/x": "file:///C:/x", "http://[::1]:8080/": "http://[::1]:8080/", "xx://H/%C3%A9": "xx://h/%C3%A9",
		"file://share/x": "file://share/x", "note://a/b;c=1,2": "note://a/b;c=1,2", "xx:": "xx:", "xx://": "xx://",
		"file:///a/": "file:///a/", "http://1.2.3.4/": "http://1.2.3.4/",
		// They are not.
		"file:///./secret/k": "file:///secret/k", "file:///pub/../secret/k": "file:///secret/k", "file:////secret/k": "file:///secret/k",
		"file:///secret//k": "file:///secret/k", "file:///secr\tet/k": "file:///secret/k", "file:///secret/k\n": "file:///secret/k",
		"\rfile:///secret/k": "file:///secret/k", " file:///secret/k ": "file:///secret/k", "\x01file:///secret/k": "file:///secret/k",
		"file:///%73ecret/k": "file:///secret/k", "file:///%2e/secret/k": "file:///secret/k", "file:///pub/%2E%2e/secret/k": "file:///secret/k",
		"file:///secret/%zz": "file:///secret/%25zz", "file:///secret/k%": "file:///secret/k%25", `file:///secret\k`: "file:///secret/k",
		`file:\\\secret\k`: "file:///secret/k", "FILE:///secret/k": "file:///secret/k", "file:/secret/k": "file:///secret/k",
		"file:secret/k": "file:///secret/k", "file://localhost/secret/k": "file:///secret/k", "file://LOCALHOST/secret/k": "file:///secret/k",
		"file://local%68ost/secret/k": "file:///secret/k", "file:///é": "file:///%C3%A9", "file:///%c3%a9": "file:///%C3%A9",
		"file:///a b": "file:///a%20b", "file:///C|/x": "file:///C:/x", "file://C:/x": "file:///C:/x", "file:///a/.": "file:///a/",
		"file:///..": "file:///", "file:": "file:///", "file://": "file:///", "file:///~%7Eme": "file:///~~me",
		"HTTP://h": "http://h/", "http:h/x": "http://h/x", "http:/h/x": "http://h/x", "http:///h/x": "http://h/x",
		`http:\\h\x`: "http://h/x", "http://H.Example/x": "http://h.example/x", "http://h:80/": "http://h/", "https://h:443/x": "https://h/x",
		"http://h:/x": "http://h/x", "http://h:080/x": "http://h/x", "http://h:08080/": "http://h:8080/", "http://me@h/": "http://h/",
		"http://me:x@h/": "http://h/", "http://@h/": "http://h/", "http://h./": "http://h/", "http://%68/": "http://h/",
		"http://0x7f.1/": "http://127.0.0.1/", "http://2130706433/": "http://127.0.0.1/", "http://0177.0.0.1/": "http://127.0.0.1/",
		"http://127.1/": "http://127.0.0.1/", "http://[0:0::1]/": "http://[::1]/", "http://h/a/../b": "http://h/b",
		"mem:../x": "mem:x", "xx://h/a|b": "xx://h/a%7Cb", `xx://h/a\b`: "xx://h/a/b", "ws://h:80/": "ws://h/",
		// They have no normal form.
		"": "", "secret/k": "", "/secret/k": "", "//localhost/secret/k": "", `C:\secret\k`: "", "c:/secret/k": "", ":x": "",
		"file:///secret/k%00": "", "file:///secret/k\x00x": "", "file:///%FF": "", "file:///%c0%ae%c0%ae/secret/k": "",
		"file:///\xff": "", "http://exa\u0301mple/": "", "http://ex%C3%A4mple/": "", "http://1.2.3.4.5/": "", "http://256.1.1.1/": "",
		"http:///": "", "http://h:x/": "", "http://h:99999/": "", "http://[::1%25eth0]/": "", "http://h%2f@evil/": "http://evil/",
		"1file:///x": "", "fi le:///x": "", "file%3A///x": "",
	} {
		got := normalURI(uri)
		if got != want {
			t.Errorf("%q: %q, want %q", uri, got, want)
		}
		if again := normalURI(got); again != got {
			t.Errorf("%q: the normal form %q has the normal form %q", uri, got, again)
		}
	}
}

// uriReader resolves a URI to the path of a file, as servers do; "" if it refuses it.
type uriReader struct {
	name string
	path func(uri string) string
}

// uriReaders are readers that need no other program.
var uriReaders = []uriReader{
	{"RFC 3986", func(uri string) string { // appendix B, then 5.2.4
		_, rest, ok := strings.Cut(uri, ":")
		if !ok || !strings.EqualFold(uri[:len(uri)-len(rest)-1], "file") {
			return ""
		}
		rest, _, _ = strings.Cut(rest, "#")
		rest, _, _ = strings.Cut(rest, "?")
		if after, has := strings.CutPrefix(rest, "//"); has {
			host, way, _ := strings.Cut(after, "/")
			if host != "" && !strings.EqualFold(host, "localhost") {
				return ""
			}
			rest = "/" + way
		}
		return path.Clean("/" + unescape(rest))
	}},
	{"Go net/url", func(uri string) string {
		u, err := url.Parse(uri)
		if err != nil || u.Scheme != "file" {
			return ""
		}
		return path.Clean("/" + u.Opaque + u.Path)
	}},
	{"cut at file://", func(uri string) string {
		way, ok := strings.CutPrefix(uri, "file://")
		if !ok {
			return ""
		}
		return path.Clean("/" + strings.TrimPrefix(way, "localhost"))
	}},
	{"WHATWG, in short", func(uri string) string {
		uri = strip(uri)
		scheme, rest, ok := strings.Cut(uri, ":")
		if !ok || !strings.EqualFold(scheme, "file") {
			return ""
		}
		rest, _, _ = strings.Cut(rest, "#")
		rest, _, _ = strings.Cut(rest, "?")
		rest = strings.ReplaceAll(rest, `\`, "/")
		if strings.HasPrefix(rest, "//") && !strings.HasPrefix(rest, "///") {
			host, way, _ := strings.Cut(rest[2:], "/")
			if host = strings.ToLower(unescape(host)); host != "" && host != "localhost" {
				return ""
			}
			rest = way
		}
		return path.Clean("/" + unescape(rest))
	}},
}

// programReaders are the readers of Node and Python. Each reads a list of URIs and prints the list of
// the paths.
var programReaders = []struct {
	name string
	argv []string
}{
	{"Node's URL", []string{"node", "-e", `const {fileURLToPath:f}=require("url");const p=require("path");
let t="";process.stdin.on("data",d=>t+=d).on("end",()=>console.log(JSON.stringify(JSON.parse(t).map(u=>{
try{return p.posix.normalize(f(new URL(u)))}catch{try{const v=new URL(u);return v.protocol=="file:"?p.posix.normalize(decodeURIComponent(v.pathname)):""}catch{return ""}}}))))`}},
	{"Python's urllib", []string{"python3", "-c", `import sys,json,posixpath,urllib.parse as p
def f(u):
    try:
        s=p.urlsplit(u)
        if s.scheme!="file" or s.netloc.lower() not in ("","localhost"): return ""
        return "/"+posixpath.normpath(p.unquote(s.path)).lstrip("/")
    except ValueError: return ""
print(json.dumps([f(u) for u in json.load(sys.stdin)]))`}},
	{"Python's url2pathname", []string{"python3", "-c", `import sys,json,posixpath,urllib.request as r
def f(u):
    u=u.strip()
    if not u.lower().startswith("file:"): return ""
    return "/"+posixpath.normpath(r.url2pathname(u[5:])).lstrip("/")
print(json.dumps([f(u) for u in json.load(sys.stdin)]))`}},
}

// secretSpellings are URIs that at least one reader takes for /secret/k, and some that none does.
func secretSpellings() []string {
	all := []string{
		"file:///secret/k", "file:///./secret/k", "file:///pub/../secret/k", "file:////secret/k", "file://///secret/k",
		"file:///secret//k", "file:///secret/./k", "file:///secret/x/../k", "file:///%2e/secret/k", "file:///pub/%2e%2E/secret/k",
		"file:///pub/.%2e/secret/k", "file:///pub/..%2fsecret/k", "file:///secret%2Fk", "file:///secret%2fk", "file://%2Fsecret%2Fk",
		"file:///%73ecret/k", "file:///secret/%6B", "file:///secret/k%zz", "file:///%zz/../secret/k", "file:///%/../%73ecret/k",
		"file:///sec\tret/k", "file:///sec\nret/k", "file:///sec\rret/k", "\tfile:///secret/k", "fi\nle:///secret/k",
		" file:///secret/k", "file:///secret/k ", "\x00file:///secret/k", "\x1ffile:///secret/k", "file:///secret/k\x00", "file:///secret/k%00",
		`file:///secret\k`, `file:\\\secret\k`, `file:/\/secret/k`, `file:///pub\..\secret\k`, "file:///pub%5C..%5Csecret%5Ck",
		"FILE:///secret/k", "File:///secret/k", "fIlE:/secret/k", "file:/secret/k", "file:secret/k", "file://localhost/secret/k",
		"file://LOCALHOST/secret/k", "file://localhost:/secret/k", "file://local%68ost/secret/k", "file://me@localhost/secret/k",
		"file://127.0.0.1/secret/k", "file:///secret/k#x", "file:///secret/k?x", "file:///secret/k?x#y", "file:///secret/k#/../../pub/a",
		"file:///pub/a?/../../secret/k", "file:///pub/a#/../../secret/k", "file:///secret/k/", "file:///secret/k/.", "file:///pub/../../secret/k",
		"file:/./secret/k", "file:/../secret/k", "file:..//secret/k", "file://./secret/k", "file://../secret/k", "/secret/k", "//localhost/secret/k",
		"//secret/k", "secret/k", `\\localhost\secret\k`, "file:///%2573ecret/k", "file:///%c0%afsecret/k", "file:///C:/../secret/k",
		"file:///C|/../secret/k", "file:////localhost/secret/k", "file:///\u200bsecret/k", "file:///secret/k\u00a0", "file:///\xffsecret/k",
		"file:///secret;x/k", "file:///secret/k;x", "view-source:file:///secret/k", "url:file:///secret/k",
	}
	for c := byte(1); c <= ' '; c++ {
		all = append(all, string(c)+"file:///secret/k", "file:///secret/k"+string(c), "file:///sec"+string(c)+"ret/k", "file:"+string(c)+"///secret/k")
	}
	return all
}

// TestURISpellings_DeniedFileIsNotRead checks that no reader resolves a URI that Holdline takes to a
// file that a rule forbids, whichever spelling it has: the rule is one of a server, an identity, a
// guest or a view, forbids the directory, or allows another one only.
func TestURISpellings_DeniedFileIsNotRead(t *testing.T) {
	spellings := secretSpellings()
	readers := slices.Clone(uriReaders)
	for _, program := range programReaders {
		bin, err := exec.LookPath(program.argv[0])
		if err != nil {
			t.Logf("without %s: %v", program.name, err)
			continue
		}
		cmd := exec.CommandContext(t.Context(), bin, program.argv[1:]...)
		list, _ := json.Marshal(spellings) // strings encode
		cmd.Stdin = strings.NewReader(string(list))
		out, err := cmd.Output()
		var paths []string
		if err == nil {
			err = json.Unmarshal(out, &paths)
		}
		if err != nil || len(paths) != len(spellings) {
			t.Fatalf("%s: %v, %s", program.name, err, out)
		}
		if !slices.Contains(paths, "/secret/k") {
			t.Errorf("%s resolves nothing: %q", program.name, paths)
		}
		read := map[string]string{}
		for i, uri := range spellings {
			read[uri] = paths[i]
		}
		readers = append(readers, uriReader{program.name, func(uri string) string { return read[uri] }})
	}
	allowed := []string{"file:///pub/*"}
	var s config.Server
	s.Holdline.Deny = []string{"file:///secret/*"}
	byServer := &config.Config{Servers: map[string]config.Server{"s": s}}
	s.Holdline.Deny, s.Holdline.Allow = nil, allowed
	allowing := &config.Config{Servers: map[string]config.Server{"s": s}}
	for name, cfg := range map[string]*config.Config{
		"deny of the server": byServer, "allow of the server": allowing,
		"deny of the identity":  {Identities: map[string]config.Identity{"a": {Deny: []string{"s__file:///secret/*"}}}},
		"allow of the identity": {Identities: map[string]config.Identity{"a": {Allow: []string{"s__file:///pub/*"}}}},
		"deny of the view":      {Views: map[string]config.View{"v": {Deny: []string{"file:///secret/*"}}}},
	} {
		r, who := NewRules(cfg), tool.Who{Identity: "a"}
		if strings.HasSuffix(name, "view") {
			who.View = "v"
		}
		takes := func(uri string) bool {
			return r.Check(who, "s", uri) == nil && r.CheckURI(who, "s", uri) == nil
		}
		if !takes("file:///pub/a") || !takes("file:///pub/a%20b") || takes("file:///secret/k") {
			t.Errorf("%s: the control is decided in another way", name)
		}
		for _, uri := range spellings {
			for _, reader := range readers {
				if got := reader.path(uri); (got == "/secret/k" || strings.HasPrefix(got, "/secret/")) && takes(uri) {
					t.Errorf("%s: %q is taken, and %s reads %s", name, uri, reader.name, got)
				}
			}
		}
	}
}

// TestURINotNormal_RefusedOnlyWhereRulesMayDecide checks when a spelling is refused, and that the
// fault names the right one.
func TestURINotNormal_RefusedOnlyWhereRulesMayDecide(t *testing.T) {
	for _, test := range []struct {
		deny    []string
		uri     string
		refused string // by a fault that has this; "" is taken
	}{
		{nil, "FILE:///a b", ""},
		{[]string{"delete_*", "push"}, "FILE:///a b", ""},
		{[]string{"http://*"}, "FILE:///a b", ""},
		{[]string{"file:///secret/*"}, "FILE:///a b", "ask for file:///a%20b"},
		{[]string{"FILE:///secret/*"}, "FILE:///a", "ask for file:///a"},
		{[]string{"*"}, "xx://H/a", "ask for xx://h/a"},
		{[]string{"[ef]*"}, "xx://H/a", "ask for xx://h/a"},
		{[]string{"f*"}, " file:///a", "ask for file:///a"},
		{[]string{"s__file_*"}, "file:/a", "ask for file:///a"},
		{[]string{"s__*"}, "file:/a", "ask for file:///a"},
		{[]string{"file:///x"}, "/etc/x", "has no normal form"},
		{[]string{"file:///x"}, "file:///a%00", "has no normal form"},
		{[]string{"file:///x"}, "file:///a", ""},
		{[]string{"file:///x"}, "mem://Any Thing", ""},
	} {
		var s config.Server
		s.Holdline.Deny = test.deny
		r := NewRules(&config.Config{Servers: map[string]config.Server{"s": s}})
		err := r.CheckURI(tool.Who{Identity: "a"}, "s", test.uri)
		if (err != nil) != (test.refused != "") || err != nil && !strings.Contains(err.Error(), test.refused) {
			t.Errorf("%q, %q: %v, want %q", test.deny, test.uri, err, test.refused)
		}
	}
}

// TestListedURI_TakenIfBothFormsAre checks a URI that its server has listed in another form than the
// normal one.
func TestListedURI_TakenIfBothFormsAre(t *testing.T) {
	for _, test := range []struct {
		allow, deny []string
		uri         string
		want        bool
	}{
		{nil, []string{"file:///secret/*"}, "FILE:///pub/My Notes", true},
		{nil, []string{"file:///secret/*"}, "FILE:///secret/My Notes", false},
		{nil, []string{"FILE:///pub/*"}, "FILE:///pub/x", false},
		{[]string{"FILE:///pub/*"}, nil, "FILE:///pub/x", false},
		{[]string{"FILE:///pub/*", "file:///pub/*"}, nil, "FILE:///pub/x", true},
		{[]string{"file:///pub/*"}, nil, "FILE:///pub/x", false},
		{[]string{"Mem:*"}, nil, "Mem:one", true},
	} {
		var s config.Server
		s.Holdline.Allow, s.Holdline.Deny = test.allow, test.deny
		r := NewRules(&config.Config{Servers: map[string]config.Server{"s": s}})
		if got := r.May(tool.Who{Identity: "a"}, "s", test.uri); got != test.want {
			t.Errorf("allow %q, deny %q, %q: %v", test.allow, test.deny, test.uri, got)
		}
	}
}

// TestFilesInAnotherCase_DeniedWhereTheyAreTheSame checks that a list deny names a file in any case where file
// systems ignore it, and nothing but files.
func TestFilesInAnotherCase_DeniedWhereTheyAreTheSame(t *testing.T) {
	defer func(before bool) { foldsCase = before }(foldsCase)
	var s config.Server
	s.Holdline.Deny = []string{"file:///Users/*/Secret/*", "delete_*"}
	r := NewRules(&config.Config{Servers: map[string]config.Server{"s": s}})
	for _, foldsCase = range []bool{false, true} {
		for name, want := range map[string]bool{
			"file:///Users/a/Secret/k": false, "file:///users/A/SECRET/k": !foldsCase, "file:///Users/a/S%45cret/k": !foldsCase,
			"file:///users/a/open/k": true, "Delete_x": true, "delete_x": false,
		} {
			if got := r.May(tool.Who{Identity: "a"}, "s", name); got != want {
				t.Errorf("case ignored: %t: %s may be used: %t, want %t", foldsCase, name, got, want)
			}
		}
	}
}

// FuzzNormalURI checks that a normal form is its own.
func FuzzNormalURI(f *testing.F) {
	for _, uri := range secretSpellings() {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		if normal := normalURI(uri); normal != "" && normalURI(normal) != normal {
			t.Errorf("%q: %q, and of that %q", uri, normal, normalURI(normal))
		}
		readings(uri)
	})
}
