package observe

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/kubeletapi"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/object"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

const gpuName = "nvidia.com/gpu"

// fourCards are GPUs GPU-0 to GPU-3, by address.
func fourCards(tb interface{ Fatal(...any) }) *device.Inventory {
	var s device.Spec
	for i := range 4 {
		s.Devices = append(s.Devices, device.Device{
			Type: device.GPU, ID: fmt.Sprint("GPU-", i), Vendor: gpuName,
			Location: device.Location{NUMAID: -1, Bus: fmt.Sprintf("0000:%02d:00.0", i)},
		})
	}
	inv, err := device.NewInventory(&s, nil, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return inv
}

// gpuPod is a bound pod of the API that requests a resource; allocated is its device-allocated.
func gpuPod(name, resourceName, allocated string) *convert.Pod {
	p := object.Pod("ns/"+name, object.On("n"), object.Container("main", ""))
	p.Status.StartTime = &metav1.Time{Time: time.Unix(0, 0)}
	if resourceName != "" {
		object.Limits(resourceName, "1")(p)
	}
	if allocated != "" {
		p.Annotations[annotation.DeviceAllocatedKey] = `{"gpu":[{"id":"` + allocated + `","resources":{}}]}`
	}
	return convert.ReadPod(p)
}

func devicesNamed(name string, ids ...string) (out []host.Device) {
	for _, id := range ids {
		out = append(out, host.Device{Resource: name, ID: id})
	}
	return out
}

type record = map[string]map[string]map[string][]host.Device

func filed(uid string, ids ...string) record {
	return record{uid: {"main": {gpuName: devicesNamed(gpuName, ids...)}}}
}

func answered(name string, ids ...string) kubeletapi.Pod {
	return kubeletapi.Pod{Namespace: "ns", Name: name, Containers: map[string]kubeletapi.Container{
		"main": {Devices: devicesNamed(gpuName, ids...)},
	}}
}

func held(uid, name string, ids ...string) annotation.DevicesCheckpoint {
	return annotation.DevicesCheckpoint{
		PodUID: types.UID(uid), ContainerName: "main", ResourceName: name, DeviceIDs: ids,
	}
}

func none(uid string) annotation.DevicesCheckpoint {
	return annotation.DevicesCheckpoint{PodUID: types.UID(uid), DeviceIDs: []string{}}
}

func TestHoldersOfDevices(t *testing.T) {
	t.Parallel()
	env := func(uid string, ids ...string) map[string]map[string][]host.Device {
		return map[string]map[string][]host.Device{uid: {"main": devicesNamed(gpuName, ids...)}}
	}
	plugin := corev1.ResourceList{gpuName: resource.MustParse("4")}
	ended := gpuPod("p", gpuName, "")
	ended.Status.Phase = corev1.PodSucceeded
	static := gpuPod("p", gpuName, "")
	static.Annotations[corev1.MirrorPodAnnotationKey] = "static"
	for name, c := range map[string]struct {
		pods     []*convert.Pod
		answers  []kubeletapi.Pod // nil: the kubelet has not answered
		file     record
		running  map[string]map[string][]host.Device
		capacity corev1.ResourceList
		want     Foreign
	}{
		"PodResources, the checkpoint and the environment agree, each in its own words": {
			pods: []*convert.Pod{gpuPod("p", gpuName, "")}, answers: []kubeletapi.Pod{answered("p", "GPU-1")},
			file: filed("p", "GPU-1::0"), running: env("p", "1"),
			want: Foreign{Holders: annotation.DevicesCheckpoints{held("p", gpuName, "1", "GPU-1", "GPU-1::0")}},
		},
		"they disagree: what one of them names is held": {
			pods: []*convert.Pod{gpuPod("p", gpuName, "")}, answers: []kubeletapi.Pod{answered("p", "GPU-1")},
			file: filed("p", "GPU-2", "GPU-1"),
			want: Foreign{
				Holders:  annotation.DevicesCheckpoints{held("p", gpuName, "GPU-1", "GPU-2")},
				Disputed: []string{"GPU-2"},
			},
		},
		"the checkpoint alone, while the kubelet is down": {
			pods: []*convert.Pod{gpuPod("p", gpuName, "")}, file: filed("p", "GPU-0"),
			want: Foreign{Holders: annotation.DevicesCheckpoints{held("p", gpuName, "GPU-0")}},
		},
		"the environment alone": {
			pods: []*convert.Pod{gpuPod("p", gpuName, "")}, running: env("p", "GPU-3"),
			want: Foreign{Holders: annotation.DevicesCheckpoints{held("p", gpuName, "GPU-3")}},
		},
		"the environment of a pod that requests no device": {
			pods: []*convert.Pod{gpuPod("p", "", "")}, running: env("p", "GPU-3"),
		},
		"a pod of Tenon, to which the kubelet gave another one": {
			pods:    []*convert.Pod{gpuPod("p", gpuName, "GPU-1")},
			answers: []kubeletapi.Pod{answered("p", "GPU-0")},
			file:    filed("p", "GPU-0"), running: env("p", "GPU-1"),
		},
		"a static pod, under its mirror's UID": {
			pods: []*convert.Pod{static}, file: filed("static", "GPU-2"),
			want: Foreign{Holders: annotation.DevicesCheckpoints{held("p", gpuName, "GPU-2")}},
		},
		"names that no device has are passed on": {
			pods: []*convert.Pod{gpuPod("p", gpuName, "")}, file: filed("p", "GPU-9"),
			want: Foreign{Holders: annotation.DevicesCheckpoints{held("p", gpuName, "GPU-9")}},
		},
		"IDs that are not devices of the node are left out, under whatever name": {
			pods: []*convert.Pod{gpuPod("p", "", "")}, file: record{"p": {"main": {
				"example.com/fuse": devicesNamed("example.com/fuse", "fuse-1"),
				"example.com/card": devicesNamed("example.com/card", "GPU-2"),
			}}},
			want: Foreign{Holders: annotation.DevicesCheckpoints{held("p", "example.com/card", "GPU-2")}},
		},
		"devices of the agent's own plugin": {
			pods: []*convert.Pod{gpuPod("p", gpuName, "")}, answers: []kubeletapi.Pod{answered("p", "tenon-0")},
			file: filed("p", "tenon-0"), want: Foreign{Holders: annotation.DevicesCheckpoints{none("p")}},
		},
		"a pod that has ended holds nothing, though the checkpoint keeps it": {
			pods: []*convert.Pod{ended}, answers: []kubeletapi.Pod{}, file: filed("p", "GPU-2"),
		},
		"a pod that is gone holds nothing, though the checkpoint keeps it": {
			answers: []kubeletapi.Pod{}, file: filed("p", "GPU-2"),
		},
		"a pod that is gone, before the kubelet has answered": {
			file: filed("p", "GPU-2"),
			want: Foreign{
				Holders: annotation.DevicesCheckpoints{held("p", gpuName, "GPU-2")}, Stale: []string{"p"},
			},
		},
		"a pod that was deleted by force, and that the kubelet still has": {
			answers: []kubeletapi.Pod{answered("p", "GPU-2")}, file: filed("u", "GPU-2"),
			want: Foreign{
				Holders: annotation.DevicesCheckpoints{held("ns/p", gpuName, "GPU-2")}, Stale: []string{"ns/p"},
			},
		},
		"a pod that was deleted by force, and whose container runs": {
			answers: []kubeletapi.Pod{}, running: env("u", "GPU-2"),
			want: Foreign{
				Holders: annotation.DevicesCheckpoints{held("u", gpuName, "GPU-2")}, Stale: []string{"u"},
			},
		},
		"a pod that has ended by the API, and whose container runs": {
			pods: []*convert.Pod{ended}, answers: []kubeletapi.Pod{}, running: env("p", "GPU-2"),
			want: Foreign{
				Holders: annotation.DevicesCheckpoints{held("p", gpuName, "GPU-2")}, Stale: []string{"p"},
			},
		},
		"a pod that was just bound: it is not known what it gets": {
			pods: []*convert.Pod{gpuPod("p", gpuName, "")}, answers: []kubeletapi.Pod{}, capacity: plugin,
			want: Foreign{Unknown: []string{"ns/p"}},
		},
		"a pod without devices by the kubelet's answer has none": {
			pods: []*convert.Pod{gpuPod("p", gpuName, "")}, answers: []kubeletapi.Pod{answered("p")},
			capacity: plugin, want: Foreign{Holders: annotation.DevicesCheckpoints{none("p")}},
		},
		"a pod on a node without a device plugin has none": {
			pods: []*convert.Pod{gpuPod("p", gpuName, "")}, capacity: corev1.ResourceList{},
			want: Foreign{Holders: annotation.DevicesCheckpoints{none("p")}},
		},
		"a pod with a share has none: no plugin serves those": {
			pods:     []*convert.Pod{gpuPod("p", "koordinator.sh/gpu", "")},
			capacity: object.List("koordinator.sh/gpu", "400"),
			want:     Foreign{Holders: annotation.DevicesCheckpoints{none("p")}},
		},
		"a pod on a node that is not known": {
			pods: []*convert.Pod{gpuPod("p", gpuName, "")}, want: Foreign{Unknown: []string{"ns/p"}},
		},
	} {
		f := finder{
			inv: fourCards(t), found: map[claim]map[string]sources{}, file: c.file, running: c.running,
			unasked: c.answers == nil,
		}
		if c.capacity != nil {
			f.node = &corev1.Node{Status: corev1.NodeStatus{Capacity: c.capacity}}
		}
		if c.answers != nil {
			f.answer = resources{}.with(kubeletapi.Resources{Pods: c.answers}, c.pods, time.Unix(100, 0), nil)
		}
		if diff := cmp.Diff(c.want, f.find(c.pods)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestEveryDeviceThatASourceNamesIsHeld compares with a plain union over pods of the API, and gives no pod twice what
// it has.
func TestEveryDeviceThatASourceNamesIsHeld(t *testing.T) {
	t.Parallel()
	holders, disputes := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		inv := fourCards(t)
		var pods []*convert.Pod
		var answer kubeletapi.Resources
		file, running, want := record{}, map[string]map[string][]host.Device{}, map[string]map[string]bool{}
		for i := range rapid.IntRange(1, 3).Draw(t, "pods") {
			uid := fmt.Sprint("p", i)
			ours := rapid.IntRange(0, 3).Draw(t, "ours") == 0
			allocated := ""
			if ours {
				allocated = "GPU-0"
			}
			pods = append(pods, gpuPod(uid, gpuName, allocated))
			want[uid] = map[string]bool{}
			ids := func(what string) []string {
				var out []string
				for _, n := range rapid.SliceOfNDistinct(rapid.IntRange(0, 3), 0, 2, rapid.ID).Draw(t, what) {
					form := rapid.SampledFrom([]string{"GPU-%d", "GPU-%d::1", "%d", "GPU-%d-2"}).Draw(t, "form")
					out = append(out, fmt.Sprintf(form, n))
					if !ours {
						want[uid][fmt.Sprint("GPU-", n)] = true
					}
				}
				return out
			}
			answer.Pods = append(answer.Pods, answered(uid, ids("answer")...))
			maps.Copy(file, filed(uid, ids("file")...))
			running[uid] = map[string][]host.Device{"main": devicesNamed(gpuName, ids("environment")...)}
		}
		f := finder{
			inv: inv, found: map[claim]map[string]sources{}, file: file, running: running,
			answer: resources{}.with(answer, pods, time.Unix(100, 0), nil),
		}
		got := f.find(pods)
		have := map[string]map[string]bool{}
		for _, pod := range pods {
			have[string(pod.UID)] = map[string]bool{}
		}
		for _, c := range got.Holders {
			for _, id := range c.DeviceIDs {
				have[string(c.PodUID)][inv.Resolve(id)] = true
			}
		}
		if diff := cmp.Diff(want, have); diff != "" || len(got.Stale) > 0 {
			t.Fatalf("stale %v, devices (-want +got):\n%s", got.Stale, diff)
		}
		if _, _, err := annotation.ParseDevicesCheckpoints(got.Holders.String()); err != nil {
			t.Fatal(err)
		}
		for _, id := range got.Disputed {
			if !slices.ContainsFunc(pods, func(p *convert.Pod) bool { return want[string(p.UID)][id] }) {
				t.Fatalf("%s is disputed, and no pod has it", id)
			}
		}
		holders, disputes = holders+len(got.Holders), disputes+len(got.Disputed)
	})
	if (holders == 0 || disputes == 0) && !testing.Short() {
		t.Errorf("%d holders, %d disputes: the generator is too narrow", holders, disputes)
	}
}
