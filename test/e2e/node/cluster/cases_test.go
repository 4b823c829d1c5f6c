//go:build linux && e2e_cluster

package fabricated

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// Nodes of single cases, by how their kubelets are set.
const (
	caseStatic = "case-static"
	caseNone   = "case-none"
	caseFollow = "case-follow"
	caseDevice = "case-device"
	caseClaim  = "case-claim"
)

// cases are the nodes of single cases.
func cases() []string { return []string{caseStatic, caseNone, caseFollow, caseDevice, caseClaim} }

// runCases plays what happens to a node beside pods that come and go.
func runCases(t *testing.T, w *world) {
	t.Run(caseStatic, func(t *testing.T) {
		n := newNode(t, w, caseStatic, caseMachine(t, "static,reserved=0-1,full-pcpus-only,restricted"))
		n.populate(t)
		t.Run("kubelet restarted", n.restartsKubelet)
		t.Run("static pod", n.runsStaticPod)
		t.Run("resize of a shared pod", n.resizesShared)
		t.Run("resize of a bound pod", n.refusesResize)
		t.Run("job", n.runsJob)
		t.Run("agent down while a pod ends", n.losesPodWithoutAgent)
	})
	t.Run(caseNone, func(t *testing.T) {
		n := newNode(t, w, caseNone, caseMachine(t, "none"))
		n.populate(t)
		t.Run("kubelet restarted", n.restartsKubelet)
		t.Run("static pod", n.runsStaticPod)
		t.Run("job", n.runsJob)
	})
	t.Run(caseFollow, func(t *testing.T) {
		n := newNode(t, w, caseFollow, caseMachine(t, "static,reserved=0-1,memory-static,restricted,follow"))
		for i, cpu := range []string{"4", "3", "2"} {
			n.create(t, wish{kind: "integer", boxes: []box{{cpu: cpu, memory: "1Gi"}}}.pod(fmt.Sprintf("integer-%d", i),
				n.name))
		}
		n.create(t, wish{kind: "fractional", boxes: []box{{cpu: "1500m", memory: "64Mi"}}}.pod("fractional", n.name))
		n.inOrder(t)
		t.Run("kubelet restarted", n.restartsKubelet)
	})
	t.Run(caseDevice, func(t *testing.T) {
		n := newNode(t, w, caseDevice, caseMachine(t, "none"))
		t.Run("moves in", n.movesIn)
	})
	t.Run(caseClaim, func(t *testing.T) {
		n := newNode(t, w, caseClaim, caseMachine(t, "none"))
		t.Run("the driver of another project", n.usesAnotherDriver)
		t.Run("cards by claims", n.usesClaims)
	})
}

// caseMachine has two sockets of six cores with adjacent threads.
func caseMachine(t *testing.T, settings string) machine.Description {
	t.Helper()
	memory := machineMemory(t)
	parts := topo.Spec{Arch: "amd64", NUMA: []topo.NUMASpec{
		{ID: 0, MemoryBytes: memory / 2 << 10, Distances: []int{10, 32}},
		{ID: 1, MemoryBytes: (memory - memory/2) << 10, Distances: []int{32, 10}},
	}}
	for id := range 24 {
		parts.CPUs = append(parts.CPUs, topo.CPUSpec{
			ID: id, Core: id / 2, L3: id / 12, Socket: id / 12,
			NUMA: id / 12,
		})
	}
	m, err := machine.Of("cases", "AMD EPYC 7513 32-Core Processor", parts, settings)
	testkit.Check(t, err)
	return m
}

// populate fills a node with pods of every class.
func (n *node) populate(t *testing.T) {
	t.Helper()
	for name, w := range map[string]wish{
		"lse":        {kind: "LSE", class: "LSE", boxes: []box{{cpu: "2", memory: "64Mi"}}},
		"lsr":        {kind: "LSR", class: "LSR", boxes: []box{{cpu: "4", memory: "64Mi"}}},
		"ls":         {kind: "LS", class: "LS", boxes: []box{{cpu: "200m", memory: "64Mi", limit: "2"}}},
		"be":         {kind: "BE", class: "BE", boxes: []box{{}}},
		"guaranteed": {kind: "plain, integer", boxes: []box{{cpu: "2", memory: "64Mi"}}},
	} {
		n.create(t, w.pod(name, n.name))
	}
	n.inOrder(t)
}

