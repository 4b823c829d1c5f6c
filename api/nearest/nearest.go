package nearest

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Word returns the one of names that word is a misspelling of: equal but for case, - and _, else at most two edits
// away, a swap of neighbours being one. It returns "" when there is none, or when two are equally close.
func Word(word string, names []string) string {
	best, distance := "", 3
	for _, name := range names {
		d := 3
		if max(len(word)-len(name), len(name)-len(word)) < d {
			d = min(edits(word, name), d)
		}
		if fold(word) == fold(name) {
			d = 0
		}
		switch {
		case d < distance:
			best, distance = name, d
		case d == distance:
			best = ""
		}
	}
	return best
}

// Closest returns the one of names that has the name of word in another domain, else the one that begins like word for
// longest, of several the one with the fewest edits.
func Closest(word string, names []string) string {
	elsewhere := func(name string) int {
		_, own, hasDomain := strings.Cut(word, "/")
		if _, other, _ := strings.Cut(name, "/"); hasDomain && own == other {
			return 0
		}
		return 1
	}
	return slices.MinFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(elsewhere(a), elsewhere(b)),
			cmp.Compare(common(word, b), common(word, a)), cmp.Compare(edits(word, a), edits(word, b)))
	})
}

// common returns how many bytes two texts have in common at their beginning.
func common(a, b string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func fold(s string) string {
	return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(s))
}

// edits is the optimal string alignment distance.
func edits(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range len(b) + 1 {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

// UnknownField is the text about a field of a JSON value that type t does not have, with the name that was meant where
// one is similar. The path is written as the strict reader writes it: a.b, a[0].b.
func UnknownField(t reflect.Type, path string) string {
	parts := strings.Split(path, ".")
	for _, part := range parts[:len(parts)-1] {
		name, _, _ := strings.Cut(part, "[")
		if t = below(t, name); t == nil {
			return "unknown field"
		}
	}
	return Unknown(parts[len(parts)-1], Fields(t))
}

// Unknown is the text about a name that is not one of fields, with the one that was meant where one is similar.
func Unknown(name string, fields map[string]reflect.Type) string {
	if meant := Word(name, slices.Sorted(maps.Keys(fields))); meant != "" {
		return fmt.Sprintf("unknown field, did you mean %q?", meant)
	}
	return "unknown field"
}

// below is the type of a field, or of the values of a map.
func below(t reflect.Type, name string) reflect.Type {
	if t = plain(t); t.Kind() == reflect.Map {
		return t.Elem()
	}
	return Fields(t)[name]
}

// plain is the type below pointers and lists.
func plain(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t
}

// Fields are the types of a struct's fields, by their names in JSON. Fields of an embedded struct without a name are
// its own. The struct may be below pointers and lists.
func Fields(t reflect.Type) map[string]reflect.Type {
	t = plain(t)
	named := map[string]reflect.Type{}
	if t.Kind() != reflect.Struct {
		return named
	}
	for i := range t.NumField() {
		switch name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); {
		case name == "" && (t.Field(i).Anonymous || options == "inline"):
			maps.Copy(named, Fields(t.Field(i).Type))
		case name != "" && name != "-":
			named[name] = t.Field(i).Type
		}
	}
	return named
}
