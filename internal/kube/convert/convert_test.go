package convert_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

type podOption = object.PodOption

func newPod(options ...podOption) *corev1.Pod {
	return object.Pod("p", append([]podOption{object.UID("u")}, options...)...)
}

func label(key, value string) podOption { return func(p *corev1.Pod) { p.Labels[key] = value } }
func class(c string) podOption          { return label(annotation.QoSClass, c) }
func annot(key, value string) podOption { return func(p *corev1.Pod) { p.Annotations[key] = value } }
func priority(v int32) podOption        { return object.Priority(v) }
func onNode(p *corev1.Pod)              { p.Spec.NodeName = "n" }

func amounts(cpu, memory string) corev1.ResourceList {
	return object.List("cpu", cpu, "memory", memory)
}

// container asks for cpu and memory, with equal limits.
func container(cpu string) podOption { return bounded(cpu, cpu) }

func bounded(request, limit string) podOption {
	return func(p *corev1.Pod) {
		object.Container("", "")(p)
		object.Requests("cpu", request, "memory", "1Gi")(p)
		object.Limits("cpu", limit, "memory", "1Gi")(p)
	}
}

func podLevel(request, limit string) podOption {
	return func(p *corev1.Pod) {
		p.Spec.Resources = &corev1.ResourceRequirements{
			Requests: amounts(request, "2Gi"),
			Limits:   amounts(limit, "2Gi"),
		}
	}
}