// inOrder waits until all pods run on the CPUs that they should.
func (n *node) inOrder(t testing.TB) {
	t.Helper()
	for _, d := range append(n.awaitStable(t), n.agree(t)...) {
		t.Error(d)
	}
	for _, p := range n.pods(t) {
		if p.Spec.NodeName == "" {
			t.Errorf("%s found no room", title(&p))
		}
	}
}

// restartsKubelet: under the static policy every running container gets an update, which we answer; nothing else
// changes.
func (n *node) restartsKubelet(t *testing.T) {
	before := n.updates(t)
	restarts := n.restarts(t)
	n.kubelet.Stop(t)
	n.startKubelet(t)
	stage.Await(t, "the restarted kubelet to know its pods", func() error {
		reported, err := n.podResources(t.Context())
		for _, p := range n.pods(t) {
			if _, ok := reported[p.Name]; !ok && err == nil {
				err = fmt.Errorf("PodResources does not have %s", title(&p))
			}
		}
		return err
	})
	n.awaitReady(t)
	if n.config.CPUManagerPolicy == "static" && !n.follow {
		stage.Await(t, "the restarted kubelet's updates", func() error {
			after := n.updates(t)
			for id, count := range before {
				if after[id] <= count {
					return fmt.Errorf("container %.8s has had %d updates, before and after", id, count)
				}
			}
			return nil
		})
	}
	n.inOrder(t)
	if after := n.restarts(t); after != restarts {
		t.Errorf("containers have restarted %d times, %d times before", after, restarts)
	}
}

// updates counts the updates that the runtime got for each container, without sandboxes.
func (n *node) updates(t *testing.T) map[string]int {
	t.Helper()
	var leaves []leaf
	stage.Await(t, "containers that no component changes", func() (err error) {
		leaves, err = n.leaves()
		return err
	})
	count := map[string]int{}
	for _, p := range n.pods(t) {
		for _, s := range p.Status.ContainerStatuses {
			for _, l := range leaves {
				if s.ContainerID != "containerd://"+l.id {
					continue
				}
				count[l.id] = 0
				for _, e := range l.log {
					if e.By == "runc update" {
						count[l.id]++
					}
				}
			}
		}
	}
	return count
}

func (n *node) restarts(t *testing.T) (sum int32) {
	t.Helper()
	for _, p := range n.pods(t) {
		for _, s := range p.Status.ContainerStatuses {
			sum += s.RestartCount
		}
	}
	return sum
}

// runsStaticPod: a pod from the kubelet's own folder, which no scheduler has seen, runs on the shared pool.
func (n *node) runsStaticPod(t *testing.T) {
	p := wish{kind: "static", boxes: []box{{cpu: "100m", memory: "64Mi", limit: "1"}}}.pod("static", n.name)
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	text, err := json.Marshal(p)
	testkit.Check(t, err)
	file := filepath.Join(n.staticPods(), "static.json")
	testkit.Check(t, os.WriteFile(file, text, 0o600))
	mirror := "static-" + n.name
	pods := n.w.client.CoreV1().Pods(metav1.NamespaceDefault)
	stage.Await(t, "the static pod", func() error {
		p, err := pods.Get(t.Context(), mirror, metav1.GetOptions{})
		if err == nil && stateOf(p) != "" {
			err = errors.New(stateOf(p))
		}
		return err
	})
	n.inOrder(t)
	testkit.Check(t, os.Remove(file))
	stage.Await(t, "the static pod to go", func() error {
		_, err := pods.Get(t.Context(), mirror, metav1.GetOptions{})
		return gone(err)
	})
	n.inOrder(t)
}

// resizesShared: CPU and memory of a pod on the shared pool can be changed while it runs.
func (n *node) resizesShared(t *testing.T) {
	testkit.Check(t, n.resize(t.Context(), "ls", "400m", "96Mi", "1", "96Mi"))
	stage.Await(t, "the resize", func() error {
		p, err := n.w.client.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), "ls", metav1.GetOptions{})
		if err != nil {
			return err
		}
		s := p.Status.ContainerStatuses[0]
		if s.Resources == nil || s.Resources.Limits.Cpu().MilliValue() != 1000 ||
			s.Resources.Limits.Memory().Value() != 96<<20 {
			return fmt.Errorf("the kubelet says %+v; %+v", s.Resources, p.Status.Conditions)
		}
		id := strings.TrimPrefix(s.ContainerID, "containerd://")
		return n.hasLimits(path.Join(n.group, "kubepods", "burstable", "pod"+string(p.UID), id))
	})
	n.inOrder(t)
}

