package admit

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

var policies = []string{"none", "best-effort", "restricted", "single-numa-node"}

// TestPredictionsHoldWhileContainersAndKubeletsRestart: 500 pods with init containers and sidecars are predicted and
// admitted under the four policies, while containers start and start again, pods leave and the kubelet restarts. Each
// pod is predicted on a report that has all of this, and reported at a later stage. No report contradicts a prediction,
// but for one that shows memory of an app container on a foreign NUMA node, which is always the model's error.
func TestPredictionsHoldWhileContainersAndKubeletsRestart(t *testing.T) {
	t.Parallel()
	for _, policy := range policies {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			f := newFollowed(t, policy)
			defer f.end()
			admitted, released := 0, 0
			for f.number < 125 {
				for range f.IntN(3) {
					f.disturb(t)
				}
				f.report(t)
				p, refusal := f.predict(t)
				if refusal != nil {
					if got, err := f.kubelet.Admit(p.Pod); got == nil || err != nil {
						t.Fatalf("%s is refused with %+v, the kubelet says %+v, %v", p.UID, refusal, got, err)
					}
					continue
				}
				before := f.state()
				if !f.admit(t, p) {
					t.Errorf("%s is refused", p.UID)
				}
				for range f.IntN(5) {
					f.start(p)
				}
				if f.IntN(8) == 0 {
					f.restart(t)
				}
				f.report(t)
				if !slices.Contains(f.live, p) {
					continue // it failed when the kubelet restarted
				}
				admitted++
				for _, c := range f.state().Confirmations(before) {
					if c.Difference != 0 || c.ModelError {
						t.Errorf("%s differs in %v, model error %v:\npredicted %+v\nactual    %+v", c.UID,
							c.Difference.Kinds(), c.ModelError, c.Predicted, c.Actual)
					}
					if len(c.Actual) < len(c.Predicted) {
						released++
					}
				}
				f.moveMemory(p)
				got := f.state().Confirmations(before)
				if len(got) != 1 || got[0].Difference == 0 || !got[0].ModelError {
					t.Errorf("%s has memory on a foreign node, and is confirmed as %+v", p.UID, got)
				}
			}
			if admitted < 100 || released < 5 || f.restarts < 5 {
				t.Errorf("%d pods admitted, %d reported without a container, %d restarts: too few", admitted, released,
					f.restarts)
			}
		})
	}
}

// TestInitContainersConfirmPredictionsAtEachStage: init containers have as much as the main container, less and more,
// of memory, huge pages or both. At each stage of each pod, before and after a restart of the kubelet, what the node
// reports confirms the prediction.
func TestInitContainersConfirmPredictionsAtEachStage(t *testing.T) {
	t.Parallel()
	for name, inits := range map[string][]corev1.Container{
		"as much":              {sized("i0", "1", "2Gi", "64Mi")},
		"less":                 {sized("i0", "1", "1Gi", "2Mi")},
		"more":                 {sized("i0", "1", "3Gi", "128Mi")},
		"no huge pages":        {sized("i0", "1", "3Gi", "")},
		"huge pages, less CPU": {sized("i0", "500m", "1Gi", "256Mi")},
		"falling":              {sized("i0", "2", "9Gi", "64Mi"), sized("i1", "1", "5Gi", "")},
		"rising":               {sized("i0", "1", "1Gi", ""), sized("i1", "2", "9Gi", "")},
		"a sidecar":            {sidecar(sized("i0", "1", "2Gi", "64Mi"))},
		"after a sidecar":      {sidecar(sized("i0", "1", "2Gi", "64Mi")), sized("i1", "2", "4Gi", "128Mi")},
		"before a sidecar":     {sized("i0", "2", "4Gi", "128Mi"), sidecar(sized("i1", "1", "2Gi", ""))},
	} {
		f := newFollowed(t, "single-numa-node")
		p := &startedPod{Pod: object.Pod("p", object.UID("uid-p"))}
		p.Spec.InitContainers = inits
		p.Spec.Containers = []corev1.Container{sized("app", "1", "2Gi", "64Mi")}
		f.report(t)
		if refusal := f.predicts(t, p); refusal != nil || !f.admit(t, p) {
			t.Fatalf("%s: the pod is refused: %+v", name, refusal)
		}
		for stage := range 2*len(p.containers()) + 2 {
			f.report(t)
			a := f.state().Assignment("uid-p")
			if d := a.Difference(f.machine); a.Source != tenancy.Reported || d != 0 {
				t.Errorf("%s: stage %d is %v and differs in %v:\npredicted %+v\nactual    %+v", name, stage, a.Source,
					d.Kinds(), a.Predicted, a.Placement)
			}
			if stage == len(p.containers()) {
				f.restart(t)
				p.started = 0 // the pod gets another sandbox
			} else {
				f.startNext(p)
			}
		}
		f.end()
	}
}