func initContainer(cpu string, sidecar bool) podOption {
	return func(p *corev1.Pod) {
		c := corev1.Container{Resources: object.Equal("cpu", cpu, "memory", "1Gi")}
		if always := corev1.ContainerRestartPolicyAlways; sidecar {
			c.RestartPolicy = &always
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
}

// pinned is a pod of app containers to which a static kubelet gives CPUs.
func pinned(cpus ...int) *kubelet.Pod {
	p := &kubelet.Pod{Guaranteed: true}
	for _, n := range cpus {
		p.Containers = append(p.Containers, kubelet.Container{CPUs: n})
	}
	return p
}

// pinnedAlike compares what a static kubelet gives to containers, and to the pod.
func pinnedAlike(a, b *kubelet.Pod) bool {
	each := func(p *kubelet.Pod) (cpus []int) {
		if p.CPUs() == 0 {
			return nil
		}
		for _, c := range p.Containers {
			if c.CPUs > 0 {
				cpus = append(cpus, c.CPUs)
			}
		}
		return cpus
	}
	return a.CPUs() == b.CPUs() && slices.Equal(each(a), each(b))
}

func TestRequest(t *testing.T) {
	t.Parallel()
	base := place.Request{UID: "u", Namespace: "default", Name: "p"}
	with := func(gib int64, change func(*place.Request)) place.Request {
		r := base
		if gib > 0 {
			r.Needs = []align.Need{{Resource: "memory", N: gib << 30}}
		}
		change(&r)
		return r
	}
	tests := map[string]struct {
		pod  *corev1.Pod
		args func(*convert.Args)
		want place.Request
	}{
		"a plain pod": {
			pod:  newPod(func(p *corev1.Pod) { p.Spec.Containers = make([]corev1.Container, 1) }),
			want: with(0, func(r *place.Request) { r.Role = qos.BEPool }),
		},
		"an LSR pod of four CPUs": {
			pod: newPod(class("LSR"), container("4")),
			want: with(1, func(r *place.Request) {
				r.Class, r.Role, r.CPUs, r.RequestMilli, r.LimitMilli, r.Kubelet = qos.LSR,
					qos.ExclusiveWithBE, 4, 4000, 4000, pinned(4)
			}),
		},
		"a class in another case": {
			pod: newPod(class("lse"), container("1")),
			want: with(1, func(r *place.Request) {
				r.Class, r.Role, r.CPUs, r.RequestMilli, r.LimitMilli, r.Kubelet = qos.LSE,
					qos.Exclusive, 1, 1000, 1000, pinned(1)
			}),
		},
		"an LSR pod of a lower band does not bind": {
			pod: newPod(class("LSR"), container("4"), priority(5500)),
			want: with(1, func(r *place.Request) {
				r.Class, r.Role, r.RequestMilli, r.LimitMilli, r.Kubelet = qos.LSR, qos.SharedPool,
					4000, 4000, pinned(4)
			}),
		},
		"the label of the class beats the priority": {
			pod: newPod(class("LSR"), container("2"), priority(5500), label(annotation.PriorityClass, "koord-prod")),
			want: with(1, func(r *place.Request) {
				r.Class, r.Role, r.CPUs, r.RequestMilli, r.LimitMilli, r.Kubelet = qos.LSR,
					qos.ExclusiveWithBE, 2, 2000, 2000, pinned(2)
			}),
		},
		"policies of pod and arguments": {
			pod: newPod(class("LSR"), container("2"),
				annot(annotation.ResourceSpecKey,
					`{"requiredCPUBindPolicy":"SpreadByPCPUs","preferredCPUBindPolicy":"FullPCPUs"}`),
				annot(annotation.NUMATopologySpecKey, `{"numaTopologyPolicy":"SingleNUMANode"}`)),
			args: func(a *convert.Args) {
				a.DefaultBind, a.DefaultExclusive = cpualloc.SpreadByPCPUs, cpualloc.PCPULevel
			},
			want: with(1, func(r *place.Request) {
				r.Class, r.Role, r.CPUs, r.RequestMilli, r.LimitMilli, r.Kubelet = qos.LSR,
					qos.ExclusiveWithBE, 2, 2000, 2000, pinned(2)
				r.Required, r.Preferred, r.Default = place.WantSpreadByPCPUs, place.WantFullPCPUs,
					cpualloc.SpreadByPCPUs
				r.Exclusive, r.Topology = cpualloc.PCPULevel, hint.SingleNUMANode
				r.NUMAExclusive = place.RequireNUMAExclusive
			}),
		},
		"an exclusive policy of None beats the arguments": {
			pod: newPod(class("LSR"), container("2"),
				annot(annotation.ResourceSpecKey, `{"preferredCPUExclusivePolicy":"None"}`)),
			args: func(a *convert.Args) { a.DefaultExclusive = cpualloc.PCPULevel },
			want: with(1, func(r *place.Request) {
				r.Class, r.Role, r.CPUs, r.RequestMilli, r.LimitMilli, r.Kubelet = qos.LSR,
					qos.ExclusiveWithBE, 2, 2000, 2000, pinned(2)
			}),
		},
		"constrained burst": {
			pod: newPod(class("LS"), bounded("500m", "3"),
				annot(annotation.ResourceSpecKey, `{"preferredCPUBindPolicy":"ConstrainedBurst"}`)),
			want: with(1, func(r *place.Request) {
				r.Class, r.Role, r.RequestMilli, r.LimitMilli, r.ConstrainedBurst = qos.LS, qos.SharedPool, 500, 3000,
					true
			}),
		},
		"sidecars run beside the rest, init containers alone": {
			pod: newPod(class("LSR"), initContainer("1", true), initContainer("4", false), container("2")),
			want: with(2, func(r *place.Request) {
				r.Class, r.Role, r.CPUs, r.RequestMilli, r.LimitMilli, r.Kubelet = qos.LSR, qos.ExclusiveWithBE, 5,
					5000, 5000, pinned(1, 4, 2)
				// the CPUs of the init container are used again
				r.Kubelet.Containers[0].Role, r.Kubelet.Containers[1].Role = kubelet.Sidecar, kubelet.Init
			}),
		},
		"bindAllPodsOnPolicyNodes says what the pod asks of nodes with a policy": {
			pod: newPod(class("LS"), bounded("2", "4"), annot(annotation.ResourceSpecKey,
				`{"preferredCPUBindPolicy":"ConstrainedBurst","preferredCPUExclusivePolicy":"PCPULevel"}`)),
			args: func(a *convert.Args) { a.BindAllPodsOnPolicyNodes = true },
			want: with(1, func(r *place.Request) {
				r.Class, r.RequestMilli, r.LimitMilli, r.Exclusive = qos.LS, 2000, 4000, cpualloc.PCPULevel
				there := *r
				there.Role, there.CPUs = qos.ExclusiveWithBE, 2
				r.Role, r.ConstrainedBurst, r.OnPolicyNodes = qos.SharedPool, true, &there
			}),
		},
		"bindAllPodsOnPolicyNodes gives no CPUs to a fraction": {
			pod:  newPod(bounded("100m", "")),
			args: func(a *convert.Args) { a.BindAllPodsOnPolicyNodes = true },
			want: with(1, func(r *place.Request) {
				r.RequestMilli = 100
				there := *r
				there.Role = qos.ExclusiveWithBE
				r.Role, r.OnPolicyNodes = qos.SharedPool, &there
			}),
		},
		"bindAllPodsOnPolicyNodes leaves BE pods alone": {
			pod:  newPod(class("BE"), bounded("2", "2")),
			args: func(a *convert.Args) { a.BindAllPodsOnPolicyNodes = true },
			want: with(0, func(r *place.Request) {
				r.Class, r.Role, r.RequestMilli, r.LimitMilli, r.Kubelet = qos.BE, qos.BEPool, 2000,
					2000, pinned(2)
			}),
		},
		"fractions that add up to whole CPUs": {
			pod: newPod(class("LSR"), container("1500m"), container("500m")),
			want: with(2, func(r *place.Request) {
				r.Class, r.Role, r.CPUs, r.RequestMilli, r.LimitMilli = qos.LSR, qos.ExclusiveWithBE, 2, 2000, 2000
			}),
		},
		"amounts of the pod as a whole": {
			pod: newPod(class("LSR"), bounded("1", ""), podLevel("4", "4")),
			want: with(2, func(r *place.Request) {
				r.Class, r.Role, r.CPUs, r.RequestMilli, r.LimitMilli = qos.LSR, qos.ExclusiveWithBE, 4, 4000, 4000
			}),
		},
		"a Guaranteed pod without class is what the kubelet may pin": {
			pod: newPod(container("2"), container("500m")),
			want: with(2, func(r *place.Request) {
				r.Role, r.RequestMilli, r.LimitMilli, r.Kubelet = qos.SharedPool, 2500, 2500,
					pinned(2)
			}),
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := convert.DefaultArgs()
			if tt.args != nil {
				tt.args(&args)
			}
			got, reason, detail := convert.Request(tt.pod, args)
			if !reason.OK() {
				t.Fatalf("refused: %v %s", reason, detail)
			}
			if diff := cmp.Diff(tt.want, *got, cmp.Comparer(pinnedAlike)); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRequestRefusesWhatCanNeverWork(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pod    *corev1.Pod
		want   why.Reason
		detail string
	}{
		"an unknown class": {
			newPod(class("LSX"), container("1")),
			why.Reason{Code: why.InvalidField},
			`metadata.labels[koordinator.sh/qosClass]: Unsupported value "LSX": supported LSE, LSR, LS, BE, SYSTEM`,
		},
		"a fraction of a CPU": {
			newPod(class("LSR"), container("1500m")),
			why.Reason{Code: why.CPURequestNotInteger, Resource: why.CPU, Unit: why.MilliCPU, Asked: 1500, Free: 1000},
			"the requested CPUs of LSR Pod must be integer",
		},
		"a CPU limit above the request": {
			newPod(class("LSE"), container("1"), bounded("1", "2")),
			why.Reason{Code: why.RequestLimitMismatch},
			"spec.containers[1].resources.limits[cpu]: requests must equal limits for LSE Pod",
		},
		"no memory limit on an init container": {
			newPod(class("LSR"), container("1"), initContainer("1", false), func(p *corev1.Pod) {
				delete(p.Spec.InitContainers[0].Resources.Limits, corev1.ResourceMemory)
			}),
			why.Reason{Code: why.RequestLimitMismatch},
			"spec.initContainers[0].resources.limits[memory]: requests must equal limits for LSR Pod",
		},
		"a limit of the pod as a whole above its request": {
			newPod(class("LSR"), container("1"), podLevel("2", "4")),
			why.Reason{Code: why.RequestLimitMismatch},
			"spec.resources.limits[cpu]: requests must equal limits for LSR Pod",
		},
		"an annotation that is not JSON": {
			newPod(annot(annotation.ResourceSpecKey, "FullPCPUs")),
			why.Reason{Code: why.BadAnnotation, Extra: 1},
			"metadata.annotations[scheduling.koordinator.sh/resource-spec]: byte 1: invalid character 'F' looking " +
				"for beginning of value",
		},
		"a topology policy of the wrong type": {
			newPod(annot(annotation.NUMATopologySpecKey, `{"numaTopologyPolicy":[]}`)),
			why.Reason{Code: why.BadAnnotation, Extra: 23},
			"metadata.annotations[scheduling.koordinator.sh/numa-topology-spec]: byte 23: numaTopologyPolicy: want a " +
				"string, got array",
		},
		"a wish for isolated CPUs that there is not": {
			newPod(class("LSE"), container("1"), annot(annotation.IsolationKey, "yes")),
			why.Reason{Code: why.BadAnnotation},
			`metadata.annotations[tenon.sh/isolated-cpus]: byte 0: Unsupported value "yes": supported prefer, ` +
				"require, avoid",
		},
		"constrained burst without a limit": {
			newPod(class("LS"), bounded("1", ""),
				annot(annotation.ResourceSpecKey, `{"preferredCPUBindPolicy":"ConstrainedBurst"}`)),
			why.Reason{Code: why.BadAnnotation},
			"metadata.annotations[scheduling.koordinator.sh/resource-spec]: ConstrainedBurst needs QoS LS or " +
				"Burstable and a cpu limit",
		},
		"constrained burst on LSR": {
			newPod(class("LSR"), container("1"),
				annot(annotation.ResourceSpecKey, `{"preferredCPUBindPolicy":"ConstrainedBurst"}`)),
			why.Reason{Code: why.BadAnnotation},
			"metadata.annotations[scheduling.koordinator.sh/resource-spec]: ConstrainedBurst needs QoS LS or " +
				"Burstable and a cpu limit",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, reason, detail := convert.Request(tt.pod, convert.DefaultArgs())
			if r != nil || reason != tt.want || detail != tt.detail {
				t.Errorf("got %+v, %+v\n     %s\nwant %+v\n     %s", r, reason, detail, tt.want, tt.detail)
			}
		})
	}
}

func TestEntry(t *testing.T) {
	t.Parallel()
	base := ledger.Entry{UID: "u", Namespace: "default", Name: "p"}
	with := func(change func(*ledger.Entry)) *ledger.Entry {
		e := base
		change(&e)
		return &e
	}
	tests := map[string]struct {
		pod      *corev1.Pod
		want     *ledger.Entry // nil: the account does not need the pod
		problems []string
	}{
		"a pod that is not bound": {pod: newPod(class("LSR"), container("2"),
			annot(annotation.ResourceStatusKey, `{"cpuset":"0-1"}`))},
		"a pod that has ended": {pod: newPod(onNode, class("LSR"), container("2"),
			annot(annotation.ResourceStatusKey, `{"cpuset":"0-1"}`),
			func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })},
		"a pod that holds nothing": {pod: newPod(onNode, bounded("1", "2"))},
		"exclusive CPUs, in any order": {
			pod: newPod(onNode, class("LSE"), container("2"), annot(annotation.ResourceStatusKey, `{"cpuset":"3, 1"}`),
				annot(annotation.ResourceSpecKey, `{"preferredCPUExclusivePolicy":"PCPULevel"}`)),
			want: with(func(e *ledger.Entry) {
				e.Class, e.Role, e.CPUList, e.Exclusive, e.Guest = qos.LSE, qos.Exclusive, "1,3",
					cpualloc.PCPULevel, &tenancy.Guest{Pod: pinned(2)}
			}),
		},
		"CPUs that another scheduler gave to a pod without class": {
			pod: newPod(onNode, bounded("2", "4"), annot(annotation.ResourceStatusKey, `{"cpuset":"0-1"}`)),
			want: with(func(e *ledger.Entry) {
				e.Role, e.CPUList = qos.ExclusiveWithBE, "0-1"
			}),
		},
		"CPUs of an LSE pod whose band would not bind today": {
			pod: newPod(onNode, class("LSE"), bounded("2", "4"), priority(7500),
				annot(annotation.ResourceStatusKey, `{"cpuset":"0-1"}`)),
			want: with(func(e *ledger.Entry) {
				e.Class, e.Role, e.CPUList = qos.LSE, qos.Exclusive, "0-1"
			}),
		},
		"CPUs that are written on a BE pod mean nothing": {
			pod: newPod(onNode, class("BE"), bounded("2", "4"),
				annot(annotation.ResourceStatusKey, `{"cpuset":"0-1"}`)),
		},
		"CPUs that are written on a SYSTEM pod mean nothing": {
			pod: newPod(onNode, class("SYSTEM"), bounded("2", "4"),
				annot(annotation.ResourceStatusKey, `{"cpuset":"0-1"}`)),
		},
		"a Guaranteed pod of one CPU counts for the kubelet": {
			pod:  newPod(onNode, container("1")),
			want: with(func(e *ledger.Entry) { e.Role, e.Guest = qos.SharedPool, &tenancy.Guest{Pod: pinned(1)} }),
		},
		"shared pools beat amounts by NUMA node": {
			pod: newPod(onNode, class("LS"), bounded("3", "4"), annot(annotation.ResourceStatusKey,
				`{"cpuSharedPools":[{"socket":0,"node":0}],"numaNodeResources":[{"node":0,"resources":{"cpu":"2"}},`+
					`{"node":1,"resources":{"cpu":"1"}}]}`)),
			want: with(func(e *ledger.Entry) {
				e.Class, e.Role, e.NUMAIDs, e.MilliCPU = qos.LS, qos.SharedPool, []int{0}, 3000
			}),
		},
		"shared pools of two NUMA nodes": {
			pod: newPod(onNode, class("LS"), bounded("3", "4"),
				annot(annotation.ResourceStatusKey,
					`{"cpuSharedPools":[{"socket":1,"node":2},{"socket":0,"node":0}]}`)),
			want: with(func(e *ledger.Entry) {
				e.Class, e.Role, e.NUMAIDs, e.MilliCPU = qos.LS, qos.SharedPool, []int{0, 2}, 3000
			}),
		},
		"upstream's form of the same": {
			pod: newPod(onNode, class("LS"), bounded("3", "4"), annot(annotation.ResourceStatusKey,
				`{"numaNodeResources":[{"node":1,"resources":{"cpu":"3"}},{"node":2,"resources":{"memory":"1Gi"}}]}`)),
			want: with(func(e *ledger.Entry) {
				e.Class, e.Role, e.NUMAIDs, e.MilliCPU = qos.LS, qos.SharedPool, []int{1}, 3000
				e.Amounts = []align.Amount{{NUMAID: 2, Resource: "memory", N: 1 << 30}}
			}),
		},
		"a Guaranteed pod counts for the kubelet": {
			pod: newPod(onNode, container("2"), container("500m"), initContainer("3", false)),
			want: with(func(e *ledger.Entry) {
				e.Role, e.Guest = qos.SharedPool, &tenancy.Guest{Pod: pinned(3)}
			}),
		},
		"a status that cannot be read": {
			pod: newPod(onNode, class("LSR"), bounded("2", "2"),
				annot(annotation.ResourceStatusKey, `{"cpuset":7}`)),
			want: with(func(e *ledger.Entry) {
				e.Class, e.Role, e.Guest = qos.LSR, qos.ExclusiveWithBE, &tenancy.Guest{Pod: pinned(2)}
			}),
			problems: []string{"Pod/default/p: scheduling.koordinator.sh/resource-status: byte 11: cpuset: want a " +
				"string, got number"},
		},
		"a CPU list that cannot be read": {
			pod: newPod(onNode, class("LSR"), bounded("2", "2"),
				annot(annotation.ResourceStatusKey, `{"cpuset":"3-1"}`)),
			want: with(func(e *ledger.Entry) {
				e.Class, e.Role, e.Guest = qos.LSR, qos.ExclusiveWithBE, &tenancy.Guest{Pod: pinned(2)}
			}),
			problems: []string{`Pod/default/p: scheduling.koordinator.sh/resource-status: cpu list item "3-1": the ` +
				`end is below the start`},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, concerns := convert.EntryUnder(convert.Args{}, tt.pod)
			if concerns != (tt.want != nil) {
				t.Fatalf("concerns = %v, entry %+v", concerns, got)
			}
			if tt.want != nil {
				want := *tt.want
				if got, want := got.Guest.CPUs(), want.Guest.CPUs(); got != want {
					t.Errorf("a static kubelet gives it %d CPUs, want %d", got, want)
				}
				got.Guest, want.Guest = nil, nil // has a test of its own
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("entry (-want +got):\n%s", diff)
				}
			}
			var problems []string
			for _, p := range convert.ReadPod(tt.pod).Problems {
				problems = append(problems, p.String())
			}
			if diff := cmp.Diff(tt.problems, problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

const twoNodes = `{"detail":[{"id":0,"core":0,"socket":0,"node":0},{"id":1,"core":1,"socket":0,"node":0},` +
	`{"id":2,"core":0,"socket":1,"node":1},{"id":3,"core":1,"socket":1,"node":1}]}`

func newNRT(annotations map[string]string) *v1alpha2.NodeResourceTopology {
	return object.Topology("n", nil, annotations)
}

func newNode(labels map[string]string) *corev1.Node { return object.Node("n", labels) }

func TestFacts(t *testing.T) {
	t.Parallel()
	topology := func(more map[string]string) *v1alpha2.NodeResourceTopology {
		nrt := newNRT(map[string]string{annotation.CPUTopology: twoNodes})
		maps.Copy(nrt.Annotations, more)
		return nrt
	}
	set := cpuset.MustParse
	tests := map[string]struct {
		node     *corev1.Node
		nrt      *v1alpha2.NodeResourceTopology
		args     func(*convert.Args)
		want     func(*ledger.Facts)
		machine  bool
		problems []string
	}{
		"nothing is known": {want: func(f *ledger.Facts) { f.Fault = why.Reason{Code: why.TopologyMissing} }},
		"a node without topology": {
			node: newNode(map[string]string{corev1.LabelArchStable: "arm64"}),
			want: func(f *ledger.Facts) { f.Fault, f.ARM64 = why.Reason{Code: why.TopologyMissing}, true },
		},
		"a topology without its node": {nrt: topology(nil), machine: true},
		"cores that repeat per socket are distinguished": {
			node: newNode(nil), nrt: topology(nil), machine: true,
		},
		"isolated CPUs": {
			nrt: topology(map[string]string{
				annotation.IsolatedCPUsKey: `{"isolated":"1","noHzFull":"1-2"}`,
			}), machine: true,
			want: func(f *ledger.Facts) { f.Isolated, f.NoTick = set("1"), set("1-2") },
		},
		"isolated CPUs that are not there, or no list": {
			nrt:     topology(map[string]string{annotation.IsolatedCPUsKey: `{"isolated":"1,99","noHzFull":"2,98"}`}),
			machine: true, want: func(f *ledger.Facts) { f.Isolated, f.NoTick = set("1"), set("2") },
			problems: []string{
				"NodeResourceTopology/n: node.tenon.sh/isolated-cpus: CPUs 99 are not on the node or offline",
				"NodeResourceTopology/n: node.tenon.sh/isolated-cpus: CPUs 98 are not on the node or offline",
			},
		},
		"a topology that contradicts itself": {
			nrt:  newNRT(map[string]string{annotation.CPUTopology: `{"detail":[{"id":0},{"id":0,"core":1}]}`}),
			want: func(f *ledger.Facts) { f.Fault = why.Reason{Code: why.InvalidTopology} },
			problems: []string{
				"NodeResourceTopology/n: node.koordinator.sh/cpu-topology: CPU id 0 is there twice",
			},
		},
		"an empty topology": {
			nrt:      newNRT(map[string]string{annotation.CPUTopology: `{"detail":null}`}),
			want:     func(f *ledger.Facts) { f.Fault = why.Reason{Code: why.InvalidTopology} },
			problems: []string{"NodeResourceTopology/n: node.koordinator.sh/cpu-topology: machine has no CPUs"},
		},
		"a core on two NUMA nodes": {
			nrt:  newNRT(map[string]string{annotation.CPUTopology: `{"detail":[{"id":0,"node":0},{"id":1,"node":1}]}`}),
			want: func(f *ledger.Facts) { f.Fault = why.Reason{Code: why.InvalidTopology} },
			problems: []string{
				"NodeResourceTopology/n: node.koordinator.sh/cpu-topology: core 0 of socket 0 is on NUMA nodes 0 " +
					"and 1",
			},
		},
		"a topology of the wrong type": {
			nrt:  newNRT(map[string]string{annotation.CPUTopology: `{"detail":{}}`}),
			want: func(f *ledger.Facts) { f.Fault = why.Reason{Code: why.InvalidTopology} },
			problems: []string{"NodeResourceTopology/n: node.koordinator.sh/cpu-topology: byte 11: detail: want a " +
				"list, got object"},
		},
		"a static kubelet with all its options": {
			nrt: topology(
				map[string]string{annotation.KubeletCPUManagerPolicyAlias1: `{"policy":"static","reservedCPUs":"0",` +
					`"options":{` +
					`"full-pcpus-only":"1","distribute-cpus-across-numa":"True","strict-cpu-reservation":"true",` +
					`"prefer-align-cpus-by-uncorecache":"true"}}`}),
			machine: true,
			want: func(f *ledger.Facts) {
				f.Model.Config.CPU = kubelet.CPU{
					Static: true, FullPCPUsOnly: true, DistributeAcrossNUMA: true,
					StrictReservation: true, AlignL3: true, Reserved: set("0"),
				}
				f.Strategy = cpualloc.DistributeEvenly
			},
		},
		"options of a kubelet whose policy is none": {
			nrt: topology(
				map[string]string{annotation.KubeletCPUManagerPolicy: `{"policy":"none","reservedCPUs":"0",` +
					`"options":{"full-pcpus-only":"true"}}`}), machine: true,
		},
		"pods that the kubelet pinned": {
			nrt: topology(
				map[string]string{annotation.PodCPUAllocsKey: `[{"namespace":"d","name":"a","uid":"ua","cpuset":"1,` +
					`9","managedByKubelet":true},` +
					`{"namespace":"d","name":"b","uid":"ub","cpuset":"2"}]`}),
			machine: true,
			want: func(f *ledger.Facts) {
				f.Given = []tenancy.Grant{{UID: "ua", Namespace: "d", Name: "a", CPUs: set("1")}}
			},
			problems: []string{"NodeResourceTopology/n: node.koordinator.sh/pod-cpu-allocs: CPUs 9 are not on the " +
				"node or offline"},
		},
		"reserved CPUs by name and system CPUs": {
			node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{
				annotation.NodeReservation:       `{"reservedCPUs":"0","resources":{"cpu":"3"}}`,
				annotation.NodeSystemQoSResource: `{"cpuset":"3"}`,
			}}},
			nrt: topology(nil), machine: true,
			want: func(f *ledger.Facts) { f.NodeReserved, f.System = set("0"), set("3") },
		},
		"reserved CPUs by amount, on the agent's copy": {
			nrt:     topology(map[string]string{annotation.NodeReservation: `{"resources":{"cpu":"1500m"}}`}),
			machine: true,
			want:    func(f *ledger.Facts) { f.NodeReserved = set("0-1") },
		},
		"texts that cannot be read": {
			node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{
				annotation.NodeReservation: "1", annotation.NodeSystemQoSResource: "2",
			}}},
			nrt: topology(map[string]string{
				annotation.KubeletCPUManagerPolicy: "3",
				annotation.PodCPUAllocsKey:         "4",
			}),
			machine: true,
			problems: []string{
				"NodeResourceTopology/n: kubelet.koordinator.sh/cpu-manager-policy: byte 1: want an object, got number",
				"NodeResourceTopology/n: node.koordinator.sh/pod-cpu-allocs: byte 1: want a list, got number",
				"Node/n: node.koordinator.sh/reservation: byte 1: want an object, got number",
				"Node/n: node.koordinator.sh/system-qos-resource: byte 1: want an object, got number",
			},
		},
		"CPU lists that cannot be read": {
			node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{
				annotation.NodeReservation:       `{"reservedCPUs":"-1"}`,
				annotation.NodeSystemQoSResource: `{"cpuset":"3-1"}`,
			}}},
			nrt: topology(
				map[string]string{annotation.KubeletCPUManagerPolicy: `{"policy":"static","reservedCPUs":"a"}`}),
			machine: true,
			want:    func(f *ledger.Facts) { f.Model.Config.CPU.Static = true },
			problems: []string{
				`NodeResourceTopology/n: kubelet.koordinator.sh/cpu-manager-policy: cpu list item "a": want an id ` +
					`like 3 or a range like 0-3`,
				`Node/n: node.koordinator.sh/reservation: cpu list item "-1": want an id like 3 or a range like 0-3`,
				`Node/n: node.koordinator.sh/system-qos-resource: cpu list item "3-1": the end is below the start`,
			},
		},
		"a reservation of nothing": {
			nrt: topology(map[string]string{annotation.NodeReservation: `{"resources":{"cpu":"-1"}}`}), machine: true,
		},
		"a reservation of more than there is": {
			nrt: topology(map[string]string{annotation.NodeReservation: `{"resources":{"cpu":"1e15"}}`}), machine: true,
			want: func(f *ledger.Facts) { f.NodeReserved = set("0-3") },
		},
		"the other policies": {
			node: newNode(map[string]string{
				annotation.NodeCPUBindPolicy:        "SpreadByPCPUs",
				annotation.NodeNUMAAllocateStrategy: "DistributeEvenly",
				annotation.NodeNUMATopologyPolicy:   "best-effort",
			}),
			want: func(f *ledger.Facts) {
				f.Fault, f.Bind = why.Reason{Code: why.TopologyMissing}, ledger.SpreadByPCPUs
				f.Strategy, f.StrategyByLabel, f.Topology = cpualloc.DistributeEvenly, true, hint.BestEffort
			},
		},
		"whole cores and the emptiest NUMA node": {
			node: newNode(map[string]string{
				annotation.NodeCPUBindPolicy:        "FullPCPUs",
				annotation.NodeNUMAAllocateStrategy: "LeastAllocated",
				annotation.NodeNUMATopologyPolicy:   "SingleNUMANode",
			}),
			args: func(a *convert.Args) { a.Strategy = cpualloc.MostAllocated },
			want: func(f *ledger.Facts) {
				f.StrategyByLabel = true
				f.Fault, f.Bind, f.Topology = why.Reason{Code: why.TopologyMissing}, ledger.FullPCPUsOnly,
					hint.SingleNUMANode
			},
		},
		"system CPUs that are not exclusive": {
			nrt: topology(
				map[string]string{annotation.NodeSystemQoSResource: `{"cpuset":"3","cpusetExclusive":false}`}),
			machine: true,
		},
		"labels beat the kubelet": {
			node: newNode(map[string]string{
				annotation.NodeCPUBindPolicy:        "None",
				annotation.NodeNUMAAllocateStrategy: "MostAllocated", annotation.NodeNUMATopologyPolicy: "None",
			}),
			nrt: func() *v1alpha2.NodeResourceTopology {
				n := topology(
					map[string]string{annotation.KubeletCPUManagerPolicy: `{"policy":"static",` +
						`"options":{"distribute-cpus-across-numa":"true"}}`})
				n.TopologyPolicies = []string{"Restricted"} //nolint:staticcheck // what exporters of v1alpha1 write
				return n
			}(),
			machine: true,
			want: func(f *ledger.Facts) {
				f.Bind, f.Strategy, f.StrategyByLabel = ledger.NoPolicy, cpualloc.MostAllocated, true
				f.Model.Config.CPU = kubelet.CPU{Static: true, DistributeAcrossNUMA: true}
			},
		},
		"labels that cannot be used count as absent": {
			node: newNode(map[string]string{
				annotation.NodeCPUBindPolicy:      "Full",
				annotation.NodeNUMATopologyPolicy: "Restricted", annotation.NodeNUMATopologyPolicyAlias: "None",
			}),
			want: func(f *ledger.Facts) {
				f.Fault, f.Topology = why.Reason{Code: why.TopologyMissing}, hint.Restricted
			},
			problems: []string{
				`Node/n: node.koordinator.sh/cpu-bind-policy: Unsupported value "Full": supported None, ` +
					`FullPCPUsOnly, SpreadByPCPUs`,
				"Node/n: node.koordinator.sh/numa-topology-alignment-policy: conflicting values for " +
					"node.koordinator.sh/numa-topology-policy and its alias " +
					"node.koordinator.sh/numa-topology-alignment-policy",
			},
		},
		"arguments come last": {
			args: func(a *convert.Args) { a.Strategy, a.MinSharedCPUs = cpualloc.MostAllocated, 2 },
			want: func(f *ledger.Facts) {
				f.Fault, f.Strategy, f.MinSharedCPUs = why.Reason{Code: why.TopologyMissing}, cpualloc.MostAllocated, 2
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := convert.DefaultArgs()
			if tt.args != nil {
				tt.args(&args)
			}
			got, problems := convert.Facts(tt.node, tt.nrt, args)
			if (got.Machine != nil) != tt.machine {
				t.Fatalf("machine = %v, problems %v", got.Machine, problems)
			}
			want := ledger.Facts{Strategy: cpualloc.LeastAllocated, MinSharedCPUs: -1}
			if tt.want != nil {
				tt.want(&want)
			}
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(ledger.Facts{}, "Machine"),
				cmpopts.IgnoreFields(ledger.Facts{}, "Model"), // see TestKubeletOfANode
				cmp.Transformer("list", cpuset.Set.String)); diff != "" {
				t.Errorf("facts (-want +got):\n%s", diff)
			}
			var texts []string
			for _, p := range problems {
				texts = append(texts, p.String())
			}
			if diff := cmp.Diff(tt.problems, texts); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFactsReadEveryTopologyPolicy(t *testing.T) {
	t.Parallel()
	tests := map[string]hint.Policy{
		"None": hint.None, "BestEffort": hint.BestEffort, "BestEffortContainerLevel": hint.BestEffort,
		"BestEffortPodLevel": hint.BestEffort, "Restricted": hint.Restricted,
		"RestrictedContainerLevel": hint.Restricted,
		"RestrictedPodLevel":       hint.Restricted, "SingleNUMANode": hint.SingleNUMANode,
		"SingleNUMANodePodLevel": hint.SingleNUMANode, "SingleNUMANodeContainerLevel": hint.SingleNUMANode,
		"none": hint.None, "best-effort": hint.BestEffort, "single-numa-node": hint.SingleNUMANode,
		"Other,Restricted": hint.Restricted, "Other": hint.None, "": hint.None,
		"attribute none": hint.None, "attribute best-effort": hint.BestEffort,
		"attribute restricted": hint.Restricted, "attribute single-numa-node": hint.SingleNUMANode,
		"attribute other": hint.None,
	}
	for text, want := range tests {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			nrt := newNRT(nil)
			if value, ok := strings.CutPrefix(text, "attribute "); ok {
				nrt.Attributes = v1alpha2.AttributeList{
					{Name: "topologyManagerScope", Value: "pod"},
					{Name: "topologyManagerPolicy", Value: value},
				}
			} else {
				nrt.TopologyPolicies = strings.Split(text, ",") //nolint:staticcheck // what exporters of v1alpha1 write
			}
			bad := 0
			if text == "" || strings.Contains(strings.ToLower(text), "other") {
				bad = 1
			}
			if got, problems := convert.Facts(nil, nrt, convert.DefaultArgs()); got.Topology != want ||
				len(problems) != bad {
				t.Errorf("policy = %s, problems %v; want %s and %d problems", got.Topology, problems, want, bad)
			}
		})
	}
}

