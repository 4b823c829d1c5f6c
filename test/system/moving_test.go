package system

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// TestANodeMovesInFromItsKubelet: a pod that was bound past the scheduler has a GPU of the kubelet. Its node gives none
// out until the agent has found which, then all but that one, and that one too when the pod is gone. The simulated
// kubelet has no device plugin: the test writes its record.
func TestANodeMovesInFromItsKubelet(t *testing.T) {
	t.Parallel()
	l := up(t, 1, "--machine", "hgx-h100")
	const node = "hgx-h100-0"
	path := "/apis/" + devicev1alpha1.GroupVersion().String() + "/devices/" + node
	device := func() (d devicev1alpha1.Device, err error) {
		text, err := l.client.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
		return d, errors.Join(err, json.Unmarshal(text, &d))
	}
	setMode := func(mode string) {
		t.Helper()
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, annotation.DeviceModeKey, mode)
		if err := l.client.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(path).Body([]byte(patch)).
			Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	var gpus []string
	waitFor(t, time.Minute, "the Device", func() error {
		d, err := device()
		gpus = nil
		for i := range d.Spec.Devices {
			if d.Spec.Devices[i].Type == "gpu" {
				gpus = append(gpus, d.Spec.Devices[i].ID)
			}
		}
		if err == nil && len(gpus) != 8 {
			err = fmt.Errorf("%d GPUs", len(gpus))
		}
		return err
	})
	setMode(annotation.DeviceFollow)
	if _, err := l.client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType,
		[]byte(`{"status":{"capacity":{"nvidia.com/gpu":"8"},"allocatable":{"nvidia.com/gpu":"8"}}}`),
		metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	pods := l.client.CoreV1().Pods(metav1.NamespaceDefault)
	create := func(name, gpus string, spec corev1.PodSpec) *corev1.Pod {
		t.Helper()
		made := object.Pod(name)
		made.Spec = spec
		object.Both("nvidia.com/gpu", gpus)(made)
		p, err := pods.Create(t.Context(), made, metav1.CreateOptions{})
		testkit.Check(t, err)
		return p
	}
	foreign := create("foreign", "1", corev1.PodSpec{NodeName: node})
	waitFor(t, time.Minute, "the kubelet's pod to run", func() error {
		p, err := pods.Get(t.Context(), "foreign", metav1.GetOptions{})
		if err == nil && p.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s", p.Status.Phase)
		}
		return err
	})
	setMode(annotation.DeviceMoving)
	// own returns the GPUs of the scheduler's pods, and why the others wait.
	own := func() (held []string, waits []string) {
		list, err := pods.List(t.Context(), metav1.ListOptions{})
		testkit.Check(t, err)
		for i := range list.Items {
			p := &list.Items[i]
			text := cmp.Or(p.Annotations[annotation.DeviceAllocatedKey], "{}")
			allocated, _, err := annotation.ParseDeviceAllocations(text)
			testkit.Check(t, err)
			for _, g := range allocated["gpu"] {
				held = append(held, g.ID)
			}
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
					waits = append(waits, c.Message)
				}
			}
		}
		return held, waits
	}
	closed := func(pods int) func() error {
		return func() error {
			held, waits := own()
			if len(held) > 0 {
				t.Fatalf("GPUs %v are given out while it is not known which the kubelet gave", held)
			}
			if len(waits) != pods || !slices.ContainsFunc(waits, func(text string) bool {
				return strings.Contains(text, "node(s) hold devices allocated outside the scheduler")
			}) {
				return fmt.Errorf("pods wait because %q", waits)
			}
			return nil
		}
	}
	// A pod that the scheduler tries before it sees the mode is left to the kubelet. One that is too large waits, and
	// is tried again only when it comes again: no mode lets it fit.
	large := func() { create("large", "9", corev1.PodSpec{SchedulerName: "tenon-scheduler"}) }
	remove := func(name string) {
		t.Helper()
		testkit.Check(t, pods.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	large()
	waitFor(t, time.Minute, "the scheduler to see the mode", func() error {
		_, waits := own()
		err := closed(1)()
		if err != nil && len(waits) > 0 {
			remove("large")
			large()
		}
		return err
	})
	remove("large")
	for i := range 8 {
		create(fmt.Sprint("own-", i), "1", corev1.PodSpec{SchedulerName: "tenon-scheduler"})
	}
	waitFor(t, time.Minute, "the node to be closed", closed(8))
	record := filepath.Join(l.dir, "nodes", node, "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
	text := fmt.Sprintf(`{"Data":{"PodDeviceEntries":[{"PodUID":%q,"ContainerName":"main","ResourceName":`+
		`"nvidia.com/gpu","DeviceIDs":{"-1":["%s::0"]},"AllocResp":""}],"RegisteredDevices":{}},"Checksum":0}`,
		foreign.UID, gpus[3])
	err := os.MkdirAll(filepath.Dir(record), 0o755)
	testkit.Check(t, errors.Join(err, os.WriteFile(record, []byte(text), 0o644)))
	waitFor(t, time.Minute, "seven pods to get the other GPUs", func() error {
		held, waits := own()
		if slices.Contains(held, gpus[3]) {
			t.Fatalf("GPU %s is given out, which the kubelet gave to another pod", gpus[3])
		}
		if len(held) != 7 || len(waits) != 1 {
			return fmt.Errorf("GPUs %v are given out; pods wait because %q", held, waits)
		}
		return nil
	})
	remove("foreign")
	waitFor(t, time.Minute, "the last pod to get the GPU that is free now", func() error {
		held, waits := own()
		slices.Sort(held)
		if want := slices.Sorted(slices.Values(gpus)); !slices.Equal(held, want) || len(waits) > 0 {
			return fmt.Errorf("GPUs %v are given out; pods wait because %q", held, waits)
		}
		return nil
	})
	if d, err := device(); err != nil || d.Annotations[annotation.DeviceModeKey] != annotation.DeviceMoving {
		t.Errorf("the mode is %q, %v: it is the annotation's until it is changed",
			d.Annotations[annotation.DeviceModeKey], err)
	}
}
