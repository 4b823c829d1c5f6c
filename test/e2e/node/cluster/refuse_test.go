//go:build !e2e_cluster

package fabricated

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/local/admit"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/testkit"
)

// localNode is a node in one process: what its agent would publish, what the scheduler decides on that, and the
// managers of its kubelet.
type localNode struct {
	machine machine.Description
	parts   *topo.Machine
	root    string
	node    *corev1.Node
	kubelet *admit.Kubelet
	pods    []corev1.Pod
	reports int64
}

func newLocalNode(t *testing.T, c combination) *localNode {
	t.Helper()
	parts, err := topo.New(c.machine.Spec())
	testkit.Check(t, err)
	d := &localNode{machine: c.machine, parts: parts, root: folder(t)}
	memory := int64(0)
	for _, n := range c.machine.Spec().NUMA {
		reserved := c.machine.Kubelet.Memory.Reserved[int32(n.ID)]
		memory += n.MemoryBytes - reserved.Memory().Value()
	}
	cpus := int64(len(c.machine.Spec().CPUs) - len(idSet(t, c.machine.Kubelet.CPU.Reserved)))
	d.node = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: c.name, UID: "node", Labels: map[string]string{corev1.LabelHostname: c.name},
		},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.37.2"},
			Allocatable: corev1.ResourceList{
				corev1.ResourceCPU:    *resource.NewQuantity(cpus, resource.DecimalSI),
				corev1.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI),
				corev1.ResourcePods:   resource.MustParse("110"),
			},
		},
	}
	d.kubelet = startManagers(t, c.machine, d.kubeletDir(), d.node)
	d.kubelet.Settled()
	return d
}

func (d *localNode) kubeletDir() string { return filepath.Join(d.root, "var/lib/kubelet") }

// view is the scheduler's account of the node after the agent's next report.
func (d *localNode) view(t *testing.T, change func(*ledger.Facts)) *ledger.View {
	t.Helper()
	root := host.Root{Dir: d.root}
	in := probe.Input{
		NodeName: d.node.Name, Node: d.node, Machine: d.parts, Kubelet: d.machine.Kubelet, Mode: annotation.ModeOwn,
		Since: metav1.NewTime(time.Unix(1, 0)),
	}
	if d.machine.Follow {
		in.Mode = annotation.ModeFollow
	}
	var err error
	in.State.CPU, err = host.ReadCPUState(root)
	testkit.Check(t, err)
	in.State.Memory, err = host.ReadMemoryState(root)
	testkit.Check(t, err)
	for i := range d.pods {
		pod := convert.ReadPod(&d.pods[i])
		in.Pods = append(in.Pods, pod)
		if pod.Concerns {
			in.Entries = append(in.Entries, pod.Entry)
		}
	}
	in.Pins = probe.Pins(in.State.CPU, in.Pods, in.Mode, in.Since.Time)
	nrt := probe.Topology(in)
	d.reports++
	nrt.Annotations[annotation.ReportKey] = annotation.Encode(annotation.Report{Gen: d.reports})
	facts, problems := convert.Facts(d.node, nrt, convert.DefaultArgs())
	if len(problems) > 0 {
		t.Fatalf("facts of the node: %v", problems)
	}
	change(&facts)
	return ledger.New(facts, in.Entries...).View()
}

// fault makes a scheduler refuse too much.
type fault struct {
	facts   func(*ledger.Facts)
	request func(*place.Request)
}

// decide is what a scheduler with a fault decides about a pod.
func (d *localNode) decide(t *testing.T, p *corev1.Pod, f fault) (*ledger.View, *place.Request, ledger.Offer, string) {
	t.Helper()
	if f.facts == nil {
		f.facts = func(*ledger.Facts) {}
	}
	v := d.view(t, f.facts)
	r, reason, detail := convert.Request(p, convert.DefaultArgs())
	if !reason.OK() {
		t.Fatalf("%s: %s", title(p), detail)
	}
	if f.request != nil {
		f.request(r)
	}
	left := d.node.Status.Allocatable.DeepCopy()
	for _, o := range append(slices.Clone(d.pods), *p) {
		subtract(left, requestOf(&o))
	}
	for name, q := range left {
		if q.Sign() < 0 {
			return v, r, ledger.Offer{}, "insufficient " + string(name)
		}
	}
	offer, reason := place.Try(v, r)
	if !reason.OK() {
		return v, r, offer, reason.Text()
	}
	return v, r, offer, ""
}

