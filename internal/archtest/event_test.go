package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// unlisted returns the places in a file where an Event is made whose reason is not a value of api/event: calls of
// Eventf, and literals of the API's Event.
func unlisted(files *token.FileSet, file *ast.File) []string {
	var bad []string
	report := func(n ast.Node, reason ast.Expr) {
		call, ok := reason.(*ast.CallExpr)
		if !ok {
			bad = append(bad, files.Position(n.Pos()).String())
			return
		}
		if name, ok := call.Fun.(*ast.SelectorExpr); !ok || name.Sel.Name != "String" {
			bad = append(bad, files.Position(n.Pos()).String())
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			const reason = 3 // regarding, related, type, reason
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Eventf" && len(n.Args) > reason {
				report(n, n.Args[reason])
			}
		case *ast.CompositeLit:
			if t, ok := n.Type.(*ast.SelectorExpr); !ok || t.Sel.Name != "Event" {
				return true
			}
			for _, e := range n.Elts {
				if kv, ok := e.(*ast.KeyValueExpr); ok {
					if key, ok := kv.Key.(*ast.Ident); ok && key.Name == "Reason" {
						report(n, kv.Value)
					}
				}
			}
		}
		return true
	})
	return bad
}

// The page of Events is written from api/event: what is sent and not listed would be missing there. The Events of
// kube-scheduler itself pass through the scheduler's reporting and recorder; simulated nodes send those of a kubelet.
func TestEveryEventIsListed(t *testing.T) {
	for _, folder := range []string{"internal/agent", "internal/sched", "internal/control", "internal/kube"} {
		err := filepath.WalkDir(filepath.Join(root(t), folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				strings.HasSuffix(path, filepath.Join("internal", "sched", "diag", "refusals", "reporting.go")) ||
				strings.HasSuffix(path, filepath.Join("internal", "sched", "app", "recorder.go")) {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, at := range unlisted(files, file) {
				t.Errorf("%s: the reason of the Event is not taken from api/event", at)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestUnlistedEventsAreSeen(t *testing.T) {
	for source, want := range map[string]int{
		`r.Eventf(o, nil, "Warning", "Surprise", "Act", "text")`:                    1,
		`r.Eventf(o, nil, kind, surprise, "Act", "text")`:                           1,
		`r.Eventf(o, nil, reason.Type(), reason.String(), "Act", "text")`:           0,
		`use(eventsv1.Event{Reason: "Surprise"})`:                                   1,
		`use(corev1.Event{Type: "Normal", Reason: event.Drifted.String()})`:         0,
		`r.Event(event.Drifted, "text")`:                                            0,
		`use(&eventsv1.Event{Note: "text", Reason: reasonOf(event.Drifted, true)})`: 1,
	} {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, "a.go", "package a\nfunc f() { "+source+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := unlisted(files, file); len(got) != want {
			t.Errorf("%s: found %v, want %d", source, got, want)
		}
	}
}
