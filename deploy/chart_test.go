package deploy_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/deploy/values"
	"github.com/tenon-project/tenon/internal/testkit"
)

var update = flag.Bool("update", false, "write the manifests and the golden files")

// program builds Helm's own program once and returns its path.
var program = sync.OnceValues(func() (string, error) {
	path, err := filepath.Abs("../.cache/helm")
	if err != nil {
		return "", err
	}
	build := exec.CommandContext(context.Background(), "go", "build", "-o", path, "helm.sh/helm/v3/cmd/helm")
	build.Dir = "../hack/tools/helm"
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build helm: %w\n%s", err, out)
	}
	return path, nil
})

// helm runs Helm without a cluster and returns what it prints. The error contains what it says.
func helm(arguments ...string) (string, error) {
	path, err := program()
	if err != nil {
		return "", err
	}
	c := exec.CommandContext(context.Background(), path, arguments...)
	const none = "/nonexistent" // neither settings nor plugins of this user
	c.Env = append(os.Environ(), "HELM_CACHE_HOME="+none, "HELM_CONFIG_HOME="+none, "HELM_DATA_HOME="+none,
		"KUBECONFIG="+none)
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, stderr.String())
	}
	return string(out), err
}

const home = "tenon-system"

// arguments renders the chart for a namespace.
func arguments(namespace string, more ...string) []string {
	return append([]string{"template", "tenon", "chart", "--namespace", namespace, "--kube-version", "1.37.0"}, more...)
}

// document is one of a rendering.
type document struct {
	template, text string
	object         *unstructured.Unstructured
}

func (d document) name() string {
	if namespace := d.object.GetNamespace(); namespace != "" {
		return d.object.GetKind() + " " + namespace + "/" + d.object.GetName()
	}
	return d.object.GetKind() + " " + d.object.GetName()
}

func render(t *testing.T, namespace string, more ...string) []document {
	t.Helper()
	docs, err := rendered(namespace, more...)
	testkit.Check(t, err)
	return docs
}

func rendered(namespace string, more ...string) ([]document, error) {
	text, err := helm(arguments(namespace, more...)...)
	if err != nil {
		return nil, err
	}
	const source = "# Source: tenon/templates/"
	var docs []document
	for part := range strings.SplitSeq("\n"+text, "\n---\n") {
		part, found := strings.CutPrefix(part, source)
		if !found {
			if strings.TrimSpace(part) != "" {
				return nil, fmt.Errorf("not from a template:\n%s", part)
			}
			continue
		}
		d := document{object: &unstructured.Unstructured{}}
		d.template, d.text, _ = strings.Cut(part, "\n")
		d.text = strings.TrimSpace(d.text) + "\n"
		if err := yaml.UnmarshalStrict([]byte(d.text), &d.object.Object); err != nil {
			return nil, fmt.Errorf("%w in\n%s", err, d.text)
		}
		if d.object.GetKind() == "" || d.object.GetName() == "" {
			return nil, fmt.Errorf("not an object, of %s:\n%s", d.template, d.text)
		}
		docs = append(docs, d)
	}
	return docs, nil
}

// sets are the value sets of the golden files; that of the default values is deploy/manifests.
var sets = []string{"default", "minimal", "ha", "gpu", "off"}

var renderings sync.Map // by set

// set renders a value set in tenon-system, once.
func set(t *testing.T, name string) []document {
	t.Helper()
	once, _ := renderings.LoadOrStore(name, sync.OnceValues(func() ([]document, error) {
		if name == "default" {
			return rendered(home)
		}
		return rendered(home, "--values", filepath.Join("testdata", name+".yaml"))
	}))
	docs, err := once.(func() ([]document, error))()
	testkit.Check(t, err)
	return docs
}

// golden compares a file with what it should be, or writes it.
func golden(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		testkit.Check(t, os.WriteFile(file, []byte(want), 0o644))
		return
	}
	got, err := os.ReadFile(file)
	testkit.Check(t, err)
	if diff := cmp.Diff(string(got), want); diff != "" {
		t.Errorf("%s is not what the chart renders; bash hack/generate.sh writes it (-is +should be):\n%s", file, diff)
	}
}

// TestTheManifestsAreTheChart compares deploy/manifests with the chart's rendering by the default values.
func TestTheManifestsAreTheChart(t *testing.T) {
	t.Parallel()
	files := map[string][]string{}
	for _, d := range set(t, "default") {
		text := strings.ReplaceAll(d.text, "    app.kubernetes.io/managed-by: Helm\n", "")
		text = strings.ReplaceAll(text, "    helm.sh/resource-policy: keep\n", "")
		files[d.template] = append(files[d.template], text)
	}
	listed, err := os.ReadFile("manifests/kustomization.yaml")
	testkit.Check(t, err)
	var k struct{ Resources []string }
	testkit.Check(t, yaml.Unmarshal(listed, &k))
	want := append(slices.Collect(maps.Keys(files)), "namespace.yaml")
	slices.Sort(want)
	slices.Sort(k.Resources)
	if diff := cmp.Diff(want, k.Resources); diff != "" {
		t.Errorf("resources of kustomization.yaml (-want +got):\n%s", diff)
	}
	for name, docs := range files {
		golden(t, filepath.Join("manifests", name),
			"# Rendered from deploy/chart by hack/generate.sh.\n"+strings.Join(docs, "---\n"))
	}
	written, err := filepath.Glob("manifests/*.yaml")
	if err != nil || len(written) != len(files)+2 {
		t.Errorf("%d files in manifests, want %d and two that are not rendered: %v", len(written), len(files), err)
	}
}