// hasLimits: one CPU and 96 MiB are in force for a group.
func (n *node) hasLimits(group string) error {
	want := map[string]string{"cpu.cfs_quota_us": "100000", "memory.limit_in_bytes": fmt.Sprint(96 << 20)}
	if n.w.Cgroups().Unified() {
		want = map[string]string{"cpu.max": "100000 100000", "memory.max": fmt.Sprint(96 << 20)}
	}
	for file, value := range want {
		got, err := n.w.Cgroups().Read(group, file)
		if err != nil {
			return err
		}
		if got != value {
			return fmt.Errorf("%s is %q, want %q", file, got, value)
		}
	}
	return nil
}

// refusesResize: the CPUs of a bound pod were chosen for it; their number cannot be changed while it runs.
func (n *node) refusesResize(t *testing.T) {
	err := n.resize(t.Context(), "lsr", "2", "64Mi", "2", "64Mi")
	if err == nil || !strings.Contains(err.Error(), "cpu of a bound pod cannot be resized") {
		t.Errorf("resize of the CPU of a bound pod: %v, want a refusal that says so", err)
	}
	n.inOrder(t)
}

func (n *node) resize(ctx context.Context, pod, cpu, memory, cpuLimit, memoryLimit string) error {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
		"name": "c0", "resources": map[string]any{
			"requests": map[string]string{"cpu": cpu, "memory": memory},
			"limits":   map[string]string{"cpu": cpuLimit, "memory": memoryLimit},
		},
	}}}})
	if err != nil {
		return err
	}
	_, err = n.w.client.CoreV1().Pods(metav1.NamespaceDefault).Patch(ctx, pod, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "resize")
	return err
}

// runsJob: CPUs of a pod that has ended are shared again, although its object stays.
func (n *node) runsJob(t *testing.T) {
	p := wish{kind: "job, LSE", class: "LSE", boxes: []box{{cpu: "4", memory: "64Mi"}}}.pod("job", n.name)
	p.Spec.Containers[0].Args = []string{once}
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	jobs := n.w.client.BatchV1().Jobs(metav1.NamespaceDefault)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job"}}
	job.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
		Labels:      p.Labels,
		Annotations: p.Annotations,
	}, Spec: p.Spec}
	_, err := jobs.Create(t.Context(), job, metav1.CreateOptions{})
	testkit.Check(t, err)
	stage.Await(t, "the job", func() error {
		job, err := jobs.Get(t.Context(), "job", metav1.GetOptions{})
		if err == nil && job.Status.Succeeded != 1 {
			err = fmt.Errorf("its status is %+v", job.Status)
		}
		return err
	})
	n.inOrder(t)
	foreground := metav1.DeletePropagationForeground
	testkit.Check(t, jobs.Delete(t.Context(), "job", metav1.DeleteOptions{PropagationPolicy: &foreground}))
	stage.Await(t, "the job to go", func() error {
		_, err := jobs.Get(t.Context(), "job", metav1.GetOptions{})
		return gone(err)
	})
}

// losesPodWithoutAgent: CPUs of a pod that ends while no agent runs are shared again when one does. The runtime still
// has the dead sandbox then.
func (n *node) losesPodWithoutAgent(t *testing.T) {
	n.stopAgent()
	pods := n.w.client.CoreV1().Pods(metav1.NamespaceDefault)
	testkit.Check(t, pods.Delete(t.Context(), "lse", metav1.DeleteOptions{}))
	stage.Await(t, "the pod to go", func() error {
		_, err := pods.Get(t.Context(), "lse", metav1.GetOptions{})
		return gone(err)
	})
	n.startAgent(t)
	n.awaitReady(t)
	n.inOrder(t)
}

// gone converts the error of a Get into nil where the object no longer exists.
func gone(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err == nil:
		return errors.New("it is there")
	}
	return err
}
