package accounts_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/accounts"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// user is a pod of a gang that is bound and uses the Reservation r.
func user() *corev1.Pod {
	return object.Pod("p", object.On("n"), object.Class("LSR"), object.CPUs("0-1"), object.Gang("g", "1"),
		object.Both("cpu", "2"), object.Annotation(annotation.ReservationAllocatedKey, `{"name":"r","uid":"r"}`))
}

// kept is a Reservation that keeps 4 CPUs.
func kept() *reservation.Reservation {
	template := object.Pod("t", object.Class("LSR"), object.Both("cpu", "4"))
	r := &reservation.Reservation{ObjectMeta: metav1.ObjectMeta{
		Name: "r", UID: "r", Annotations: map[string]string{annotation.ResourceStatusKey: `{"cpuset":"0-3"}`},
	}}
	r.Spec.AllocateOnce = new(bool)
	r.Spec.Template = &corev1.PodTemplateSpec{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	r.Status = reservation.ReservationStatus{Phase: reservation.ReservationAvailable, NodeName: "n"}
	return r
}

func (c *cluster) counts(p *corev1.Pod) bool {
	return kube.Ask(c.Quotas, func(a *quota.Account) bool { _, counts := a.Find(string(p.UID)); return counts })
}

// TestAccountsGetAPodInTheOrderOfTheTable: the gang of a pod is known before its quota counts it, its Reservation
// shrinks before what it uses itself counts anywhere, and its node comes last.
func TestAccountsGetAPodInTheOrderOfTheTable(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.informers["Reservation"].deliver(event{now: kept()})
	p := user()
	var order []string
	had := func(account string) {
		if c.counts(p) {
			account += " after quotas"
		}
		order = append(order, account)
	}
	c.Gangs.Inform(func(string, gang.Bond) { had("gangs") })
	c.Loads.OnChange(func(string) { had("loads") }, func(string) {})
	c.Reservations.OnChange(func(types.UID) { had("reservations") })
	c.Nodes.OnChange(func(string) { had("nodes") })
	c.informers["Pod"].deliver(event{now: p})
	want := []string{"gangs", "reservations", "loads", "nodes after quotas"}
	if got := slices.Compact(order); !slices.Equal(got, want) {
		t.Errorf("the order is %q, want %q", got, want)
	}
}

// TestAHandlerBehindTheAccountsFindsThemUpToDate, for pods, reserve pods and nodes, whatever becomes of them.
func TestAHandlerBehindTheAccountsFindsThemUpToDate(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	seen := map[string]int{}
	holds := func(obj any) (pod *corev1.Pod, cpus string) {
		if gone, missed := obj.(cache.DeletedFinalStateUnknown); missed {
			obj = gone.Obj
		}
		pod = obj.(*corev1.Pod)
		e, _ := c.Nodes.View("n").Entry(string(pod.UID))
		return pod, e.CPUList
	}
	here := func(_, obj any) {
		pod, cpus := holds(obj)
		if cpus == "" || !c.counts(pod) {
			t.Errorf("%s is shown before the accounts have it", pod.Name)
		}
		seen[pod.Name]++
	}
	for kind, handler := range map[string]cache.ResourceEventHandlerFuncs{
		"Pod": {
			AddFunc: func(obj any) { here(nil, obj) }, UpdateFunc: here, DeleteFunc: func(obj any) {
				if pod, cpus := holds(obj); cpus != "" || c.counts(pod) {
					t.Errorf("%s is gone before the accounts have forgotten it", pod.Name)
				}
				seen["gone"]++
			},
		},
		"Node": {AddFunc: func(obj any) {
			root, _ := c.Quotas.Report(quota.Root)
			cpus, divided := obj.(*corev1.Node).Status.Allocatable.Cpu().Value(), root.Max["cpu"]
			known, _ := c.Nodes.Node("n")
			if cpus != 3 || divided != 3000 || known.Object == nil ||
				known.Object.Status.Allocatable.Cpu().Value() != 3 {
				t.Errorf("the node is shown with %d CPUs, quotas divide %d milli-CPU, the account has %+v; want 3 of 5",
					cpus, divided, known.Object)
			}
			seen["node"]++
		}},
	} {
		i := &informer{}
		if _, err := c.table.Of(kind).First(i).AddEventHandler(handler); err != nil {
			t.Fatal(err)
		}
		c.informers[kind] = i
	}
	n := object.Node("n", nil, "cpu", "5")
	object.Annotate(n, annotation.NodeReservation, `{"resources":{"cpu":"2"}}`)
	c.informers["Node"].deliver(event{now: n})
	r, p := kept(), user()
	c.informers["Reservation"].deliver(event{now: r})
	c.informers["Pod"].deliver(event{now: p})
	if left := c.Reservations.Available("r")["cpu"]; left != 1000 {
		t.Errorf("the Reservation has %d milli-CPU of its 4 CPUs, want 1000: the pod uses 2 of the 3 that the node has",
			left)
	}
	namesake := p.DeepCopy()
	namesake.UID = "namesake"
	c.informers["Pod"].deliver(event{old: p, now: namesake})
	c.informers["Pod"].deliver(event{old: namesake, missed: true})
	c.informers["Reservation"].deliver(event{old: r})
	if seen["p"] != 2 || seen["gone"] != 3 || seen["r"] < 1 || seen["node"] != 1 {
		t.Errorf("the handler has seen %v", seen)
	}
}

// TestATableFollowsWhatItsAccountsFollow: an account that is missing, or that no plugin has configured, gets nothing,
// and an object of another kind is refused.
func TestATableFollowsWhatItsAccountsFollow(t *testing.T) {
	t.Parallel()
	unasked := accounts.Accounts{
		Nodes: kube.NewStore(), Gangs: kube.NewGangs(), Loads: kube.NewLoads(), Quotas: kube.NewQuotas(nil),
	}
	table, p := unasked.Table(), user()
	if !table.Put(p) || unasked.Nodes.Known("n") == nil {
		t.Error("the account of the node does not have the pod")
	}
	if unasked.Gangs.GangOf(p) != "" || unasked.Loads.IsAssigned(p.UID) || len(unasked.Quotas.Reports()) != 3 {
		t.Error("an account has a pod that no plugin asked for")
	}
	unasked.Gangs.UseDefaults()
	unasked.Loads.Enable(convert.LoadSettings{}, 0)
	if table.Put(p); unasked.Gangs.GangOf(p) != "default/g" || !unasked.Loads.IsAssigned(p.UID) {
		t.Error("an account that was configured does not have the pod")
	}
	if !table.Remove(p) || unasked.Nodes.Known("n") != nil || unasked.Gangs.GangOf(p) != "" {
		t.Error("an account has a pod that is gone")
	}
	if table.Put(&corev1.Service{}) || table.Remove(&corev1.Service{}) {
		t.Error("a Service is of a kind that accounts follow")
	}
}

// TestClaimsReachTheAccountsOfNodes: a claim has the card that a slice says, until either is gone.
func TestClaimsReachTheAccountsOfNodes(t *testing.T) {
	t.Parallel()
	nodes := kube.NewStore()
	table := accounts.Accounts{Nodes: nodes, Claims: kube.NewClaims(nodes)}.Table()
	d := &devicev1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	d.Spec.Devices = []devicev1alpha1.DeviceInfo{{Type: "gpu", ID: "GPU-a", Health: true}}
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	s.Spec.Driver, s.Spec.Pool.Name, s.Spec.NodeName = "d", "p", new("n")
	id := map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"uuid": {StringValue: new("GPU-a")}}
	s.Spec.Devices = []resourcev1.Device{{Name: "x", Attributes: id}}
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c"}}
	claim.Status.Allocation = &resourcev1.AllocationResult{}
	claim.Status.Allocation.Devices.Results = []resourcev1.DeviceRequestAllocationResult{
		{Driver: "d", Pool: "p", Device: "x"},
	}
	for _, o := range []any{d, s, claim} {
		if !table.Put(o) {
			t.Fatalf("no account follows %T", o)
		}
	}
	held := func() bool {
		e, _ := nodes.View("n").Entry("claim/c")
		return len(nodes.View("n").GrantsOf(&e)) == 1
	}
	if !held() {
		t.Error("the claim does not have the card")
	}
	if table.Remove(s); held() {
		t.Error("the claim has a card that no slice publishes")
	}
	table.Put(s)
	if table.Remove(claim); held() {
		t.Error("a claim that is gone has a card")
	}
}

