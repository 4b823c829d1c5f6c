// Command chart writes what comes from the types of deploy/values: values.yaml and values.schema.json of the chart, and
// the page of its values.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: chart FOLDER-OF-THE-CHART FOLDER-OF-PAGES")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func write(chart, pages string) error {
	keys, err := read("deploy/values/values.go")
	if err != nil {
		return err
	}
	root := object(keys)
	root["$schema"], root["title"] = "http://json-schema.org/draft-07/schema#", "Values of the chart tenon"
	schema, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return err
	}
	var settings, page bytes.Buffer
	settings.WriteString("# Values of the chart, with their defaults. Written by hack/chart from deploy/values.\n")
	page.WriteString("# Values of the chart\n\n<!-- Written by hack/chart from deploy/values. -->\n\n" +
		"`helm install tenon deploy/chart -f FILE` takes them; it refuses an unknown key or a wrong type with " +
		"its path.\n\n" +
		"| Key | Default | Meaning |\n|---|---|---|\n")
	for _, k := range keys {
		settings.WriteByte('\n')
		k.print(&settings, "")
		k.row(&page, "")
	}
	for name, text := range map[string][]byte{
		filepath.Join(chart, "values.schema.json"): append(schema, '\n'),
		filepath.Join(chart, "values.yaml"):        settings.Bytes(),
		filepath.Join(pages, "chart.md"):           page.Bytes(),
	} {
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// key is a key of the values.
type key struct {
	name, text string
	typ        string // as Go writes it
	initial    string // its default, in YAML; "" of one that has keys
	tag        reflect.StructTag
	keys       []key
}

// read returns the keys of the type Values.
func read(file string) ([]key, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	structs := map[string]*ast.StructType{}
	for _, d := range parsed.Decls {
		if decl, ok := d.(*ast.GenDecl); ok {
			for _, s := range decl.Specs {
				if spec, ok := s.(*ast.TypeSpec); ok {
					structs[spec.Name.Name], _ = spec.Type.(*ast.StructType)
				}
			}
		}
	}
	return keysOf(structs, "Values", nil)
}

// keysOf returns the keys of a struct. The tags of the fields that lead to it, the outermost first, replace defaults:
// one named as a key is its default.
func keysOf(structs map[string]*ast.StructType, name string, outer []reflect.StructTag) ([]key, error) {
	var keys []key
	for _, f := range structs[name].Fields.List {
		tag := reflect.StructTag(strings.Trim(f.Tag.Value, "`"))
		k := key{text: strings.TrimSpace(f.Doc.Text()), typ: types.ExprString(f.Type), tag: tag}
		k.name, _, _ = strings.Cut(tag.Get("json"), ",")
		var err error
		if structs[k.typ] != nil {
			path := append(append([]reflect.StructTag{}, outer...), tag)
			if k.keys, err = keysOf(structs, k.typ, path); err != nil {
				return nil, err
			}
		}
		if k.name == "" { // embedded
			keys = append(keys, k.keys...)
			continue
		}
		k.initial = tag.Get("default")
		for i := len(outer) - 1; i >= 0; i-- {
			if text, ok := outer[i].Lookup(k.name); ok {
				k.initial = text
			}
		}
		if k.text == "" || (k.initial == "") == (k.keys == nil) {
			return nil, fmt.Errorf("%s.%s: needs a comment, and a default or keys", name, k.name)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

func object(keys []key) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, k := range keys {
		properties[k.name] = k.schema()
		// Helm removes a key that is null. A list or a map that may be empty is then empty.
		if _, filled := k.tag.Lookup("minItems"); k.keys != nil || filled {
			required = append(required, k.name)
		}
	}
	s := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

func (k *key) schema() map[string]any {
	s := schemaOf(k.typ)
	if k.keys != nil {
		s = object(k.keys)
	}
	s["description"] = strings.Join(strings.Fields(k.text), " ")
	if pattern, ok := k.tag.Lookup("pattern"); ok {
		target := s
		if items, ok := s["items"].(map[string]any); ok {
			target = items
		}
		target["pattern"] = pattern
	}
	if allowed, ok := k.tag.Lookup("enum"); ok {
		s["enum"] = strings.Fields(allowed)
	}
	for _, bound := range []string{"minimum", "maximum", "minItems"} {
		if n, err := strconv.Atoi(k.tag.Get(bound)); err == nil {
			s[bound] = n
		}
	}
	return s
}

func schemaOf(typ string) map[string]any {
	switch {
	case typ == "bool":
		return map[string]any{"type": "boolean"}
	case typ == "int":
		return map[string]any{"type": "integer"}
	case typ == "Quantity", typ == "any":
		return map[string]any{"type": []string{"string", "number"}}
	case typ == "map[string]any":
		return map[string]any{"type": "object"}
	case strings.HasPrefix(typ, "map[string]"):
		return map[string]any{
			"type": "object", "additionalProperties": schemaOf(strings.TrimPrefix(typ, "map[string]")),
		}
	case strings.HasPrefix(typ, "[]"):
		return map[string]any{"type": "array", "items": schemaOf(strings.TrimPrefix(typ, "[]"))}
	}
	return map[string]any{"type": "string"}
}

// print writes the key with its comment and default as YAML.
func (k *key) print(b *bytes.Buffer, indent string) {
	for line := range strings.SplitSeq(k.text, "\n") {
		fmt.Fprintf(b, "%s# %s\n", indent, line)
	}
	fmt.Fprintf(b, "%s%s\n", indent, strings.TrimSpace(k.name+": "+k.initial))
	for i := range k.keys {
		k.keys[i].print(b, indent+"  ")
	}
}

// row writes the rows of the key's page.
func (k *key) row(b *bytes.Buffer, path string) {
	if k.keys == nil {
		text := strings.ReplaceAll(strings.Join(strings.Fields(k.text), " "), "|", `\|`)
		fmt.Fprintf(b, "| `%s` | `%s` | %s |\n", path+k.name, k.initial, text)
	}
	for i := range k.keys {
		k.keys[i].row(b, path+k.name+".")
	}
}
