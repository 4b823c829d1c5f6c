package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/fold"
)

func TestOnlyCpusetsAreRewritten(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text, want string
		asked      fold.Set
	}{
		"a container with CPUs and memory nodes": {
			`{"ociVersion":"1.2.1","linux":{"resources":{"memory":{"limit":9007199254740993},"cpu":{"shares":1024,` +
				`"cpus":"2,4","mems":"1"}}}}`,
			`{"ociVersion":"1.2.1","linux":{"resources":{"memory":{"limit":9007199254740993},"cpu":{"shares":1024,` +
				`"cpus":"0","mems":"0"}}}}`,
			fold.Set{CPUs: "2,4", Mems: "1"},
		},
		"a container that asks for none": {
			`{"linux":{"resources":{"cpu":{"shares":2}}}}`,
			`{"linux":{"resources":{"cpu":{"shares":2}}}}`,
			fold.Set{},
		},
		"a container without limits": {
			`{"linux":{"resources":null}}`, `{"linux":{"resources":null}}`,
			fold.Set{},
		},
		"a spec without Linux": {`{"process":{"args":["a"]}}`, `{"process":{"args":["a"]}}`, fold.Set{}},
		"values that look like ours and are kept": {
			`{"cpus":"9","linux":{"cpus":"9","resources":{"cpu":{"cpus":"",` +
				`"x":[1.50]}}}}`, `{"cpus":"9","linux":{"cpus":"9","resources":{"cpu":{"cpus":"","x":[1.50]}}}}`,
			fold.Set{},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked, err := cpusetOf(json.RawMessage(tt.text), "linux", "resources", "cpu")
			if err != nil || asked != tt.asked {
				t.Errorf("cpusetOf = %+v, %v; want %+v", asked, err, tt.asked)
			}
			got, err := folded(json.RawMessage(tt.text), 2, "linux", "resources", "cpu")
			testkit.Check(t, err)
			if !sameJSON(t, string(got), tt.want) {
				t.Errorf("folded:\n got %s\nwant %s", got, tt.want)
			}
			if strings.Contains(tt.text, "9007199254740993") && !strings.Contains(string(got), "9007199254740993") {
				t.Errorf("a number lost its last digit: %s", got)
			}
		})
	}
}

func TestSpecsThatCannotBeFoldedAreRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{`, `[]`, `{"cpu":[]}`, `{"cpu":{"cpus":7}}`, `{"cpu":{"cpus":"7-"}}`,
		`{"cpu":{"mems":"x"}}`,
	} {
		if got, err := folded(json.RawMessage(text), 2, "cpu"); err == nil {
			t.Errorf("folded(%s) = %s, want an error", text, got)
		}
	}
}

func FuzzFoldedKeepsTheRest(f *testing.F) {
	f.Add(`{"linux":{"resources":{"cpu":{"cpus":"2-5","mems":"1"}}},"hooks":null}`)
	f.Add(`{"linux":{"resources":{"cpu":{"shares":18446744073709551615}}}}`)
	f.Add(`{"":{"":4E615},"linux":{}}`)
	f.Fuzz(func(t *testing.T, text string) {
		path := []string{"linux", "resources", "cpu"}
		got, err := folded(json.RawMessage(text), 2, path...)
		if err != nil {
			return
		}
		again, err := folded(got, 2, path...)
		if err != nil || !sameJSON(t, string(again), string(got)) {
			t.Fatalf("folding %s twice: %s, then %s, %v", text, got, again, err)
		}
		before, objects := decoded(t, text).(map[string]any)
		after, objectsToo := decoded(t, string(got)).(map[string]any)
		if objects != objectsToo {
			t.Fatalf("folding %s: %s", text, got)
		}
		delete(before, "linux")
		delete(after, "linux")
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("folding %s changed what is beside it: %s", text, got)
		}
	})
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	return reflect.DeepEqual(decoded(t, a), decoded(t, b))
}

// decoded keeps numbers as they are written: a float64 holds neither all integers nor 4e615.
func decoded(t *testing.T, text string) (out any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&out); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out
}
