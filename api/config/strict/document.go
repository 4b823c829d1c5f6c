package strict

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tenon-project/tenon/api/nearest"
)

// Document is one YAML or JSON document of a file. After Decode it knows the places of its fields.
type Document struct {
	File string
	// keys are where fields begin, values what they contain, by path: a.b[0].c. The whole document is "".
	keys, values map[string]*yaml.Node
}

// Parse returns the documents of a file that are not empty.
func Parse(file string, text []byte) ([]*Document, error) {
	var all []*Document
	for reader := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var n yaml.Node
		if err := reader.Decode(&n); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			line := 1
			if m := regexp.MustCompile(`line (\d+)`).FindStringSubmatch(err.Error()); m != nil {
				line, _ = strconv.Atoi(m[1]) // digits
			}
			return nil, Problems{{file, line, 1, "", err.Error()}}
		}
		if len(n.Content) == 0 || n.Content[0].Tag == "!!null" {
			continue
		}
		root := map[string]*yaml.Node{"": n.Content[0]}
		all = append(all, &Document{file, maps.Clone(root), root})
	}
}

// Kind returns what the document calls itself.
func (d *Document) Kind() string {
	var header struct{ Kind string }
	_ = d.values[""].Decode(&header) // "" where it cannot be read
	return header.Kind
}

// DecodeKind is Decode of a document that must call itself by an apiVersion and a kind.
func (d *Document) DecodeKind(apiVersion, kind string, into any) Problems {
	all := d.Decode("", into)
	for name, want := range map[string]string{"apiVersion": apiVersion, "kind": kind} {
		got := ""
		if n := d.values[name]; n != nil {
			got = n.Value
		}
		if got != want {
			all = append(all, d.Problem(name, "%q is not allowed: use %s", got, want))
		}
	}
	return all
}

// Decode reads a field, or with path "" all of the document, into a pointer. A field that is not there changes nothing.
func (d *Document) Decode(path string, into any) Problems {
	n := d.values[path]
	if n == nil {
		return nil
	}
	all := d.check(n, reflect.TypeOf(into), path)
	if len(all) > 0 {
		return all
	}
	return d.Locate(path, unmarshal(n, into))
}

// Has reports whether the document, which may be nil, has a value for a field: null is none.
func (d *Document) Has(path string) bool {
	return d != nil && d.values[path] != nil && d.values[path].Tag != "!!null"
}

// Line returns where a field is, 0 where the document does not have it.
func (d *Document) Line(path string) int {
	if n := d.keys[path]; n != nil {
		return n.Line
	}
	return 0
}

// Problem is one about a field of the document. It is where the field is, or the nearest one above it that is there.
func (d *Document) Problem(path, format string, args ...any) Problem {
	at := path
	for d.keys[at] == nil {
		at = at[:max(strings.LastIndexAny(at, ".["), 0)]
	}
	return Problem{d.File, d.keys[at].Line, d.keys[at].Column, path, fmt.Sprintf(format, args...)}
}

// Locate gives the errors of a validation of the field at path their places.
func (d *Document) Locate(path string, err error) (all Problems) {
	var about interface { // a *field.Error
		error
		ErrorBody() string
	}
	var several interface{ Unwrap() []error }
	var aggregate interface{ Errors() []error }
	switch {
	case err == nil:
	case errors.As(err, &several):
		for _, e := range several.Unwrap() {
			all = append(all, d.Locate(path, e)...)
		}
	case errors.As(err, &aggregate):
		for _, e := range aggregate.Errors() {
			all = append(all, d.Locate(path, e)...)
		}
	case errors.As(err, &about):
		key := regexp.MustCompile(`\[([^\]\d][^\]]*)\]`) // of a map
		field := strings.TrimSuffix(about.Error(), ": "+about.ErrorBody())
		all = Problems{d.Problem(join(path, key.ReplaceAllString(field, ".$1")), "%s", about.ErrorBody())}
	default:
		all = Problems{d.Problem(path, "%v", err)}
	}
	return all
}

// JSON returns the document as JSON.
func (d *Document) JSON() ([]byte, error) { return asJSON(d.values[""]) }