// TestGoldens compares the other value sets with what they change of the default one: documents that differ from it or
// that it does not have, and the names of those that are missing.
func TestGoldens(t *testing.T) {
	t.Parallel()
	usual := map[string]string{}
	for _, d := range set(t, "default") {
		usual[d.name()] = d.text
	}
	for _, name := range sets[1:] {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			absent := maps.Clone(usual)
			var changed []string
			for _, d := range set(t, name) {
				fromFile := d.template == "monitoring.yaml" && d.object.GetKind() != "ServiceMonitor"
				if usual[d.name()] != d.text && !fromFile { // TestMonitoringIsOneSwitch compares those with the files
					changed = append(changed, d.text)
				}
				delete(absent, d.name())
			}
			var text strings.Builder
			for _, gone := range slices.Sorted(maps.Keys(absent)) {
				fmt.Fprintf(&text, "# without %s\n", gone)
			}
			text.WriteString(strings.Join(changed, "---\n"))
			golden(t, filepath.Join("testdata", name+".golden"), text.String())
		})
	}
}

func TestHelmRefusesBadValues(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ set, want string }{
		"an unknown key":                 {"schedular.replicas=2", "additional properties 'schedular' not allowed"},
		"an unknown key below":           {"scheduler.replica=2", "additional properties 'replica' not allowed"},
		"an unknown key of an image":     {"agent.image.name=x", "at '/agent/image'"},
		"a word for a number":            {"scheduler.replicas=two", "at '/scheduler/replicas'"},
		"no replicas":                    {"manager.replicas=0", "at '/manager/replicas'"},
		"a part of a replica":            {"manager.replicas=1.5", "at '/manager/replicas'"},
		"a number for a word":            {"image.registry=5", "at '/image/registry'"},
		"a word for a switch":            {"crds.keep=never", "at '/crds/keep'"},
		"a policy that no kubelet knows": {"image.pullPolicy=Sometimes", "'IfNotPresent', 'Always', 'Never'"},
		"a digest that is a tag":         {"agent.image.digest=v1", "at '/agent/image/digest'"},
		"a tag with a space":             {"image.tag=v 1", "at '/image/tag'"},
		"no name":                        {"scheduler.names={}", "at '/scheduler/names/0'"},
		"names that are null":            {"scheduler.names=null", "at '/scheduler': missing property 'names'"},
		"a CRD of another one":           {"crds.skip={jobs.batch}", "jobs.batch is not a CustomResourceDefinition"},
		"a mode that does not exist":     {"agent.deviceMode=Mine", "at '/agent/deviceMode'"},
		"a relative folder":              {"agent.kubeletDir=var/lib/kubelet", "at '/agent/kubeletDir'"},
		"a socket that is a folder":      {"agent.nriSocket=/var/run/nri/", "at '/agent/nriSocket'"},
		"a list for a map":               {"agent.nodeSelector={a}", "at '/agent/nodeSelector'"},
		"a configuration as text":        {"scheduler.config=file.yaml", "at '/scheduler/config'"},
		"a namespace in capitals":        {"networkPolicy.scrapeNamespace=Monitoring", "scrapeNamespace"},
		"a port by name":                 {"networkPolicy.apiServerPorts={https}", "/apiServerPorts/0'"},
		"an interval without a unit":     {"monitoring.interval=30", "at '/monitoring/interval'"},
		"growth of nothing":              {"scheduler.garbageCollection=0", "at '/scheduler/garbageCollection'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := helm(arguments(home, "--set", test.set)...)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("--set %s: %v, %d bytes; want an error with %q", test.set, err, len(out), test.want)
			}
		})
	}
	t.Run("an API server older than those that are tested", func(t *testing.T) {
		t.Parallel()
		_, err := helm("template", "tenon", "chart", "--kube-version", "1.32.9")
		if err == nil || !strings.Contains(err.Error(), "requires kubeVersion: >=1.33") {
			t.Errorf("%v, want an error with the version that is needed", err)
		}
	})
}

// TestANullValueIsRefusedOrIsEmpty: Helm removes a key whose value is null, so a template may meet any map or list that
// is missing.
func TestANullValueIsRefusedOrIsEmpty(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("chart/values.yaml")
	testkit.Check(t, err)
	var all map[string]any
	testkit.Check(t, yaml.Unmarshal(text, &all))
	refused, tried := 0, 0
	var walk func(path string, keys map[string]any)
	walk = func(path string, keys map[string]any) {
		for name, value := range keys {
			key := strings.TrimPrefix(path+"."+name, ".")
			below, isMap := value.(map[string]any)
			if _, isList := value.([]any); !isMap && !isList {
				continue
			}
			tried++
			_, err := helm(arguments(home, "--set", key+"=null")...)
			switch {
			case err == nil:
			case strings.Contains(err.Error(), "missing property '"+name+"'"):
				refused++
			default:
				t.Errorf("%s: %v", key, err)
			}
			walk(key, below)
		}
	}
	walk("", all)
	if refused < 15 || tried < 35 {
		t.Errorf("%d of %d keys are refused", refused, tried)
	}
}

