package accounts_test

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/load"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// thing is an object of any kind.
type thing interface {
	metav1.Object
	runtime.Object
}

// event is what a handler of an informer gets: an addition without old, a deletion without now.
type event struct {
	old, now thing
	missed   bool // the deletion, whose event comes as a tombstone
}

// history is the life of a cluster's objects.
type history struct {
	*rapid.T
	machines []*topo.Machine
	version  int
	now      map[string]map[string]thing // by kind and key: what the API server has
	events   map[string][]event          // by kind, in the order in which its informer delivers them
}

// start is when the first object was created. Clocks of accounts show noon.
var (
	start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	noon  = start.Truncate(24 * time.Hour).Add(12 * time.Hour)
)

// live draws the steps of a history.
func live(t *rapid.T, machines []*topo.Machine) *history {
	h := &history{T: t, machines: machines, now: map[string]map[string]thing{}, events: map[string][]event{}}
	steps := []func(){
		h.node, h.topology, h.numatopology, h.device, h.reservation, h.reservation, h.quota, h.quota, h.podGroup,
		h.network,
		h.metric, h.pod, h.pod, h.pod, h.pod, h.pod, h.pod, h.pod, h.pod,
	}
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		steps[rapid.IntRange(0, len(steps)-1).Draw(t, "step")]()
	}
	return h
}

// oneOf draws one of some values.
func oneOf[V any](h *history, what string, values ...V) V {
	return rapid.SampledFrom(values).Draw(h.T, what)
}

// put makes an object what the API server has, and returns whether one of its name and UID was there.
func (h *history) put(kind string, o thing) {
	h.version++
	o.SetResourceVersion(strconv.Itoa(h.version))
	key, _ := cache.MetaNamespaceKeyFunc(o)
	key += " " + o.GetObjectKind().GroupVersionKind().Group
	if h.now[kind] == nil {
		h.now[kind] = map[string]thing{}
	}
	was := h.now[kind][key]
	h.now[kind][key] = o
	h.events[kind] = append(h.events[kind], event{old: was, now: o})
}

// drop deletes an object, if it is there.
func (h *history) drop(kind string, o thing) {
	key, _ := cache.MetaNamespaceKeyFunc(o)
	key += " " + o.GetObjectKind().GroupVersionKind().Group
	if was := h.now[kind][key]; was != nil {
		delete(h.now[kind], key)
		h.events[kind] = append(h.events[kind], event{old: was, missed: oneOf(h, "missed", false, true)})
	}
}

// putOrDrop does the one or, seldom, the other.
func (h *history) putOrDrop(kind string, o thing) {
	if oneOf(h, "gone", false, false, false, true) {
		h.drop(kind, o)
	} else {
		h.put(kind, o)
	}
}

func (h *history) nodeName() string { return oneOf(h, "node", "n0", "n1", "n2") }

func (h *history) node() {
	n := object.Node(h.nodeName(), map[string]string{
		annotation.NodeNUMATopologyPolicy: oneOf(h, "policy", "None", "Restricted"),
		"zone":                            oneOf(h, "zone", "a", "b"),
	}, "cpu", oneOf(h, "cpu", "8", "16"), "nvidia.com/gpu", "4", "koordinator.sh/gpu-core", "400")
	object.Annotate(n, annotation.NodeReservation, oneOf(h, "reserved", "", `{"resources":{"cpu":"2"}}`))
	if since := oneOf(h, "not ready since", -1, 0, 11); since >= 0 {
		n.Status.Conditions = []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionFalse,
			LastTransitionTime: metav1.NewTime(noon.Add(-time.Duration(since) * time.Minute)),
		}}
	}
	h.putOrDrop("Node", n)
}

func (h *history) topology() {
	h.putOrDrop("NodeResourceTopology", object.Topology(h.nodeName(), oneOf(h, "machine", h.machines...), nil))
}

func (h *history) numatopology() {
	cpus := map[string]any{}
	for c := range 8 {
		cpus[strconv.Itoa(c)] = map[string]any{"numa": int64(c / 4), "socket": int64(c / 4), "core": int64(c % 4)}
	}
	h.putOrDrop("Numatopology", kube.ReadNumatopology(&unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": h.nodeName()},
		"spec": map[string]any{
			"policies": map[string]any{"CPUManagerPolicy": "static", "TopologyManagerPolicy": "restricted"},
			"numares": map[string]any{"cpu": map[string]any{
				"allocatable": oneOf(h, "free", "0-7", "0-3,6"), "capacity": int64(8),
			}},
			"cpuDetail": cpus,
		},
	}}))
}

