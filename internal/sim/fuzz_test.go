package sim

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

// FuzzInput holds that whatever the input, reading it ends in a world or in an InputError with a text for each problem.
func FuzzInput(f *testing.F) {
	for _, file := range []string{"testdata/basic/nodes.yaml", "testdata/basic/pods.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("{apiVersion: v1, kind: PodList, items: [{metadata: {name: a}, spec: {containers: [{name: c, image: i}]}}]}")
	f.Add("{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s}, spec: {replicas: 3}}")
	f.Add("---\n---\na: [")
	f.Add(nativeGroup("v1alpha2", "a", "{gang: {minCount: 3}}") + nativeGroup("v1beta1", "b", "{basic: {}}") +
		cpuPod("p", 1, "", own("a")))
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Count(text, "replicas") > 0 || strings.Count(text, "arallelism") > 0 {
			t.Skip("a huge number of pods is not what this is about")
		}
		var w *world
		docs, err := readDocuments([]string{stdin}, strings.NewReader(text), io.Discard)
		if err == nil {
			w, err = Input{Warn: io.Discard}.readWorld(docs)
		}
		var bad *InputError
		if err == nil && w == nil || err != nil && !errors.As(err, &bad) {
			t.Fatalf("got %v, %v for %q", w, err, text)
		}
		if bad != nil && (len(bad.Problems) == 0 || strings.TrimSpace(bad.Error()) == "") {
			t.Fatalf("no text for %q", text)
		}
	})
}
