package strict

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/testkit"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

type part struct {
	BindPolicy string `json:"bindPolicy,omitempty"`
	Reserved   int    `json:"reserved,omitempty"`
}

type sample struct {
	v1.TypeMeta `json:",inline"`
	CPU         part                 `json:"cpu"`
	Parts       []part               `json:"parts"`
	ByName      map[string]*part     `json:"byName"`
	Gates       map[string]bool      `json:"gates"`
	Every       v1.Duration          `json:"every"`
	On          *bool                `json:"on"`
	Args        runtime.RawExtension `json:"args"`
}

const header = "apiVersion: a/v1\nkind: Sample\n"

func decode(t *testing.T, text string) (sample, error) {
	t.Helper()
	var s sample
	all, err := Parse("f.yaml", []byte(text))
	if err != nil {
		return s, err
	}
	if len(all) != 1 {
		t.Fatalf("%d documents", len(all))
	}
	return s, all[0].DecodeKind("a/v1", "Sample", &s).Err()
}

func TestProblemsHaveTheirPlaces(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"a misspelt field": {
			"cpu:\n  bindPolcy: a\n",
			`f.yaml:4:3: cpu.bindPolcy: unknown field, did you mean "bindPolicy"? (allowed: bindPolicy, reserved)`,
		},
		"a field of a list and one of a map": {
			"parts:\n- {reserved: 1}\n- {x: 1}\nbyName:\n  a: {y: 2}\n",
			"f.yaml:5:4: parts[1].x: unknown field (allowed: bindPolicy, reserved)\n" +
				"f.yaml:7:7: byName.a.y: unknown field (allowed: bindPolicy, reserved)",
		},
		"wrong types, all of them": {
			"cpu: {bindPolicy: 5, reserved: many}\nparts: {}\non: maybe\nevery: [1]\ngates: {A: 1}\n",
			"f.yaml:3:7: cpu.bindPolicy: \"5\" is not allowed: use a string\n" +
				"f.yaml:3:22: cpu.reserved: \"many\" is not allowed: use a number\n" +
				"f.yaml:4:1: parts: an object is not allowed: use a list\n" +
				"f.yaml:5:1: on: \"maybe\" is not allowed: use true or false\n" +
				"f.yaml:6:1: every: a list is not allowed: use a string\n" +
				"f.yaml:7:9: gates.A: \"1\" is not allowed: use true or false",
		},
		"a duration without a unit": {
			"every: '30'\n", `f.yaml:3:1: every: time: missing unit in duration "30"`,
		},
		"a key twice": {"on: true\non: false\n", "f.yaml:4:1: on: is there twice"},
		"an alias": {
			"cpu: &c {reserved: 1}\nparts: [*c]\n",
			"f.yaml:4:9: parts[0]: aliases are not allowed: write the value out",
		},
		"a loop":  {"args: &c {x: *c}\n", "f.yaml:3:11: args.x: aliases are not allowed: write the value out"},
		"no YAML": {"cpu: {\n", "f.yaml:3:1: yaml: line 3: did not find expected node content"},
		"a merge key": {
			"cpu: {<<: {reserved: 1}}\n",
			"f.yaml:3:7: cpu.<<: unknown field (allowed: bindPolicy, reserved)",
		},
		"a list":       {"", ""},
		"JSON in YAML": {"args: {anything: [1, {goes: here}]}\n", ""},
		"null":         {"on: null\ncpu:\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := decode(t, header+c.text)
			if got := fmt.Sprint(err); got != c.want && (c.want != "" || err != nil) {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
	if _, err := decode(t, "kind: Other\n"); err == nil || err.Error() !=
		"f.yaml:1:1: apiVersion: \"\" is not allowed: use a/v1\n"+
			"f.yaml:1:1: kind: \"Other\" is not allowed: use Sample" {
		t.Errorf("another kind: %v", err)
	}
}

func TestValidationIsLocated(t *testing.T) {
	t.Parallel()
	all, err := Parse("f.yaml", []byte("args:\n  parts:\n  - {reserved: 1}\n  limits:\n    a.b: 2\n"))
	testkit.Check(t, err)
	var s sample
	if problems := all[0].Decode("", &s); len(problems) > 0 {
		t.Fatal(problems)
	}
	got := all[0].Locate("args", field.ErrorList{
		field.Invalid(field.NewPath("limits").Key("a.b"), 2, "too many"),
		field.Invalid(field.NewPath("parts").Index(0).Child("reserved"), 1, "too few"),
		field.Required(field.NewPath("parts").Index(0).Child("bindPolicy"), "missing"),
	}.ToAggregate())
	want := "f.yaml:3:5: args.parts[0].bindPolicy: Required value: missing\n" +
		"f.yaml:3:6: args.parts[0].reserved: Invalid value: 1: too few\n" +
		"f.yaml:5:5: args.limits.a.b: Invalid value: 2: too many"
	if got.Error() != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	joined := all[0].Locate("", errors.Join(errors.New("a"), nil, fmt.Errorf("b: %w", errors.New("c"))))
	if joined.Error() != "f.yaml:1:1: a\nf.yaml:1:1: b: c" {
		t.Errorf("joined: %s", joined)
	}
}

func TestAtMostFiftyProblemsAreListed(t *testing.T) {
	t.Parallel()
	text := header
	for i := range 60 {
		text += fmt.Sprintf("field%d: 1\n", i)
	}
	_, err := decode(t, text)
	lines := strings.Split(fmt.Sprint(err), "\n")
	if len(lines) != 51 || lines[50] != "and 10 more problems" {
		t.Errorf("%d lines, the last is %q", len(lines), lines[len(lines)-1])
	}
}

// TestNoFileMakesItPanic, and what is accepted has no unknown field.
func TestNoFileMakesItPanic(t *testing.T) {
	t.Parallel()
	piece := rapid.SampledFrom([]string{
		"cpu", "parts", "byName", "on", "args", "every", ": ", "- ", "\n", "  ", "{", "}", "[", "]", "&a ", "*a", "<<",
		"null", "1", "true", "'x'", "!!binary ", "? ", "---\n", "# c\n", ",", `"`, "|\n", "\t", "%",
	})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(piece, 0, 30).Draw(t, "pieces"), "")
		all, err := Parse("f", []byte(text))
		if err != nil {
			return
		}
		for _, d := range all {
			var s sample
			if problems := d.Decode("", &s); len(problems) > 0 && problems.Error() == "" {
				t.Fatal("a problem without a text")
			}
			_ = d.Kind()
			_, _ = d.JSON()
		}
	})
}