func (h *history) device() {
	d := &devicev1alpha1.Device{ObjectMeta: metav1.ObjectMeta{
		Name: h.nodeName(), Annotations: map[string]string{annotation.DeviceModeKey: annotation.DeviceOwn},
	}}
	for i := range oneOf(h, "devices", 1, 2) {
		minor := int32(i)
		d.Spec.Devices = append(d.Spec.Devices, devicev1alpha1.DeviceInfo{
			Type: oneOf(h, "type", "gpu", "rdma"), ID: fmt.Sprint("d", i), Minor: &minor,
			Health: oneOf(h, "health", true, false),
		})
	}
	h.putOrDrop("Device", d)
}

func (h *history) metric() {
	h.putOrDrop("NodeMetric", &kube.NodeMetric{
		ObjectMeta: metav1.ObjectMeta{Name: h.nodeName()},
		Report: &load.Report{
			Updated: noon.Add(-time.Minute), Interval: time.Minute,
			Use:  &amount.Pair{oneOf[int64](h, "use", 100, 4000), 1 << 30},
			Pods: map[string]load.PodUse{"default/" + h.podName(): {Use: amount.Pair{500, 1 << 20}}},
		},
	})
}

func (h *history) network() {
	n := &devicev1alpha1.ClusterNetworkTopology{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	n.Spec.NetworkTopologySpec = []devicev1alpha1.NetworkLayer{
		{TopologyLayer: "Zone", LabelKey: []string{oneOf(h, "label", "zone", "rack")}},
	}
	h.putOrDrop("ClusterNetworkTopology", n)
}

func (h *history) quota() {
	name := oneOf(h, "quota", "org", "a", "b")
	most := object.List("cpu", oneOf(h, "most", "4", "8"))
	if device := oneOf(h, "device", "", "nvidia.com/gpu", "koordinator.sh/gpu-core"); device != "" {
		most[corev1.ResourceName(device)] = most["cpu"]
	}
	q := object.Quota("quotas/"+name, object.List("cpu", oneOf(h, "least", "1", "2")), most,
		annotation.QuotaParent, oneOf(h, "parent", "", "org"),
		annotation.QuotaIsParent, strconv.FormatBool(name == "org"))
	if name == "org" {
		delete(q.Labels, annotation.QuotaParent)
	}
	i := oneOf(h, "group", 0, 1)
	q.APIVersion = v1alpha1.Groups()[i] + "/v1alpha1"
	q.UID, q.CreationTimestamp = types.UID(fmt.Sprint(name, i)), metav1.NewTime(start.Add(time.Duration(i)*time.Second))
	h.putOrDrop("ElasticQuota", q)
}

// podGroup draws no gang of the policy once-satisfied: it has started, whatever has become of its pods since.
func (h *history) podGroup() {
	g := object.PodGroup("default/"+oneOf(h, "gang", "g0", "g1"), oneOf[int32](h, "least", 1, 2, 3))
	g.APIVersion = oneOf(h, "group", v1alpha1.PodGroupGroups()...) + "/v1alpha1"
	object.Annotate(g, annotation.GangMode, oneOf(h, "mode", "", "NonStrict"),
		annotation.GangMatchPolicy, "waiting-and-running")
	g.CreationTimestamp = metav1.NewTime(start)
	h.putOrDrop("PodGroup", g)
}

// reservation takes a Reservation one step further: it is created, placed, ends, or is deleted.
func (h *history) reservation() {
	name := oneOf(h, "reservation", "r0", "r1")
	was, _ := h.now["Reservation"][name+" "].(*reservation.Reservation)
	if was == nil {
		h.version++
		r := &reservation.Reservation{ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(fmt.Sprint(name, "-", h.version)), CreationTimestamp: metav1.NewTime(start),
		}}
		once := oneOf(h, "once", false, true)
		r.Spec.AllocateOnce = &once
		r.Spec.Owners = []reservation.ReservationOwner{{
			LabelSelector: metav1.SetAsLabelSelector(map[string]string{"app": name}),
		}}
		template := h.asking()
		r.Spec.Template = &corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: template.Labels}, Spec: template.Spec,
		}
		r.Status.Phase = reservation.ReservationPending
		h.put("Reservation", r)
		return
	}
	r := was.DeepCopy()
	switch {
	case oneOf(h, "gone", false, false, true):
		h.drop("Reservation", r)
	case r.Status.Phase == reservation.ReservationPending:
		r.Status.Phase, r.Status.NodeName = reservation.ReservationAvailable, h.nodeName()
		r.Annotations = map[string]string{annotation.ResourceStatusKey: `{"cpuset":"4-5"}`}
		h.put("Reservation", r)
	case r.Status.Phase == reservation.ReservationAvailable:
		r.Status.Phase = oneOf(h, "phase", reservation.ReservationSucceeded, reservation.ReservationFailed)
		h.put("Reservation", r)
	}
}