// TestChurnDoesNotCountAsModelError: pods are predicted in the order in which they are bound, and the kubelet admits
// them in another order, after pods that the scheduler still counts have left and while init containers end.
// Predictions are wrong, mostly in the NUMA nodes, and never by the model's error, but for memory that no such history
// explains.
func TestChurnDoesNotCountAsModelError(t *testing.T) {
	t.Parallel()
	kinds := make([]map[string]int, len(policies))
	t.Run("policies", func(t *testing.T) {
		for i, policy := range policies {
			kinds[i] = map[string]int{}
			t.Run(policy, func(t *testing.T) {
				t.Parallel()
				f := newFollowed(t, policy)
				defer f.end()
				for f.number < 80 {
					f.churn(t, kinds[i])
				}
			})
		}
	})
	for i, policy := range policies {
		if kinds[i]["mask"] == 0 || kinds[i]["foreign"] < 20 && policy != "none" {
			t.Errorf("%s: mispredictions %v: want some in the mask, and 20 pods with foreign memory", policy, kinds[i])
		}
	}
}

// end stops the kubelet and waits for its goroutine, which writes to the folder of the test until then.
func (f *followed) end() {
	f.kubelet.Close()
	<-f.kubelet.Ended()
}

// churn predicts some pods, lets the kubelet admit them amid other changes, and counts mispredictions by kind.
func (f *followed) churn(t *testing.T, kinds map[string]int) {
	t.Helper()
	f.report(t)
	var bound []*startedPod
	for range 1 + f.IntN(3) {
		if p, refusal := f.predict(t); refusal == nil {
			bound = append(bound, p)
		}
	}
	before := f.state()
	for len(f.live) > 4 {
		f.leave(t, f.live[0])
	}
	f.Shuffle(len(bound), func(i, j int) { bound[i], bound[j] = bound[j], bound[i] })
	for _, p := range bound {
		for range f.IntN(2) {
			f.disturb(t)
		}
		f.admit(t, p)
	}
	f.report(t)
	for _, c := range f.state().Confirmations(before) {
		for _, kind := range c.Difference.Kinds() {
			kinds[kind]++
		}
		if c.ModelError {
			t.Errorf("%s is a model error:\npredicted %+v\nactual    %+v", c.UID, c.Predicted, c.Actual)
		}
	}
	for _, p := range bound {
		app := p.Spec.Containers[0].Resources.Requests.Cpu()
		if !slices.Contains(f.live, p) || app.MilliValue()%1000 != 0 || f.node.Config().Topology.Policy == hint.None {
			continue // it was refused, or nothing binds the memory to CPUs
		}
		f.moveMemory(p)
		for _, c := range f.state().Confirmations(before) {
			if c.UID == string(p.UID) && !c.ModelError {
				t.Errorf("%s has memory and CPUs on different nodes, and is confirmed as %+v", p.UID, c)
			}
		}
		f.report(t)
		kinds["foreign"]++
	}
}

// followed is a kubelet, what its node reports, and the predictions for its pods.
type followed struct {
	*rand.Rand
	*world
	kubelet *Kubelet
	node    *kubelet.Node
	number  int
	live    []*startedPod // in the order of their creation
	tenants []*tenancy.Tenant
	// given is the report of generation gen.
	given []tenancy.Grant
	gen   int64
	// restarts counts those of the kubelet.
	restarts int
}

// startedPod is a pod of which the first containers have started.
type startedPod struct {
	*corev1.Pod
	started int
	ids     int // of containers
}

func (p *startedPod) containers() []corev1.Container {
	return slices.Concat(p.Spec.InitContainers, p.Spec.Containers)
}

