package convert_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// pairOf is a machine with 2 NUMA nodes × 4 cores × 2 threads; node ids are 0 and step.
func pairOf(tb testing.TB, step int) *topo.Machine {
	tb.Helper()
	return grid.Machine{Sockets: 2, Cores: 4, Threads: 2, NodeIDs: []int{0, step}}.Build(tb)
}

const versioned = "v1.36.3"

func nodeOf(version string) *corev1.Node {
	n := object.Node("n", nil)
	n.Status.NodeInfo.KubeletVersion = version
	return n
}

func nrtOf(m *topo.Machine, annotations map[string]string) *v1alpha2.NodeResourceTopology {
	return object.Topology("n", m, annotations)
}

const staticKubelet = `{"version":"v1.35.1","cpu":{"policy":"static","options":{"full-pcpus-only":"true"},` +
	`"reserved":"0,8"},` +
	`"memory":{"policy":"Static"},"topology":{"policy":"restricted","scope":"pod",` +
	`"options":{"prefer-closest-numa-nodes":"true","max-allowable-numa-nodes":"16"}}}`

const numaState = `{"memory":{"0":{"allocatable":{"memory":"4Gi"}},"1":{"allocatable":{"memory":"8Gi"}}},` +
	`"devices":{"nvidia.com/gpu":[{"numa":[0],"total":4,"free":2,"unhealthy":1},{"numa":[],"total":1,"free":1}]},` +
	`"pods":{"u":{"b":{"cpus":"2-3","memory":{"0-1":"1Gi"}},"a":{"devices":{"nvidia.com/gpu":{"mask":[0],` +
	`"count":1}}}}}}`

