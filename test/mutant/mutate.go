package main

import (
	"bytes"
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
)

// mutant is one fault in a file: the text from start to end is replaced.
type mutant struct {
	// Package and File are relative to the root of the module.
	Package, File string
	Line          int
	// Function is where it is: "NAME", "TYPE.NAME", or "" outside of functions.
	Function string
	// Kind is comparison, logic, arithmetic, constant, condition, statement or case.
	Kind string
	// Was and Becomes are the texts. A Becomes of "" drops the text.
	Was, Becomes string
	// Text is the line where it begins, without white space around it.
	Text string

	start, end int // bytes of the file
}

// swaps has the operators that replace others. An operator between values that it does not exist for, such as the
// difference of two strings, does not compile, and does not count then.
var swaps = map[token.Token]struct {
	kind string
	with token.Token
}{
	token.LSS:  {"comparison", token.LEQ},
	token.LEQ:  {"comparison", token.LSS},
	token.GTR:  {"comparison", token.GEQ},
	token.GEQ:  {"comparison", token.GTR},
	token.EQL:  {"comparison", token.NEQ},
	token.NEQ:  {"comparison", token.EQL},
	token.LAND: {"logic", token.LOR},
	token.LOR:  {"logic", token.LAND},
	token.ADD:  {"arithmetic", token.SUB},
	token.SUB:  {"arithmetic", token.ADD},
	token.MUL:  {"arithmetic", token.QUO},
	token.QUO:  {"arithmetic", token.MUL},
}

// texts are functions whose arguments are for people. Faults of a text are not counted: the program decides the same.
var texts = []string{
	"panic", "Errorf", "Sprintf", "Fprintf", "Sprint", "New", "Info", "Error", "Append", "Appendf",
}

// prose are methods that make a text.
var prose = []string{"String", "Error", "GoString", "Format", "MarshalText"}

// mutants returns all single faults of a file, in the order of the file.
func mutants(pkg, path string, source []byte) ([]mutant, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, source, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return nil, err
	}
	w := &walker{files: files, source: source, base: mutant{Package: pkg, File: path}}
	for _, d := range file.Decls {
		f, isFunc := d.(*ast.FuncDecl)
		if !isFunc || f.Body == nil || slices.Contains(prose, f.Name.Name) {
			continue
		}
		w.base.Function = nameOf(f)
		ast.Inspect(f.Body, w.visit)
	}
	slices.SortStableFunc(w.found, func(a, b mutant) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end), cmp.Compare(a.Becomes, b.Becomes))
	})
	return w.found, nil
}

func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return f.Name.Name
	}
	t := f.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name + "." + f.Name.Name
		default:
			return f.Name.Name
		}
	}
}

type walker struct {
	files  *token.FileSet
	source []byte
	base   mutant
	found  []mutant
}

func (w *walker) text(from, to token.Pos) string {
	return string(w.source[w.files.Position(from).Offset:w.files.Position(to).Offset])
}

func (w *walker) add(kind string, from, to token.Pos, becomes string) {
	m, start := w.base, w.files.Position(from)
	m.Kind, m.Line, m.start, m.end = kind, start.Line, start.Offset, w.files.Position(to).Offset
	m.Was, m.Becomes = w.text(from, to), becomes
	line, _, _ := bytes.Cut(w.source[start.Offset-start.Column+1:], []byte("\n"))
	m.Text = string(bytes.TrimSpace(line))
	w.found = append(w.found, m)
}

// visit adds the faults of one node, and reports whether its parts have faults.
func (w *walker) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if swap, ok := swaps[n.Op]; ok {
			w.add(swap.kind, n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), swap.with.String())
		}
	case *ast.BasicLit:
		if v, err := strconv.ParseInt(n.Value, 0, 64); n.Kind == token.INT && err == nil {
			w.add("constant", n.Pos(), n.End(), strconv.FormatInt(v+1, 10))
		}
	case *ast.CallExpr:
		return w.call(n)
	case *ast.IfStmt:
		if b, ok := n.Cond.(*ast.BinaryExpr); ok && (b.Op == token.EQL || b.Op == token.NEQ) {
			break // the other comparison is the same fault
		}
		w.add("condition", n.Cond.Pos(), n.Cond.End(), "!("+w.text(n.Cond.Pos(), n.Cond.End())+")")
	case *ast.BlockStmt:
		w.drop(n.List)
	case *ast.CaseClause:
		w.drop(n.Body)
		if n.List != nil && !endsInFall(n.Body) {
			w.add("case", n.Pos(), n.End(), "")
		}
	case *ast.CompositeLit:
		// The length of an array is a part of its type.
		for _, e := range n.Elts {
			ast.Inspect(e, w.visit)
		}
		return false
	}
	return true
}

func (w *walker) call(n *ast.CallExpr) bool {
	name, builtin := "", false
	switch f := n.Fun.(type) {
	case *ast.Ident:
		name, builtin = f.Name, true
	case *ast.SelectorExpr:
		name = f.Sel.Name
	}
	if slices.Contains(texts, name) {
		return false
	}
	if builtin && name == "min" {
		w.add("arithmetic", n.Fun.Pos(), n.Fun.End(), "max")
	} else if builtin && name == "max" {
		w.add("arithmetic", n.Fun.Pos(), n.Fun.End(), "min")
	}
	return true
}

// drop adds a fault for each statement that may be left out.
func (w *walker) drop(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.BranchStmt, *ast.DeferStmt:
			if x, isExpr := s.(*ast.ExprStmt); isExpr && isPanic(x.X) {
				continue
			}
			w.add("statement", s.Pos(), s.End(), "")
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				w.add("statement", s.Pos(), s.End(), "")
			}
		case *ast.ReturnStmt:
			if len(s.Results) == 0 {
				w.add("statement", s.Pos(), s.End(), "")
			}
		}
	}
}

func isPanic(x ast.Expr) bool {
	call, isCall := x.(*ast.CallExpr)
	if !isCall {
		return false
	}
	f, isName := call.Fun.(*ast.Ident)
	return isName && f.Name == "panic"
}

func endsInFall(body []ast.Stmt) bool {
	if len(body) == 0 {
		return false
	}
	b, isBranch := body[len(body)-1].(*ast.BranchStmt)
	return isBranch && b.Tok == token.FALLTHROUGH
}

// apply returns the file with the fault.
func (m mutant) apply(source []byte) []byte {
	return slices.Concat(source[:m.start], []byte(m.Becomes), source[m.end:])
}
