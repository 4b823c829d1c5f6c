package journal

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube"
)

// Object is what the API server has.
type Object interface {
	metav1.Object
	runtime.Object
}

// kinds makes an empty object by kind.
func kinds() map[string]func() Object {
	return map[string]func() Object{
		"ClusterNetworkTopology": func() Object { return &devicev1alpha1.ClusterNetworkTopology{} },
		"Device":                 func() Object { return &devicev1alpha1.Device{} },
		"DeviceClass":            func() Object { return &resourcev1.DeviceClass{} },
		"DeviceTaintRule":        func() Object { return &resourcev1.DeviceTaintRule{} },
		"ElasticQuota":           func() Object { return &v1alpha1.ElasticQuota{} },
		"Namespace":              func() Object { return &corev1.Namespace{} },
		"Node":                   func() Object { return &corev1.Node{} },
		"NodeMetric":             func() Object { return &kube.NodeMetric{} },
		"NodeResourceTopology":   func() Object { return &v1alpha2.NodeResourceTopology{} },
		"Numatopology":           func() Object { return &nodeinfo.Numatopology{} },
		"Pod":                    func() Object { return &corev1.Pod{} },
		"PodDisruptionBudget":    func() Object { return &policyv1.PodDisruptionBudget{} },
		"PodGroup":               func() Object { return &v1alpha1.PodGroup{} },
		"ReplicaSet":             func() Object { return &appsv1.ReplicaSet{} },
		"Reservation":            func() Object { return &reservation.Reservation{} },
		"ResourceClaim":          func() Object { return &resourcev1.ResourceClaim{} },
		"ResourceSlice":          func() Object { return &resourcev1.ResourceSlice{} },
		"Service":                func() Object { return &corev1.Service{} },
		"StatefulSet":            func() Object { return &appsv1.StatefulSet{} },
	}
}

// kindOf returns the kind of an object, as kinds has it.
func kindOf(o Object) string { return reflect.TypeOf(o).Elem().Name() }

// KeyOf names an object among all.
func KeyOf(o Object) string {
	return strings.Join([]string{kindOf(o), o.GetObjectKind().GroupVersionKind().Group, o.GetNamespace(), o.GetName()},
		"/")
}

// recorded returns what the event of an object has of it: what scheduling reads. A put has all of it, and a deletion
// names the object.
func recorded(op string, o Object) Object {
	if pod, ok := o.(*corev1.Pod); ok {
		kept := recordedPod(op, pod)
		return &kept
	}
	if op != Delete {
		return keep(o)
	}
	out := reflect.New(reflect.TypeOf(o).Elem()).Interface().(Object)
	out.SetName(o.GetName())
	out.SetNamespace(o.GetNamespace())
	out.SetUID(o.GetUID())
	out.GetObjectKind().SetGroupVersionKind(o.GetObjectKind().GroupVersionKind())
	return out
}

// recordedPod is recorded for pods. A change is of a pod whose binding or status is new while the rest of its spec is
// not: it has no spec, which readers take from the put before it.
func recordedPod(op string, p *corev1.Pod) corev1.Pod {
	switch op {
	case Delete:
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID}}
	case Change:
		return corev1.Pod{
			ObjectMeta: keepMeta(&p.ObjectMeta), Spec: corev1.PodSpec{NodeName: p.Spec.NodeName},
			Status: keepStatus(&p.Status),
		}
	}
	return corev1.Pod{ObjectMeta: keepMeta(&p.ObjectMeta), Spec: keepSpec(&p.Spec), Status: keepStatus(&p.Status)}
}

// newEvent returns the event of an object.
func newEvent(op string, o Object) (*writtenEvent, error) {
	e := &writtenEvent{Event: &Event{Op: op, Kind: kindOf(o)}, Object: recorded(op, o)}
	for field, value := range hidden(e.Object) {
		if value.IsZero() {
			continue
		}
		text, err := json.Marshal(value.Interface())
		if err != nil {
			return nil, fmt.Errorf("encode %s of %s: %w", field, KeyOf(o), err)
		}
		if e.Hidden == nil {
			e.Hidden = map[string]json.RawMessage{}
		}
		e.Hidden[field] = text
	}
	return e, nil
}

