//go:build linux && e2e_install

package installed

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/page"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// prepareKoordinator downloads releases of Koordinator, outside of any module: only their CRDs are of interest.
func prepareKoordinator(root string) error {
	return command(root, nil, "bash", "-ec", `mkdir -p .cache/koordinator; for v in v1.6.0 v1.8.0; do
		m=github.com/koordinator-sh/koordinator@$v; (cd / && go mod download $m)
		ln -sfn "$(go env GOMODCACHE)/$m" .cache/koordinator/$v; done`)
}

// koordinator is a cluster with the CRDs of a release of Koordinator, by name, and objects of all their kinds.
type koordinator struct {
	*cluster
	crds map[string]definition
	api  dynamic.ResourceInterface // of the CRDs
}

// definition is a CRD, with the objects of its kind in the version in which Koordinator stores them.
type definition struct {
	apiextensions.CustomResourceDefinition
	stored  apiextensions.CustomResourceDefinitionVersion
	objects dynamic.ResourceInterface
}

// Names of the objects: each kind has one that is kept, with all fields; the others are used. A gang that was complete
// once does not wait again.
const kept, gang, laterGang, limited = "kept", "gang", "later-gang", "limited"

const podGroups, elasticQuotas = "podgroups.scheduling.sigs.k8s.io", "elasticquotas.scheduling.sigs.k8s.io"

// beside installs Tenon beside a release of Koordinator as the page about moving says, has a gang and a quota of it
// scheduled, and takes over the kinds that Tenon serves.
func (c *cluster) beside(t *testing.T, release string) {
	k := &koordinator{cluster: c, crds: map[string]definition{}}
	k.api = c.objects.Resource(apiextensions.SchemeGroupVersion.WithResource("customresourcedefinitions"))
	k.prepare(t, filepath.Join(c.root, ".cache/koordinator", release, "config/crd/bases"))
	for _, name := range []string{gang, laterGang} {
		k.put(t, name, k.crds[podGroups], map[string]any{"spec": map[string]any{"minMember": 2}})
	}
	amount := map[string]any{"cpu": "20m"}
	k.put(t, limited, k.crds[elasticQuotas], map[string]any{"spec": map[string]any{"min": amount, "max": amount}})
	label := []byte(`{"metadata": {"labels": {"example.com/placement": "tenon"}}}`)
	_, err := c.client.CoreV1().Nodes().Patch(t.Context(), nodeName, types.MergePatchType, label, metav1.PatchOptions{})
	testkit.Check(t, err)
	objects, specs := k.read(t)
	isKept := func(when string) {
		t.Helper()
		now, _ := k.read(t)
		if diff := cmp.Diff(objects, now); diff != "" {
			t.Errorf("objects (-before the installation +%s):\n%s", when, diff)
		}
	}
	options := []string{"tenon", filepath.Join(c.root, "deploy/chart"), "--set", small, "-f", k.values(t)}
	c.helm(t, append([]string{"install", "--create-namespace"}, options...)...)
	c.isWell(t)
	k.schedules(t, gang)
	isKept("beside Koordinator")
	if _, now := k.read(t); !cmp.Equal(specs, now) {
		t.Errorf("CRDs (-before the installation +beside Koordinator):\n%s", cmp.Diff(specs, now))
	}
	c.helm(t, append([]string{"upgrade", "--take-ownership", "--set", "crds.skip=null"}, options...)...)
	if _, now := k.read(t); cmp.Equal(specs, now) {
		t.Error("no CRD was taken over")
	}
	isKept("taken over")
	k.schedules(t, laterGang)
	c.isWell(t)
	c.helm(t, "uninstall", "tenon")
	c.awaitGone(t)
	isKept("after the uninstallation")
}