func newFollowed(t *testing.T, policy string) *followed {
	t.Helper()
	w := newWorld(t, t.TempDir(), "snc2@"+strings.TrimPrefix(policy+",", "none,")+"static,memory-static")
	f := &followed{Rand: rand.New(rand.NewPCG(1, uint64(len(policy)))), world: w}
	w.node.Status.Allocatable["hugepages-2Mi"] = resource.MustParse("16Gi")
	f.kubelet = w.boot(t, 10*time.Millisecond, nil)
	f.kubelet.Settled()
	model, _ := kubelet.ModelOf("v1.37.2")
	config := kubelet.Config{Model: model, CPU: kubelet.StaticCPU(w.settings.CPU.Options)}
	config.CPU.Reserved, _, _ = w.machine.ParseList(w.settings.CPU.Reserved)
	config.Memory.Static = true
	config.Topology.Policy, _ = hint.ParsePolicy(policy)
	state, err := host.ReadMemoryState(w.root())
	testkit.Check(t, err)
	var inventory kubelet.Inventory
	for i := range w.machine.NumNUMA() {
		zone := map[string]int64{}
		for name, amount := range state.Zones[w.machine.NUMAID(topo.NUMA(i))].Types {
			zone[name] = amount.Allocatable
		}
		inventory.Zones = append(inventory.Zones, zone)
	}
	node, reason := kubelet.NewNode(w.machine, config, inventory)
	if !reason.OK() {
		t.Fatal(reason)
	}
	f.node = node
	return f
}

func (w *world) root() host.Root { return host.Root{Dir: filepath.Join(w.dir, "../../..")} }

// report reads the kubelet's state files as the agent does.
func (f *followed) report(t *testing.T) {
	t.Helper()
	cpus, err := host.ReadCPUState(f.root())
	testkit.Check(t, err)
	memory, err := host.ReadMemoryState(f.root())
	testkit.Check(t, err)
	f.given, f.gen = nil, f.gen+1
	for _, p := range f.live {
		uid := string(p.UID)
		var held []kubelet.Held
		for _, c := range p.containers() {
			h := kubelet.Held{Container: c.Name}
			own, pinned := cpus.Containers[uid][c.Name]
			if pinned {
				h.CPUList = cpuset.FormatIDs(own)
			}
			for _, b := range memory.Pods[uid][c.Name] {
				h.Memory = append(h.Memory, kubelet.HeldMemory{Type: b.Type, NUMAIDs: b.NUMAIDs, Bytes: b.Bytes})
			}
			if pinned || len(h.Memory) > 0 {
				held = append(held, h)
			}
		}
		f.given = append(f.given, tenancy.Grant{UID: uid, Placement: kubelet.PlacementOf(f.machine, held)})
	}
	f.given = tenancy.SortGrants(f.given)
}

// state is what the node's pods have according to the report and the predictions.
func (f *followed) state() *tenancy.State {
	facts := &kubelet.Facts{Node: f.node, Config: f.node.Config(), Gen: f.gen}
	return tenancy.New(tenancy.Report{Facts: facts, Given: f.given}, f.tenants)
}

// predict draws a pod and predicts what it gets, or that it is refused.
func (f *followed) predict(t *testing.T) (*startedPod, *kubelet.Refusal) {
	t.Helper()
	p := f.draw()
	return p, f.predicts(t, p)
}

func (f *followed) predicts(t *testing.T, p *startedPod) *kubelet.Refusal {
	t.Helper()
	request, reason, _ := convert.Request(p.Pod, convert.DefaultArgs())
	if !reason.OK() {
		t.Fatal(reason)
	}
	_, placement, refusal := f.state().Kubelet().Admit(request.Kubelet)
	if refusal != nil {
		return refusal
	}
	f.tenants = append(slices.Clip(f.tenants), tenancy.NewTenant(f.machine, string(p.UID), p.Namespace, p.Name,
		&tenancy.Guest{Pod: request.Kubelet, Created: p.CreationTimestamp.Unix(), Prediction: &tenancy.Prediction{
			Model: "1.37", Gen: f.gen, Held: kubelet.HeldOf(f.machine, placement),
		}}))
	return nil
}