// line is a small command line.
type line struct {
	values map[string]string
	given  map[string]bool
}

func (l line) flags() Flags {
	return Flags{
		Given: func(name string) bool { return l.given[name] },
		Set: func(name, text string) error {
			if text == "bad" {
				return errors.New("no")
			}
			l.values[name] += text + ";"
			return nil
		},
		Text: func(name string) string { return l.values[name] },
	}
}

func TestFlagsWinOverTheFile(t *testing.T) {
	t.Parallel()
	type schema struct {
		v1.TypeMeta `json:",inline"`
		NRISocket   string          `json:"nriSocket"`
		Exempt      []string        `json:"exempt"`
		GatesOfCPU  map[string]bool `json:"gatesOfCPU"`
		Resync      v1.Duration     `json:"resync"`
		Nested      *part           `json:"nested"`
	}
	all, err := Parse("a.yaml", []byte("resync: 30s\nexempt: [a, b]\nnriSocket: null\ngatesOfCPU: {X: true}\n"))
	testkit.Check(t, err)
	var into schema
	if problems := all[0].Decode("", &into); len(problems) > 0 {
		t.Fatal(problems)
	}
	l := line{map[string]string{"resync": "5s", "nri-socket": "/s"}, map[string]bool{"resync": true}}
	s, err := Apply(all[0], schema{}, l.flags())
	testkit.Check(t, err)
	want := "[{exempt a;b; a.yaml:2} {gatesOfCPU X=true; a.yaml:4} {nriSocket /s a.yaml:3} {resync 5s --resync}]"
	if got := fmt.Sprint(s.All); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, nil)
	if got := w.Body.String(); !strings.Contains(got, `{"field":"exempt","value":"a;b;","origin":"a.yaml:2"}`) {
		t.Errorf("/configz: %s", got)
	}
	located := s.Locate(errors.New("--exempt a: no pod"), errors.New("--resync 5s: want more"), nil)
	if got := located.Error(); got != "a.yaml:2:1: exempt: --exempt a: no pod\n--resync 5s: want more" {
		t.Errorf("located: %s", got)
	}
	if s, err = Apply(nil, schema{}, l.flags()); err != nil || s.All[1].Origin != "default" {
		t.Errorf("without a file: %v, %v", s, err)
	}
	bad, _ := Parse("a.yaml", []byte("exempt: [bad]\n"))
	_ = bad[0].Decode("", &into)
	if _, err := Apply(bad[0], schema{}, l.flags()); err == nil ||
		err.Error() != `a.yaml:1:1: exempt: "bad" is not allowed: no` {
		t.Errorf("a value that the flag refuses: %v", err)
	}
}

// TestEqualConfigurationsHaveOneHash: wherever their values come from, and no other one has it.
func TestEqualConfigurationsHaveOneHash(t *testing.T) {
	t.Parallel()
	hash := func(settings ...Setting) string { return Settings{All: settings}.Hash() }
	one := hash(Setting{Field: "a", Value: "1", Origin: "default"}, Setting{Field: "b"})
	if same := hash(Setting{Field: "a", Value: "1", Origin: "f:2"}, Setting{Field: "b"}); same != one {
		t.Errorf("hashes %s and %s of equal values", one, same)
	}
	for name, other := range map[string]string{
		"another value":                   hash(Setting{Field: "a", Value: "2"}, Setting{Field: "b"}),
		"another field":                   hash(Setting{Field: "a", Value: "1"}, Setting{Field: "c"}),
		"a value that looks like a field": hash(Setting{Field: "a", Value: "1\"=\"\nb"}),
		"none":                            hash(),
	} {
		if other == one {
			t.Errorf("%s has the same hash", name)
		}
	}
}