// prepare replaces all CRDs by those of a folder, and makes an object of each kind.
func (k *koordinator) prepare(t *testing.T, folder string) {
	t.Helper()
	old, err := k.api.List(t.Context(), metav1.ListOptions{})
	testkit.Check(t, err)
	for _, crd := range old.Items { // DeleteCollection would leave their objects behind
		testkit.Check(t, k.api.Delete(t.Context(), crd.GetName(), metav1.DeleteOptions{}))
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if len(files) < 10 {
		t.Fatalf("only %d CRDs in %s: %v", len(files), folder, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		testkit.Check(t, err)
		object, crd := &unstructured.Unstructured{}, definition{}
		testkit.Check(t, yaml.Unmarshal(text, &object.Object))
		testkit.Check(t, yaml.Unmarshal(text, &crd.CustomResourceDefinition))
		stage.Await(t, crd.Name+", once that of before is gone", func() error {
			_, err := k.api.Create(t.Context(), object, metav1.CreateOptions{})
			return err
		})
		for _, v := range crd.Spec.Versions {
			if v.Storage {
				crd.stored = v
			}
		}
		version := schema.GroupVersion{Group: crd.Spec.Group, Version: crd.stored.Name}
		kind := k.objects.Resource(version.WithResource(crd.Spec.Names.Plural))
		if crd.objects = kind; crd.Spec.Scope == apiextensions.NamespaceScoped {
			crd.objects = kind.Namespace(work)
		}
		k.crds[crd.Name] = crd
		k.put(t, kept, crd, filled(crd.stored.Schema.OpenAPIV3Schema).(map[string]any))
	}
}

// filled returns a value with every field of a schema.
func filled(s *apiextensions.JSONSchemaProps) any {
	switch {
	case len(s.Enum) > 0:
		return s.Enum[0]
	case s.XIntOrString:
		return "1"
	case s.Type == "object":
		object := map[string]any{}
		for name, field := range s.Properties {
			object[name] = filled(&field)
		}
		if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
			object["filled"] = filled(s.AdditionalProperties.Schema)
		} else if s.XPreserveUnknownFields != nil {
			object["filled"] = "filled"
		}
		return object
	case s.Type == "array":
		return []any{filled(s.Items.Schema)}
	case s.Type == "boolean":
		return true
	case s.Type == "integer", s.Type == "number":
		return 1
	case s.Format == "date-time":
		return "2026-01-02T03:04:05Z"
	}
	return "filled"
}

// put creates an object, with its status, once its CRD is served.
func (k *koordinator) put(t *testing.T, name string, crd definition, fields map[string]any) {
	t.Helper()
	fields["apiVersion"], fields["kind"] = crd.Spec.Group+"/"+crd.stored.Name, crd.Spec.Names.Kind
	fields["metadata"] = map[string]any{"name": name}
	text, err := json.Marshal(fields)
	object := &unstructured.Unstructured{}
	testkit.Check(t, errors.Join(err, object.UnmarshalJSON(text)))
	status, has := object.Object["status"]
	stage.Await(t, "a "+crd.Spec.Names.Kind, func() error {
		created, err := crd.objects.Create(t.Context(), object, metav1.CreateOptions{})
		if err == nil {
			object = created
		}
		return err
	})
	if has && crd.stored.Subresources != nil {
		object.Object["status"] = status
		stage.Await(t, "the status of a "+crd.Spec.Names.Kind, func() error {
			_, err := crd.objects.UpdateStatus(t.Context(), object, metav1.UpdateOptions{})
			return err
		})
	}
}

// read returns the objects in the versions in which Koordinator stores them, and the CRDs. Of quotas and gangs the
// status and the annotations are written by whoever serves them.
func (k *koordinator) read(t *testing.T) (objects, specs map[string]any) {
	t.Helper()
	objects, specs = map[string]any{}, map[string]any{}
	for name, crd := range k.crds {
		current, err := k.api.Get(t.Context(), name, metav1.GetOptions{})
		testkit.Check(t, err)
		specs[name] = current.Object["spec"]
		list, err := crd.objects.List(t.Context(), metav1.ListOptions{})
		testkit.Check(t, err)
		for _, o := range list.Items {
			o.SetManagedFields(nil)
			o.SetResourceVersion("")
			o.SetGeneration(0)
			if status, _ := o.Object["status"].(map[string]any); name == podGroups || name == elasticQuotas {
				o.SetAnnotations(nil)
				delete(o.Object, "status")
			} else if len(status) == 0 { // an empty one says as much as none
				delete(o.Object, "status")
			}
			if slices.Contains([]string{kept, gang, laterGang, limited}, o.GetName()) { // the agent has others
				objects[name+"/"+o.GetName()] = o.Object
			}
		}
	}
	return objects, specs
}

// values writes those of the page, without the CRDs that this release of Koordinator does not have.
func (k *koordinator) values(t *testing.T) string {
	t.Helper()
	blocks := page.Blocks(t)
	at := slices.IndexFunc(blocks, func(b page.Block) bool { return strings.HasPrefix(b.Text, "# beside.yaml\n") })
	var text strings.Builder
	for line := range strings.Lines(blocks[at].Text) {
		name, isSkipped := strings.CutPrefix(line, "  - ")
		if _, has := k.crds[strings.TrimSpace(name)]; has || !isSkipped {
			text.WriteString(line)
		}
	}
	return k.Write("beside.yaml", text.String())
}

// schedules has pods wait for their gang and for room in their quota.
func (k *koordinator) schedules(t *testing.T, gang string) {
	t.Helper()
	send := func(name, cpu, key, value string) *corev1.Pod {
		p := workload(name, "", cpu)
		p.Labels[key], p.Spec.SchedulerName = value, "koord-scheduler"
		_, err := k.client.CoreV1().Pods(work).Create(t.Context(), p, metav1.CreateOptions{})
		testkit.Check(t, err)
		return p
	}
	const member, quota = "pod-group.scheduling.sigs.k8s.io", "quota.scheduling.koordinator.sh/name"
	first, little := send("first", "10m", member, gang), send("little", "10m", quota, limited)
	k.awaitPod(t, little, "run", isReady)
	large := send("large", "15m", quota, limited)
	k.awaitPod(t, large, "wait", func(p *corev1.Pod) bool { return strings.Contains(state(p), "Insufficient quotas") })
	k.awaitPod(t, first, "wait", func(p *corev1.Pod) bool { return p.Spec.NodeName == "" })
	second := send("second", "10m", member, gang)
	k.awaitPod(t, first, "run", isReady)
	k.awaitPod(t, second, "run", isReady)
	k.remove(t, first, second, little, large)
}
