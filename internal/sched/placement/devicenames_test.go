package placement_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/sched/deviceshare"
	"github.com/tenon-project/tenon/internal/sched/nodenumaresource"
	"github.com/tenon-project/tenon/internal/testkit"
)

// addGPUs gives a node GPUs <node>-0, <node>-1, ….
func (b *bench) addGPUs(node string, n int) {
	d := &devicev1alpha1.Device{ObjectMeta: metav1.ObjectMeta{
		Name: node, Annotations: map[string]string{annotation.DeviceModeKey: annotation.DeviceOwn},
		Labels: map[string]string{annotation.GPUVendorLabel: "nvidia", annotation.GPUModelLabel: "A"},
	}}
	for i := range n {
		d.Spec.Devices = append(d.Spec.Devices, devicev1alpha1.DeviceInfo{
			Type: "gpu", ID: fmt.Sprintf("%s-%d", node, i), Health: true, Minor: ptr.To(int32(i)),
			Resources: map[corev1.ResourceName]resource.Quantity{
				"koordinator.sh/gpu-core":   resource.MustParse("100"),
				"koordinator.sh/gpu-memory": resource.MustParse("80Gi"),
			},
		})
	}
	b.store.PutDevice(d)
}

// gpuPod asks for percent of GPUs, and for CPUs, of its own where the class is LSR.
func gpuPod(name, profile, class string, cpus, percent int64) *corev1.Pod {
	p := pod(name, profile, cpus)
	p.Labels[annotation.QoSClass] = class
	amounts := p.Spec.Containers[0].Resources.Requests
	amounts["koordinator.sh/gpu"] = *resource.NewQuantity(percent, resource.DecimalSI)
	return p
}

// Whatever the names that the decision has in a profile with DeviceShare, each pod gets the same GPUs, and CPUs, of the
// same node, by one Commit and one Binding.
func TestDevicesAreDecidedOnceUnderAnyNames(t *testing.T) {
	t.Parallel()
	own, devices := plugin{nodenumaresource.Name, 1}, plugin{deviceshare.Name, 10}
	var want []string
	for _, tc := range []struct {
		name     string
		profiles [][]plugin
	}{
		{"the only name", [][]plugin{{devices}}},
		{"the second name", [][]plugin{{own, devices}}},
		{"the other order", [][]plugin{{devices, own}}},
		{"two profiles", [][]plugin{{own, devices}, {devices}}},
	} {
		b := newBench(t, 3, tc.profiles...)
		for i := range 3 {
			b.addGPUs(fmt.Sprintf("n%d", i), 2)
		}
		pods := []struct {
			class         string
			cpus, percent int64
		}{{"LS", 2, 50}, {"LS", 2, 30}, {"LS", 4, 100}, {"LSR", 4, 200}, {"LS", 1, 60}, {"LS", 1, 100}}
		var got []string
		holders := map[string]int64{}
		for i, p := range pods {
			name := fmt.Sprintf("p%d", i)
			b.try(t, gpuPod(name, profileName(i%len(tc.profiles)), p.class, p.cpus, p.percent))
			select {
			case binding := <-b.bound:
				text := binding.Annotations[annotation.DeviceAllocatedKey]
				got = append(got, fmt.Sprintf("%s on %s: %s %s", binding.Name, binding.Target.Name, text,
					binding.Annotations[annotation.ResourceStatusKey]))
				allocated, _, err := annotation.ParseDeviceAllocations(text)
				if err != nil {
					t.Fatalf("%s: device-allocated %s: %v", tc.name, text, err)
				}
				sum := int64(0)
				for _, g := range allocated["gpu"] {
					core := g.Resources["koordinator.sh/gpu-core"]
					sum += core.Value()
					if holders[g.ID] += core.Value(); holders[g.ID] > 100 {
						t.Errorf("%s: %d percent of GPU %s are given away", tc.name, holders[g.ID], g.ID)
					}
				}
				if sum != p.percent {
					t.Errorf("%s: pod %s got %d percent, want %d: %s", tc.name, name, sum, p.percent, text)
				}
			case <-time.After(time.Minute):
				t.Fatalf("%s: pod %s is not bound", tc.name, name)
			}
		}
		if want == nil {
			want = got
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: placements (-%s +got):\n%s", tc.name, "the only name", diff)
		}
		if n := b.counted(t, "tenon_ledger_commits_total", "ok"); int(n) != len(pods) {
			t.Errorf("%s: %v commits, want one for each of %d pods", tc.name, n, len(pods))
		}
	}
}

