package admission

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Create checks a pod that is created, after Mutate. kinds are those of devices that Device objects list.
func Create(pod *corev1.Pod, kinds device.Kinds) Answer {
	var a Answer
	class, classOK := a.class(pod)
	a.band(pod)
	a.priority(pod)
	if classOK {
		a.combination(pod, class)
		a.amounts(pod, class)
		a.colocation(pod, class)
	}
	a.resourceSpec(pod)
	a.isolation(pod)
	a.topologySpec(pod)
	a.volcano(pod)
	a.devices(pod, kinds)
	a.gang(pod)
	a.runTime(pod)
	a.reservation(pod)
	a.simulate(pod)
	a.tuning(pod, class)
	a.burst(pod, class)
	a.ignored(convert.Ignored(pod))
	return a
}

// Unserved warns, once, that a pod asks for features of Tenon and has another scheduler. Its fields are below the path.
// served is the scheduler to name instead.
func Unserved(pod *corev1.Pod, path, served string) (a Answer) {
	fields := convert.Unserved(pod)
	if len(fields) == 0 {
		return a
	}
	for i := range fields {
		fields[i] = path + fields[i]
	}
	const most = 3
	if n := len(fields) - most; n > 0 {
		fields = append(fields[:most], fmt.Sprintf("%d more", n))
	}
	a.warn(path+"spec.schedulerName",
		"%q is not a scheduler of Tenon, so Tenon ignores %s: set %s for them to take effect",
		cmp.Or(pod.Spec.SchedulerName, corev1.DefaultSchedulerName), strings.Join(fields, ", "), served)
	return a
}

func (a *Answer) ignored(keys []annotation.Ignored) {
	for _, i := range keys {
		a.warn(i.Key, "%s", i.Text)
	}
}

// label refuses a value of a label that is not one of allowed (ok is false), and warns about another case than that of
// canonical.
func (a *Answer) label(key, value string, canonical fmt.Stringer, ok bool, allowed []string) {
	switch {
	case !ok:
		a.refuse(why.InvalidField, labelField(key), "%s", annotation.Unsupported(value, allowed...))
	case canonical.String() != value:
		a.warn(labelField(key), "%q is read as %q: values are case-sensitive on output", value, canonical)
	}
}

func (a *Answer) class(pod *corev1.Pod) (class qos.Class, ok bool) {
	value := pod.Labels[annotation.QoSClass]
	class, ok = convert.ParseClass(value)
	a.label(annotation.QoSClass, value, class, ok, convert.ClassNames())
	return class, ok
}

func bandNames() []string {
	return []string{qos.Prod.String(), qos.Mid.String(), qos.Batch.String(), qos.Free.String()}
}

func (a *Answer) band(pod *corev1.Pod) {
	if value, ok := pod.Labels[annotation.PriorityClass]; ok {
		band, ok := qos.ParseBand(strings.ToLower(value))
		a.label(annotation.PriorityClass, value, band, ok, bandNames())
	}
}

func (a *Answer) priority(pod *corev1.Pod) {
	value, ok := pod.Labels[annotation.Priority]
	if !ok {
		return
	}
	if _, err := strconv.ParseInt(value, 10, 32); err != nil {
		a.refuse(why.InvalidField, labelField(annotation.Priority),
			"Invalid value %q: must be a whole number from -2147483648 to 2147483647", value)
	}
}

func (a *Answer) combination(pod *corev1.Pod, class qos.Class) {
	_, band, _ := convert.PodQoS(pod)
	var allowed string
	switch {
	case (class == qos.LSE || class == qos.LSR) && (band == qos.Mid || band == qos.Batch || band == qos.Free):
		allowed = qos.Prod.String()
	case class == qos.BE && band == qos.Prod:
		allowed = strings.Join(bandNames()[1:], ", ")
	default:
		return
	}
	a.refuse(why.InvalidField, labelField(annotation.QoSClass),
		"%s=%s and priorityClass=%s cannot be used in combination: %s allows %s", annotation.QoSClass, class, band,
		class, allowed)
}