// TestEveryKindReachesItsAccounts, as its sources read it, until it is gone. An update that changes nothing for them
// does not reach the handler behind them either.
func TestEveryKindReachesItsAccounts(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	node := func() kube.Node { n, _ := c.Nodes.Node("n"); return n }
	has := map[string]func() bool{
		"NodeResourceTopology": func() bool { return node().Topology != nil },
		"Numatopology":         func() bool { return node().Numatopology != nil },
		"Device":               func() bool { return node().Devices != nil && len(c.Kinds.List()) == 1 },
		"Reservation":          func() bool { return len(c.Reservations.UIDs()) == 1 },
		"ElasticQuota":         func() bool { _, known := c.Quotas.Report("n"); return known },
		"PodGroup": func() bool {
			return kube.Ask(c.Gangs, func(s *gang.State) bool { return len(s.Gangs()) == 1 })
		},
		"ClusterNetworkTopology": func() bool {
			return kube.Ask(c.Gangs, func(s *gang.State) bool { return s.Layers().Knows(domain.Rule{Layer: "Block"}) })
		},
		"NodeMetric": func() bool { return c.Loads.View("n").Report != nil },
	}
	name := map[string]string{"ClusterNetworkTopology": "default"}
	spec := map[string]string{
		"Device": `{"devices":[{"type":"dpu","id":"0","health":true,"resources":{"example.com/dpu":"1"}}]}`,

		"ClusterNetworkTopology": `{"networkTopologySpec":[{"topologyLayer":"Block","labelKey":["l"]}]}`,
	}
	distinct := map[string]bool{"ElasticQuota": true, "PodGroup": true, "ClusterNetworkTopology": true}
	for _, kind := range c.table {
		for _, s := range kind.Sources {
			o, err := s.Read(fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"namespace":"default","name":%q,`+
				`"uid":"u"},"spec":%s}`, s.At[0].GroupVersion(), kind.Name, cmp.Or(name[kind.Name], "n"),
				cmp.Or(spec[kind.Name], "{}")))
			if err != nil {
				t.Fatalf("%s: %v", kind.Name, err)
			}
			i, updates := &informer{}, 0
			if _, err := kind.First(i).AddEventHandler(cache.ResourceEventHandlerFuncs{
				UpdateFunc: func(any, any) { updates++ },
			}); err != nil {
				t.Fatal(err)
			}
			i.deliver(event{now: o.(thing)})
			composite := s.At[0].Resource == "compositepodgroups" // not a gang by itself
			if !composite && !has[kind.Name]() {
				t.Errorf("no account has the %s of %s", kind.Name, s.At[0].Group)
			}
			i.deliver(event{old: o.(thing), now: o.(runtime.Object).DeepCopyObject().(thing)})
			if distinct[kind.Name] == (updates > 0) {
				t.Errorf("%s: %d updates that change nothing", kind.Name, updates)
			}
			i.deliver(event{old: o.(thing)})
			if has[kind.Name]() {
				t.Errorf("an account has the %s of %s, which is gone", kind.Name, s.At[0].Group)
			}
		}
	}
}
