package convert_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// TestMemoryIsWhatTheSchedulerCounts draws pods with memory of several types in every kind of container.
func TestMemoryIsWhatTheSchedulerCounts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pod := drawPod(t)
		amount := func(label string) corev1.ResourceList {
			list := object.List("cpu", "1")
			for _, name := range []string{"memory", "hugepages-2Mi", "hugepages-1Gi"} {
				if text := rapid.SampledFrom([]string{"", "0", "2Gi", "6Gi"}).Draw(t, label+" "+name); text != "" {
					list[corev1.ResourceName(name)] = apiresource.MustParse(text)
				}
			}
			return list
		}
		for i := range pod.Spec.InitContainers {
			pod.Spec.InitContainers[i].Resources = corev1.ResourceRequirements{Requests: amount("init")}
		}
		for i := range pod.Spec.Containers {
			pod.Spec.Containers[i].Resources = corev1.ResourceRequirements{Requests: amount("container")}
		}
		if pod.Spec.Resources != nil {
			pod.Spec.Resources.Requests = amount("pod")
		}
		r, reason, detail := convert.Request(pod, convert.DefaultArgs())
		if !reason.OK() {
			t.Fatalf("refused: %v %s", reason, detail)
		}
		var want []align.Need
		requests := resource.PodRequests(pod, resource.PodResourcesOptions{})
		for _, name := range []corev1.ResourceName{"memory", "hugepages-2Mi", "hugepages-1Gi"} {
			if q := requests[name]; !q.IsZero() {
				want = append(want, align.Need{Resource: why.Resource(name), N: q.Value()})
			}
		}
		if diff := cmp.Diff(want, r.Needs); diff != "" {
			t.Fatalf("memory (-want +got):\n%s\nof %+v", diff, pod.Spec)
		}
	})
}

func TestHugepagesAreRoundedUpToWholePages(t *testing.T) {
	t.Parallel()
	pod := newPod(class("LSR"), container("1"))
	pod.Spec.Containers[0].Resources.Requests["hugepages-2Mi"] = apiresource.MustParse("3Mi")
	pod.Spec.Containers[0].Resources.Requests["hugepages-1Gi"] = apiresource.MustParse("8Ei")
	r, reason, detail := convert.Request(pod, convert.DefaultArgs())
	if !reason.OK() {
		t.Fatalf("refused: %v %s", reason, detail)
	}
	want := []align.Need{
		{Resource: "memory", N: 1 << 30},
		{Resource: "hugepages-2Mi", N: 4 << 20},
		{Resource: "hugepages-1Gi", N: 1<<63 - 1<<30},
	}
	if diff := cmp.Diff(want, r.Needs); diff != "" {
		t.Errorf("memory (-want +got):\n%s", diff)
	}
}

func zone(name, kind string, amounts ...string) v1alpha2.Zone {
	z := v1alpha2.Zone{Name: name, Type: kind}
	for i := 0; i < len(amounts); i += 3 {
		r := v1alpha2.ResourceInfo{Name: amounts[i], Capacity: apiresource.MustParse(amounts[i+1])}
		if amounts[i+2] != "" {
			r.Allocatable = apiresource.MustParse(amounts[i+2])
		}
		z.Resources = append(z.Resources, r)
	}
	return z
}

func TestFactsReadTheMemoryOfZones(t *testing.T) {
	t.Parallel()
	nrt := newNRT(map[string]string{annotation.CPUTopology: fourNodes})
	nrt.Zones = v1alpha2.ZoneList{
		zone("node-0", "Node", "cpu", "1", "1", "memory", "64Gi", "60Gi", "hugepages-2Mi", "4Gi", "4Gi", "memory",
			"1Gi", "1Gi"),
		zone("node-4", "Node", "memory", "64Gi", "", "hugepages-2Mi", "4Gi", "0", "nvidia.com/gpu", "4", "4"),
		zone("node-5", "Node", "memory", "64Gi", "-1"),
		zone("node-0", "Node", "memory", "1Gi", "1Gi"),
		zone("balloon-0", "balloon", "memory", "1Gi", "1Gi"),
	}
	facts, problems := convert.Facts(nil, nrt, convert.DefaultArgs())
	want := []align.Amount{
		{NUMAID: 0, Resource: "memory", N: 60 << 30},
		{NUMAID: 0, Resource: "hugepages-2Mi", N: 4 << 30},
		{NUMAID: 4, Resource: "memory", N: 64 << 30},
	}
	if diff := cmp.Diff(want, facts.Amounts); diff != "" {
		t.Errorf("memory (-want +got):\n%s", diff)
	}
	if len(problems) != 2 || problems[0].Key != "zones[node-0]" ||
		problems[1].Key != "zones[node-5].resources[memory]" {
		t.Errorf("problems %+v, want the zone that is there twice and the negative amount", problems)
	}
}