// amounts holds LSE and LSR pods to whole CPUs and to requests that equal limits (first principle of seed 000).
func (a *Answer) amounts(pod *corev1.Pod, class qos.Class) {
	if class != qos.LSE && class != qos.LSR {
		return
	}
	field, parts := convert.CPURequest(pod)
	switch milli := convert.MilliCPU(pod); {
	case milli == 0:
		a.refuse(why.InvalidField, field, "%s Pod must declare the requested CPUs", class)
	case milli%1000 != 0:
		a.refuse(why.CPURequestNotInteger, field,
			"the requested CPUs of %s Pod must be integer: %s, allowed are multiples of 1000m", class, parts)
	}
	if field, found := convert.Unequal(pod); found {
		a.refuse(why.RequestLimitMismatch, field, "requests must equal limits for %s Pod", class)
	}
}

func (a *Answer) colocation(pod *corev1.Pod, class qos.Class) {
	if class == qos.BE {
		return
	}
	for field, c := range containers(pod) {
		a.batch(field, c)
	}
}

func (a *Answer) batch(field string, c *corev1.Container) {
	for _, amounts := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
		for _, name := range []corev1.ResourceName{
			"kubernetes.io/batch-cpu", "kubernetes.io/batch-memory",
			"koordinator.sh/batch-cpu", "koordinator.sh/batch-memory",
		} {
			if _, ok := amounts[name]; ok {
				a.refuse(why.InvalidField, field+".resources["+string(name)+"]",
					"must specify koordinator QoS BE with koordinator colocation resources")
				return
			}
		}
	}
}

func (a *Answer) resourceSpec(pod *corev1.Pod) {
	spec, ok := parsed(a, pod.Annotations, annotation.ResourceSpecKey, annotation.ParseResourceSpec)
	if !ok {
		return
	}
	field := annotationField(annotation.ResourceSpecKey)
	class, _, _ := convert.PodQoS(pod)
	if spec.PreferredCPUBindPolicy == annotation.BindConstrainedBurst && !convert.MayBurst(pod) {
		a.refuse(why.BadAnnotation, field, convert.BurstRule)
	}
	if class != qos.LSE && class != qos.LSR && (lays(spec.RequiredCPUBindPolicy) || lays(spec.PreferredCPUBindPolicy)) {
		a.warn(field, "ignored: only LSE/LSR pods are bound")
	}
	if pinsARM64(pod) {
		a.arm64(field, spec)
	}
}

func lays(policy string) bool {
	return policy == annotation.BindFullPCPUs || policy == annotation.BindSpreadByPCPUs
}

// arm64: only FullPCPUs and NUMANodeLevel exist there (seed 000). A preference is replaced, a requirement is refused.
func (a *Answer) arm64(field string, spec annotation.ResourceSpec) {
	if spec.RequiredCPUBindPolicy == annotation.BindSpreadByPCPUs {
		a.refuse(why.BindPolicyConflict, field+".requiredCPUBindPolicy", "%s on arm64",
			annotation.Unsupported(annotation.BindSpreadByPCPUs, annotation.BindDefault, annotation.BindFullPCPUs))
	}
	if spec.PreferredCPUBindPolicy == annotation.BindSpreadByPCPUs {
		a.warn(field, "preferredCPUBindPolicy SpreadByPCPUs is FullPCPUs on arm64")
	}
	if spec.PreferredCPUExclusivePolicy == annotation.ExclusivePCPULevel {
		a.warn(field, "preferredCPUExclusivePolicy PCPULevel is None on arm64")
	}
}

func pinsARM64(pod *corev1.Pod) bool {
	if pod.Spec.NodeSelector[corev1.LabelArchStable] == "arm64" {
		return true
	}
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return false
	}
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil || len(required.NodeSelectorTerms) == 0 {
		return false
	}
	for _, term := range required.NodeSelectorTerms { // terms are alternatives: every one must say it
		if !slices.ContainsFunc(term.MatchExpressions, func(e corev1.NodeSelectorRequirement) bool {
			return e.Key == corev1.LabelArchStable && e.Operator == corev1.NodeSelectorOpIn &&
				len(e.Values) == 1 && e.Values[0] == "arm64"
		}) {
			return false
		}
	}
	return true
}

