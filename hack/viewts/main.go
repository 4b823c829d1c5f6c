// Command viewts writes the types of internal/view that the pages of the console draw as TypeScript.
//
//	go run ./hack/viewts FOLDER
package main

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tenon-project/tenon/internal/view"
)

// drawn are the types that pages name. What they contain is written too.
var drawn = []any{
	view.Cgroups{},
	view.Configuration{},
	view.Evicted{},
	view.Evictions{},
	view.Gang{},
	view.GPULoad{},
	view.Load{},
	view.ModeOfNode{},
	view.Node{},
	view.NodeUse{},
	view.Past{},
	view.PendingGroup{},
	view.Pod{},
	view.Quota{},
	view.Reservation{},
	view.Status{},
	view.WhatIfAnswer{},
}

// null are the lists and maps that the server sends as null where they are empty.
var null = []string{
	"Decision.scores", "Holder.numaNodes", "Placement.numa", "Pod.candidates", "Pod.minimalSets", "Pod.obstacles",
	"Policies.from", "Reservation.devices",
}

// raw are the types of fields that contain the JSON of an annotation.
var raw = map[string]string{
	"WhatIfPlacement.resourceStatus": "{ cpuset?: string }",
	"WhatIfPlacement.devices":        "Record<string, Device[]>",
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: viewts FOLDER")
		os.Exit(2)
	}
	if err := os.WriteFile(filepath.Join(os.Args[1], "view.ts"), types(drawn), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// types declares types and all that they contain.
func types(roots []any) []byte {
	w := &writer{declared: map[reflect.Type]bool{}}
	w.WriteString("// The parts of internal/view that the pages draw, as the server sends them. Written by hack/viewts.\n\n" +
		"export interface List<T> {\n  items: T[];\n}\n")
	for _, root := range roots {
		w.name(reflect.TypeOf(root))
	}
	for len(w.waiting) > 0 {
		next := w.waiting[0]
		w.waiting = w.waiting[1:]
		fmt.Fprintf(w, "\nexport interface %s {\n", w.name(next))
		w.fields(next)
		w.WriteString("}\n")
	}
	return w.Bytes()
}

// writer writes declarations.
type writer struct {
	bytes.Buffer
	declared map[reflect.Type]bool
	waiting  []reflect.Type // declared, and not written yet
}

// name returns the name of a struct, and declares it once. One of another package than view has the name of its package
// before its own.
func (w *writer) name(t reflect.Type) string {
	if !w.declared[t] {
		w.declared[t] = true
		w.waiting = append(w.waiting, t)
	}
	if pkg := path.Base(t.PkgPath()); pkg != "view" {
		return strings.ToUpper(pkg[:1]) + pkg[1:] + t.Name()
	}
	return t.Name()
}

// fields writes the fields of a struct. Those of an embedded struct are its own.
func (w *writer) fields(t reflect.Type) {
	for f := range t.Fields() {
		name, options, tagged := strings.Cut(f.Tag.Get("json"), ",")
		switch embedded := element(f.Type); {
		case f.Anonymous && name == "" && embedded.Kind() == reflect.Struct:
			w.fields(embedded)
			continue
		case name == "-" || !f.IsExported():
			continue
		case !tagged && name == "":
			name = f.Name
		}
		optional := ""
		if strings.Contains(options, "omit") {
			optional = "?"
		}
		field := t.Name() + "." + name
		text := cmp.Or(raw[field], w.typeOf(f.Type))
		if slices.Contains(null, field) || optional == "" && f.Type.Kind() == reflect.Pointer {
			text += " | null"
		}
		fmt.Fprintf(w, "  %s%s: %s;\n", name, optional, text)
	}
}

// element returns what a pointer points to, and any other type itself.
func element(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// typeOf returns the type of a value in JSON.
func (w *writer) typeOf(t reflect.Type) string {
	t = element(t)
	if t == reflect.TypeFor[time.Time]() || reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return "string"
	}
	switch k := t.Kind(); k {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Struct:
		return w.name(t)
	case reflect.Slice, reflect.Array:
		if t == reflect.TypeFor[json.RawMessage]() {
			return "unknown"
		}
		return w.typeOf(t.Elem()) + "[]"
	case reflect.Map:
		return "Record<string, " + w.typeOf(t.Elem()) + ">"
	case reflect.Interface:
		return "unknown"
	default:
		if t.ConvertibleTo(reflect.TypeFor[float64]()) {
			return "number"
		}
		panic(fmt.Sprintf("viewts: %s has no type in JSON", t))
	}
}
