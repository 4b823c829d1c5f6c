package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// metric is what the source says of one of ours.
type metric struct {
	name, help, kind, component string
	labels                      []string
}

// metrics is the page of all metrics that the code below root registers: every composite literal of options with a Name
// that begins with tenon_.
func metrics(root string) ([]byte, error) {
	var found []metric
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if m, ok := fromCall(call); ok {
				m.component = component(path)
				found = append(found, m)
			}
			return true
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b metric) int {
		return cmp.Or(cmp.Compare(a.component, b.component), cmp.Compare(a.name, b.name))
	})
	var b bytes.Buffer
	fmt.Fprint(&b, `# Metrics

<!-- Written by hack/docgen from the sources. -->

Beside these, tenon-scheduler serves kube-scheduler's own `+"`scheduler_*`"+
		` metrics unchanged. Labels are bounded: none names a
pod, a uid or a CPU set.
`)
	last := ""
	for _, m := range found {
		if m.component != last {
			last = m.component
			fmt.Fprintf(&b, "\n## %s\n\n| Metric | Kind | Labels | Meaning |\n|---|---|---|---|\n", m.component)
		}
		labels := "–"
		if len(m.labels) > 0 {
			labels = "`" + strings.Join(m.labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, labels, m.help)
	}
	return b.Bytes(), nil
}

// component names the binary that a source file belongs to.
func component(path string) string {
	switch path = filepath.ToSlash(path); {
	case strings.Contains(path, "/agent/"):
		return "tenon-agent"
	case strings.Contains(path, "/control/"):
		return "tenon-manager"
	case strings.Contains(path, "/desched/"):
		return "tenon-descheduler"
	}
	return "tenon-scheduler"
}

// fromCall reads New…(Opts{Name: …, Help: …}, []string{labels…}), new…(name, help, labels…) and
// NewDesc(name, help, labels, …).
func fromCall(call *ast.CallExpr) (metric, bool) {
	kind, ok := kindOf(call.Fun)
	if !ok {
		return metric{}, false
	}
	m := metric{kind: kind}
	for _, arg := range call.Args {
		if u, ok := arg.(*ast.UnaryExpr); ok {
			arg = u.X
		}
		switch a := arg.(type) {
		case *ast.CompositeLit:
			if array, ok := a.Type.(*ast.ArrayType); ok && array.Len == nil {
				m.labels = append(m.labels, texts(a.Elts)...)
				continue
			}
			for _, e := range a.Elts {
				kv, ok := e.(*ast.KeyValueExpr)
				if !ok {
					continue
				}
				key, _ := kv.Key.(*ast.Ident)
				switch {
				case key != nil && key.Name == "Name":
					m.name = text(kv.Value)
				case key != nil && key.Name == "Help":
					m.help = text(kv.Value)
				}
			}
		case *ast.BasicLit, *ast.BinaryExpr:
			switch s := text(a); {
			case m.name == "":
				m.name = s
			case m.help == "":
				m.help = s
			case s != "":
				m.labels = append(m.labels, s)
			}
		}
	}
	return m, strings.HasPrefix(m.name, "tenon_")
}

func kindOf(fun ast.Expr) (string, bool) {
	name := ""
	switch f := fun.(type) {
	case *ast.SelectorExpr:
		name = f.Sel.Name
	case *ast.Ident:
		name = f.Name
	}
	for _, kind := range []string{"Counter", "Gauge", "Histogram"} {
		if strings.HasPrefix(strings.ToLower(name), "new"+strings.ToLower(kind)) {
			return strings.ToLower(kind), true
		}
	}
	return "gauge", name == "NewDesc"
}

func texts(elts []ast.Expr) []string {
	var out []string
	for _, e := range elts {
		if s := text(e); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// text is the value of a string literal or of several joined by +; "" for anything else.
func text(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(x.Value); err == nil && x.Kind == token.STRING {
			return s
		}
	case *ast.BinaryExpr:
		if x.Op == token.ADD {
			return text(x.X) + text(x.Y)
		}
	}
	return ""
}
