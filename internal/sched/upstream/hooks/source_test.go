package hooks

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
)

var update = flag.Bool("update", false, "write the sums of upstream's functions, after they have been read")

// What is replaced or wrapped holds only while these functions of kube-scheduler do what they did when they were read.
// A new version of Kubernetes fails here with the names of the functions that changed.
func TestUpstreamFunctionsAreThoseThatWereRead(t *testing.T) {
	t.Parallel()
	const sums = "testdata/upstream.sha256"
	recorded, err := os.ReadFile(sums)
	testkit.Check(t, err)
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatalf("find the sources of Kubernetes: %v", err)
	}
	root := filepath.Join(strings.TrimSpace(string(out)), "pkg/scheduler")
	files := map[string]map[string]string{}
	var current bytes.Buffer
	for line := range strings.Lines(string(recorded)) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			t.Fatalf("%s: %q: want a sum, a file and a function", sums, line)
		}
		want, file, function := fields[0], fields[1], fields[2]
		if files[file] == nil {
			files[file] = functionsOf(t, filepath.Join(root, file))
		}
		source, found := files[file][function]
		sum := fmt.Sprintf("%x", sha256.Sum256([]byte(source)))
		fmt.Fprintf(&current, "%s %s %s\n", sum, file, function)
		switch {
		case !found:
			t.Errorf("kube-scheduler has no function %s in %s any more: read what took its place", function, file)
		case sum != want && !*update:
			t.Errorf("kube-scheduler's function %s in %s has changed: read it, then run this test with -update",
				function, file)
		}
	}
	if *update && !t.Failed() {
		testkit.Check(t, os.WriteFile(sums, current.Bytes(), 0o644))
	}
}

// functionsOf returns the source of each function of a file, without its comment, as Function or Type.Method.
func functionsOf(t *testing.T, path string) map[string]string {
	t.Helper()
	source, err := os.ReadFile(path)
	testkit.Check(t, err)
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, path, source, parser.SkipObjectResolution)
	testkit.Check(t, err)
	functions := map[string]string{}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := f.Name.Name
		if f.Recv != nil {
			receiver := f.Recv.List[0].Type
			if pointer, ok := receiver.(*ast.StarExpr); ok {
				receiver = pointer.X
			}
			if generic, ok := receiver.(*ast.IndexExpr); ok {
				receiver = generic.X
			}
			if id, ok := receiver.(*ast.Ident); ok {
				name = id.Name + "." + name
			}
		}
		functions[name] = string(source[positions.Position(f.Pos()).Offset:positions.Position(f.End()).Offset])
	}
	return functions
}

func TestFunctionsOfAFileAreFoundByName(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.go")
	if err := os.WriteFile(path, []byte("package a\n\n// F is.\nfunc F() {}\n\nfunc (t *T) M() int { return 1 }\n\n"+
		"func (g *G[T]) M() {}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	got := functionsOf(t, path)
	if got["F"] != "func F() {}" || got["T.M"] != "func (t *T) M() int { return 1 }" ||
		got["G.M"] != "func (g *G[T]) M() {}" || len(got) != 3 {
		t.Errorf("got %q", got)
	}
}