// bind writes the offer on the pod, and the kubelet admits it.
func (d *localNode) bind(t *testing.T, p *corev1.Pod, v *ledger.View, r *place.Request, o ledger.Offer) {
	t.Helper()
	if o.Entry.CPUList != "" || len(o.Entry.NUMAIDs) > 0 {
		p.Annotations[annotation.ResourceStatusKey] = annotation.Encode(convert.Status(d.parts, v, r, o))
	}
	if predicted, ok := convert.Predicted(o); ok {
		p.Annotations[annotation.PredictedPlacementKey] = predicted.String()
	}
	p.Spec.NodeName, p.Status.Phase = d.node.Name, corev1.PodRunning
	if refusal, err := d.kubelet.Admit(p); refusal != nil || err != nil {
		t.Fatalf("%s was bound and the kubelet refuses it: %v %v", title(p), refusal, err)
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.RestartPolicy == nil { // it ends
			d.kubelet.Added(p, c, p.Name+c.Name)
			testkit.Check(t, d.kubelet.Removed(p.Name+c.Name))
		}
	}
	d.pods = append(d.pods, *p)
}

// play lets the pods of a combination come and every other one go, and calls seen with what the scheduler and the
// review say of each; "" is room.
func (d *localNode) play(t *testing.T, c combination, f fault, seen func(p *corev1.Pod, scheduler, review string)) {
	t.Helper()
	for number, wave := range c.waves {
		if number > 0 {
			kept := d.pods[:0:0]
			for i, p := range d.pods {
				if i%2 == 0 {
					d.kubelet.Forget(p.UID)
				} else {
					kept = append(kept, p)
				}
			}
			d.pods = kept
		}
		for i, wish := range wave {
			p := wish.pod(fmt.Sprintf("p-%d-%d", number, i), d.node.Name)
			p.UID = types.UID(p.Name)
			j := newReview(t, d.machine, d.kubeletDir(), d.node, d.pods)
			v, r, offer, refused := d.decide(t, p, f)
			seen(p, refused, j.why(t, p))
			if refused == "" {
				if f.request != nil {
					v, r, offer, refused = d.decide(t, p, fault{})
				}
				if refused == "" {
					d.bind(t, p, v, r, offer)
				}
			}
		}
	}
}

// localMemory is what the NUMA nodes of a machine have together, in KiB.
const localMemory = 8 << 20

// The review and the scheduler have one answer for every pod: neither finds room that the other does not.
func TestSchedulerAndReviewAgree(t *testing.T) {
	t.Parallel()
	pods, refusals := 0, 0
	for i := range 2 * localCombinations {
		c, err := drawCombination(usualSeed, i/2, i%2 == 1, localMemory)
		testkit.Check(t, err)
		newLocalNode(t, c).play(t, c, fault{}, func(p *corev1.Pod, scheduler, review string) {
			pods++
			if scheduler != "" {
				refusals++
			}
			if (scheduler == "") != (review == "") && review != notReviewed {
				t.Errorf("%s (%s; %s), %s: the scheduler says %q, the review %q", c.name, c.shape, c.settings, title(p),
					scheduler, review)
			}
		})
	}
	t.Logf("%d pods, %d refused", pods, refusals)
	if refusals < pods/10 {
		t.Errorf("%d of %d pods were refused: the test shows nothing", refusals, pods)
	}
}

// localCombinations is how many combinations of each mode are played.
const localCombinations = 60

func TestASchedulerThatRefusesTooMuchIsFound(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{
		"asks for one CPU more": {request: func(r *place.Request) {
			if r.CPUs > 0 {
				r.CPUs++
			}
		}},
		"leaves the shared pool more than its floor": {
			facts: func(f *ledger.Facts) { f.MinSharedCPUs = f.Model.Config.CPU.Reserved.Len() + 2 },
		},
		"requires whole cores":   {request: func(r *place.Request) { r.Required = place.WantFullPCPUs }},
		"requires one NUMA node": {request: func(r *place.Request) { r.Topology = hint.SingleNUMANode }},
		"keeps NUMA nodes apart": {request: func(r *place.Request) { r.NUMAExclusive = place.RequireNUMAExclusive }},
		"counts memory twice": {request: func(r *place.Request) {
			for i := range r.Needs {
				r.Needs[i].N *= 2
			}
		}},
		"promises the shared pool twice": {request: func(r *place.Request) {
			r.RequestMilli, r.LimitMilli = 2*r.RequestMilli, 2*r.LimitMilli
		}},
		"asks more of the kubelet": {request: func(r *place.Request) {
			if r.Kubelet == nil {
				return
			}
			more := *r.Kubelet
			more.Containers = slices.Clone(more.Containers)
			for i := range more.Containers {
				if c := &more.Containers[i]; c.CPUs > 0 {
					c.CPUs++
				}
			}
			r.Kubelet = &more
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := ""
			for i := 0; i < 2*localCombinations && found == ""; i++ {
				c, err := drawCombination(usualSeed, i/2, i%2 == 1, localMemory)
				testkit.Check(t, err)
				newLocalNode(t, c).play(t, c, f, func(p *corev1.Pod, scheduler, review string) {
					if scheduler != "" && review == "" && found == "" {
						found = fmt.Sprintf("%s, %s: %s", c.name, title(p), scheduler)
					}
				})
			}
			if found == "" {
				t.Errorf("no pod waits without need in %d combinations", 2*localCombinations)
			}
			t.Log(found)
		})
	}
}
