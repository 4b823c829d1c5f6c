package admission_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/annotation"
	configv1alpha1 "github.com/tenon-project/tenon/api/config/v1alpha1"
	quotav1alpha1 "github.com/tenon-project/tenon/api/quota/v1alpha1"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/control/admission"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/page"
)

// guide is what a guide's manifests contain.
type guide struct {
	text        string
	quotas      []*v1alpha1.ElasticQuota
	profiles    []*quotav1alpha1.ElasticQuotaProfile
	deployments []*appsv1.Deployment
	pods        []*corev1.Pod
}

// readGuide reads the manifests of a guide, in which no field may be unknown.
func readGuide(t *testing.T, name string) *guide {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "guide", name))
	testkit.Check(t, err)
	g := &guide{text: string(text)}
	for _, block := range page.Blocks(t) {
		if block.File != "docs/guide/"+name || block.Language != "yaml" {
			continue
		}
		for _, doc := range block.Documents() {
			var kind metav1.TypeMeta
			if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
				t.Fatalf("%s: %v in\n%s", name, err, doc)
			}
			var object any
			switch kind.Kind {
			case "ElasticQuota":
				g.quotas = append(g.quotas, &v1alpha1.ElasticQuota{})
				object = g.quotas[len(g.quotas)-1]
			case "ElasticQuotaProfile":
				g.profiles = append(g.profiles, &quotav1alpha1.ElasticQuotaProfile{})
				object = g.profiles[len(g.profiles)-1]
			case "Deployment":
				g.deployments = append(g.deployments, &appsv1.Deployment{})
				object = g.deployments[len(g.deployments)-1]
			case "Pod":
				g.pods = append(g.pods, &corev1.Pod{})
				object = g.pods[len(g.pods)-1]
			case "PriorityClass":
				object = &schedulingv1.PriorityClass{}
			case "ElasticQuotaArgs":
				raw, err := yaml.YAMLToJSON([]byte(doc))
				if err == nil {
					_, err = configv1alpha1.Decode[configv1alpha1.ElasticQuotaArgs](&runtime.Unknown{Raw: raw})
				}
				if err != nil {
					t.Errorf("%s: %v in\n%s", name, err, doc)
				}
				object = &json.RawMessage{}
			default:
				t.Fatalf("%s has a %s, which this test cannot check", name, kind.Kind)
			}
			if err := yaml.UnmarshalStrict([]byte(doc), object); err != nil {
				t.Errorf("%s: %v in\n%s", name, err, doc)
			}
		}
	}
	return g
}

// TestTheManifestsOfTheGuidesAreAccepted: as a whole, with the tops of the trees that profiles make.
func TestTheManifestsOfTheGuidesAreAccepted(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"quota.md", "move-quotas.md"} {
		g := readGuide(t, name)
		var world quota.World
		for _, p := range g.profiles {
			most := amount.List{"cpu": 1 << 40, "memory": 1 << 60}
			world.Quotas = append(world.Quotas, quota.Spec{
				Name: p.Spec.QuotaName, Namespace: "default", IsParent: true, IsRoot: true, Tree: p.Name, Min: most,
				Max: most,
			})
		}
		for _, q := range g.quotas {
			if q.Namespace == "" {
				q.Namespace = "default"
			}
			spec, _ := convert.Quota(q)
			world.Quotas = append(world.Quotas, spec)
		}
		if len(g.quotas) == 0 {
			t.Fatalf("%s has no quotas", name)
		}
		for i := range world.Quotas {
			if s := &world.Quotas[i]; s.Tree == "" {
				s.Tree = quota.NewChecker(world).Tree(s.Parent)
			}
		}
		rules := quota.NewChecker(world)
		for _, q := range g.quotas {
			if tree := admission.TreeOf(q, rules); tree != "" {
				q.Labels[annotation.QuotaTreeID] = tree
			}
			if a := admission.Quota(q, nil, rules, admission.Anyone); len(a.Refusals) > 0 {
				t.Errorf("%s: quota %s is refused: %v", name, q.Name, a.Refusals)
			}
		}
		for _, p := range g.pods {
			if a := admission.PodQuota(p, nil, rules); len(a.Refusals) > 0 {
				t.Errorf("%s: pod %s is refused: %v", name, p.Name, a.Refusals)
			}
		}
	}
}

