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

// nodeWriters are the files that write Nodes. `tenon leave` removes what the others write by convert.Clean.
func nodeWriters() []string {
	return []string{
		"internal/agent/status/condition.go", "internal/control/devicecapacity/controller.go", "internal/cli/leave.go",
		"internal/control/nodescaling/controller.go", "internal/control/scalehelper/controller.go",
	}
}

// TestWritersOfNodesAreKnown: what another one wrote would remain in Nodes after an uninstallation. Simulated kubelets
// have Nodes of their own.
func TestWritersOfNodesAreKnown(t *testing.T) {
	writes := []string{"Create", "Update", "UpdateStatus", "Patch", "PatchStatus", "Apply", "ApplyStatus"}
	var found []string
	for _, folder := range []string{"agent", "sched", "control", "kube", "cli"} {
		folder = filepath.Join(root(t), "internal", folder)
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				write, ok := n.(*ast.SelectorExpr)
				if !ok || !slices.Contains(writes, write.Sel.Name) {
					return true
				}
				if call, ok := write.X.(*ast.CallExpr); ok {
					if selector, ok := call.Fun.(*ast.SelectorExpr); ok && selector.Sel.Name == "Nodes" {
						name, _ := filepath.Rel(root(t), path)
						found = append(found, name)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(found)
	want := nodeWriters()
	slices.Sort(want)
	if found = slices.Compact(found); !slices.Equal(found, want) {
		t.Errorf("Nodes are written in %v, want %v: name it here, and what it writes in convert.Clean", found, want)
	}
}