func TestHelmLintsTheChart(t *testing.T) {
	t.Parallel()
	if out, err := helm("lint", "chart", "--strict", "--kube-version", "1.37.0"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestNotes reads what a user sees after helm install.
func TestNotes(t *testing.T) {
	t.Parallel()
	// Helm prints them where it installs: here a copy of the chart has them in a ConfigMap.
	dir := t.TempDir()
	text, err := os.ReadFile("chart/templates/NOTES.txt")
	if err == nil {
		err = os.CopyFS(dir, os.DirFS("chart"))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "templates", "notes.yaml"), []byte(`{{ define "notes" }}`+string(text)+
			`{{ end }}{apiVersion: v1, kind: ConfigMap, data: {notes: {{ include "notes" . | quote }}}}`), 0o600)
	}
	testkit.Check(t, err)
	for name, test := range map[string]struct {
		namespace string
		values    []string
		has, not  []string
	}{
		"default values": {
			home, nil,
			[]string{
				"tenon status --wait 5m", "spec.schedulerName: tenon-scheduler", "kubectl delete crd -l",
				"secret/tenon-certificates", "rm -rf /var/lib/tenon-agent", "tenon leave --wait 10m",
				"lease/tenon-scheduler",
				"koord-prod",
			},
			[]string{"TENON_NAMESPACE"},
		},
		"another namespace": {"placement", nil, []string{"TENON_NAMESPACE=placement tenon status"}, []string{home}},
		"no agent": {
			home, []string{"--set", "agent.enabled=false"}, nil, []string{"rm -rf", "privileged", "tenon leave"},
		},
		"CRDs that go too": {home, []string{"--set", "crds.keep=false"}, nil, []string{"delete crd"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := helm(append([]string{
				"template", "tenon", dir, "--kube-version", "1.37.0", "--namespace", test.namespace, "--show-only",
				"templates/notes.yaml",
			}, test.values...)...)
			var c corev1.ConfigMap
			testkit.Check(t, errors.Join(err, yaml.Unmarshal([]byte(out), &c)))
			text := c.Data["notes"]
			for _, want := range test.has {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in\n%s", want, text)
				}
			}
			for _, bad := range test.not {
				if strings.Contains(text, bad) || text == "" {
					t.Errorf("%q in\n%s", bad, text)
				}
			}
		})
	}
}

// TestTheSchemaDescribesEveryKey walks the schema that Helm checks values by.
func TestTheSchemaDescribesEveryKey(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("chart/values.schema.json")
	testkit.Check(t, err)
	var root map[string]any
	testkit.Check(t, yaml.UnmarshalStrict(text, &root))
	keys := 0
	var walk func(path string, s map[string]any) error
	walk = func(path string, s map[string]any) error {
		properties, _ := s["properties"].(map[string]any)
		if properties != nil && s["additionalProperties"] != false {
			return errors.New(path + " takes unknown keys")
		}
		for name, p := range properties {
			keys++
			below := p.(map[string]any)
			if text, _ := below["description"].(string); len(text) < 8 {
				return fmt.Errorf("%s.%s is not described", path, name)
			}
			if err := walk(path+"."+name, below); err != nil {
				return err
			}
		}
		return nil
	}
	if err := walk("", root); err != nil || keys < 60 {
		t.Errorf("%d keys: %v", keys, err)
	}
}

// TestTheTypesAreTheValues reads the chart's defaults into the types and back, and looks for each key in the templates.
func TestTheTypesAreTheValues(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("chart/values.yaml")
	testkit.Check(t, err)
	var typed values.Values
	testkit.Check(t, yaml.UnmarshalStrict(text, &typed))
	back, err := yaml.Marshal(typed)
	testkit.Check(t, err)
	var want, got map[string]any
	testkit.Check(t, errors.Join(yaml.Unmarshal(text, &want), yaml.Unmarshal(back, &got)))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values (-file +types):\n%s", diff)
	}
	var templates strings.Builder
	files, err := filepath.Glob("chart/templates/*")
	for _, file := range files {
		text, e := os.ReadFile(file)
		err = errors.Join(err, e)
		templates.Write(text)
	}
	testkit.Check(t, err)
	var used func(map[string]any)
	used = func(keys map[string]any) {
		for name, below := range keys {
			// Of requests and limits the whole is rendered.
			if !strings.Contains(templates.String(), "."+name) && name != "global" && name != "requests" {
				t.Errorf("no template reads %s", name)
			}
			if m, ok := below.(map[string]any); ok && name != "requests" && name != "limits" {
				used(m)
			}
		}
	}
	used(want)
}
