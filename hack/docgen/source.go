package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
)

// keys is the page of the labels and annotations that Tenon reads or writes, from the constants and their comments.
func keys() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("# Labels and annotations\n\n<!-- Written by hack/docgen from api/annotation. -->\n\n" +
		"[Support](support.md) lists the keys of other projects that have no effect here.\n")
	err := eachFile("api/annotation", func(_ *token.FileSet, file *ast.File) {
		for _, d := range file.Decls {
			group, ok := d.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			var rows strings.Builder
			for _, s := range group.Specs {
				spec := s.(*ast.ValueSpec)
				for i, value := range spec.Values {
					key := text(value)
					if strings.Contains(key, "/") || strings.HasSuffix(key, ".io") {
						fmt.Fprintf(&rows, "| `%s` | %s |\n", key, comment(spec.Doc, spec.Names[i].Name))
					}
				}
			}
			if rows.Len() > 0 && group.Lparen.IsValid() {
				title, _, _ := strings.Cut(group.Doc.Text(), ".")
				fmt.Fprintf(&b, "\n## %s\n\n| Key | Meaning |\n|---|---|\n%s", cell(title), rows.String())
			} else if rows.Len() > 0 {
				spec := group.Specs[0].(*ast.ValueSpec)
				fmt.Fprintf(&b, "\n## %s\n\n`%s` %s\n", spec.Names[0].Name, text(spec.Values[0]),
					comment(group.Doc, spec.Names[0].Name))
			}
		}
	})
	return b.Bytes(), err
}

// orDash is text for a cell; a dash for none.
func orDash(text string) string { return cmp.Or(cell(text), "–") }

// comment is a doc comment without the name that it begins with.
func comment(doc *ast.CommentGroup, name string) string {
	return orDash(strings.TrimPrefix(doc.Text(), name+" "))
}

// withoutEffect begins the comment of an argument that is read for configurations of Koordinator alone.
const withoutEffect = "is accepted from configurations of Koordinator, without effect: "

// arguments is the page of the arguments of the scheduler's plugin, from the fields and their comments.
func arguments() ([]byte, error) {
	var b, accepted bytes.Buffer
	b.WriteString("# Arguments of plugins\n\n<!-- Written by hack/docgen from api/config. -->\n\n" +
		"They are the `args` of `pluginConfig` in a KubeSchedulerConfiguration ([a sample](scheduler-config.yaml)). " +
		"An unknown\n" +
		"field or value is an error at the start.\n")
	err := eachFile("api/config/v1alpha1", tables(&b, &accepted))
	fmt.Fprintf(&b, "\n## Accepted, no effect\n\nConfigurations of Koordinator may set these arguments. Their values "+
		"change nothing.\n\n| Arguments | Field | Why |\n|---|---|---|\n%s", &accepted)
	b.WriteString("\n## Arguments of the descheduler\n\nThey are the `args` of `pluginConfig` in a " +
		"DeschedulerConfiguration ([a sample](descheduler-config.yaml)) or a\nDeschedulerPolicy " +
		"([a sample](descheduler-policy.yaml)), and the fields of these kinds themselves. An unknown field or value\n" +
		"is an error at the start. [Flags](flags.md) has those of the program.\n")
	err = errors.Join(err, eachFile("api/config/descheduler", tables(&b, &accepted)))
	return b.Bytes(), err
}

// tables writes a table of the fields of each struct of a file that has some, and apart those without effect.
func tables(b, accepted *bytes.Buffer) func(*token.FileSet, *ast.File) {
	return func(files *token.FileSet, file *ast.File) {
		for _, d := range file.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.TYPE {
				continue
			}
			for _, s := range decl.Specs {
				spec := s.(*ast.TypeSpec)
				fields, ok := spec.Type.(*ast.StructType)
				if ok && spec.Name.IsExported() {
					if rows := rowsOf(files, spec.Name.Name, fields, accepted); rows != "" {
						fmt.Fprintf(b, "\n## %s\n\n| Field | Type | Meaning |\n|---|---|---|\n%s", spec.Name.Name, rows)
					}
				}
			}
		}
	}
}

func rowsOf(files *token.FileSet, owner string, fields *ast.StructType, accepted *bytes.Buffer) string {
	var b strings.Builder
	for _, f := range fields.Fields.List {
		name, kind := jsonName(f), strings.TrimPrefix(source(files, f.Type), "*")
		if name == "" {
			if f.Tag != nil && len(f.Names) == 0 && !strings.Contains(kind, ".") {
				fmt.Fprintf(&b, "| | `%s` | has its fields too. |\n", kind)
			}
			continue
		}
		meaning := comment(f.Doc, f.Names[0].Name)
		if reason, ok := strings.CutPrefix(meaning, withoutEffect); ok {
			fmt.Fprintf(accepted, "| `%s` | `%s` | %s |\n", owner, name, reason)
			continue
		}
		tag := reflect.StructTag(strings.Trim(f.Tag.Value, "`"))
		value := tag.Get("default") // as JSON, or by its name in texts.json
		if json.Valid([]byte(value)) {
			meaning += " Default: `" + strings.Trim(value, `"`) + "`."
		}
		kind, _, _ = strings.Cut(kind, " {")
		fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", name, kind, meaning)
	}
	return b.String()
}

func jsonName(f *ast.Field) string {
	if f.Tag == nil {
		return ""
	}
	_, tag, _ := strings.Cut(f.Tag.Value, `json:"`)
	name, _, _ := strings.Cut(tag, `"`)
	name, _, _ = strings.Cut(name, ",")
	return name
}

// eachFile parses the Go files of a folder in the order of their names, without tests and generated ones.
func eachFile(folder string, f func(*token.FileSet, *ast.File)) error {
	return filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		name := filepath.Base(path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != folder:
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") ||
			strings.HasPrefix(name, "zz_"):
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err == nil {
			f(files, file)
		}
		return err
	})
}

func source(files *token.FileSet, e ast.Expr) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, files, e); err != nil {
		return ""
	}
	return b.String()
}

// cell is text that fits into a cell of a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}
