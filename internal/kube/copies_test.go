package kube

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// FuzzReadValue compares strings, numbers and times with what encoding/json reads.
func FuzzReadValue(f *testing.F) {
	for _, text := range []string{
		`""`, `"a"`, `"a\"b\\"`, `"\`, `"\""`, `"\n"`, `"\u0061"`, `"é"`, `"a"b"`, `"\\"a"`, "7", "-7", "07",
		"+7", "7e0", "7.5", "null", `"7"`, "9223372036854775807", "9223372036854775808", `"2026-01-02T03:04:05Z"`,
		`"2026-01-02T03:04:05.6+07:00"`, `"2026-01-02"`, `"2026-01-02T03:04:05\u005a"`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var s string
		var n int64
		var at metav1.Time
		readPart(text, &s)
		readPart(text, &n)
		readPart(text, &at)
		if got := readString(text); got != s {
			t.Errorf("%q: string %q, want %q", text, got, s)
		}
		if got := readNumber(text); got != n {
			t.Errorf("%q: number %d, want %d", text, got, n)
		}
		if got := readTime(text); !got.Equal(&at) || got.Location() != at.Location() {
			t.Errorf("%q: time %v, want %v", text, got, at)
		}
	})
}

// TestWhatEqualMachinesShareIsReadAsEachByItself reads objects of few kinds in any order: copies change none.
func TestWhatEqualMachinesShareIsReadAsEachByItself(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var shared models
		pick := func(label string, values ...string) string { return rapid.SampledFrom(values).Draw(rt, label) }
		for node := range rapid.IntRange(1, 20).Draw(rt, "nodes") {
			zone := `{"name":"node-0","type":"Node","resources":[{"name":"memory","capacity":"8Gi",` +
				`"allocatable":"8Gi","available":` + pick("available", `"1Gi"`, `"2Gi"`, "7") + `}]}`
			text := fmt.Appendf(nil, `{"metadata":{"name":"n%d","uid":"u","generation":%s,"creationTimestamp":%s,`+
				`"annotations":%s},"attributes":%s,"zones":%s}`, node, pick("generation", "1", "2", `"x"`),
				pick("time", `"2026-01-02T03:04:05Z"`, "null", "7"),
				pick("annotations",
					`{"node.koordinator.sh/cpu-topology":"{}","node.koordinator.sh/cpu-shared-pools":"[]"}`,
					`{"a":"b\"c"}`, `{"a":7}`, "null", fmt.Sprintf(`{"node":"%d"}`, node),
					`{"node.koordinator.sh/pod-cpu-allocs":"[{\"uid\":\"u\",\"cpuset\":\"0\"}]"}`),
				pick("attributes", `[{"name":"a","value":"b"}]`, "[]", "null", "7"),
				pick("zones", "["+zone+"]", "[]", "null", "7", "["+zone+","+zone+"]"))
			if !json.Valid(text) {
				rt.Fatalf("%s is not JSON", text)
			}
			if diff := cmp.Diff(new(models).read(text), shared.read(text), cmpopts.EquateEmpty()); diff != "" {
				rt.Fatalf("%s (-alone +shared):\n%s", text, diff)
			}
		}
	})
}
