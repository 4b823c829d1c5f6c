package convert

import (
	"cmp"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/reservation"
)

// Reservation is what a Reservation keeps, for whom and where. node is where it has room, "" where it has none.
func Reservation(r *v1alpha1.Reservation, node string) *reservation.Spec {
	s := &reservation.Spec{
		UID: string(r.UID), Name: r.Name, Node: node, Created: r.CreationTimestamp.Time, Labels: r.Labels,
		Once: IsOnce(r), Restricted: r.Spec.AllocatePolicy == v1alpha1.ReservationRestricted,
		Unschedulable: r.Spec.Unschedulable, Allocatable: PodAmounts(reservedTemplate(r)),
	}
	s.Order, _, _ = parse(r.Labels, annotation.ReservationOrder, annotation.ParseReservationOrder)
	options, _, _ := parse(r.Annotations, annotation.ReservationRestrictedOptionsKey,
		annotation.ParseReservationRestrictedOptions)
	for _, name := range options.Resources {
		s.RestrictedTo = append(s.RestrictedTo, device.Names(string(name))...)
	}
	if p := r.Spec.PreAllocationPolicy; p != nil {
		s.FromOffered = p.Mode == v1alpha1.PreAllocationCluster
	}
	s.Waiting = r.Status.Phase == v1alpha1.ReservationWaiting
	if s.Once && node != "" && !s.Waiting {
		for _, o := range r.Status.CurrentOwners {
			s.Announced = append(s.Announced, string(o.UID))
		}
	}
	for _, o := range r.Spec.Owners {
		s.Owners = append(s.Owners, ownerOf(o))
	}
	for _, t := range r.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule {
			s.Taints = append(s.Taints, reservation.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
		}
	}
	return s
}

// ReservingPod returns what a pod on a node keeps that is of mode Reservation, as a Reservation for one pod of its name
// and UID; nil for any other pod, and where it cannot be read for whom. One that is being deleted takes no further
// pods.
func ReservingPod(pod *corev1.Pod) *v1alpha1.Reservation {
	owners, _, err := parse(pod.Annotations, annotation.ReservationOwnersKey, annotation.ParseReservationOwners)
	if !keepsRoom(pod) || len(owners) == 0 || err != nil || pod.Spec.NodeName == "" || Ended(pod) ||
		UsedReservation(pod) != "" {
		return nil
	}
	r := &v1alpha1.Reservation{ObjectMeta: pod.ObjectMeta}
	r.Spec = v1alpha1.ReservationSpec{
		Template: &corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}, Owners: owners,
		Unschedulable: pod.DeletionTimestamp != nil,
	}
	r.Status = v1alpha1.ReservationStatus{Phase: v1alpha1.ReservationAvailable, NodeName: pod.Spec.NodeName}
	r.Status.Allocatable = ResourceList(PodAmounts(reservedTemplate(r)))
	if user := CurrentOwner(pod); user != nil {
		r.Status.CurrentOwners = []corev1.ObjectReference{*user}
	}
	return r
}

func keepsRoom(pod *corev1.Pod) bool {
	return pod.Labels[annotation.OperatingMode] == annotation.OperatingReservation
}

// CurrentOwner returns the pod that uses the room of a pod of mode Reservation, nil for none.
func CurrentOwner(pod *corev1.Pod) *corev1.ObjectReference {
	user, found, err := parse(pod.Annotations, annotation.ReservationCurrentOwnerKey, annotation.ParseCurrentOwner)
	if !found || err != nil {
		return nil
	}
	return (*corev1.ObjectReference)(&user)
}

// IsOnce reports whether a Reservation is for one pod.
func IsOnce(r *v1alpha1.Reservation) bool { return r.Spec.AllocateOnce == nil || *r.Spec.AllocateOnce }

func ownerOf(o v1alpha1.ReservationOwner) (owner reservation.Owner) {
	if r := o.Object; r != nil {
		owner.Object = &reservation.Reference{
			UID: string(r.UID), APIVersion: r.APIVersion, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name,
		}
	}
	if r := o.Controller; r != nil {
		owner.Controller = &reservation.Reference{
			UID: string(r.UID), APIVersion: r.APIVersion, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name,
		}
	}
	owner.Selector = selector(o.LabelSelector)
	return owner
}

