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

const gpuPrefix = "gpu-"

// gpuLoad makes pods with GPUs, and compares what they were given with what their containers got.
type gpuLoad struct {
	*gangLoad
	nodes          int // that have GPUs
	made, compared int // pods; containers
}

func (l *gpuLoad) create(t *testing.T, n int) {
	t.Helper()
	for range n {
		l.submit(t, withGPUs(l.made))
		l.made++
	}
}

// end waits until all pods with GPUs have ended: then the account of the last scheduler, which was rebuilt from the
// API, has no GPU in use.
func (l *gpuLoad) end(t *testing.T) {
	t.Helper()
	waitFor(t, 6*time.Minute, "all pods with GPUs to end", func() error {
		l.compareInjected(t)
		ended := 0
		pods, err := l.client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range pods.Items {
			if p := &pods.Items[i]; p.Status.Phase == corev1.PodSucceeded {
				ended++
			}
		}
		if ended != l.made {
			return fmt.Errorf("%d of %d pods have", ended, l.made)
		}
		return nil
	})
	waitFor(t, time.Minute, "the account to be empty", l.devicesAreFree)
	l.seen.mu.Lock()
	defer l.seen.mu.Unlock()
	for _, fault := range l.seen.faults {
		t.Error(fault)
	}
	if l.compared == 0 {
		t.Error("no container was compared")
	}
	t.Logf("%d changes of pods judged, %d pods with GPUs, %d of their containers compared", l.seen.events, l.made,
		l.compared)
}

// withGPUs returns a pod that ends after two seconds: most with shares of one GPU, some with several whole ones.
func withGPUs(i int) *corev1.Pod {
	percent := []int64{20, 30, 50, 50, 70, 100, 40, 60, 200, 400}[i%10]
	p := pod(fmt.Sprintf(gpuPrefix+"%04d", i), object.Annotation(annotation.SimulateKey, `{"runFor":"2s"}`),
		object.Both("koordinator.sh/gpu", fmt.Sprint(percent)))
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	return p
}

// compareInjected compares what containers that run were given with what their pods were.
func (l *gpuLoad) compareInjected(t *testing.T) {
	t.Helper()
	pods, err := l.client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	testkit.Check(t, err)
	for i := range pods.Items {
		p := &pods.Items[i]
		if !strings.HasPrefix(p.Name, gpuPrefix) || len(p.Status.ContainerStatuses) == 0 ||
			p.Status.ContainerStatuses[0].State.Running == nil {
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
		l.compared++
	}
}

// devicesAreFree asks the leading scheduler what pods hold.
func (l *gpuLoad) devicesAreFree() error {
	var nodes map[string]struct {
		DeviceUsed  map[string]resource.Quantity
		DeviceTotal map[string]resource.Quantity
	}
	if err := l.ask("plugins/DeviceShare/nodeDeviceSummaries", &nodes); err != nil {
		return err
	}
	if len(nodes) != l.nodes {
		return fmt.Errorf("%d nodes have devices, want %d", len(nodes), l.nodes)
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