// memoryOfNodes are facts of a machine with NUMA nodes 0, 4 and 5 and the given GiB on each.
func memoryOfNodes(t *testing.T, gib ...int64) ledger.Facts {
	t.Helper()
	nrt := newNRT(
		map[string]string{annotation.CPUTopology: `{"detail":[{"id":0,"core":0,"node":0},{"id":1,"core":1,"node":0},` +
			`{"id":2,"core":2,"node":4},{"id":3,"core":3,"node":4},{"id":4,"core":4,"node":5}]}`})
	for i, id := range []int{0, 4, 5} {
		nrt.Zones = append(nrt.Zones, zone(fmt.Sprint("node-", id), "Node", "memory", fmt.Sprint(gib[i], "Gi"),
			fmt.Sprint(gib[i], "Gi")))
	}
	facts, problems := convert.Facts(nil, nrt, convert.DefaultArgs())
	if facts.Machine == nil || len(problems) > 0 {
		t.Fatalf("no machine: %v", problems)
	}
	return facts
}

func TestStatusSaysWhereThePodsMemoryIs(t *testing.T) {
	t.Parallel()
	policy := func(name string) podOption {
		return annot(annotation.NUMATopologySpecKey, `{"numaTopologyPolicy":"`+name+`"}`)
	}
	tests := map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"exclusive CPUs go where the memory is": {
			newPod(class("LSR"), container("1"), policy("SingleNUMANode")),
			`{"cpuset":"2","numaNodeResources":[{"node":4,"resources":{"cpu":"1","memory":"1Gi"}}]}`,
		},
		"so do shared pools": {
			newPod(class("LS"), bounded("500m", "1"), policy("SingleNUMANode")),
			`{"cpuSharedPools":[{"socket":0,"node":4}],"numaNodeResources":[{"node":4,"resources":{"cpu":"500m",` +
				`"memory":"1Gi"}}]}`,
		},
		"memory on a NUMA node without CPUs of the pod": {
			newPod(class("LSR"), container("1"), container("0"), container("0"), container("0"), policy("BestEffort")),
			`{"cpuset":"2","numaNodeResources":[{"node":4,"resources":{"cpu":"1","memory":"3Gi"}},{"node":5,` +
				`"resources":{"cpu":"0","memory":"1Gi"}}]}`,
		},
		"without a policy memory takes no part": {newPod(class("LSR"), container("1")), `{"cpuset":"0"}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			view := ledger.New(memoryOfNodes(t, 0, 3, 1)).View()
			r, reason, detail := convert.Request(tt.pod, convert.DefaultArgs())
			if !reason.OK() {
				t.Fatalf("refused: %v %s", reason, detail)
			}
			offer, reason := place.Try(view, r)
			if !reason.OK() {
				t.Fatalf("refused: %+v", reason)
			}
			status := convert.Status(view.Machine(), view, r, offer)
			if annotation.Encode(status) != tt.want {
				t.Errorf("status = %s, want %s", annotation.Encode(status), tt.want)
			}
			onNode(tt.pod)
			annot(annotation.ResourceStatusKey, annotation.Encode(status))(tt.pod)
			if entry, _ := convert.EntryUnder(convert.Args{}, tt.pod); !entry.Equal(offer.Entry) {
				t.Errorf("read back as %+v, want %+v", entry, offer.Entry)
			}
		})
	}
}

// TestEachResourceOfAPodIsHeldAsItIsRequestedNow: after a resize, in the shares of the NUMA nodes
// that the pod was given.
func TestEachResourceOfAPodIsHeldAsItIsRequestedNow(t *testing.T) {
	t.Parallel()
	pod := newPod(class("LSR"), container("2"))
	pod.Spec.NodeName = "n"
	pod.Spec.Containers[0].Resources.Requests["memory"] = apiresource.MustParse("10Gi")
	pod.Spec.Containers[0].Resources.Requests["hugepages-1Gi"] = apiresource.MustParse("3Gi")
	pod.Annotations = map[string]string{annotation.ResourceStatusKey: `{"cpuset":"0-1","numaNodeResources":[
		{"node":0,"resources":{"cpu":"2","memory":"4Gi","hugepages-1Gi":"1Gi"}},
		{"node":1,"resources":{"memory":"1Gi"}}]}`}
	const gib = 1 << 30
	want := []align.Amount{
		{NUMAID: 0, Resource: "memory", N: 8 * gib},
		{NUMAID: 0, Resource: "hugepages-1Gi", N: 3 * gib},
		{NUMAID: 1, Resource: "memory", N: 2 * gib},
	}
	if diff := cmp.Diff(want, convert.ReadPod(pod).Entry.Amounts); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