// ReservationPod is what is read of a pod that may use reservations. refused names the annotation that cannot be read,
// and why; it is nil where all can.
func ReservationPod(pod *corev1.Pod) (out reservation.Pod, refused error) {
	out = reservation.Pod{
		UID: string(pod.UID), Namespace: pod.Namespace, Name: pod.Name, Labels: pod.Labels, Request: PodAmounts(pod),
	}
	if c := metav1.GetControllerOfNoCopy(pod); c != nil {
		out.Controller = &reservation.Reference{
			UID: string(c.UID), APIVersion: c.APIVersion, Kind: c.Kind, Namespace: pod.Namespace, Name: c.Name,
		}
	}
	out.Ignores, _ = annotation.ParseBool(pod.Labels[annotation.ReservationIgnored])
	out.Ignores = out.Ignores || keepsRoom(pod) // what it left to its user would belong to two
	exact, _, err := parse(pod.Annotations, annotation.ExactMatchReservationKey, annotation.ParseExactMatchReservation)
	for _, name := range exact.ResourceNames {
		out.Exact = append(out.Exact, string(name))
	}
	affinity, _, affinityErr := parse(pod.Annotations, annotation.ReservationAffinityKey,
		annotation.ParseReservationAffinity)
	out.Affinity = reservation.Affinity{
		Required: affinity.IsRequired(), Name: affinity.Name, Labels: affinity.ReservationSelector,
	}
	if affinity.Required != nil {
		out.Affinity.Terms = []reservation.Term{}
		for _, t := range affinity.Required.ReservationSelectorTerms {
			out.Affinity.Terms = append(out.Affinity.Terms, reservation.Term{
				Labels: nodeTerms(t.MatchExpressions), Fields: nodeTerms(t.MatchFields),
			})
		}
	}
	for _, t := range affinity.Tolerations {
		out.Affinity.Tolerations = append(out.Affinity.Tolerations, reservation.Toleration{
			Key: t.Key, Value: t.Value, Effect: string(t.Effect), Exists: t.Operator == corev1.TolerationOpExists,
		})
	}
	return out, cmp.Or(affinityErr, err)
}

// Occupant is a pod as a Reservation may take its room over. ok is false for a pod that reserves room or uses it.
func Occupant(pod *corev1.Pod) (o reservation.Occupant, ok bool) {
	read, err := ReservationPod(pod)
	o.Pod = &read
	o.Priority, _, _ = parse(pod.Annotations, annotation.PreAllocatablePriority, annotation.ParsePreAllocatablePriority)
	o.Offered, _ = annotation.ParseBool(pod.Labels[annotation.IsPreAllocatable])
	return o, err == nil && !IsReservePod(pod) && !keepsRoom(pod) && UsedReservation(pod) == ""
}

// RequiresPreAllocation reports whether a Reservation is placed on the room of running pods only.
func RequiresPreAllocation(r *v1alpha1.Reservation) bool {
	required, _ := annotation.ParseBool(r.Labels[annotation.PreAllocationRequired])
	return required
}

// IsCounted reports whether a pod is counted by amounts alone: it asks for no CPUs or devices of its own.
func IsCounted(pod *corev1.Pod) bool {
	class, band, kube := PodQoS(pod)
	return !qos.RoleOf(qos.Pod{Class: class, Band: band, Kube: kube, MilliCPU: boundMilli(pod)}).Binds() &&
		len(ServedDevices(pod)) == 0
}

// AsksForReservations reports whether a pod says which Reservations it may use.
func AsksForReservations(pod *corev1.Pod) bool {
	_, asks := pod.Annotations[annotation.ReservationAffinityKey]
	return asks
}

func nodeTerms(list []corev1.NodeSelectorRequirement) (terms device.Selector) {
	for _, e := range list {
		terms = append(terms, device.Term{Key: e.Key, Operator: device.Operator(e.Operator), Values: e.Values})
	}
	return terms
}

// UsedReservation returns the UID of the Reservation whose room a pod uses, "" for none.
func UsedReservation(pod *corev1.Pod) string { return string(ReservationOf(pod).UID) }

// ReservationOf returns which Reservation a pod uses; it may not exist any more.
func ReservationOf(pod *corev1.Pod) annotation.ReservationAllocated {
	used, _, _ := parse(pod.Annotations, annotation.ReservationAllocatedKey, annotation.ParseReservationAllocated)
	return used
}

// ReserveNamespace is that of reserve pods whose template names none.
const ReserveNamespace = metav1.NamespaceDefault

// Values of the mark of reserve pods.
const (
	reservesForMany = "true"
	reservesOnce    = "once"
)

// IsReservePod reports whether a pod is what the scheduler makes of a Reservation. No pod of the API server is,
// whatever its annotations say: none is named by its own UID.
func IsReservePod(pod *corev1.Pod) bool {
	if pod.Name != string(pod.UID) {
		return false
	}
	_, marked := pod.Annotations[annotation.ReservePodKey]
	return marked
}

// ShownName returns what users know a pod as: NAMESPACE/NAME, or reservation/NAME for a reserve pod.
func ShownName(pod *corev1.Pod) string {
	if IsReservePod(pod) {
		return ledger.OfReservation + "/" + reservationOf(pod)
	}
	return pod.Namespace + "/" + pod.Name
}

// reservationOf returns the name of the Reservation of a reserve pod.
func reservationOf(pod *corev1.Pod) string {
	for _, o := range pod.OwnerReferences {
		if o.UID == pod.UID {
			return o.Name
		}
	}
	return pod.Name
}

