package system

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// TestDevicesHoldWhileSchedulersDie lets pods with shares of GPUs and whole ones pass over nodes, faster than these
// can take them, and kills the leading scheduler again and again. No change of a pod shows a GPU of which more than all
// is given, containers get the GPUs that their pods were given and no others, and the account of the last scheduler,
// which was rebuilt from the API, has nothing left when no pod is.
func TestDevicesHoldWhileSchedulersDie(t *testing.T) {
	row, nodes := size(60, 100), size(4, 10) // pods before each kill; nodes of each kind
	l := watchGangs(t, up(t, 2, "--machine", fmt.Sprintf("hgx-h100=%d", nodes), "--machine",
		fmt.Sprintf("t4-2=%d", nodes)))
	compared := 0
	for kill := range kills() {
		for i := range row {
			l.submit(t, withGPUs(kill*row+i))
		}
		compared += l.compareInjected(t)
		l.killLeader(t)
	}
	waitFor(t, 6*time.Minute, "all pods to end", func() error {
		compared += l.compareInjected(t)
		left := 0
		pods, err := l.client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range pods.Items {
			if p := &pods.Items[i]; p.Status.Phase != corev1.PodSucceeded {
				left++
			}
		}
		if left > 0 {
			return fmt.Errorf("%d pods have not", left)
		}
		return nil
	})
	waitFor(t, time.Minute, "the account to be empty", l.devicesAreFree)
	l.seen.mu.Lock()
	defer l.seen.mu.Unlock()
	for _, fault := range l.seen.faults {
		t.Error(fault)
	}
	if compared == 0 {
		t.Error("no container was compared")
	}
	t.Logf("%d changes of pods judged, %d containers compared, %d schedulers killed", l.seen.events, compared,
		kills())
}

// withGPUs returns a pod that ends after two seconds: most with shares of one GPU, some with several whole ones.
func withGPUs(i int) *corev1.Pod {
	percent := []int64{20, 30, 50, 50, 70, 100, 40, 60, 200, 400}[i%10]
	p := pod(fmt.Sprintf("gpu-%04d", i), object.Annotation(annotation.SimulateKey, `{"runFor":"2s"}`),
		object.Both("koordinator.sh/gpu", fmt.Sprint(percent)))
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	return p
}

// compareInjected compares what containers that run were given with what their pods were, and returns how many.
func (l *gangLoad) compareInjected(t *testing.T) (compared int) {
	t.Helper()
	pods, err := l.client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	testkit.Check(t, err)
	for i := range pods.Items {
		p := &pods.Items[i]
		if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Running == nil {
			continue
		}
		id := strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "tenon://")
		text, err := os.ReadFile(filepath.Join(l.dir, "nodes", p.Spec.NodeName, "containers", id+".json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has ended meanwhile
		}
		var given struct{ Env map[string]string }
		var allocated struct{ GPU []struct{ ID string } }
		if err := errors.Join(err, json.Unmarshal(text, &given),
			json.Unmarshal([]byte(p.Annotations[annotation.DeviceAllocatedKey]), &allocated)); err != nil {
			t.Errorf("devices of %s: %v", p.Name, err)
			continue
		}
		var want []string
		for _, d := range allocated.GPU {
			want = append(want, d.ID)
		}
		got := strings.Split(given.Env["NVIDIA_VISIBLE_DEVICES"], ",")
		slices.Sort(got)
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("the container of %s sees %v, its pod was given %v", p.Name, got, want)
		}
		compared++
	}
	return compared
}

// devicesAreFree asks the leading scheduler what pods hold.
func (l *gangLoad) devicesAreFree() error {
	var nodes map[string]struct {
		DeviceUsed  map[string]resource.Quantity
		DeviceTotal map[string]resource.Quantity
	}
	if err := l.ask("plugins/DeviceShare/nodeDeviceSummaries", &nodes); err != nil {
		return err
	}
	if len(nodes) != len(l.seen.cpus) {
		return fmt.Errorf("%d nodes have devices, want %d", len(nodes), len(l.seen.cpus))
	}
	for name, n := range nodes {
		if total := n.DeviceTotal["koordinator.sh/gpu-core"]; total.IsZero() {
			return fmt.Errorf("node %s has no GPUs", name)
		}
		for r, used := range n.DeviceUsed {
			if !used.IsZero() {
				return fmt.Errorf("on node %s %s of %s is used", name, used.String(), r)
			}
		}
	}
	return nil
}