func TestKubeletOfANode(t *testing.T) {
	t.Parallel()
	type model struct {
		Mode            ledger.Mode
		Config          kubelet.Config
		Fault           why.Code
		Release         string
		Assumed         []string
		Gen             int64
		Memory, Devices []string
		Placed          []tenancy.Grant
	}
	behaviour, _ := kubelet.ModelOf(versioned)
	beyond, _ := kubelet.ModelOf("v1.38.0")
	settings := kubelet.Config{
		Model:    behaviour,
		CPU:      kubelet.CPU{Static: true, FullPCPUsOnly: true, Reserved: cpuset.MustParse("0,8")},
		Memory:   kubelet.Memory{Static: true},
		Topology: kubelet.Topology{Policy: hint.Restricted, PodScope: true, PreferClosest: true, MaxNodes: 16},
	}
	placed := []tenancy.Grant{{UID: "u", Placement: kubelet.Placement{
		{Container: "a", Devices: []kubelet.Devices{{Resource: "nvidia.com/gpu", Nodes: 0b1, Count: 1}}},
		{
			Container: "b", CPUs: cpuset.MustParse("2-3"),
			Memory: []kubelet.Block{{Type: "memory", Nodes: 0b11, Bytes: 1 << 30}},
		},
	}}}
	tests := map[string]struct {
		version     string
		machine     int // distance of NUMA ids
		annotations map[string]string
		change      func(*v1alpha2.NodeResourceTopology)
		want        model
		predicted   bool
		problems    []string
	}{
		"a node without any settings is not predicted": {version: versioned},
		"all that the agent reports": {
			version: versioned, predicted: true,
			annotations: map[string]string{
				annotation.KubeletKey: staticKubelet, annotation.NUMAStateKey: numaState,
				annotation.TopologyMode: "Follow",
				annotation.ReportKey:    `{"gen":7}`,
			},
			want: model{
				Mode: ledger.Follow, Config: settings, Release: "1.36", Gen: 7, Devices: []string{"nvidia.com/gpu"},
				Placed: placed,
			},
		},
		"without the Node the agent reports the version": {
			predicted: true,
			annotations: map[string]string{annotation.KubeletKey: `{"version":"v1.36.1",` +
				`"topology":{"policy":"best-effort"}}`},
			want: model{Release: "1.36", Config: kubelet.Config{
				Model:    behaviour,
				Topology: kubelet.Topology{Policy: hint.BestEffort},
			}},
		},
		"a kubelet of 1.32 has no model": {
			version: "v1.32.0", annotations: map[string]string{annotation.KubeletKey: staticKubelet},
			want: model{Assumed: []string{"kubelet 1.32 has no model, the oldest is 1.33: only CPUs are counted"}},
		},
		"a newer kubelet is predicted by the newest model, and says so": {
			version: "v1.38.0-alpha.1", predicted: true,
			annotations: map[string]string{annotation.KubeletKey: `{"cpu":{"policy":"static"},` +
				`"topology":{"policy":"restricted"}}`},
			want: model{
				Release: "1.37", Assumed: []string{"kubelet 1.38 is newer than the newest model, 1.37"},
				Config: kubelet.Config{
					Model: beyond, CPU: kubelet.CPU{Static: true}, Topology: kubelet.Topology{Policy: hint.Restricted},
				},
			},
		},
		"options and gates that the model does not know": {
			version: versioned, predicted: true,
			annotations: map[string]string{annotation.KubeletKey: `{"cpu":{"policy":"static",` +
				`"options":{"pack":"true"}},"gates":{"PodLevelResourceManagers":true,"MemoryQoS":true}}`},
			want: model{
				Release: "1.36", Assumed: []string{
					"CPU manager option pack=true is not known",
					"feature gate PodLevelResourceManagers=true is not in the model",
				},
				Config: kubelet.Config{Model: behaviour, CPU: kubelet.CPU{Static: true}},
			},
		},
		"a newer kubelet whose managers are off is as good as any": {
			version: "v1.38.0", annotations: map[string]string{annotation.KubeletKey: `{}`},
		},
		"a kubelet of unknown version has no model": {
			annotations: map[string]string{annotation.KubeletKey: `{"cpu":{"policy":"static"}}`},
			want:        model{Assumed: []string{"the kubelet's version is unknown: only CPUs are counted"}},
		},
		"managers that are off are not predicted": {
			version: versioned, annotations: map[string]string{
				annotation.KubeletKey:   `{}`,
				annotation.TopologyMode: "Own",
			},
		},
		"settings of a foreign exporter are marked as assumed": {
			version: versioned, predicted: true,
			annotations: map[string]string{annotation.KubeletCPUManagerPolicy: `{"policy":"static",` +
				`"reservedCPUs":"0"}`},
			change: func(n *v1alpha2.NodeResourceTopology) {
				//nolint:staticcheck // deprecated, and still what exporters write
				n.TopologyPolicies = []string{"SingleNUMANodePodLevel"}
			},
			want: model{
				Assumed: []string{convert.AssumedForeign}, Release: "1.36",
				Config: kubelet.Config{
					Model: behaviour, CPU: kubelet.CPU{Static: true, Reserved: cpuset.MustParse("0")},
					Topology: kubelet.Topology{Policy: hint.SingleNUMANode, PodScope: true},
				},
			},
		},
		"attributes beat the words of topologyPolicies": {
			version: versioned, predicted: true,
			change: func(n *v1alpha2.NodeResourceTopology) {
				//nolint:staticcheck // deprecated, and still what exporters write
				n.TopologyPolicies = []string{"BestEffort"}
				n.Attributes = v1alpha2.AttributeList{
					{Name: "topologyManagerPolicy", Value: "restricted"},
					{Name: "topologyManagerScope", Value: "pod"},
					{Name: "topologyManagerMaxNUMANodes", Value: "12"},
				}
			},
			want: model{Assumed: []string{convert.AssumedForeign}, Release: "1.36", Config: kubelet.Config{
				Model: behaviour, Topology: kubelet.Topology{Policy: hint.Restricted, PodScope: true, MaxNodes: 12},
			}},
			problems: []string{
				"NodeResourceTopology/n: topologyPolicies: says best-effort and the attribute topologyManagerPolicy " +
					"says restricted: the attribute counts",
			},
		},
		"devices of zones": {
			version: versioned, predicted: true,
			annotations: map[string]string{annotation.KubeletKey: `{"topology":{"policy":"restricted"}}`},
			change: func(n *v1alpha2.NodeResourceTopology) {
				n.Zones = v1alpha2.ZoneList{{Name: "node-1", Type: "Node", Resources: v1alpha2.ResourceInfoList{
					{Name: "example.com/nic", Capacity: resource.MustParse("2"), Allocatable: resource.MustParse("1")},
					{Name: "koordinator.sh/gpu-core", Capacity: resource.MustParse("100")},
				}}}
			},
			want: model{
				Release: "1.36", Config: kubelet.Config{
					Model:    behaviour,
					Topology: kubelet.Topology{Policy: hint.Restricted},
				},
				Devices: []string{"example.com/nic"},
			},
		},
		"ids that make the kubelet crash": {
			version: versioned, machine: 8,
			annotations: map[string]string{
				annotation.KubeletKey: `{"topology":{"policy":"restricted",` +
					`"options":{"prefer-closest-numa-nodes":"1"}}}`,
			},
			want: model{Release: "1.36", Fault: why.KubeletPanics},
			problems: []string{
				"NodeResourceTopology/n: zones: NUMA node id 8: the kubelet's managers take ids up to 63, and with " +
					"prefer-closest-numa-nodes ids below the number of NUMA nodes",
			},
		},
		"invalid settings are reported, and count as absent": {
			version: versioned,
			annotations: map[string]string{
				annotation.KubeletKey: `{"topology":{"policy":"strict"}}`, annotation.TopologyMode: "Lead",
			},
			problems: []string{
				`NodeResourceTopology/n: node.tenon.sh/topology-mode: byte 0: Unsupported value "Lead": supported ` +
					`Own, Follow, Blind`,
				`NodeResourceTopology/n: node.tenon.sh/kubelet: byte 12: topology.policy: Unsupported value ` +
					`"strict": supported none, best-effort, restricted, single-numa-node`,
			},
		},
		"a report that cannot be read leaves the settings": {
			version: versioned, predicted: true,
			annotations: map[string]string{
				annotation.KubeletKey: `{"cpu":{"policy":"static","reserved":"0,99"},` +
					`"topology":{"policy":"restricted","options":{"max-allowable-numa-nodes":"7"}}}`,
				annotation.NUMAStateKey: `{"devices":{"g":[{"numa":[5],"total":1}]},"pods":{"u":{"c":{"cpus":"3-1"}}}}`,
				annotation.ReportKey:    `{"gen":"x"}`,
			},
			want: model{Release: "1.36", Config: kubelet.Config{
				Model: behaviour, CPU: kubelet.CPU{Static: true, Reserved: cpuset.MustParse("0")},
				Topology: kubelet.Topology{Policy: hint.Restricted},
			}},
			problems: []string{
				"NodeResourceTopology/n: node.tenon.sh/kubelet: CPUs 99 are not on the node or offline",
				"NodeResourceTopology/n: node.tenon.sh/kubelet: topology.options[max-allowable-numa-nodes]: want a " +
					"number of at least 8",
				"NodeResourceTopology/n: node.tenon.sh/numa-state: devices[g]: NUMA nodes [5] are not on the node",
				"NodeResourceTopology/n: node.tenon.sh/report: byte 10: gen: want a whole number that fits int64, " +
					"got string",
				`NodeResourceTopology/n: node.tenon.sh/numa-state: pods[u]: container c: cpus: cpu list item "3-1": ` +
					`the end is below the start`,
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nrt := nrtOf(pairOf(t, max(tt.machine, 1)), tt.annotations)
			if tt.change != nil {
				tt.change(nrt)
			}
			facts, problems := convert.Facts(nodeOf(tt.version), nrt, convert.DefaultArgs())
			m := facts.Model
			got := model{
				Mode: facts.Mode, Fault: m.Fault.Code, Release: m.Release(), Assumed: m.Assumed, Gen: m.Gen,
				Devices: m.Devices, Placed: facts.Given,
			}
			if m.Predicts() {
				got.Config = m.Node.Config()
			} else if counted := m.Node != nil; counted != (facts.Model.Config.CPU.Static && m.Fault.OK()) {
				t.Errorf("its CPUs are counted: %v, static: %v", counted, facts.Model.Config.CPU.Static)
			}
			if m.Predicts() != tt.predicted {
				t.Errorf("predicted = %v, want %v", m.Predicts(), tt.predicted)
			}
			foreign := slices.Contains(m.Assumed, convert.AssumedForeign)
			if want := len(m.Assumed) > 1 || len(m.Assumed) > 0 && !foreign; (m.Trust == kubelet.Doubted) != want {
				t.Errorf("trust %v of a kubelet with assumptions %q", m.Trust, m.Assumed)
			}
			if diff := cmp.Diff(tt.want, got, cmp.Transformer("list", cpuset.Set.String)); diff != "" {
				t.Errorf("model (-want +got):\n%s", diff)
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

// TestAKubeletThatGaveCPUsTwiceIsNotPredictedAsKnown: when one of the two pods ends, the kubelet takes the CPU of the
// other for free, and no report shows it.
func TestAKubeletThatGaveCPUsTwiceIsNotPredictedAsKnown(t *testing.T) {
	t.Parallel()
	condition := corev1.NodeCondition{
		Type: annotation.KubeletStateContradictory, Status: corev1.ConditionTrue, Reason: annotation.CPUsGivenTwice,
	}
	for name, tt := range map[string]struct {
		change func(*corev1.NodeCondition)
		want   int
	}{
		"it did":                     {func(*corev1.NodeCondition) {}, 1},
		"it did, and no longer does": {func(c *corev1.NodeCondition) { c.Status = corev1.ConditionFalse }, 0},
		"two sources disagree":       {func(c *corev1.NodeCondition) { c.Reason = "SourcesDisagree" }, 0},
	} {
		node, c := nodeOf(versioned), condition
		tt.change(&c)
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, c}
		facts, _ := convert.Facts(node, nrtOf(pairOf(t, 1), map[string]string{annotation.KubeletKey: staticKubelet}),
			convert.DefaultArgs())
		if got := facts.Model.Assumed; len(got) != tt.want || (facts.Model.Trust == kubelet.Doubted) != (tt.want > 0) {
			t.Errorf("%s: assumed %q, trust %v", name, got, facts.Model.Trust)
		}
	}
}

func TestEqualNodesShareOneKubelet(t *testing.T) {
	t.Parallel()
	var known convert.Known
	read := func(settings string) *kubelet.Node {
		f, _ := known.Read(convert.Sources{
			Node: nodeOf(versioned), Topology: nrtOf(pairOf(t, 1), map[string]string{annotation.KubeletKey: settings}),
		}, convert.DefaultArgs())
		return f.Model.Node
	}
	a, b, c := read(staticKubelet), read(staticKubelet),
		read(strings.Replace(staticKubelet, "restricted", "best-effort", 1))
	if a == nil || a != b || a == c {
		t.Errorf("got %p, %p and with another policy %p: want the first two to be one value", a, b, c)
	}
}

// TestDevicesThatAZoneDoesNotOfferAreNotHealthy: a kubelet refuses pods that ask for more than are.
func TestDevicesThatAZoneDoesNotOfferAreNotHealthy(t *testing.T) {
	t.Parallel()
	for allocatable, want := range map[string]int64{"-1": 0, "0": 0, "1": 1, "2": 2, "3": 2} {
		nrt := nrtOf(pairOf(t, 1), map[string]string{annotation.KubeletKey: `{"topology":{"policy":"restricted"}}`})
		nrt.Zones = v1alpha2.ZoneList{{Name: "node-1", Type: "Node", Resources: v1alpha2.ResourceInfoList{{
			Name: "example.com/nic", Capacity: resource.MustParse("2"), Allocatable: resource.MustParse(allocatable),
		}}}}
		facts, _ := convert.Facts(nodeOf(versioned), nrt, convert.DefaultArgs())
		if facts.Model.Node == nil {
			t.Fatal("the kubelet is not predicted")
		}
		fit := int64(0)
		for n := int64(1); n <= 3; n++ {
			pod := &kubelet.Pod{UID: "u", Containers: []kubelet.Container{{
				Name: "c", Devices: []kubelet.Amount{{Name: "example.com/nic", N: n}},
			}}}
			if reason := facts.Model.Node.Empty().Fits(pod); reason.OK() {
				fit = n
			}
		}
		if fit != want {
			t.Errorf("%s of 2 are allocatable: a pod gets up to %d, want %d", allocatable, fit, want)
		}
	}
}

func TestWhatAKubeletSeesOfAPod(t *testing.T) {
	t.Parallel()
	always := corev1.ContainerRestartPolicyAlways
	tests := map[string]struct {
		pod  func(*corev1.Pod)
		want *kubelet.Pod
	}{
		"a Burstable pod takes no part": {pod: func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{{
				Name:      "c",
				Resources: corev1.ResourceRequirements{Requests: object.List("cpu", "1")},
			}}
		}},
		"a Burstable pod with a device takes part with that": {
			pod: func(p *corev1.Pod) {
				p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
					Requests: object.List("cpu", "1"),
					Limits:   object.List("nvidia.com/gpu", "2", "koordinator.sh/gpu-core", "50"),
				}}}
			},
			want: &kubelet.Pod{UID: "u", Containers: []kubelet.Container{{
				Name:    "c",
				Devices: []kubelet.Amount{{Name: "nvidia.com/gpu", N: 2}},
			}}},
		},
		"amounts of 0 count, for the kubelet makes hints for them": {
			pod: func(p *corev1.Pod) {
				p.Spec.Containers = []corev1.Container{
					{Name: "a", Resources: corev1.ResourceRequirements{Limits: object.List("cpu", "2", "memory", "3Gi",
						"hugepages-2Mi", "0", "a.com/gpu", "0")}},
				}
			},
			want: &kubelet.Pod{UID: "u", Guaranteed: true, Containers: []kubelet.Container{{
				Name: "a", CPUs: 2, Memory: []kubelet.Amount{{Name: "hugepages-2Mi"}, {Name: "memory", N: 3 << 30}},
				Devices: []kubelet.Amount{{Name: "a.com/gpu"}},
			}}},
		},
		"0 devices are devices of any pod": {
			pod: func(p *corev1.Pod) {
				p.Spec.Containers = []corev1.Container{{
					Name:      "a",
					Resources: corev1.ResourceRequirements{Limits: object.List("a.com/gpu", "0")},
				}}
			},
			want: &kubelet.Pod{UID: "u", Containers: []kubelet.Container{{
				Name:    "a",
				Devices: []kubelet.Amount{{Name: "a.com/gpu"}},
			}}},
		},
		"containers in order, roles, whole CPUs, memory and hugepages": {
			pod: func(p *corev1.Pod) {
				p.Spec.InitContainers = []corev1.Container{
					{Name: "i", Resources: object.Equal("cpu", "1", "memory", "1Gi")},
					{Name: "s", RestartPolicy: &always, Resources: object.Equal("cpu", "500m", "memory", "1Gi")},
				}
				p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
					Limits: object.List("cpu", "2", "memory", "3Gi", "hugepages-2Mi", "4Mi"),
				}}}
			},
			want: &kubelet.Pod{UID: "u", Guaranteed: true, Containers: []kubelet.Container{
				{Name: "i", Role: kubelet.Init, CPUs: 1, Memory: []kubelet.Amount{{Name: "memory", N: 1 << 30}}},
				{Name: "s", Role: kubelet.Sidecar, Memory: []kubelet.Amount{{Name: "memory", N: 1 << 30}}},
				{Name: "c", CPUs: 2, Memory: []kubelet.Amount{
					{Name: "hugepages-2Mi", N: 4 << 20},
					{Name: "memory", N: 3 << 30},
				}},
			}},
		},
		"a resize that the kubelet has not granted does not count": {
			pod: func(p *corev1.Pod) {
				p.Spec.Containers = []corev1.Container{{
					Name:      "c",
					Resources: corev1.ResourceRequirements{Limits: object.List("cpu", "4", "memory", "3Gi")},
				}}
				p.Status.QOSClass = corev1.PodQOSGuaranteed
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{
					Name:               "c",
					AllocatedResources: object.List("cpu", "2", "memory", "1Gi"),
				}}
			},
			want: &kubelet.Pod{UID: "u", Guaranteed: true, Containers: []kubelet.Container{
				{Name: "c", CPUs: 2, Memory: []kubelet.Amount{{Name: "memory", N: 1 << 30}}},
			}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID("u"), Name: "p"}}
			p.CreationTimestamp = metav1.Unix(1000, 0)
			tt.pod(p)
			r, reason, detail := convert.Request(p, convert.DefaultArgs())
			if !reason.OK() {
				t.Fatal(reason, detail)
			}
			if diff := cmp.Diff(tt.want, r.Kubelet); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
			p.Spec.NodeName = "n"
			e, concerns := convert.EntryUnder(convert.Args{}, p)
			if concerns != (tt.want != nil) {
				t.Fatalf("concerns = %v", concerns)
			}
			if tt.want != nil {
				if diff := cmp.Diff(tt.want, e.Guest.Pod); diff != "" || e.Guest.Created != 1000 {
					t.Errorf("entry, made at %d (-want +got):\n%s", e.Guest.Created, diff)
				}
			}
		})
	}
}

