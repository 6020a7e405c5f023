package upstream_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// home is the package that has the mutex. Those that import it share the mutex.
const home = "holdline/daemon/hosted/upstream"

// TestLocks checks in the source that what the hub's mutex guards is only used while it is
// held: the fields of a Hub after Mu, those of a Guarded and of a Call, and functions whose
// names end in Locked. Only package upstream may change a Guarded.
//
// A function begins with the mutex held if its name ends in Locked, or if it is one of the
// methods of an Instance. From there the statements are followed in their order. Function
// literals that run later begin without it.
func TestLocks(t *testing.T) {
	t.Parallel()
	exports := listExports(t)
	fset := token.NewFileSet()
	from := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path].Export)
	})
	found := 0
	for path := range exports {
		if path != home && !slices.Contains(exports[path].Imports, home) {
			continue
		}
		var files []*ast.File
		for _, name := range exports[path].GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(exports[path].Dir, name), nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		c := checker{
			T: t, fset: fset, guarded: map[types.Object]bool{}, fixed: map[types.Object]bool{},
			info: types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}},
		}
		pkg, err := (&types.Config{Importer: from}).Check(path, fset, files, &c.info)
		if err != nil {
			t.Fatal(err)
		}
		c.learn(pkg)
		for _, f := range files {
			for _, d := range f.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
					c.block(f.Body.List, isLocked(f.Name) || path != home && f.Recv != nil && c.told[f.Name.Name])
				}
			}
		}
		found += c.checked
	}
	if found < 200 {
		t.Errorf("only %d uses were found", found)
	}
}

// A listed is what go list says of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles, Imports        []string
}

// listExports returns the packages of hosted servers and all that they import, by path.
func listExports(t *testing.T) map[string]listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps",
		"-json=ImportPath,Dir,Export,GoFiles,Imports", "holdline/daemon/hosted/...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]listed{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var l listed
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[l.ImportPath] = l
	}
}

// A checker checks one package.
type checker struct {
	*testing.T
	fset    *token.FileSet
	info    types.Info
	mu      types.Object          // Hub.Mu
	guarded map[types.Object]bool // fields
	fixed   map[types.Object]bool // those of them that other packages must not change
	told    map[string]bool       // methods of Instance that are called with the mutex held
	checked int                   // uses of what is guarded
}

// learn finds in package upstream, as pkg sees it, what the mutex guards.
func (c *checker) learn(pkg *types.Package) {
	up := pkg
	for _, p := range pkg.Imports() {
		if p.Path() == home {
			up = p
		}
	}
	fields := func(name string, each func(f *types.Var)) {
		s := up.Scope().Lookup(name).Type().Underlying().(*types.Struct)
		for f := range s.Fields() {
			each(f)
		}
	}
	fields("Hub", func(f *types.Var) {
		c.guarded[f] = c.mu != nil
		if f.Name() == "Mu" {
			c.mu = f
		}
	})
	fields("Guarded", func(f *types.Var) { c.guarded[f], c.fixed[f] = true, up != pkg })
	fields("Call", func(f *types.Var) { c.guarded[f] = !f.Embedded() && f.Name() != "Asked" })
	c.told = map[string]bool{}
	for m := range up.Scope().Lookup("Instance").Type().Underlying().(*types.Interface).Methods() {
		c.told[m.Name()] = m.Name() != "Limits"
	}
}

func isLocked(name *ast.Ident) bool { return strings.HasSuffix(name.Name, "Locked") }

// field returns the field that an expression selects, or nil.
func (c *checker) field(e ast.Expr) types.Object {
	if s, ok := e.(*ast.SelectorExpr); ok && c.info.Selections[s] != nil {
		return c.info.Selections[s].Obj()
	}
	return nil
}

// change returns whether a statement or deferred call locks the mutex, if it does one of the
// two.
func (c *checker) change(e ast.Expr) (locks, does bool) {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false, false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	switch {
	case !ok:
	case f.Sel.Name == "LockOrPanic":
		return true, true
	case c.field(f.X) == c.mu && (f.Sel.Name == "Lock" || f.Sel.Name == "Unlock"):
		return f.Sel.Name == "Lock", true
	}
	return false, false
}

// block follows statements, of which the first begins with the mutex locked or not. It
// returns how they leave it, and whether the end of the last one is reached.
func (c *checker) block(list []ast.Stmt, locked bool) (after, reached bool) {
	for _, s := range list {
		if locked, reached = c.stmt(s, locked); !reached {
			return locked, false
		}
	}
	return locked, true
}

