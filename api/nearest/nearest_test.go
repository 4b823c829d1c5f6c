package nearest

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"

	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

func TestWord(t *testing.T) {
	t.Parallel()
	names := []string{"bindPolicy", "exclusivePolicy", "reserved", "cpu", "gpu"}
	tests := map[string]struct{ word, want string }{
		"the name itself":             {"reserved", "reserved"},
		"a letter is missing":         {"bindPolcy", "bindPolicy"},
		"two neighbours are swapped":  {"bindPoilcy", "bindPolicy"},
		"two letters differ":          {"exclusivPolici", "exclusivePolicy"},
		"case, dash and underscore":   {"EXCLUSIVE-POLICY", "exclusivePolicy"},
		"three letters differ":        {"bndPlcie", ""},
		"two names are equally close": {"xpu", ""},
		"nothing is similar":          {"memory", ""},
		"no word":                     {"", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Word(tt.word, names); got != tt.want {
				t.Errorf("Word(%q) = %q, want %q", tt.word, got, tt.want)
			}
		})
	}
}

func TestClosest(t *testing.T) {
	t.Parallel()
	names := []string{"min-available", "total-number", "mode", "name"}
	for word, want := range map[string]string{
		"min-avail": "min-available", "min-x": "min-available", "totalnumbers": "total-number", "foo": "mode",
		"my-name": "mode", "xname": "name",
		"": "mode", // as far away as name, which comes later
	} {
		if got := Closest(word, names); got != want {
			t.Errorf("Closest(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestEditsIsADistance(t *testing.T) {
	t.Parallel()
	word := rapid.StringMatching(`[abc]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		d := edits(a, b)
		if d != edits(b, a) || (d == 0) != (a == b) || d > max(len(a), len(b)) {
			t.Fatalf("edits(%q, %q) = %d, back %d", a, b, d, edits(b, a))
		}
		if i := rapid.IntRange(0, len(a)).Draw(t, "i"); edits(a, a[:i]+"x"+a[i:]) != 1 {
			t.Fatalf("one letter more in %q at %d is %d edits", a, i, edits(a, a[:i]+"x"+a[i:]))
		}
	})
}

func TestUnknownField(t *testing.T) {
	t.Parallel()
	type inner struct {
		Name string `json:"name,omitempty"`
	}
	type outer struct {
		Embedded inner   `json:",inline"`
		List     []inner `json:"list"`
		Pointer  *inner  `json:"pointer"`
		Word     string  `json:"word"`

		ByName map[string]*inner `json:"byName"`
	}
	for path, want := range map[string]string{
		"lisst":        `unknown field, did you mean "list"?`,
		"list[3].nam":  `unknown field, did you mean "name"?`,
		"pointer.nmae": `unknown field, did you mean "name"?`,
		"pointer.x":    "unknown field",
		"word.x":       "unknown field",
		"byName.a.nam": `unknown field, did you mean "name"?`,
		"gone.name":    "unknown field",
	} {
		if got := UnknownField(reflect.TypeFor[outer](), path); got != want {
			t.Errorf("UnknownField(%s) = %s, want %s", path, got, want)
		}
	}
}

// TestFieldsOfAnEmbeddedStructAreItsOwn: kinds of Kubernetes tag TypeMeta with or without the word inline.
func TestFieldsOfAnEmbeddedStructAreItsOwn(t *testing.T) {
	t.Parallel()
	type Meta struct {
		Kind string `json:"kind,omitempty"`
	}
	for name, kind := range map[string]any{
		"tagged": struct {
			Meta `json:",inline"`
			Spec int `json:"spec"`
		}{},
		"with an empty tag": struct {
			Meta `json:""`
			Spec int `json:"spec"`
		}{},
		"without a tag": struct {
			Meta
			Spec int `json:"spec"`
		}{},
	} {
		if got := Fields(reflect.TypeOf(kind)); len(got) != 2 || got["kind"] == nil || got["spec"] == nil {
			t.Errorf("%s: %v, want kind and spec", name, got)
		}
	}
	named := struct {
		Meta `json:"metadata"`
	}{}
	if got := Fields(reflect.TypeOf(named)); len(got) != 1 || got["metadata"] == nil {
		t.Errorf("an embedded struct with a name: %v, want metadata", got)
	}
}