func (a *Answer) topologySpec(pod *corev1.Pod) {
	parsed(a, pod.Annotations, annotation.NUMATopologySpecKey, annotation.ParseNUMATopologySpec)
}

func (a *Answer) runTime(pod *corev1.Pod) {
	parsed(a, pod.Annotations, annotation.ExpectedRuntime, annotation.ParseExpectedRuntime)
}

// isolation warns where the wish for isolated CPUs has no effect, and of what the kernel does not do on them.
func (a *Answer) isolation(pod *corev1.Pod) {
	wish, ok := parsed(a, pod.Annotations, annotation.IsolationKey, annotation.ParseIsolation)
	if !ok || wish == annotation.IsolationAvoid {
		return
	}
	field := annotationField(annotation.IsolationKey)
	class, _, _ := convert.PodQoS(pod)
	switch cpus := convert.MilliCPU(pod) / 1000; {
	case class != qos.LSE && class != qos.LSR:
		a.warn(field, "ignored: only LSE/LSR pods have exclusive CPUs")
	case cpus > 1:
		a.warn(field, "the kernel moves no thread between isolated CPUs: the containers must pin their threads to the "+
			"pod's %d CPUs themselves", cpus)
	}
}

func (a *Answer) simulate(pod *corev1.Pod) {
	parsed(a, pod.Annotations, annotation.SimulateKey, annotation.ParseSimulate)
}

// volcano checks volcano.sh/numa-topology-policy: a pod with a policy other than none must be Guaranteed (seed 004),
// and whole CPUs in every container are what its kubelet can pin.
func (a *Answer) volcano(pod *corev1.Pod) {
	policy, ok := parsed(a, pod.Annotations, annotation.VolcanoTopologyPolicy, annotation.ParseVolcanoTopologyPolicy)
	if !ok {
		return
	}
	a.oneTopologyPolicy(pod, policy)
	if policy == annotation.TopologyNone {
		return
	}
	for field, c := range containers(pod) {
		a.guaranteed(field, pod.Annotations[annotation.VolcanoTopologyPolicy], &c.Resources)
	}
}

func (a *Answer) oneTopologyPolicy(pod *corev1.Pod, policy annotation.NUMATopologyPolicy) {
	text, ok := pod.Annotations[annotation.NUMATopologySpecKey]
	if !ok {
		return
	}
	spec, _, err := annotation.ParseNUMATopologySpec(text)
	// topologySpec reports what cannot be read.
	if err == nil && spec.NUMATopologyPolicy != "" && spec.NUMATopologyPolicy != policy {
		a.refuse(why.BadAnnotation, annotationField(annotation.VolcanoTopologyPolicy),
			"conflicting values for %s and its alias %s: %s and %s",
			annotation.NUMATopologySpecKey, annotation.VolcanoTopologyPolicy, spec.NUMATopologyPolicy, policy)
	}
}

func (a *Answer) guaranteed(container, policy string, r *corev1.ResourceRequirements) {
	cpu := r.Requests.Cpu()
	if cpu.MilliValue() == 0 {
		cpu = r.Limits.Cpu()
	}
	if milli := cpu.MilliValue(); milli == 0 || milli%1000 != 0 {
		a.refuse(why.CPURequestNotInteger, container+".resources.requests[cpu]",
			"%s %s needs a whole number of CPUs in every container, 1 or more: it is %dm",
			annotation.VolcanoTopologyPolicy, policy, milli)
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, requested := r.Requests[name]
		limit, limited := r.Limits[name]
		switch {
		case requested && limited && request.Cmp(limit) != 0:
			a.refuse(why.RequestLimitMismatch, container+".resources.limits["+string(name)+"]",
				"%s %s needs a Guaranteed pod: the request %s must equal the limit %s",
				annotation.VolcanoTopologyPolicy, policy,
				request.String(), limit.String())
		case !requested && !limited && name == corev1.ResourceMemory:
			a.refuse(why.RequestLimitMismatch, container+".resources.limits[memory]",
				"%s %s needs a Guaranteed pod: state a memory limit", annotation.VolcanoTopologyPolicy, policy)
		}
	}
}
