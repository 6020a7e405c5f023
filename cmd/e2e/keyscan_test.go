package e2e

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"holdline/protocol/mcp"
)

// keyReaders are the packages that read messages of clients and servers.
var keyReaders = []string{
	"daemon/adapter/remote", "daemon/dialect", "daemon/hosted", "daemon/listing", "daemon/policy", "daemon/session",
	"daemon/tasks", "daemon/tool", "protocol/mcp", "proxy",
}

// otherKeys are keys that those packages read from objects that are none of MCP, or by which nothing
// is decided, with the reason.
var otherKeys = map[string]string{
	"id": "of the envelope, which jsonrpc.Parse checks", "error": "of the envelope", "params": "of the envelope",
	"result": "of the envelope", "server": "of call_tool, which takes no other key", "tool": "of call_tool",
	"render": "of our own tools, which take no other key", "detail": "of our own tools", "login": "a name that we gave",
	"items": "of our own schemas", "enum": "of our own schemas", "pattern": "of our own schemas",
	"const": "holds no schema, so it is left out", "default": "as const", "examples": "as const",
}

// otherDecoders are those packages, and functions of them, that decode JSON into Go values, for which keys
// are equal in any case, with what makes that harmless.
var otherDecoders = map[string]string{
	"daemon/adapter/remote.ParseTarget":   "from our own daemon",
	"daemon/adapter/remote.appendHidden":  "a string",
	"daemon/adapter/remote.wordsOf":       "a string",
	"daemon/dialect.BrokenAnswerID":       "token by token, with keys in any case",
	"daemon/hosted/asklogin.run":          "from our own program",
	"daemon/hosted/detached":              "its own files, and maps",
	"daemon/hosted/question":              "its own files",
	"daemon/hosted/handshake.ask":         "a list of strings",
	"daemon/hosted/handshake.list":        "a list of raw entries",
	"daemon/hosted/upstream.acknowledged": "a list of strings",
	"daemon/hosted/upstream.FaultIn":      "from our own process, or no fault",
	"daemon/hosted/verdict.Read":          "our own file",
	"daemon/listing.ReadMemory":           "our own file",
	"daemon/policy.hint":                  "a string",
	"daemon/session/listen.Parse":         "a list of strings",
	"daemon/session/profile.ForGuest":     "maps",
	"daemon/session/profile.learnName":    "an ImplementationObject, which ParseParams has checked",
	"daemon/tasks.Wanted":                 "a list of strings",
	"daemon/tool.Compile":                 "our own schema",
	"daemon/tool.NewFindTools":            "arguments of our own tool, which takes no other key",
	"daemon/tool.argument":                "a value without keys that count",
	"daemon/tool.argumentsOf":             "a list of strings",
	"daemon/tool.got":                     "a string",
	"daemon/tool.parseName":               "a string",
	"protocol/mcp.String":                 "a string",
}