// reservedTemplate is the pod that a Reservation asks room for: without what schedulers write, with the requests that
// the API server would set by the limits, and with devices under the names that the webhook writes on pods.
func reservedTemplate(r *v1alpha1.Reservation) *corev1.Pod {
	pod := &corev1.Pod{}
	if r.Spec.Template != nil {
		pod.ObjectMeta, pod.Spec = r.Spec.Template.ObjectMeta, *r.Spec.Template.Spec.DeepCopy()
	}
	pod.ObjectMeta = metav1.ObjectMeta{
		Namespace: cmp.Or(pod.Namespace, ReserveNamespace), Name: string(r.UID), UID: r.UID,
		Labels: maps.Clone(pod.Labels), Annotations: maps.Clone(pod.Annotations),
		CreationTimestamp: r.CreationTimestamp, ResourceVersion: r.ResourceVersion,
		OwnerReferences: []metav1.OwnerReference{{Kind: "Reservation", Name: r.Name, UID: r.UID}},
	}
	maps.DeleteFunc(pod.Annotations, func(key, _ string) bool { return annotation.SetByScheduler(key) })
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, annotation.ReservePodKey, reservesForMany)
	if IsOnce(r) {
		pod.Annotations[annotation.ReservePodKey] = reservesOnce
	}
	CompleteRequests(&pod.Spec)
	NameDevices(pod)
	return pod
}

// CompleteRequests sets the requests that a template lacks to the limits, as the API server does for pods.
func CompleteRequests(spec *corev1.PodSpec) {
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			for name, q := range list[i].Resources.Limits {
				if _, requested := list[i].Resources.Requests[name]; !requested {
					if list[i].Resources.Requests == nil {
						list[i].Resources.Requests = corev1.ResourceList{}
					}
					list[i].Resources.Requests[name] = q
				}
			}
		}
	}
}

// PendingReservePod is the pod that is scheduled for a Reservation without node, in a profile. Unless it preempts, no
// pod is evicted for it. It has the controller of the pods that it is for, by which it spreads over nodes as they do.
func PendingReservePod(r *v1alpha1.Reservation, profile string, preempts bool) *corev1.Pod {
	pod := reservedTemplate(r)
	pod.Spec.SchedulerName = cmp.Or(pod.Spec.SchedulerName, profile)
	for _, o := range r.Spec.Owners {
		if c := o.Controller; c != nil && c.Namespace == pod.Namespace {
			pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{
				APIVersion: c.APIVersion, Kind: c.Kind, Name: c.Name, UID: c.UID, Controller: new(true),
			})
			break // a pod has one controller
		}
	}
	if !preempts {
		pod.Spec.PreemptionPolicy = new(corev1.PreemptNever)
	}
	if node := pod.Spec.NodeName; node != "" {
		pod.Spec.NodeName = ""
		RequireNodes(&pod.Spec, corev1.NodeSelectorOpIn, node)
	}
	pod.Status.Phase = corev1.PodPending
	for _, c := range r.Status.Conditions {
		if c.Type == v1alpha1.ReservationScheduled {
			pod.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionStatus(c.Status), Reason: c.Reason,
				Message: c.Message,
			}}
		}
	}
	return pod
}

// RequireNodes adds a required node affinity, or anti-affinity, to each of some nodes. A requirement on a field has one
// value; terms are alternatives.
func RequireNodes(spec *corev1.PodSpec, operator corev1.NodeSelectorOperator, nodes ...string) {
	if len(nodes) == 0 {
		return
	}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := &spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if *required == nil {
		*required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
	}
	for i := range (*required).NodeSelectorTerms {
		t := &(*required).NodeSelectorTerms[i]
		for _, node := range nodes {
			t.MatchFields = append(t.MatchFields, corev1.NodeSelectorRequirement{
				Key: metav1.ObjectNameField, Operator: operator, Values: []string{node},
			})
		}
	}
}

// ExcludedNodes returns the nodes that RequireNodes has excluded, in ascending order.
func ExcludedNodes(spec *corev1.PodSpec) (nodes []string) {
	a := spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	for _, t := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, r := range t.MatchFields {
			if r.Key == metav1.ObjectNameField && r.Operator == corev1.NodeSelectorOpNotIn {
				nodes = append(nodes, r.Values...)
			}
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// HoldingReservePod is the pod that holds the room of a Reservation on its node: what its users leave of it. It cannot
// be a victim of preemption.
func HoldingReservePod(r *v1alpha1.Reservation, node, profile string, left amount.List) *corev1.Pod {
	pod := reservedTemplate(r)
	guaranteed := true
	var ports []corev1.ContainerPort
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		ports = append(ports, c.Ports...)
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit := c.Resources.Limits[name]
			guaranteed = guaranteed && limit.Cmp(c.Resources.Requests[name]) == 0
		}
	}
	held := corev1.Container{Name: "reserved", Ports: ports}
	held.Resources.Requests = ResourceList(left)
	if guaranteed {
		held.Resources.Limits = held.Resources.Requests
	}
	pod.Spec = corev1.PodSpec{
		NodeName: node, Containers: []corev1.Container{held}, HostNetwork: pod.Spec.HostNetwork,
		Priority: new(int32(math.MaxInt32)), SchedulerName: cmp.Or(pod.Spec.SchedulerName, profile),
	}
	for _, key := range []string{annotation.ResourceStatusKey, annotation.DeviceAllocatedKey} {
		if value, ok := r.Annotations[key]; ok {
			pod.Annotations[key] = value
		}
	}
	pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, &r.CreationTimestamp
	return pod
}