// stmt is block for one statement.
func (c *checker) stmt(s ast.Stmt, locked bool) (after, reached bool) {
	switch s := s.(type) {
	case *ast.ExprStmt:
		locks, does := c.change(s.X)
		if !does {
			c.uses(s.X, locked)
			return locked, true
		}
		if locks == locked {
			c.Errorf("%v: the mutex is locked or unlocked twice", c.fset.Position(s.Pos()))
		}
		return locks, true
	case *ast.DeferStmt:
		if _, does := c.change(s.Call); !does {
			c.uses(s.Call, locked)
		}
	case *ast.GoStmt:
		c.uses(s.Call, false)
	case *ast.ReturnStmt, *ast.BranchStmt:
		c.uses(s, locked)
		return locked, false
	case *ast.BlockStmt:
		return c.block(s.List, locked)
	case *ast.LabeledStmt:
		return c.stmt(s.Stmt, locked)
	case *ast.IfStmt:
		c.all(locked, s.Init, s.Cond)
		other, open := locked, true
		if s.Else != nil {
			other, open = c.stmt(s.Else, locked)
		}
		return merge(c.block(s.Body.List, locked))(other, open)
	case *ast.ForStmt:
		c.all(locked, s.Init, s.Cond, s.Post)
		c.block(s.Body.List, locked)
	case *ast.RangeStmt:
		c.all(locked, s.Key, s.Value, s.X)
		c.block(s.Body.List, locked)
	case *ast.SwitchStmt:
		c.all(locked, s.Init, s.Tag)
		return c.clauses(s.Body, locked)
	case *ast.TypeSwitchStmt:
		c.all(locked, s.Init, s.Assign)
		return c.clauses(s.Body, locked)
	case *ast.SelectStmt:
		return c.clauses(s.Body, locked)
	default:
		c.changes(s)
		c.uses(s, locked)
	}
	return locked, true
}

// merge returns the state after two branches, of which each may not reach its end.
func merge(a, aOpen bool) func(b, bOpen bool) (after, reached bool) {
	return func(b, bOpen bool) (after, reached bool) {
		switch {
		case !aOpen:
			return b, bOpen
		case !bOpen:
			return a, true
		}
		return a && b, true
	}
}

// clauses follows the clauses of a switch or select statement.
func (c *checker) clauses(body *ast.BlockStmt, locked bool) (after, reached bool) {
	whole := false // one of the clauses is taken
	after, reached = false, false
	for _, s := range body.List {
		var list []ast.Stmt
		switch s := s.(type) {
		case *ast.CaseClause:
			for _, e := range s.List {
				c.uses(e, locked)
			}
			list, whole = s.Body, whole || s.List == nil
		case *ast.CommClause:
			c.all(locked, s.Comm)
			list, whole = s.Body, true
		}
		after, reached = merge(after, reached)(c.block(list, locked))
	}
	if !whole {
		return merge(after, reached)(locked, true)
	}
	return after, reached
}

// all checks parts of a statement, of which some may be missing.
func (c *checker) all(locked bool, parts ...ast.Node) {
	for _, p := range parts {
		switch p := p.(type) {
		case nil:
		case ast.Stmt:
			if p != nil {
				c.stmt(p, locked)
			}
		default:
			c.uses(p, locked)
		}
	}
}

// uses checks what a part of the source uses.
func (c *checker) uses(n ast.Node, locked bool) {
	later := map[*ast.FuncLit]bool{} // run when the mutex may not be held any more
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			c.block(n.Body.List, locked && !later[n])
			return false
		case *ast.KeyValueExpr:
			if f, ok := n.Value.(*ast.FuncLit); ok {
				later[f] = true
			}
		case *ast.CallExpr:
			f, ok := n.Fun.(*ast.SelectorExpr)
			for _, arg := range n.Args {
				if lit, isLit := arg.(*ast.FuncLit); isLit && ok && f.Sel.Name == "Go" {
					later[lit] = true
				}
			}
			if id, isName := n.Fun.(*ast.Ident); isName && id.Name == "delete" {
				c.changed(n.Args[0])
			}
		case *ast.SelectorExpr:
			if c.guarded[c.field(n)] || isLocked(n.Sel) && c.field(n) != nil {
				c.checked++
				if !locked {
					c.Errorf("%v: %s is used without the mutex", c.fset.Position(n.Sel.Pos()), n.Sel.Name)
				}
			}
		}
		return true
	})
}

// changes reports a statement that assigns what only package upstream may change.
func (c *checker) changes(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.AssignStmt:
		for _, e := range s.Lhs {
			c.changed(e)
		}
	case *ast.IncDecStmt:
		c.changed(s.X)
	}
}

// changed reports e if only package upstream may change it.
func (c *checker) changed(e ast.Expr) {
	if i, ok := e.(*ast.IndexExpr); ok {
		e = i.X
	}
	if f := c.field(e); c.fixed[f] {
		c.Errorf("%v: %s is changed outside of package upstream", c.fset.Position(e.Pos()), f.Name())
	}
}
