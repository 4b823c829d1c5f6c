package workload

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Path names values of an object: a.b, a["k"], [*] for each element of a list or of a map, [name=x] for the elements
// whose field name is x. It begins at the object after "$.", and otherwise at the value that its reader evaluates. The
// zero value names nothing.
type Path struct {
	text   string
	atRoot bool
	steps  []step
}

// step is one of a field, each element (each), or the elements whose field is value (value not empty).
type step struct {
	field, value string
	each         bool
}

// place is a value of an object with its position, as in spec.a[1].b, and the key under which a map has it.
type place struct {
	value     any
	name, key string
}

// ValueError is a value that a rule cannot read.
type ValueError struct{ Path, Text string }

// Error returns the path of the value, and what is wrong with it.
func (e *ValueError) Error() string { return e.Path + ": " + e.Text }

func (p place) errorf(format string, args ...any) error {
	return &ValueError{p.name, fmt.Sprintf(format, args...) + ", is " + shown(p.value)}
}

func shown(value any) string {
	switch v := value.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		return fmt.Sprintf("%.64q", v)
	}
	return fmt.Sprintf("%.64s", fmt.Sprint(value))
}

// ParsePath reads a Path.
func ParsePath(text string) (p Path, err error) {
	p.text = text
	rest, isRoot := strings.CutPrefix(text, "$")
	p.atRoot = isRoot
	if text == "" {
		return p, fmt.Errorf("path %q: must name a field", text)
	}
	for rest != "" {
		var s step
		if rest[0] == '[' {
			s, rest, err = parseBracket(rest)
		} else {
			s, rest, err = parseField(rest, isRoot || len(p.steps) > 0)
		}
		if err != nil {
			return p, fmt.Errorf("path %q: %w", text, err)
		}
		p.steps = append(p.steps, s)
	}
	return p, nil
}

// parseField reads the name of a field, which a dot begins unless it is the first.
func parseField(text string, follows bool) (s step, rest string, err error) {
	name, dotted := strings.CutPrefix(text, ".")
	end := strings.IndexAny(name, ".[")
	if end < 0 {
		end = len(name)
	}
	s.field = name[:end]
	if dotted != follows || s.field == "" || strings.ContainsAny(s.field, `]"=*$ `) {
		return s, "", fmt.Errorf("%q must be the name of a field, with a dot between two", text)
	}
	return s, name[end:], nil
}

func parseBracket(text string) (s step, rest string, err error) {
	if quoted, ok := strings.CutPrefix(text, `["`); ok {
		key, after, closed := strings.Cut(quoted, `"]`)
		if s.field = key; !closed || key == "" {
			return s, "", fmt.Errorf(`%q must be ["key"]`, text)
		}
		return s, after, nil
	}
	inner, after, closed := strings.Cut(text[1:], "]")
	field, value, isFilter := strings.Cut(inner, "=")
	switch {
	case closed && inner == "*":
		s.each = true
	case closed && isFilter && field != "" && value != "":
		s.field, s.value = field, value
	default:
		return s, "", fmt.Errorf(`%q must be [*], ["key"] or [field=value]`, text)
	}
	return s, after, nil
}

// UnmarshalText reads a Path.
func (p *Path) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePath(string(text))
	return err
}

// MarshalText returns the text that was read.
func (p Path) MarshalText() ([]byte, error) { return []byte(p.text), nil }

// String returns the text that was read.
func (p Path) String() string { return p.text }

func (p Path) isZero() bool { return p.text == "" }

// find returns the values that the path names, those of a map by key. What is absent or null is left out.
func (p Path) find(root, from place) ([]place, error) {
	if p.isZero() {
		return nil, nil
	}
	if p.atRoot {
		from = root
	}
	at := []place{from}
	for _, s := range p.steps {
		var next []place
		for _, a := range at {
			found, err := s.find(a)
			if err != nil {
				return nil, err
			}
			next = append(next, found...)
		}
		at = next
	}
	return at, nil
}

func (s step) find(at place) (out []place, err error) {
	if !s.each && s.value == "" {
		fields, ok := at.value.(map[string]any)
		if !ok {
			return nil, at.errorf("must be an object")
		}
		if value := fields[s.field]; value != nil {
			out = append(out, place{value, strings.TrimPrefix(at.name+"."+s.field, "."), s.field})
		}
		return out, nil
	}
	switch v := at.value.(type) {
	case []any:
		for i, value := range v {
			out = append(out, place{value, fmt.Sprintf("%s[%d]", at.name, i), ""})
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			out = append(out, place{v[key], at.name + "." + key, key})
		}
	default:
		return nil, at.errorf("must be a list")
	}
	return slices.DeleteFunc(out, func(p place) bool {
		if p.value == nil || s.each {
			return p.value == nil
		}
		fields, _ := p.value.(map[string]any)
		return fields[s.field] != s.value
	}), nil
}

// one returns the only value that the path names; ok is false without one.
func (p Path) one(root, from place) (found place, ok bool, err error) {
	all, err := p.find(root, from)
	if err != nil || len(all) == 0 {
		return place{}, false, err
	}
	if len(all) > 1 {
		return place{}, false, &ValueError{all[1].name, fmt.Sprintf("%s must name one value", p)}
	}
	return all[0], true, nil
}

// textAt returns the text that the path names, "" without one.
func (p Path) textAt(root, from place) (string, error) {
	found, ok, err := p.one(root, from)
	if err != nil || !ok {
		return "", err
	}
	text, isText := found.value.(string)
	if !isText {
		return "", found.errorf("must be a string")
	}
	return text, nil
}
