package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mostFunctionFields is how many exported fields of structs in internal are functions. A reader cannot see which
// function such a field is: one with a single implementation becomes the type itself, or an interface of the package
// that calls it. What remains are callbacks that a caller chooses, of which tests or components give several, and what
// the command line asks of components that it does not import. The number is lowered with each field that becomes a
// type.
const mostFunctionFields = 77

// functionFields returns the exported fields of the structs in a file that are functions, as Type.Field. named has the
// names of function types of their package.
func functionFields(file *ast.File, named map[string]bool) (fields []string) {
	for _, d := range file.Decls {
		types, ok := d.(*ast.GenDecl)
		if !ok || types.Tok != token.TYPE {
			continue
		}
		for _, spec := range types.Specs {
			owner := spec.(*ast.TypeSpec)
			ast.Inspect(owner.Type, func(n ast.Node) bool {
				s, ok := n.(*ast.StructType)
				if !ok {
					return true
				}
				for _, f := range s.Fields.List {
					_, function := f.Type.(*ast.FuncType)
					if id, ok := f.Type.(*ast.Ident); !function && (!ok || !named[id.Name]) {
						continue
					}
					for _, name := range f.Names {
						if name.IsExported() {
							fields = append(fields, owner.Name.Name+"."+name.Name)
						}
					}
				}
				return true
			})
		}
	}
	return fields
}

// functionTypes returns the names of the function types of a file.
func functionTypes(file *ast.File) (names []string) {
	for _, d := range file.Decls {
		if types, ok := d.(*ast.GenDecl); ok {
			for _, spec := range types.Specs {
				if t, ok := spec.(*ast.TypeSpec); ok {
					if _, function := t.Type.(*ast.FuncType); function {
						names = append(names, t.Name.Name)
					}
				}
			}
		}
	}
	return names
}

func TestFieldsAreSeldomFunctions(t *testing.T) {
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	files, named := map[string][]*ast.File{}, map[string]map[string]bool{}
	err = filepath.WalkDir(filepath.Join(root, "internal"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		files[dir] = append(files[dir], file)
		for _, name := range functionTypes(file) {
			if named[dir] == nil {
				named[dir] = map[string]bool{}
			}
			named[dir][name] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for dir, parsed := range files {
		for _, file := range parsed {
			for _, field := range functionFields(file, named[dir]) {
				all = append(all, strings.TrimPrefix(dir, root+"/internal/")+": "+field)
			}
		}
	}
	slices.Sort(all)
	if len(all) > mostFunctionFields {
		t.Errorf("%d exported fields are functions, want at most %d: use the type itself or a small interface\n%s",
			len(all), mostFunctionFields, strings.Join(all, "\n"))
	}
}

func TestFunctionFieldsAreFound(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "a.go", `package a
type call func()
type T struct {
	A, B func(int) error
	C    call
	d    func()
	E    struct{ F func() }
	G    map[string]func()
	H    int
}
`, 0)
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, name := range functionTypes(file) {
		named[name] = true
	}
	if got := functionFields(file, named); !slices.Equal(got, []string{"T.A", "T.B", "T.C", "T.F"}) {
		t.Errorf("got %v", got)
	}
}
