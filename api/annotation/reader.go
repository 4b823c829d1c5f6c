package annotation

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// reader checks what was decoded from a text. It keeps the first refusal and all warnings. Fields are named by their
// path from the outermost object.
type reader struct {
	text     string
	warnings []Warning
	err      error
}

func read[T any](text string, check func(r *reader, v *T)) (T, []Warning, error) {
	var v, none T
	warnings, err := Decode(text, &v)
	if err != nil {
		return none, nil, err
	}
	r := &reader{text: text, warnings: warnings}
	if check != nil {
		check(r, &v)
	}
	if r.err != nil {
		return none, nil, r.err
	}
	return v, r.warnings, nil
}

// reads returns what reads a T with check.
func reads[T any](check func(r *reader, v *T)) func(text string) (T, []Warning, error) {
	return func(text string) (T, []Warning, error) { return read(text, check) }
}

func (r *reader) refuse(field string, e Error) {
	if r.err != nil {
		return
	}
	outer, _, _ := strings.Cut(field, ".")
	e.Field = field
	for _, f := range outermost(r.text) {
		if f.name == outer || f.name == field { // names of resources have dots
			e.Offset = f.offset // of repeated fields the last one counts
		}
	}
	r.err = &e
}

// word replaces a value by its canonical form. An empty one remains empty.
func (r *reader) word(field string, value *string, allowed []string, aliases ...alias) {
	if *value == "" {
		return
	}
	canonical, exact, ok := match(*value, allowed, aliases)
	switch {
	case !ok:
		r.refuse(field, Error{Value: *value, Allowed: allowed, Text: Unsupported(*value, allowed...)})
	case !exact:
		r.warnings = append(r.warnings, Warning{Field: field, Text: spelling(*value, canonical)})
	}
	*value = canonical
}

func (r *reader) atLeastZero(field string, n int64) {
	if n < 0 {
		r.refuse(field, Error{Text: "must not be negative"})
	}
}

func (r *reader) ids(field string, ids NUMANodes) {
	for _, id := range ids {
		r.atLeastZero(field, int64(id))
	}
}

func (r *reader) amounts(field string, list corev1.ResourceList) {
	for _, q := range list {
		r.atLeastZero(field, int64(q.Sign()))
	}
}

// sorted returns the keys of a map in order, so that of several faults always the same one is reported.
func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// slowQuantity is a value that is read as a quantity, if it is one, with an exponent of three digits or more or with a
// mantissa of more than 64.
var slowQuantity = regexp.MustCompile(
	`:\s*(-?[\d.]{65,}|-?[\d.]*[eE][-+]?0*[1-9]\d{2,}|` +
		`"[^"\w]*[\d.]{65,}[^"]*"|"[^"\w]*[\d.]*[eE][-+]?0*[1-9]\d{2,}[^"\w]*")`)

// HasSlowQuantity reports whether a JSON object or list has a value that takes seconds to read as a quantity, as
// 1e-9999999 does: to bring it to its canonical form, a number of so many digits is made.
func HasSlowQuantity(text string) bool { return slowQuantity.MatchString(text) }

// ParseQuantity is resource.ParseQuantity, apart from quantities that take seconds to read or to compare.
func ParseQuantity(text string) (resource.Quantity, error) {
	if HasSlowQuantity(`:"` + text + `"`) {
		return resource.Quantity{}, errors.New(outOfRange(text))
	}
	return resource.ParseQuantity(text) //nolint:forbidigo // here alone
}

func outOfRange(quantity string) string {
	return fmt.Sprintf("quantity %.32s is out of range", quantity)
}

// readAmounts is read for a T with quantities. It refuses slow ones before they are decoded: any user may write the
// text.
func readAmounts[T any](text string, check func(r *reader, v *T)) (T, []Warning, error) {
	at := slowQuantity.FindStringSubmatchIndex(text)
	if at == nil {
		return read(text, check)
	}
	e := &Error{Text: outOfRange(text[at[2]:at[3]])}
	for _, f := range outermost(text) {
		if f.offset <= int64(at[2]) {
			e.Offset, e.Field = f.offset, f.name
		}
	}
	var none T
	return none, nil, e
}

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
