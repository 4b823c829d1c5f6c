package convert

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/why"
)

// AsksForDevices reports whether a container names a resource of devices.
func AsksForDevices(pod *corev1.Pod, kinds device.Kinds) bool {
	return anyName(pod, func(name string, _ resource.Quantity) bool { return kinds.Has(name) })
}

// ServedDevices are the names under which a pod's containers request some of a device.
func ServedDevices(pod *corev1.Pod) (names []string) {
	anyName(pod, func(name string, amount resource.Quantity) bool {
		if device.IsServed(name) && !amount.IsZero() {
			names = append(names, name)
		}
		return false
	})
	return names
}

// hasDomain reports whether a name has a domain, as those of all devices have.
func hasDomain(name string, _ resource.Quantity) bool { return strings.IndexByte(name, '/') > 0 }

// anyName reports whether a container names a resource of a kind. It allocates nothing.
func anyName(pod *corev1.Pod, holds func(string, resource.Quantity) bool) bool {
	for _, c := range containers(pod) {
		for _, list := range [...]corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
			for name, amount := range list {
				if holds(string(name), amount) {
					return true
				}
			}
		}
	}
	return false
}

// readDevices reads what a pod asks of devices.
func readDevices(pod *corev1.Pod, r *place.Request, known *device.Kinds) (why.Reason, string) {
	var kinds device.Kinds
	if known != nil {
		kinds = *known
	}
	if !AsksForDevices(pod, kinds) {
		return why.Reason{}, ""
	}
	p, reason, detail := DevicePod(pod, kinds)
	if !reason.OK() {
		return reason, detail
	}
	request, faults := device.NewRequest(p, kinds)
	if len(faults) > 0 {
		texts := make([]string, 0, len(faults))
		for _, f := range faults {
			texts = append(texts, f.Error())
		}
		return why.Reason{Code: why.InvalidDeviceRequest}, strings.Join(texts, "; ")
	}
	if len(request.Parts) > 0 {
		r.Devices = request
	}
	if slices.ContainsFunc(request.Parts, func(p device.Part) bool { return p.Type == device.GPU && !p.Need.Whole }) {
		r.GPUIsolation = pod.Labels[annotation.GPUIsolationLabel]
	}
	return why.Reason{}, ""
}

// asksForWholeGPUs reports whether a pod asks for GPUs, and for no share and no MIG device of one.
func asksForWholeGPUs(pod *corev1.Pod) bool {
	var r place.Request
	reason, _ := readDevices(pod, &r, nil)
	if !reason.OK() || r.Devices == nil {
		return false
	}
	shared := func(p device.Part) bool { return p.Type == device.GPU && (!p.Need.Whole || p.Need.Profile != "") }
	isGPU := func(p device.Part) bool { return p.Type == device.GPU }
	return slices.ContainsFunc(r.Devices.Parts, isGPU) && !slices.ContainsFunc(r.Devices.Parts, shared)
}

// DevicePod returns what a pod says of devices: the webhook and the scheduler both read it with device.NewRequest. An
// annotation that cannot be read is refused; the containers are returned with that, too.
func DevicePod(pod *corev1.Pod, kinds device.Kinds) (p device.Pod, reason why.Reason, detail string) {
	for f, c := range containers(pod) {
		role := device.App
		switch {
		case f.isInit() && isSidecar(c):
			role = device.Sidecar
		case f.isInit():
			role = device.Init
		}
		p.Containers = append(p.Containers, device.Container{
			Name: c.Name, Role: role,
			Requests: devicesIn(c.Resources.Requests, kinds), Limits: devicesIn(c.Resources.Limits, kinds),
		})
	}
	types := kinds.Types()
	keys := [...]string{
		annotation.DeviceAllocateHintKey, annotation.DeviceJointAllocateKey, annotation.GPUPartitionSpecKey,
	}
	hints, _, err0 := parse(pod.Annotations, keys[0], annotation.ParseDeviceAllocateHints(types...))
	joint, _, err1 := parse(pod.Annotations, keys[1], annotation.ParseDeviceJointAllocate(types...))
	wish, found, err2 := parse(pod.Annotations, keys[2], annotation.ParseGPUPartitionSpec)
	for i, err := range [...]error{err0, err1, err2} {
		if err != nil {
			reason, detail = badAnnotation(keys[i], err)
			return p, reason, detail
		}
	}
	p.Hints, p.Joint.Scope = deviceHints(hints), device.JointScope(joint.RequiredScope)
	for _, kind := range joint.DeviceTypes {
		p.Joint.Types = append(p.Joint.Types, device.Type(kind))
	}
	if found {
		p.Partition = &device.PartitionWish{Restricted: wish.AllocatePolicy == annotation.PartitionRestricted}
		if q := wish.RingBusBandwidth; q != nil {
			p.Partition.Bandwidth = q.Value()
		}
	}
	return p, why.Reason{}, ""
}

// devicesIn are the amounts of devices in a list, rounded up to integers; nil for none.
func devicesIn(list corev1.ResourceList, kinds device.Kinds) map[string]int64 {
	var out map[string]int64
	for name, q := range list {
		if !kinds.Has(string(name)) {
			continue
		}
		if out == nil {
			out = map[string]int64{}
		}
		out[string(name)] = q.Value()
	}
	return out
}

// deviceHints translates hints that their codec has checked. A hint that demands nothing is left out.
func deviceHints(hints annotation.DeviceAllocateHints) map[device.Type]device.Hint {
	out := map[device.Type]device.Hint{}
	for kind, h := range hints {
		if h == (annotation.DeviceHint{}) {
			continue
		}
		hint := device.Hint{
			Selector: selector(h.Selector), Strategy: device.Strategy(h.AllocateStrategy),
			Scope:     device.Level(h.RequiredTopologyScope),
			Exclusive: device.Level(strings.TrimSuffix(h.ExclusivePolicy, "Level")),
		}
		if h.VFSelector != nil {
			vf := selector(h.VFSelector)
			hint.VF = &vf
		}
		out[device.Type(kind)] = hint
	}
	return out
}

// selector translates a label selector that its codec has checked.
func selector(s *metav1.LabelSelector) device.Selector {
	if s == nil {
		return nil
	}
	var terms device.Selector
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		terms = append(terms, device.Term{Key: key, Operator: device.In, Values: []string{s.MatchLabels[key]}})
	}
	for _, e := range s.MatchExpressions {
		terms = append(terms, device.Term{Key: e.Key, Operator: device.Operator(e.Operator), Values: e.Values})
	}
	return terms
}

// index is the place of a word, 0 for one that is not there.
func index(words []string, word string) int { return max(slices.Index(words, word), 0) }
