package annotation

import (
	"fmt"
	"strings"
)

// alias is a value that is read as another one.
type alias struct{ from, to string }

// match finds the canonical form of a value: as written, by alias, or by letters alone whatever their case. exact is
// false when only the case differed.
func match(value string, allowed []string, aliases []alias) (canonical string, exact, ok bool) {
	for _, a := range allowed {
		if value == a {
			return a, true, true
		}
	}
	for _, a := range aliases {
		if value == a.from {
			return a.to, true, true
		}
	}
	for _, a := range allowed {
		if strings.EqualFold(value, a) {
			return a, false, true
		}
	}
	for _, a := range aliases {
		if strings.EqualFold(value, a.from) {
			return a.to, false, true
		}
	}
	return "", false, false
}

// spelling is the warning for a value that differs from the canonical one by case alone.
func spelling(value, canonical string) string {
	return fmt.Sprintf("%q is read as %q: values are case-sensitive on output", value, canonical)
}

// Unsupported is the text of a refusal of value, with the values that are allowed.
func Unsupported(value string, allowed ...string) string {
	return fmt.Sprintf("Unsupported value %q: supported %s", value, strings.Join(allowed, ", "))
}

// field is one policy inside a JSON object.
type field struct {
	name    string
	value   *string
	allowed []string
	aliases []alias
}

// canonicalize replaces the values of fields by their canonical forms. Empty ones remain empty.
func canonicalize(text string, fields ...field) ([]Warning, error) {
	var warnings []Warning
	for _, f := range fields {
		if *f.value == "" {
			continue
		}
		canonical, exact, ok := match(*f.value, f.allowed, f.aliases)
		if !ok {
			return nil, &Error{
				Offset: valueOffset(text, f.name), Field: f.name, Value: *f.value, Allowed: f.allowed,
				Text: Unsupported(*f.value, f.allowed...),
			}
		}
		if !exact {
			warnings = append(warnings, Warning{Field: f.name, Text: spelling(*f.value, canonical)})
		}
		*f.value = canonical
	}
	return warnings, nil
}