// Without DeviceShare in a profile its pods get no devices of Tenon, and those of others keep what they have.
func TestProfilesWithoutDeviceShareLeaveDevicesToOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, []plugin{{nodenumaresource.Name, 1}}, []plugin{{deviceshare.Name, 10}})
	b.addGPUs("n0", 1)
	b.try(t, gpuPod("with", profileName(1), "LS", 2, 100))
	if binding := <-b.bound; binding.Annotations[annotation.DeviceAllocatedKey] == "" {
		t.Errorf("with DeviceShare, the Binding has %v", binding.Annotations)
	}
	b.try(t, gpuPod("without", profileName(0), "LS", 2, 100))
	if binding := <-b.bound; binding.Annotations[annotation.DeviceAllocatedKey] != "" {
		t.Errorf("without DeviceShare, the Binding has %v", binding.Annotations)
	}
	b.try(t, gpuPod("late", profileName(1), "LS", 2, 10))
	if refused := b.SchedulingQueue.UnschedulablePods(); !slices.ContainsFunc(refused, func(p *corev1.Pod) bool {
		return p.Name == "late"
	}) {
		t.Errorf("unschedulable are %v, want the pod for which no GPU is left", refused)
	}
}

// A pod that was read before any Device object listed a type of its resources is read again.
func TestAPodIsReadAgainWhenDevicesOfAnotherKindCome(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, []plugin{{deviceshare.Name, 10}})
	asks := func(name string, cpus int64) *corev1.Pod {
		p := pod(name, profileName(0), cpus)
		p.UID = "the same"
		p.Spec.Containers[0].Resources.Requests["example.com/dpu"] = resource.MustParse("1")
		return p
	}
	b.try(t, asks("too-large", 64))
	if refused := b.SchedulingQueue.UnschedulablePods(); len(refused) != 1 {
		t.Fatalf("unschedulable are %v, want the pod with 64 CPUs", refused)
	}
	b.store.PutDevice(&devicev1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Name: "n0"}, Spec: devicev1alpha1.DeviceSpec{
		Devices: []devicev1alpha1.DeviceInfo{{
			Type: "dpu", ID: "d", Health: true,
			Resources: map[corev1.ResourceName]resource.Quantity{"example.com/dpu": resource.MustParse("1")},
		}},
	}})
	b.try(t, asks("again", 4))
	select {
	case binding := <-b.bound:
		if want := `{"dpu":[{"id":"d",`; !strings.HasPrefix(binding.Annotations[annotation.DeviceAllocatedKey], want) {
			t.Errorf("the Binding has %v, want devices %s", binding.Annotations, want)
		}
	case <-time.After(time.Minute):
		t.Fatal("the pod is not bound")
	}
}

// A pod that waits for a device of a type that no code knows is woken when the node has one for it, and not before.
func TestHintsKnowTypesOfDeviceObjects(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1, []plugin{{deviceshare.Name, 10}})
	b.store.PutDevice(&devicev1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Name: "n0"}, Spec: devicev1alpha1.DeviceSpec{
		Devices: []devicev1alpha1.DeviceInfo{{
			Type: "dpu", ID: "d", Health: true,
			Resources: map[corev1.ResourceName]resource.Quantity{"example.com/dpu": resource.MustParse("1")},
		}},
	}})
	asks := func(name string) *corev1.Pod {
		p := pod(name, profileName(0), 1)
		p.Spec.Containers[0].Resources.Requests["example.com/dpu"] = resource.MustParse("1")
		return p
	}
	holder, waiting := asks("holder"), asks("waiting")
	holder.Spec.NodeName = "n0"
	holder.Annotations = map[string]string{annotation.DeviceAllocatedKey: `{"dpu":[{"id":"d","minor":0,` +
		`"resources":{"koordinator.sh/dpu":"1"}}]}`}
	b.store.PutPod(holder)
	woken := func() (hints []fwk.QueueingHint) {
		for _, e := range b.Profiles[profileName(0)].EnqueueExtensions() {
			if e.Name() != deviceshare.Name {
				continue
			}
			events, err := e.EventsToRegister(t.Context())
			testkit.Check(t, err)
			for _, on := range events {
				if on.Event.Resource == fwk.Pod && on.Event.ActionType&fwk.Delete != 0 {
					hint, err := on.QueueingHintFn(klog.Background(), waiting, holder, nil)
					testkit.Check(t, err)
					hints = append(hints, hint)
				}
			}
		}
		return hints
	}
	if got := woken(); !slices.Equal(got, []fwk.QueueingHint{fwk.QueueSkip}) {
		t.Errorf("while the device is held: %v", got)
	}
	b.store.RemovePod(holder)
	if got := woken(); !slices.Equal(got, []fwk.QueueingHint{fwk.Queue}) {
		t.Errorf("once its holder is gone: %v", got)
	}
}