// TestTheGuidesCreateAParentBeforeItsChildren: the API server refuses a quota whose parent does not exist yet.
func TestTheGuidesCreateAParentBeforeItsChildren(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"quota.md", "move-quotas.md"} {
		g := readGuide(t, name)
		created := map[string]bool{"": true, quota.Root: true}
		for _, p := range g.profiles {
			created[p.Spec.QuotaName] = true
		}
		for _, q := range g.quotas {
			if parent := q.Labels[annotation.QuotaParent]; !created[parent] {
				t.Errorf("%s: quota %s comes before its parent %s", name, q.Name, parent)
			}
			created[q.Name] = true
		}
	}
}

// TestTheGuideHasTheSharesOfItsExample is the example of seed 003, in whole units and in thousandths.
func TestTheGuideHasTheSharesOfItsExample(t *testing.T) {
	t.Parallel()
	g := readGuide(t, "quota.md")
	for _, c := range []struct {
		unit   int64 // of a CPU, in the account's unit
		format string
		want   map[string]string
	}{
		{1, "%d", map[string]string{"a": "5", "b": "20", "c": "35", "d": "40"}},
		{1000, "%dm", map[string]string{"a": "5000m", "b": "20000m", "c": "35385m", "d": "39615m"}},
	} {
		a := quota.NewAccount(quota.Config{ScaleMin: true}, quota.Rules{})
		a.SetNodes(amount.List{"cpu": 500 * c.unit})
		scale := func(amounts amount.List) amount.List {
			return amount.List{"cpu": amounts["cpu"] / 1000 * c.unit}
		}
		for _, q := range g.quotas {
			if spec, _ := convert.Quota(q); spec.Name == "company" || spec.Parent == "company" {
				spec.Min, spec.Max = scale(spec.Min), scale(spec.Max)
				a.Set(spec)
			}
		}
		for _, d := range g.deployments {
			template := d.Spec.Template
			for i := range *d.Spec.Replicas {
				pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
				p := convert.QuotaPod(pod, convert.PodAmounts(pod))
				p.Amounts = scale(p.Amounts)
				p.UID = fmt.Sprintf("%s-%d", d.Name, i)
				a.Put(p)
			}
		}
		f := a.Forest()
		for name, want := range c.want {
			got, _ := f.Runtime(f.Find(name), f.Dimension("cpu"))
			if text := fmt.Sprintf(c.format, got); text != want {
				t.Errorf("runtime of %s in units of 1/%d: %s, want %s", name, c.unit, text, want)
			}
		}
	}
	for _, row := range []string{"**5** |", "**20** |", "**35** |", "**40** |", "35.385", "39.615"} {
		if !strings.Contains(g.text, row) {
			t.Errorf("the guide lacks %q", row)
		}
	}
}

// TestTheGuideOfDevicesSaysWhatHappens: its pods are admitted, and its tables have what requests are read as and what
// the webhook answers.
func TestTheGuideOfDevicesSaysWhatHappens(t *testing.T) {
	t.Parallel()
	g := readGuide(t, "devices.md")
	if len(g.pods) < 3 {
		t.Fatalf("the guide has %d pods", len(g.pods))
	}
	for _, p := range g.pods {
		changed, _ := admission.Mutate(p)
		check(t, admission.Create(changed, nil), nil, nil)
	}
	reference, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "reference", "devices.md"))
	testkit.Check(t, err)
	row := regexp.MustCompile("(?m)^\\| `([a-z.]+/[^`]*: [^`]*)` \\| (.*) \\|$")
	rows := row.FindAllStringSubmatch(string(reference), -1)
	if len(rows) < 15 {
		t.Fatalf("the page has %d rows of requests", len(rows))
	}
	for _, row := range rows {
		amounts := corev1.ResourceList{}
		if err := yaml.Unmarshal([]byte("{"+row[1]+"}"), &amounts); err != nil {
			t.Fatalf("%s: %v", row[1], err)
		}
		p, _, _ := convert.DevicePod(gpuPod(amounts), nil)
		r, faults := device.NewRequest(p, nil)
		var got string
		switch {
		case len(faults) > 0:
			got = faults[0].Field + ": " + faults[0].Text()
		case r.Parts[0].Need.Whole:
			got = fmt.Sprintf("%d | all of it", r.Parts[0].Count)
		default:
			n := r.Parts[0].Need
			got = fmt.Sprintf("%d | compute %d, memory %d bytes", r.Parts[0].Count, n.Amount[device.Cores],
				n.Amount[device.Bytes])
			if n.Ratio > 0 {
				got = fmt.Sprintf("%d | compute %d, memory %d %%", r.Parts[0].Count, n.Amount[device.Cores], n.Ratio)
			}
		}
		if got != row[2] {
			t.Errorf("`%s`: the page has %q, want %q", row[1], row[2], got)
		}
	}
}