func TestPodQoS(t *testing.T) {
	t.Parallel()
	type answer struct {
		Class qos.Class
		Band  qos.Band
		Kube  qos.Kube
	}
	tests := map[string]struct {
		pod  *corev1.Pod
		want answer
	}{
		"nothing": {newPod(bounded("", "")), answer{Kube: qos.Burstable}},
		"no amounts": {newPod(func(p *corev1.Pod) {
			p.Spec.Containers = make([]corev1.Container,
				2)
		}), answer{}},
		"requests without limits":        {newPod(bounded("1", "")), answer{Kube: qos.Burstable}},
		"limits without requests":        {newPod(bounded("", "1"), container("1")), answer{Kube: qos.Guaranteed}},
		"one container of another class": {newPod(container("1"), bounded("1", "2")), answer{Kube: qos.Burstable}},
		"what the API server said counts": {newPod(container("1"),
			func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSBurstable }), answer{Kube: qos.Burstable}},
		"band of the priority": {
			newPod(class("BE"), priority(7001), container("1")),
			answer{qos.BE, qos.Mid, qos.Guaranteed},
		},
		"band of the label, in any case": {newPod(class("LSR"), label(annotation.PriorityClass, "Koord-Mid"),
			priority(9001), container("1")), answer{qos.LSR, qos.Mid, qos.Guaranteed}},
		"band of the class's name": {
			newPod(container("1"),
				func(p *corev1.Pod) { p.Spec.PriorityClassName = "koord-free" }),
			answer{Band: qos.Free, Kube: qos.Guaranteed},
		},
		"a class that is none": {newPod(class("X"), container("1")), answer{Kube: qos.Guaranteed}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got answer
			got.Class, got.Band, got.Kube = convert.PodQoS(tt.pod)
			if got != tt.want {
				t.Errorf("PodQoS = %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestNewArgs(t *testing.T) {
	t.Parallel()
	floor := int32(3)
	tests := map[string]struct {
		args v1alpha1.NodeNUMAResourceArgs
		want convert.Args
	}{
		"defaults": {
			v1alpha1.NodeNUMAResourceArgs{},
			convert.Args{
				Strategy: cpualloc.LeastAllocated, Scoring: cpualloc.LeastAllocated, MinSharedCPUs: -1,
				Assumed: kubelet.Doubted,
			},
		},
		"kubelets that are not known are refused": {
			v1alpha1.NodeNUMAResourceArgs{FollowAssumedKubelets: v1alpha1.FollowRefuse},
			convert.Args{
				Strategy: cpualloc.LeastAllocated, Scoring: cpualloc.LeastAllocated, MinSharedCPUs: -1,
				Assumed: kubelet.Distrusted,
			},
		},
		"everything else": {
			v1alpha1.NodeNUMAResourceArgs{
				DefaultCPUBindPolicy: "SpreadByPCPUs", DefaultCPUExclusivePolicy: "NUMANodeLevel",
				MinSharedCPUs:            &floor,
				ScoringStrategy:          &v1alpha1.ScoringStrategy{Type: v1alpha1.MostAllocated},
				NUMAScoringStrategy:      &v1alpha1.ScoringStrategy{Type: v1alpha1.MostAllocated},
				BindAllPodsOnPolicyNodes: true, VolcanoScore: true,
				VolcanoStrictPolicyMatch: true, FollowAssumedKubelets: v1alpha1.FollowTrust,
			},
			convert.Args{
				DefaultBind: cpualloc.SpreadByPCPUs, DefaultExclusive: cpualloc.NUMANodeLevel, MinSharedCPUs: 3,
				Scoring: cpualloc.MostAllocated, Strategy: cpualloc.MostAllocated,
				BindAllPodsOnPolicyNodes: true, VolcanoScore: true,
				VolcanoStrictPolicyMatch: true,
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.args.SetDefaults()
			if diff := cmp.Diff(tt.want, convert.NewArgs(tt.args)); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSingleNUMANodeExclusiveIsRead holds the default: Required for a pod that names a policy in the same annotation.
func TestSingleNUMANodeExclusiveIsRead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]place.NUMAExclusive{
		``:                                       place.ShareNUMANodes,
		`{}`:                                     place.ShareNUMANodes,
		`{"numaTopologyPolicy":"None"}`:          place.ShareNUMANodes,
		`{"numaTopologyPolicy":"Restricted"}`:    place.RequireNUMAExclusive,
		`{"numaTopologyPolicy":"BestEffort"}`:    place.RequireNUMAExclusive,
		`{"singleNUMANodeExclusive":"Required"}`: place.RequireNUMAExclusive,
		`{"singleNUMANodeExclusive":"Preferred"}`:                                       place.PreferNUMAExclusive,
		`{"numaTopologyPolicy":"SingleNUMANode","singleNUMANodeExclusive":"Preferred"}`: place.PreferNUMAExclusive,
	} {
		pod := newPod(class("LSR"), container("2"))
		if text != "" {
			pod = newPod(class("LSR"), container("2"), annot(annotation.NUMATopologySpecKey, text))
		}
		r, reason, detail := convert.Request(pod, convert.DefaultArgs())
		if !reason.OK() || r.NUMAExclusive != want {
			t.Errorf("%s: got %+v, %s %s; want %d", text, r, reason.Code, detail, want)
		}
	}
}