// A part of an Ascend NPU is one of the templates that the ConfigMap has for its model; the Binding names it.
func TestAPartOfAnNPUIsOneOfItsTemplates(t *testing.T) {
	t.Parallel()
	b := newBenchWith(t, `{"gpuSharedResourceTemplatesConfig":{}}`, 1, []plugin{{deviceshare.Name, 10}})
	b.store.PutDevice(&devicev1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Name: "n0"}, Spec: devicev1alpha1.DeviceSpec{
		Devices: []devicev1alpha1.DeviceInfo{{
			Type: "gpu", ID: "npu-0", Health: true, Labels: map[string]string{
				annotation.GPUVendorLabel: "huawei", annotation.GPUModelLabel: "Ascend-310P",
			},
			Resources: map[corev1.ResourceName]resource.Quantity{
				"huawei.com/npu-core": resource.MustParse("8"), "huawei.com/npu-cpu": resource.MustParse("7"),
				"koordinator.sh/gpu-memory": resource.MustParse("24Gi"),
			},
		}},
	}})
	part := func(name, cpus string) *corev1.Pod {
		p := pod(name, profileName(0), 1)
		for resourceName, amount := range map[corev1.ResourceName]string{
			"koordinator.sh/gpu.shared": "1", "huawei.com/npu-core": "2", "huawei.com/npu-cpu": cpus,
			"koordinator.sh/gpu-memory": "6Gi",
		} {
			p.Spec.Containers[0].Resources.Requests[resourceName] = resource.MustParse(amount)
		}
		return p
	}
	_, err := b.client.CoreV1().ConfigMaps("koordinator-system").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu-shared-resource-templates"}, Data: map[string]string{
			"data.yaml": "huawei-Ascend-310P: {vir02_1c: {huawei.com/npu-core: 2, huawei.com/npu-cpu: 1, " +
				"koordinator.sh/gpu-memory: 6Gi}}",
		},
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
	b.factory.StartWithContext(t.Context())
	text, tries := "", 0
	again := func(context.Context) (bool, error) { // until the ConfigMap is read
		tries++
		b.try(t, part(fmt.Sprint("early-", tries), "1"))
		select {
		case binding := <-b.bound:
			text = binding.Annotations[annotation.DeviceAllocatedKey]
		case <-time.After(20 * time.Millisecond):
		}
		return text != "", nil
	}
	err = wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, again)
	if want := `"gpuSharedResourceTemplate":"vir02_1c"`; err != nil || !strings.Contains(text, want) {
		t.Fatalf("after %d tries: %v, the Binding has %s, want %s", tries, err, text, want)
	}
	b.try(t, part("between", "2"))
	waiting, _ := b.SchedulingQueue.PendingPods() // in any of the queues: the end of another pod may wake it
	if !slices.ContainsFunc(waiting, func(p *corev1.Pod) bool { return p.Name == "between" }) {
		t.Error("a part between templates is given")
	}
}

// What the arguments of DeviceShare say holds for the pods of the profile.
func TestArgumentsOfDeviceShareHold(t *testing.T) {
	t.Parallel()
	const args = `{"gpuShareUnsupportedModels":[{"vendor":"nvidia","model":%q}],"devicePluginAdaption":true}`
	for model, shared := range map[string]bool{"A": false, "B": true} {
		b := newBenchWith(t, fmt.Sprintf(args, model), 1, []plugin{{deviceshare.Name, 10}})
		b.addGPUs("n0", 3)
		b.try(t, gpuPod("whole", profileName(0), "LS", 2, 200))
		if binding := <-b.bound; binding.Annotations[annotation.GPUMinorsKey] != "0,1" ||
			binding.Annotations[annotation.BindTimestampKey] == "" {
			t.Errorf("the Binding has %v, want the minors 0,1 and the time", binding.Annotations)
		}
		b.try(t, gpuPod("share", profileName(0), "LS", 2, 50))
		if refused := len(b.SchedulingQueue.UnschedulablePods()); shared != (refused == 0) {
			t.Errorf("with model %s left whole, %d pods with a share of an A are refused", model, refused)
		}
	}
}