// Encode returns the event of an object as a reader has it.
func Encode(op string, o Object) (*Event, error) {
	e, err := newEvent(op, o)
	if err == nil {
		e.Event.Object, err = json.Marshal(e.Object)
	}
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", KeyOf(o), err)
	}
	return e.Event, nil
}

// Decoder decodes the objects of a file, in its order. It keeps what later records leave out.
type Decoder struct{ specs map[types.UID]*corev1.PodSpec }

// Decode returns the object of an event. A change of a pod becomes an event that puts the pod.
func (d *Decoder) Decode(e *Event) (Object, error) {
	o, err := e.Decode()
	if err != nil {
		return nil, err
	}
	pod, ok := o.(*corev1.Pod)
	switch {
	case e.Op == Change && (!ok || d.specs[pod.UID] == nil):
		return nil, fmt.Errorf("event: %s is changed, and no record has put it", KeyOf(o))
	case e.Op == Change:
		node := pod.Spec.NodeName
		pod.Spec, e.Op = *d.specs[pod.UID].DeepCopy(), Put
		pod.Spec.NodeName = node
	case ok && e.Op == Put:
		if d.specs == nil {
			d.specs = map[types.UID]*corev1.PodSpec{}
		}
		d.specs[pod.UID] = pod.Spec.DeepCopy()
	case ok && e.Op == Delete:
		delete(d.specs, pod.UID)
	}
	return o, nil
}

// Decode returns the object of an event.
func (e *Event) Decode() (Object, error) {
	empty, known := kinds()[e.Kind]
	if !known {
		return nil, fmt.Errorf("event.kind: %q is not a kind that a journal has, want one of %s", e.Kind,
			strings.Join(slices.Sorted(maps.Keys(kinds())), ", "))
	}
	o := empty()
	if err := json.Unmarshal(e.Object, o); err != nil {
		return nil, fmt.Errorf("event.object: %w", err)
	}
	if o.GetName() == "" {
		return nil, fmt.Errorf("event.object: metadata.name: must not be empty")
	}
	fields := hidden(o)
	for field, text := range e.Hidden {
		value, has := fields[field]
		if !has {
			return nil, fmt.Errorf("event.hidden: %s has no field %q", e.Kind, field)
		}
		if err := json.Unmarshal(text, value.Addr().Interface()); err != nil {
			return nil, fmt.Errorf("event.hidden.%s: %w", field, err)
		}
	}
	if m, ok := o.(*kube.NodeMetric); ok && m.Report == nil && e.Op == Put {
		return nil, fmt.Errorf("event.object: Report: must be set")
	}
	return o, nil
}

// hidden returns the fields of an object that its JSON form does not have. They are what decoding adds to an object:
// what of it could not be read, and of a PodGroup what its API group implies.
func hidden(o Object) map[string]reflect.Value {
	var out map[string]reflect.Value
	switch o.(type) {
	case *corev1.Pod, *corev1.Node: // most objects
		return nil
	}
	for field, value := range reflect.ValueOf(o).Elem().Fields() {
		if field.Tag.Get("json") != "-" {
			continue
		}
		if out == nil {
			out = map[string]reflect.Value{}
		}
		out[field.Name] = value
	}
	return out
}

// domains are those of the annotations that scheduling reads.
var domains = []string{
	"koordinator.sh/", "tenon.sh/", "volcano.sh/", "scheduling.k8s.io/", "scheduling.x-k8s.io/",
	"resource.kubernetes.io/",
}

// readAnnotations returns those that scheduling reads.
func readAnnotations(all map[string]string) map[string]string {
	var out map[string]string
	for key, value := range all {
		if slices.ContainsFunc(domains, func(d string) bool { return strings.Contains(key, d) }) {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = value
		}
	}
	return out
}

