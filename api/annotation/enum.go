package annotation

import (
	"fmt"
	"slices"
	"strings"
)

type alias struct{ from, to string }

// match finds the canonical form of a value: as written, by alias, or by letters alone whatever their case. exact is
// false when only the case differed.
func match(value string, allowed []string, aliases []alias) (canonical string, exact, ok bool) {
	for _, exact := range []bool{true, false} {
		same := func(a string) bool { return a == value || !exact && strings.EqualFold(a, value) }
		if i := slices.IndexFunc(allowed, same); i >= 0 {
			return allowed[i], exact, true
		}
		if i := slices.IndexFunc(aliases, func(a alias) bool { return same(a.from) }); i >= 0 {
			return aliases[i].to, exact, true
		}
	}
	return "", false, false
}

// word reads a value that is one of allowed and nothing else.
func word(text string, allowed ...string) (string, []Warning, error) {
	canonical, exact, ok := match(text, allowed, nil)
	switch {
	case !ok:
		return "", nil, &Error{Value: text, Allowed: allowed, Text: Unsupported(text, allowed...)}
	case !exact:
		return canonical, []Warning{{Text: spelling(text, canonical)}}, nil
	}
	return canonical, nil, nil
}

func spelling(value, canonical string) string {
	return fmt.Sprintf("%q is read as %q: values are case-sensitive on output", value, canonical)
}

// Unsupported is the text of a refusal of value, of which it has the beginning, with the values that are allowed.
func Unsupported(value string, allowed ...string) string {
	return fmt.Sprintf("Unsupported value %.64q: supported %s", value, strings.Join(allowed, ", "))
}

// invalid refuses a value that breaks a rule. The text has the beginning of the value.
func invalid(value, rule string) *Error {
	return &Error{Value: value, Text: fmt.Sprintf("Invalid value %.64q: %s", value, rule)}
}