func asJSON(n *yaml.Node) ([]byte, error) {
	var value any
	if err := n.Decode(&value); err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

func unmarshal(n *yaml.Node, into any) error {
	text, err := asJSON(n)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

func join(path, name string) string {
	if path == "" || name == "" {
		return path + name
	}
	return path + "." + name
}

// check compares a value with a type, nil for any, and notes where it and all below it is.
func (d *Document) check(n *yaml.Node, t reflect.Type, path string) (all Problems) {
	if d.values[path] = n; d.keys[path] == nil {
		d.keys[path] = n
	}
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	// What reads itself, such as an extension, has fields that are not known here.
	free := t == nil || t.Kind() == reflect.Interface
	opaque := free || reads(t)
	switch {
	case n.Kind == yaml.AliasNode: // it may contain itself
		return Problems{d.Problem(path, "aliases are not allowed: write the value out")}
	case n.Tag == "!!null":
		return nil
	case n.Kind == yaml.MappingNode && (opaque || t.Kind() == reflect.Struct || t.Kind() == reflect.Map):
		all = d.checkFields(n, t, path, opaque)
	case n.Kind == yaml.SequenceNode && (opaque || t.Kind() == reflect.Slice):
		var element reflect.Type
		if !opaque {
			element = t.Elem()
		}
		for i, item := range n.Content {
			all = append(all, d.check(item, element, fmt.Sprintf("%s[%d]", path, i))...)
		}
	}
	if free || len(all) > 0 {
		return all
	}
	err := unmarshal(n, reflect.New(t).Interface())
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		return Problems{d.Problem(path, "%s is not allowed: use %s", named(n), wanted(t))}
	}
	return d.Locate(path, err)
}

func (d *Document) checkFields(n *yaml.Node, t reflect.Type, path string, opaque bool) (all Problems) {
	var names map[string]reflect.Type // nil where any name is a field, with values of type of
	var element reflect.Type
	switch {
	case opaque:
	case t.Kind() == reflect.Map:
		element = t.Elem()
	default:
		names = nearest.Fields(t)
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, below := n.Content[i], join(path, n.Content[i].Value)
		if seen[below] {
			all = append(all, Problem{d.File, key.Line, key.Column, below, "is there twice"})
			continue
		}
		seen[below], d.keys[below], d.values[below] = true, key, n.Content[i+1]
		if known, ok := names[key.Value]; ok {
			element = known
		} else if names != nil {
			all = append(all, d.Problem(below, "%s (allowed: %s)", nearest.Unknown(key.Value, names),
				strings.Join(slices.Sorted(maps.Keys(names)), ", ")))
			continue
		}
		all = append(all, d.check(n.Content[i+1], element, below)...)
	}
	return all
}

// reads reports whether a type reads its own JSON.
func reads(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) ||
		p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func named(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "an object"
	case yaml.SequenceNode:
		return "a list"
	}
	return strconv.Quote(n.Value)
}

func wanted(t reflect.Type) string {
	switch k := t.Kind(); {
	case k == reflect.Bool:
		return "true or false"
	case k >= reflect.Int && k <= reflect.Float64:
		return "a number"
	case k == reflect.String || reads(t):
		return "a string"
	case k == reflect.Slice:
		return "a list"
	}
	return "an object"
}

// Problem is one thing in a file that cannot be used. Path is the field; "" is the whole document.
type Problem struct {
	File         string
	Line, Column int
	Path, Text   string
}

func (p Problem) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, strings.TrimPrefix(p.Path+": "+p.Text, ": "))
}

// Problems of one file.
type Problems []Problem

// Error has a line for each of at most 50 problems, by position.
func (all Problems) Error() string {
	const most = 50
	sorted := slices.SortedStableFunc(slices.Values(all), func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), strings.Compare(a.Text, b.Text))
	})
	var lines []string
	for _, p := range sorted[:min(len(sorted), most)] {
		lines = append(lines, p.Error())
	}
	if more := len(sorted) - most; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more problems", more))
	}
	return strings.Join(lines, "\n")
}

// Err returns nil where nothing is wrong.
func (all Problems) Err() error {
	if len(all) == 0 {
		return nil
	}
	return all
}
