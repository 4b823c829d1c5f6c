package annotation

import (
	gojson "encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/json"

	"github.com/tenon-project/tenon/api/nearest"
)

// Error says why a value cannot be used.
type Error struct {
	// Offset is the byte of the text at which the problem was found.
	Offset int64
	// Field is the path inside the JSON, "" for the whole value.
	Field string
	// Value is the value that is not one of Allowed, for an unknown policy.
	Value   string
	Allowed []string
	// Text is the rule that was broken.
	Text string
}

// Error returns the byte, the field and the rule.
func (e *Error) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("byte %d: %s", e.Offset, e.Text)
	}
	return fmt.Sprintf("byte %d: %s: %s", e.Offset, e.Field, e.Text)
}

// Warning is something in a value that is accepted, but that its author should know.
type Warning struct {
	Field, Text string
}

// String returns the field and the text.
func (w Warning) String() string { return w.Field + ": " + w.Text }

// Decode reads one JSON value and nothing after it. Keys are case-sensitive. An error is an *Error.
func Decode(text string, into any) ([]Warning, error) {
	strict, err := json.UnmarshalStrict([]byte(text), into)
	if err != nil {
		return nil, jsonError(text, reflect.TypeOf(into).Elem(), err)
	}
	var warnings []Warning
	for _, e := range strict {
		w := Warning{Text: "duplicate field: the last one counts"}
		if fe := json.FieldError(nil); errors.As(e, &fe) {
			w.Field = fe.FieldPath()
		}
		if strings.HasPrefix(e.Error(), "unknown field") {
			w.Text = nearest.UnknownField(reflect.TypeOf(into), w.Field)
		}
		warnings = append(warnings, w)
	}
	return warnings, nil
}

func jsonError(text string, target reflect.Type, err error) error {
	if ok, offset := json.SyntaxErrorOffset(err); ok {
		return &Error{Offset: offset, Text: err.Error()}
	}
	if e := (*gojson.UnmarshalTypeError)(nil); errors.As(err, &e) {
		text := fmt.Sprintf("want %s, got %s", kindName(e.Type), e.Value)
		return &Error{Offset: e.Offset, Field: jsonPath(e.Field), Text: text}
	}
	offset, name := blame(text, target)
	return &Error{Offset: offset, Field: name, Text: err.Error()}
}

// jsonPath is a path as decoders write it, without the embedded structs that they name in it.
func jsonPath(path string) string {
	embedded := func(name string) bool { return name != "" && 'A' <= name[0] && name[0] <= 'Z' }
	return strings.Join(slices.DeleteFunc(strings.Split(path, "."), embedded), ".")
}

// blame finds the field of the outermost object whose own reader failed, for errors that say no place: the first one
// that cannot be read alone. Without one it is the start of the value.
func blame(text string, target reflect.Type) (offset int64, name string) {
	offset = int64(len(text) - len(strings.TrimLeft(text, " \t\r\n")))
	for _, f := range outermost(text) {
		alone := encode(map[string]gojson.RawMessage{f.name: f.value})
		if json.UnmarshalCaseSensitivePreserveInts([]byte(alone), reflect.New(target).Interface()) != nil {
			return f.offset, f.name
		}
	}
	return offset, ""
}

func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Pointer:
		return kindName(t.Elem())
	}
	return "a whole number that fits " + t.Kind().String()
}

type textField struct {
	name   string
	value  gojson.RawMessage
	offset int64 // of the value
}

// outermost returns the fields of the outermost object, as far as the text is one.
func outermost(text string) []textField {
	dec := gojson.NewDecoder(strings.NewReader(text))
	if first, err := dec.Token(); err != nil || first != gojson.Delim('{') {
		return nil
	}
	var fields []textField
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return fields
		}
		f := textField{name: fmt.Sprint(key)}
		if err := dec.Decode(&f.value); err != nil {
			return fields
		}
		f.offset = dec.InputOffset() - int64(len(f.value))
		fields = append(fields, f)
	}
	return fields
}

// Encode returns the canonical JSON of a value of this package: the text from which its Parse function reads an equal
// value. A type whose canonical form is not its plain JSON has a String of its own, and Encode returns that.
func Encode(v any) string {
	if own, ok := v.(fmt.Stringer); ok {
		return own.String()
	}
	return encode(v)
}

// encode writes a value whose types cannot fail to marshal.
func encode(v any) string {
	b, err := gojson.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("annotation: marshal %T: %v", v, err))
	}
	return string(b)
}