// TestObjectsThatAreRead checks that packages which read messages read no key that is missing in the
// table of objects: only the keys there are protected from being read in another way behind
// Holdline. And it checks that they decode into no Go values, for which the case of keys is equal,
// but in functions that are listed here.
func TestObjectsThatAreRead(t *testing.T) {
	known := map[string]bool{}
	for _, o := range mcp.Objects() {
		for _, key := range o.Keys.Known {
			known[key] = true
		}
	}
	constants := map[string]string{}
	root := filepath.Join("..", "..")
	files := token.NewFileSet()
	parsed := map[string][]*ast.File{}
	for _, top := range keyReaders {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				return err
			}
			dir, _ := filepath.Rel(root, filepath.Dir(path)) // both are relative
			parsed[dir] = append(parsed[dir], f)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for dir, all := range parsed {
		for _, f := range all {
			ast.Inspect(f, func(n ast.Node) bool {
				if v, ok := n.(*ast.ValueSpec); ok {
					for i, name := range v.Names {
						if i < len(v.Values) {
							if text, ok := literal(v.Values[i]); ok {
								constants[filepath.Base(dir)+"."+name.Name] = text
							}
						}
					}
				}
				return true
			})
		}
	}
	reads, decodes := 0, 0
	used := map[string]bool{}
	for dir, all := range parsed {
		for _, f := range all {
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok || fn.Body == nil {
					continue
				}
				ast.Inspect(fn.Body, func(n ast.Node) bool {
					call, ok := n.(*ast.CallExpr)
					if !ok {
						return true
					}
					key, of := keyRead(call)
					switch {
					case of == "decode":
						decodes++
						name := filepath.ToSlash(dir) + "." + fn.Name.Name
						if pkg := filepath.ToSlash(dir); otherDecoders[pkg] != "" {
							name = pkg
						}
						used[name] = true
						if otherDecoders[name] == "" {
							t.Errorf("%s: %s decodes JSON into a Go value: check the object first, by a row of the table in "+
								"protocol/mcp/objects.go, or say here why not", files.Position(call.Pos()), name)
						}
					case of != "":
						for _, text := range keysOf(key, filepath.Base(dir), constants) {
							reads++
							used[text] = true
							if !known[text] && otherKeys[text] == "" {
								t.Errorf("%s: the key %q is in no object of the table in protocol/mcp/objects.go",
									files.Position(call.Pos()), text)
							}
						}
					}
					return true
				})
			}
		}
	}
	for _, exceptions := range []map[string]string{otherKeys, otherDecoders} {
		for name := range exceptions {
			if !used[name] {
				t.Errorf("%s is read no more: take it out of the list", name)
			}
		}
	}
	if reads < 80 || decodes < 5 {
		t.Errorf("only %d keys and %d decoders were found: the test looks for the wrong functions", reads, decodes)
	}
}

// keyRead returns the expressions of the keys that a call reads, and of which kind it is; "" if it
// reads none.
func keyRead(call *ast.CallExpr) (keys []ast.Expr, of string) {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil, ""
	}
	pkg, _ := sel.X.(*ast.Ident)
	switch name := sel.Sel.Name; {
	case pkg != nil && pkg.Name == "json" && (name == "Unmarshal" || name == "NewDecoder"):
		return nil, "decode"
	case pkg != nil && pkg.Name == "jsonrpc" && (name == "Field" || name == "Replace") && len(call.Args) > 1:
		return call.Args[1:2], "field"
	case name == "Fields" || pkg != nil && pkg.Name == "jsonrpc" && name == "Rewrite":
		f, ok := call.Args[len(call.Args)-1].(*ast.FuncLit)
		if !ok || len(f.Type.Params.List) == 0 || len(f.Type.Params.List[0].Names) == 0 {
			return nil, ""
		}
		param := f.Type.Params.List[0].Names[0].Name
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SwitchStmt:
				if tag, ok := n.Tag.(*ast.Ident); ok && tag.Name == param {
					for _, c := range n.Body.List {
						keys = append(keys, c.(*ast.CaseClause).List...)
					}
				}
			case *ast.BinaryExpr:
				if left, ok := n.X.(*ast.Ident); ok && left.Name == param && n.Op == token.EQL {
					keys = append(keys, n.Y)
				}
			}
			return true
		})
		return keys, "fields"
	}
	return nil, ""
}

// keysOf returns the texts of those expressions that are constants.
func keysOf(exprs []ast.Expr, pkg string, constants map[string]string) (keys []string) {
	for _, e := range exprs {
		text, ok := literal(e)
		switch e := e.(type) {
		case *ast.Ident:
			text, ok = constants[pkg+"."+e.Name], true
		case *ast.SelectorExpr:
			if x, is := e.X.(*ast.Ident); is {
				text, ok = constants[x.Name+"."+e.Sel.Name], true
			}
		}
		if ok && text != "" && !slices.Contains(keys, text) {
			keys = append(keys, text)
		}
	}
	return keys
}

// literal returns the text of a string literal.
func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}
