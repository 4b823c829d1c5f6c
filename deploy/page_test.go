package deploy_test

import (
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/deploy/examples"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/page"
)

// fragments are blocks of YAML that are neither manifests nor values, by the page and the first key.
var fragments = map[string]string{
	"docs/start/local-cluster.md metadata": "a part of any pod",
}

// TestValuesOfThePagesAreAccepted renders the chart with every block of values on the pages, and finds the images of
// every kustomization. Manifests are those of test/manifests.
func TestValuesOfThePagesAreAccepted(t *testing.T) {
	t.Parallel()
	settings, unused := 0, maps.Clone(fragments)
	for _, block := range page.Blocks(t) {
		if block.Language != "yaml" {
			continue
		}
		var top map[string]any
		var kustomization struct {
			metav1.TypeMeta `json:",inline"`
			Resources       []string
			Images          []struct{ Name, NewName, NewTag string }
		}
		first := block.Documents()[0]
		if err := yaml.Unmarshal([]byte(first), &top); err != nil {
			t.Fatalf("%s: %v", block, err)
		}
		fragment := block.File + " " + slices.Sorted(maps.Keys(top))[0]
		switch {
		case top["kind"] == "Kustomization":
			if err := yaml.UnmarshalStrict([]byte(first), &kustomization); err != nil {
				t.Errorf("%s: %v", block, err)
			}
			for _, i := range kustomization.Images {
				if !slices.ContainsFunc(set(t, "default"), func(d document) bool {
					return strings.Contains(d.text, "image: "+i.Name+":devel\n")
				}) {
					t.Errorf("%s: no manifest has the image %s", block, i.Name)
				}
			}
		case top["kind"] != nil:
		case fragments[fragment] != "":
			delete(unused, fragment)
		default:
			settings++
			file := filepath.Join(t.TempDir(), "values.yaml")
			testkit.Check(t, os.WriteFile(file, []byte(block.Text), 0o600))
			if docs, err := rendered(home, "--values", file); err != nil || len(docs) < 40 {
				t.Errorf("%s: %d documents, %v", block, len(docs), err)
			}
		}
	}
	if settings < 4 || len(unused) > 0 {
		t.Errorf("%d blocks of values; not on the pages are %v", settings, unused)
	}
}

// TestEveryManifestNamesASchedulerOfTheChart: a pod that names none is left to the cluster's scheduler, and its keys of
// Tenon have no effect. A block may say instead how its namespace asks for Tenon.
func TestEveryManifestNamesASchedulerOfTheChart(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("chart/values.yaml")
	testkit.Check(t, err)
	var values struct{ Scheduler struct{ Names []string } }
	testkit.Check(t, yaml.Unmarshal(text, &values))
	specs := 0
	check := func(where string, docs []string) {
		for _, doc := range docs {
			var object map[string]any
			if err := yaml.Unmarshal([]byte(doc), &object); err != nil {
				t.Fatalf("%s: %v", where, err)
			}
			for spec := range podSpecs(object) {
				specs++
				if name, _ := spec["schedulerName"].(string); !slices.Contains(values.Scheduler.Names, name) {
					t.Errorf("%s: %v: schedulerName %q, want one of %v", where, object["kind"], name,
						values.Scheduler.Names)
				}
			}
		}
	}
	for _, block := range page.Blocks(t) {
		if block.Language == "yaml" && !strings.Contains(block.Text, annotation.DeviceSchedulingLabel+": enabled") {
			check(block.String(), block.Documents())
		}
	}
	onPages := specs
	check("deploy/examples/demo.yaml", strings.Split(string(examples.Demo()), "\n---\n"))
	if onPages < 30 || specs-onPages < 15 {
		t.Errorf("%d pods on the pages, and %d in the demo", onPages, specs-onPages)
	}
}

// podSpecs returns the specs of pods within an object of any kind: what has a list of containers.
func podSpecs(value any) iter.Seq[map[string]any] {
	return func(yield func(map[string]any) bool) {
		var visit func(any) bool
		visit = func(value any) bool {
			switch v := value.(type) {
			case map[string]any:
				if _, ok := v["containers"].([]any); ok && !yield(v) {
					return false
				}
				for _, key := range slices.Sorted(maps.Keys(v)) {
					if !visit(v[key]) {
						return false
					}
				}
			case []any:
				for _, one := range v {
					if !visit(one) {
						return false
					}
				}
			}
			return true
		}
		visit(value)
	}
}

// TestHelmKnowsTheCommandsOfThePages: the verb and its flags, and the values that --set names.
func TestHelmKnowsTheCommandsOfThePages(t *testing.T) {
	t.Parallel()
	helps, seen := map[string]string{}, 0
	for _, block := range page.Blocks(t) {
		if block.Language == "yaml" {
			continue
		}
		for _, words := range block.Commands() {
			if words[0] != "helm" {
				continue
			}
			seen++
			verb := words[1:2]
			if words[1] == "get" {
				verb = words[1:3]
			}
			name := strings.Join(verb, " ")
			if helps[name] == "" {
				help, err := helm(append(slices.Clone(verb), "--help")...)
				if err != nil || !strings.Contains(help, "helm "+name) {
					t.Errorf("%s: helm %s: %v", block, name, err)
				}
				helps[name] = help
			}
			for i, word := range words {
				flag, value, joined := strings.Cut(word, "=")
				if strings.HasPrefix(flag, "-") && !strings.Contains(helps[name], flag+" ") &&
					!strings.Contains(helps[name], flag+",") {
					t.Errorf("%s: helm %s does not know %s", block, name, flag)
				}
				if flag != "--set" {
					continue
				}
				if !joined {
					value = words[i+1]
				}
				if _, err := helm(arguments(home, "--set", value)...); err != nil {
					t.Errorf("%s: --set %s: %v", block, value, err)
				}
			}
		}
	}
	if seen < 5 {
		t.Errorf("%d commands of Helm", seen)
	}
}

// TestCRDsThatKoordinatorHasAreSkippedBesideIt: of the chart's, only those of Volcano and scheduler-plugins are not in
// a cluster with Koordinator.
func TestCRDsThatKoordinatorHasAreSkippedBesideIt(t *testing.T) {
	t.Parallel()
	for _, block := range page.Blocks(t) {
		if block.File != "docs/start/from-koordinator.md" || block.Language != "yaml" {
			continue
		}
		file := filepath.Join(t.TempDir(), "values.yaml")
		testkit.Check(t, os.WriteFile(file, []byte(block.Text), 0o600))
		var names []string
		for _, d := range kinds(render(t, home, "--values", file), "CustomResourceDefinition") {
			names = append(names, d.object.GetName())
		}
		slices.Sort(names)
		want := []string{
			"elasticquotas.scheduling.x-k8s.io", "numatopologies.nodeinfo.volcano.sh",
			"podgroups.scheduling.x-k8s.io",
		}
		if d := cmp.Diff(want, names); d != "" {
			t.Errorf("%s: CRDs that are installed (-want +got):\n%s", block, d)
		}
		return
	}
	t.Error("the page has no values")
}