func (h *history) podName() string { return oneOf(h, "pod", "p0", "p1", "p2", "p3", "p4", "p5") }

// asking returns a pod that asks for something.
func (h *history) asking() *corev1.Pod {
	p := object.Pod(h.podName(), object.Class(oneOf(h, "class", "LS", "LSR")),
		object.Both("cpu", oneOf(h, "asks", "1", "2"), "koordinator.sh/gpu-core", oneOf(h, "gpu", "100", "200")))
	if quota := oneOf(h, "quota", "", "a", "b", "other"); quota != "" {
		object.Label(annotation.QuotaName, quota)(p)
	}
	return p
}

// pod takes a pod one step further: it is created, edited, nominated, bound, runs, ends, or is deleted. A namesake may
// take its place while no watch runs.
func (h *history) pod() {
	name := h.podName()
	was, _ := h.now["Pod"]["default/"+name+" "].(*corev1.Pod)
	if was == nil || oneOf(h, "namesake", false, false, false, false, false, false, false, true) {
		p := h.asking()
		h.version++
		p.Name, p.UID, p.Generation = name, types.UID(fmt.Sprint(name, "-", h.version)), 1
		p.CreationTimestamp = metav1.NewTime(start.Add(time.Duration(h.version) * time.Second))
		p.Labels["app"] = oneOf(h, "app", "r0", "r1")
		switch gang := oneOf(h, "gang", "", "g0", "g1"); {
		case gang == "":
		case oneOf(h, "by annotations", false, true):
			object.Gang(gang, oneOf(h, "least", "1", "2"))(p)
		default:
			object.Label(annotation.PodGroup, gang)(p)
		}
		p.Status.Phase = corev1.PodPending
		object.Annotation(annotation.GangMatchPolicy, "waiting-and-running")(p) // see podGroup
		h.put("Pod", p)
		return
	}
	p := was.DeepCopy()
	switch step := rapid.IntRange(0, 9).Draw(h.T, "change"); {
	case step == 0:
		h.drop("Pod", p)
		return
	case step == 1:
		p.DeletionTimestamp = &metav1.Time{Time: noon}
	case step == 2 && p.Spec.NodeName != "":
		p.Status.Phase = oneOf(h, "phase", corev1.PodSucceeded, corev1.PodFailed)
	case step == 3:
		p.Labels["edited"] = strconv.Itoa(h.version)
	case p.Spec.NodeName == "" && step == 4:
		p.Labels[annotation.QuotaName] = oneOf(h, "quota", "a", "b")
	case p.Spec.NodeName == "" && step == 5:
		p.Status.NominatedNodeName = oneOf(h, "nominated", "", "n0")
	case p.Spec.NodeName == "" && p.DeletionTimestamp == nil:
		h.bind(p)
	case p.Status.Phase == corev1.PodPending && p.Spec.NodeName != "":
		p.Status.Phase, p.Status.StartTime = corev1.PodRunning, &metav1.Time{Time: start.Add(time.Hour)}
	}
	h.put("Pod", p)
}

// bind binds a pod as a scheduler does.
func (h *history) bind(p *corev1.Pod) {
	p.Spec.NodeName = h.nodeName()
	p.Status.NominatedNodeName = ""
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(start.Add(time.Hour)),
	}}
	object.CPUs(oneOf(h, "cpus", "", "0-1", "2-3", "6"))(p)
	if uses := oneOf(h, "uses", "", p.Labels["app"]); uses != "" {
		if r, _ := h.now["Reservation"][uses+" "].(*reservation.Reservation); r != nil && r.Status.NodeName != "" {
			p.Spec.NodeName = r.Status.NodeName
			p.Annotations[annotation.ReservationAllocatedKey] = annotation.Encode(annotation.ReservationAllocated{
				Name: r.Name, UID: r.UID,
			})
		}
	}
}

// interleaved returns the events of all kinds in one order, in which those of each kind are as they are.
func (h *history) interleaved() (kinds []string, events []event) {
	left := map[string][]event{}
	for kind, all := range h.events {
		left[kind] = all
	}
	for len(left) > 0 {
		var with []string
		for kind := range left {
			with = append(with, kind)
		}
		slices.Sort(with)
		kind := oneOf(h, "next", with...)
		kinds, events = append(kinds, kind), append(events, left[kind][0])
		if left[kind] = left[kind][1:]; len(left[kind]) == 0 {
			delete(left, kind)
		}
	}
	return kinds, events
}