// keep returns a copy of an object that is not a pod, with what scheduling reads of it. It has neither commands,
// environment variables, volumes that are not claims, nor annotations of others.
func keep(o Object) Object {
	switch o := o.(type) {
	case *corev1.Node:
		return keepNode(o)
	case *corev1.Namespace:
		return &corev1.Namespace{ObjectMeta: keepMeta(&o.ObjectMeta)}
	case *corev1.Service:
		return &corev1.Service{
			ObjectMeta: keepMeta(&o.ObjectMeta), Spec: corev1.ServiceSpec{Selector: o.Spec.Selector},
		}
	case *appsv1.ReplicaSet:
		return &appsv1.ReplicaSet{
			ObjectMeta: keepMeta(&o.ObjectMeta), Spec: appsv1.ReplicaSetSpec{Selector: o.Spec.Selector},
		}
	case *appsv1.StatefulSet:
		return &appsv1.StatefulSet{
			ObjectMeta: keepMeta(&o.ObjectMeta), Spec: appsv1.StatefulSetSpec{Selector: o.Spec.Selector},
		}
	case *resourcev1.ResourceClaim:
		return keepClaim(o)
	case *resourcev1.DeviceClass:
		out := &resourcev1.DeviceClass{ObjectMeta: keepMeta(&o.ObjectMeta), Spec: o.Spec}
		out.Spec.Config = nil
		return out
	case *reservation.Reservation:
		out := *o
		out.ObjectMeta = keepMeta(&o.ObjectMeta)
		out.ResourceVersion = o.ResourceVersion // an older one does not count
		if o.Spec.Template != nil {
			template := *o.Spec.Template
			template.ObjectMeta = keepMeta(&template.ObjectMeta)
			template.Spec = keepSpec(&template.Spec)
			out.Spec.Template = &template
		}
		return &out
	}
	if kept := readAnnotations(o.GetAnnotations()); len(kept) < len(o.GetAnnotations()) {
		o = o.DeepCopyObject().(Object)
		o.SetAnnotations(kept)
	}
	return o
}

// keepClaim returns a claim with what scheduling reads of it, without the configuration of drivers.
func keepClaim(c *resourcev1.ResourceClaim) *resourcev1.ResourceClaim {
	out := &resourcev1.ResourceClaim{ObjectMeta: keepMeta(&c.ObjectMeta), Spec: c.Spec, Status: c.Status}
	out.ResourceVersion = c.ResourceVersion // an older one does not count
	out.Spec.Devices.Config = nil
	out.Status.Allocation = keepAllocation(c.Status.Allocation)
	out.Status.Devices = nil
	for i := range c.Status.Devices { // their conditions say whether a pod can be bound
		kept := c.Status.Devices[i]
		kept.Data, kept.NetworkData = nil, nil
		out.Status.Devices = append(out.Status.Devices, kept)
	}
	return out
}

// keepAllocation returns an allocation without the configuration of drivers.
func keepAllocation(a *resourcev1.AllocationResult) *resourcev1.AllocationResult {
	if a == nil {
		return nil
	}
	out := *a
	out.Devices.Config = nil
	return &out
}

// keepMeta returns the metadata that scheduling reads. Managed fields and annotations of others are left out.
func keepMeta(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, Labels: m.Labels, Generation: m.Generation,
		Annotations: readAnnotations(m.Annotations), OwnerReferences: m.OwnerReferences,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		DeletionGracePeriodSeconds: m.DeletionGracePeriodSeconds,
	}
}