// TestAPredictionIsReadBackAsItWasMade is the part of L6 that crosses the API in Follow mode.
func TestAPredictionIsReadBackAsItWasMade(t *testing.T) {
	t.Parallel()
	drawn, predicted, split := 0, 0, 0
	m := pairOf(t, 4)
	settings := []string{
		`{"cpu":{"policy":"static","reserved":"0"},"memory":{"policy":"Static"},"topology":{"policy":"best-effort"}}`,
		`{"cpu":{"policy":"static","reserved":"0"},"memory":{"policy":"Static"},"topology":{"policy":"restricted",` +
			`"scope":"pod"}}`,
		`{"cpu":{"policy":"static","reserved":"0"}}`,
	}
	const state = `{"memory":{"0":{"allocatable":{"memory":"4Gi","hugepages-2Mi":"8Mi"}},` +
		`"4":{"allocatable":{"memory":"4Gi","hugepages-2Mi":"8Mi"}}},` +
		`"devices":{"x.io/d":[{"numa":[0],"total":2,"free":2},{"numa":[4],"total":2,"free":2}]}}`
	property := func(t *rapid.T) {
		drawn++
		facts, problems := convert.Facts(nodeOf(versioned), nrtOf(m, map[string]string{
			annotation.KubeletKey: rapid.SampledFrom(settings).Draw(t, "kubelet"), annotation.NUMAStateKey: state,
			annotation.TopologyMode: "Follow", annotation.ReportKey: `{"gen":3}`,
		}), convert.DefaultArgs())
		if len(problems) > 0 || facts.Model.Node == nil {
			t.Fatalf("not predicted: %v", problems)
		}
		view := ledger.New(facts).View()
		pod := newPod(class(rapid.SampledFrom([]string{"", "LS", "LSR"}).Draw(t, "class")))
		for i := range rapid.IntRange(1, 3).Draw(t, "containers") {
			limits := corev1.ResourceList{
				"cpu":    resource.MustParse(rapid.SampledFrom([]string{"1", "2", "9", "500m"}).Draw(t, "cpu")),
				"memory": resource.MustParse(rapid.SampledFrom([]string{"1Gi", "5Gi"}).Draw(t, "memory")),
			}
			if rapid.Bool().Draw(t, "pages") {
				limits["hugepages-2Mi"] = resource.MustParse("4Mi")
			}
			if n := rapid.IntRange(0, 3).Draw(t, "devices"); n > 0 {
				limits["x.io/d"] = *resource.NewQuantity(int64(n), resource.DecimalSI)
			}
			pod.Spec.Containers = append(pod.Spec.Containers,
				corev1.Container{
					Name:      string(rune('z' - i)),
					Resources: corev1.ResourceRequirements{Requests: limits, Limits: limits},
				})
		}
		r, reason, _ := convert.Request(pod, convert.DefaultArgs())
		if !reason.OK() {
			return
		}
		offer, reason := place.Try(view, r)
		if fits := place.Fits(view, r); fits.OK() != reason.OK() {
			t.Fatalf("Fits says %v, Try says %v", fits, reason)
		}
		if !reason.OK() {
			return
		}
		record, ok := convert.Predicted(offer)
		if ok != facts.Model.Concerns(r.Kubelet) {
			t.Fatalf("predicted %v: %+v", ok, offer.Entry)
		}
		if !ok {
			return
		}
		if record.Model != "1.36" || record.Gen != 3 {
			t.Fatalf("predicted by %s on %d, want 1.36 on 3", record.Model, record.Gen)
		}
		if offer.Entry.CPUList != "" {
			t.Fatalf("CPUs %s are ours, where the kubelet chooses", offer.Entry.CPUList)
		}
		pod.Spec.NodeName = "n"
		annot(annotation.PredictedPlacementKey, record.String())(pod)
		if text := annotation.Encode(convert.Status(m, view, r, offer)); text != "{}" { // a pod of the shared pool
			annot(annotation.ResourceStatusKey, text)(pod)
		}
		if problems := convert.ReadPod(pod).Problems; problems != nil {
			t.Fatalf("our own annotation has problems: %v", problems)
		}
		entry, concerns := convert.EntryUnder(convert.Args{}, pod)
		if !concerns || !entry.Equal(offer.Entry) {
			t.Fatalf("%s is read as another entry (-committed +read):\n%s", record,
				cmp.Diff(offer.Entry.Guest, entry.Guest))
		}
		predicted++
		for _, c := range record.Containers {
			if slices.ContainsFunc(slices.Collect(maps.Values(c.Devices)),
				func(d annotation.PlacedDevices) bool { return len(d.Split) > 0 }) {
				split++
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		for range 10 {
			property(t)
		}
	})
	if predicted < drawn/5 || split == 0 {
		t.Errorf("%d predictions of %d pods, %d with devices of two nodes: the generator is too narrow", predicted,
			drawn, split)
	}
}

// TestAPodOfZeroDevicesIsAlignedWithThem: a.com/gpu: 0 draws the mask to the GPU's NUMA node, and a kubelet that finds
// the CPUs nowhere else refuses the pod.
func TestAPodOfZeroDevicesIsAlignedWithThem(t *testing.T) {
	t.Parallel()
	const kubeletOf = `{"cpu":{"policy":"static","reserved":"0"},"memory":{"policy":"Static"},` +
		`"topology":{"policy":"single-numa-node"}}`
	const state = `{"memory":{"0":{"allocatable":{"memory":"4Gi"}},"1":{"allocatable":{"memory":"4Gi"}}},` +
		`"devices":{"a.com/gpu":[{"numa":[1],"total":1,"free":1}]}}`
	node := nodeOf(versioned)
	node.Status.Capacity = corev1.ResourceList{"hugepages-2Mi": {}}
	facts, problems := convert.Facts(node, nrtOf(pairOf(t, 1), map[string]string{
		annotation.KubeletKey: kubeletOf, annotation.NUMAStateKey: state,
	}), convert.DefaultArgs())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	ask := func(cpus, resourceName string) *kubelet.Pod {
		pod := object.Pod("p", object.UID("u"), object.Both("cpu", cpus, "memory", "1Gi", resourceName, "0"))
		r, reason, detail := convert.Request(pod, convert.DefaultArgs())
		if !reason.OK() {
			t.Fatal(reason, detail)
		}
		return r.Kubelet
	}
	s := facts.Model.Node.Empty()
	after, placement, refusal := s.Admit(ask("7", "a.com/gpu"))
	if refusal != nil || placement[0].Hint.Mask != 0b10 {
		t.Fatalf("placement %+v, refusal %+v; want NUMA node 1", placement, refusal)
	}
	if reason := after.Fits(ask("4", "a.com/gpu")); reason.Code != why.KubeletTopologyAffinity {
		t.Errorf("CPUs on the other node alone: %+v, want a refusal", reason)
	}
	if reason := s.Fits(ask("2", "hugepages-2Mi")); !reason.OK() {
		t.Errorf("no pages of a size that the Node counts: %+v", reason)
	}
	if reason := s.Fits(ask("2", "hugepages-1Gi")); reason.Code != why.KubeletPanics {
		t.Errorf("no pages of a size that the Node does not count: %+v", reason)
	}
}