// draw returns a pod with up to three containers before its app container.
func (f *followed) draw() *startedPod {
	f.number++
	name := fmt.Sprintf("p%03d", f.number)
	p := object.Pod(name, object.UID("uid-"+name))
	p.CreationTimestamp = metav1.Unix(int64(f.number), 0)
	container := func(name string) corev1.Container {
		return sized(name, []string{"1", "500m", "2"}[f.IntN(3)], fmt.Sprint(1+f.IntN(30), "Gi"),
			fmt.Sprint(2*(1+f.IntN(200)), "Mi"))
	}
	p.Spec.Containers = []corev1.Container{container("app")}
	for i := range f.IntN(4) {
		c := container(fmt.Sprint("i", i))
		if f.IntN(3) == 0 {
			c = sidecar(c)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	return &startedPod{Pod: p}
}

// sized returns a container whose limits are its requests; hugepages may be "".
func sized(name, cpu, memory, hugepages string) corev1.Container {
	amounts := object.List("cpu", cpu, "memory", memory)
	if hugepages != "" {
		amounts["hugepages-2Mi"] = resource.MustParse(hugepages)
	}
	return corev1.Container{
		Name: name, Image: "x", Resources: corev1.ResourceRequirements{Requests: amounts, Limits: amounts},
	}
}

func sidecar(c corev1.Container) corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

// admit lets the kubelet admit a pod that was predicted. It returns false if the kubelet refuses the pod.
func (f *followed) admit(t *testing.T, p *startedPod) bool {
	t.Helper()
	refusal, err := f.kubelet.Admit(p.Pod)
	testkit.Check(t, err)
	if refusal != nil {
		f.forget(p.UID)
		return false
	}
	f.live = append(f.live, p)
	return true
}

// disturb lets a container start, or start again, the oldest pod leave, or the kubelet restart.
func (f *followed) disturb(t *testing.T) {
	t.Helper()
	switch {
	case len(f.live) == 0:
	case len(f.live) > 6 || f.IntN(6) == 0:
		f.leave(t, f.live[0])
	case f.IntN(12) == 0:
		f.restart(t)
	default:
		f.start(f.live[f.IntN(len(f.live))])
	}
}

// start starts the next container of a pod, or one that had started again.
func (f *followed) start(p *startedPod) {
	if p.started > 0 && f.IntN(3) == 0 {
		f.startContainer(p, f.IntN(p.started))
		return
	}
	f.startNext(p)
}

func (f *followed) startNext(p *startedPod) {
	next := min(p.started, len(p.containers())-1)
	p.started = next + 1
	f.startContainer(p, next)
}

func (f *followed) startContainer(p *startedPod, i int) {
	p.ids++
	f.kubelet.Added(p.Pod, &p.containers()[i], fmt.Sprint(p.UID, "/", p.ids))
}

// leave ends a pod. The kubelet frees what it had at the next admission.
func (f *followed) leave(t *testing.T, p *startedPod) {
	t.Helper()
	f.forget(p.UID)
	f.kubelet.Forget(p.UID)
	sweep := podOf("sweep", "0", "")
	if refusal, err := f.kubelet.Admit(sweep); refusal != nil || err != nil {
		t.Fatal(refusal, err)
	}
	f.kubelet.Forget(sweep.UID)
}

func (f *followed) forget(uid types.UID) {
	f.live = slices.DeleteFunc(slices.Clone(f.live), func(p *startedPod) bool { return p.UID == uid })
	f.tenants = slices.DeleteFunc(slices.Clone(f.tenants), func(t *tenancy.Tenant) bool { return t.UID == string(uid) })
}

// restart restarts the kubelet, which admits all pods again: ended init containers have memory again, and a pod fails
// if there is none.
func (f *followed) restart(t *testing.T) {
	t.Helper()
	f.restarts++
	f.end()
	f.kubelet = f.boot(t, 10*time.Millisecond, nil)
	for _, p := range f.live {
		if refusal, err := f.kubelet.Admit(p.Pod); err != nil {
			t.Fatal(err)
		} else if refusal != nil {
			t.Logf("%s fails after the restart: %+v", p.UID, refusal)
			f.forget(p.UID)
		}
	}
	f.kubelet.Settled()
}

// moveMemory changes the report: the memory of a pod's app container is on the NUMA node after the right one.
func (f *followed) moveMemory(p *startedPod) {
	i := slices.IndexFunc(f.given, func(g tenancy.Grant) bool { return g.UID == string(p.UID) })
	app := f.given[i].Placement.Find("app")
	for j := range app.Memory {
		app.Memory[j].Nodes = 1 << ((app.Memory[j].Nodes.First() + 1) % topo.NUMA(f.machine.NumNUMA()))
	}
}