// keepNode returns a node with what scheduling reads of it, which is neither heartbeats nor messages.
func keepNode(n *corev1.Node) *corev1.Node {
	out := *n
	out.TypeMeta, out.ObjectMeta = metav1.TypeMeta{}, keepMeta(&n.ObjectMeta)
	out.Spec = corev1.NodeSpec{Unschedulable: n.Spec.Unschedulable, Taints: n.Spec.Taints}
	out.Status.Addresses, out.Status.NodeInfo, out.Status.VolumesInUse = nil, corev1.NodeSystemInfo{}, nil
	out.Status.VolumesAttached, out.Status.Config, out.Status.Conditions = nil, nil, nil
	for _, c := range n.Status.Conditions {
		out.Status.Conditions = append(out.Status.Conditions, corev1.NodeCondition{
			Type: c.Type, Status: c.Status, Reason: c.Reason, LastTransitionTime: c.LastTransitionTime,
		})
	}
	return &out
}

// keepStatus returns what scheduling reads of the status of a pod.
func keepStatus(s *corev1.PodStatus) corev1.PodStatus {
	out := corev1.PodStatus{
		Phase: s.Phase, NominatedNodeName: s.NominatedNodeName, StartTime: s.StartTime, QOSClass: s.QOSClass,
		Resize: s.Resize, ResourceClaimStatuses: s.ResourceClaimStatuses, Resources: s.Resources,
		AllocatedResources: s.AllocatedResources, ExtendedResourceClaimStatus: s.ExtendedResourceClaimStatus,
	}
	for i := range s.Conditions {
		switch c := &s.Conditions[i]; c.Type {
		case corev1.PodScheduled, corev1.DisruptionTarget, corev1.PodInitialized, corev1.PodResizePending,
			corev1.PodResizeInProgress:
			out.Conditions = append(out.Conditions, corev1.PodCondition{
				Type: c.Type, Status: c.Status, Reason: c.Reason, LastTransitionTime: c.LastTransitionTime,
			})
		}
	}
	out.ContainerStatuses = keepStatuses(s.ContainerStatuses)
	out.InitContainerStatuses = keepStatuses(s.InitContainerStatuses)
	return out
}

// keepStatuses returns what containers were given.
func keepStatuses(all []corev1.ContainerStatus) (out []corev1.ContainerStatus) {
	for i := range all {
		if c := &all[i]; c.Resources != nil || c.AllocatedResources != nil {
			out = append(out, corev1.ContainerStatus{
				Name: c.Name, Resources: c.Resources, AllocatedResources: c.AllocatedResources,
			})
		}
	}
	return out
}

// keepSpec returns a spec without what runs in the containers. It names what goes and not what stays, so a field of a
// later Kubernetes by which pods are placed is in the journal.
func keepSpec(s *corev1.PodSpec) corev1.PodSpec {
	out := *s
	out.Containers, out.InitContainers = keepContainers(s.Containers), keepContainers(s.InitContainers)
	out.EphemeralContainers, out.Volumes, out.ImagePullSecrets, out.SecurityContext = nil, nil, nil, nil
	out.HostAliases, out.DNSConfig, out.ServiceAccountName, out.DeprecatedServiceAccount = nil, nil, "", ""
	out.Hostname, out.Subdomain = "", ""
	for i := range s.Volumes {
		v := &s.Volumes[i]
		kept := corev1.Volume{Name: v.Name}
		kept.PersistentVolumeClaim = v.PersistentVolumeClaim
		if v.Ephemeral != nil {
			kept.Ephemeral = &corev1.EphemeralVolumeSource{}
		}
		if kept.PersistentVolumeClaim != nil || kept.Ephemeral != nil {
			out.Volumes = append(out.Volumes, kept)
		}
	}
	return out
}

// keepContainers returns containers with what they ask for, and without what runs in them.
func keepContainers(all []corev1.Container) (out []corev1.Container) {
	for i := range all {
		c := &all[i]
		out = append(out, corev1.Container{
			Name: c.Name, Image: c.Image, Ports: c.Ports, Resources: c.Resources, ResizePolicy: c.ResizePolicy,
			RestartPolicy: c.RestartPolicy,
		})
	}
	return out
}
