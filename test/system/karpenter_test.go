package system

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// karpenter is a local cluster of one node to which Karpenter adds nodes without kubelets.
type karpenter struct {
	*release
	log string
}

// newKarpenter starts a cluster and Karpenter. TENON_KARPENTER is Karpenter with its provider kwok,
// TENON_KARPENTER_SOURCES the folder of its module.
func newKarpenter(t *testing.T, args ...string) *karpenter {
	t.Helper()
	program := os.Getenv("TENON_KARPENTER")
	if program == "" {
		t.Skip("NOT RUN: Karpenter adds nodes: TENON_KARPENTER names no program (make test-karpenter)")
	}
	k := &karpenter{release: &release{up(t, 1, append(args, "--machine", "epyc-2s")...)}}
	k.start(t, program, os.Getenv("TENON_KARPENTER_SOURCES"))
	return k
}

// TestKarpenterAddsNodes shows for which pods Karpenter adds nodes: for gangs that lack capacity, and for none that
// wait for a quota, a member or a NUMA node.
func TestKarpenterAddsNodes(t *testing.T) {
	k := newKarpenter(t)
	nodes, err := k.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	testkit.Check(t, err)
	most := nodes.Items[0].Status.Allocatable.Cpu().Value() * 6 / 10 // a node has room for one such pod
	large := object.Both("cpu", fmt.Sprint(most), "memory", "1Gi")
	member := func(gang string) object.PodOption {
		return func(p *corev1.Pod) {
			object.Annotation(annotation.GangName, gang)(p)
			object.Annotation(annotation.GangMinAvailable, "2")(p)
		}
	}

	// It fits the node by its amounts, and none of its NUMA nodes. The other pod can only use a new node.
	k.create(t, pod("numa", object.Class("LSR"), object.PriorityClass("koord-prod"), large,
		object.Annotation(annotation.NUMATopologySpecKey, `{"numaTopologyPolicy":"SingleNUMANode"}`)))
	k.refused(t, "numa")
	selects := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"karpenter.sh/nodepool": "default"} }
	k.create(t, pod("new", object.Both("cpu", "1", "memory", "1Gi"), selects))
	k.bound(t, "new")
	k.asked(t, 1)
	testkit.Check(t, k.client.CoreV1().Pods("default").Delete(t.Context(), "numa", metav1.DeleteOptions{}))

	// Of three gangs, one waits for its quota, one for a member, and one for capacity alone: a member fits the node.
	k.apply(t, metav1.NamespacePublic, "elasticquotas",
		object.Quota("small", object.List("cpu", "1"), object.List("cpu", "4")))
	small := object.Label(annotation.QuotaName, "small")
	k.create(t, pod("quota-0", member("quota"), small, large), pod("quota-1", member("quota"), small, large),
		pod("member-0", member("member"), large))
	for _, name := range []string{"quota-0", "quota-1", "member-0"} {
		k.refused(t, name)
	}
	k.create(t, pod("room-0", member("room"), large), pod("room-1", member("room"), large))
	k.bound(t, "room-0")
	k.bound(t, "room-1")
	k.asked(t, 1+most)

	// The member comes.
	k.create(t, pod("member-1", member("member"), large))
	k.bound(t, "member-0")
	k.bound(t, "member-1")
	k.asked(t, 1+3*most)
	for _, name := range []string{"quota-0", "quota-1"} {
		p, err := k.client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		testkit.Check(t, err)
		if p.Spec.NodeName != "" {
			t.Errorf("%s is beyond its quota and has node %s", name, p.Spec.NodeName)
		}
	}
}

// start installs Karpenter's kinds and a NodePool, and runs Karpenter until the test ends.
func (k *karpenter) start(t *testing.T, program, sources string) {
	t.Helper()
	for _, folder := range []string{"pkg/apis/crds", "kwok/apis/crds"} {
		files, err := filepath.Glob(filepath.Join(sources, folder, "*.yaml"))
		testkit.Check(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			testkit.Check(t, err)
			k.post(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", string(text))
		}
	}
	k.post(t, "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses",
		`{apiVersion: karpenter.kwok.sh/v1alpha1, kind: KWOKNodeClass, metadata: {name: default}}`)
	k.post(t, "/apis/karpenter.sh/v1/nodepools", `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  disruption: {consolidateAfter: Never, consolidationPolicy: WhenEmpty}
  template:
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements:
      - {key: kubernetes.io/os, operator: In, values: [linux]}
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
`)
	k.log = filepath.Join(t.TempDir(), "karpenter.log")
	out, err := os.Create(k.log)
	testkit.Check(t, err)
	cmd := exec.Command(program, "--disable-leader-election=true", "--metrics-port=0", "--health-probe-port=0")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(k.dir, "kubeconfig"), "SYSTEM_NAMESPACE=kube-system")
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	testkit.Check(t, cmd.Start())
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { k.beat(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // it ends by the signal
		_ = out.Close()
	})
}

// post creates an object, once its kind is served.
func (k *karpenter) post(t *testing.T, path, text string) {
	t.Helper()
	body, err := yaml.YAMLToJSON([]byte(text))
	testkit.Check(t, err)
	waitFor(t, time.Minute, "an object at "+path, func() error {
		return k.client.CoreV1().RESTClient().Post().AbsPath(path).Body(body).Do(t.Context()).Error()
	})
}

// beat makes the nodes ready that Karpenter has added, as their kubelets would.
func (k *karpenter) beat(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
		nodes, err := k.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "karpenter.sh/nodepool"})
		if err != nil {
			continue
		}
		patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			LastHeartbeatTime: metav1.Now(),
		}}}})
		if err != nil {
			return
		}
		for i := range nodes.Items { // one that is gone needs no patch
			_, _ = k.client.CoreV1().Nodes().PatchStatus(ctx, nodes.Items[i].Name, patch)
		}
	}
}

// asked checks for how many CPUs of pods Karpenter has asked its provider in all.
func (k *karpenter) asked(t *testing.T, want int64) {
	t.Helper()
	body, err := k.client.CoreV1().RESTClient().Get().AbsPath("/apis/karpenter.sh/v1/nodeclaims").DoRaw(t.Context())
	testkit.Check(t, err)
	var list struct {
		Items []struct {
			Spec struct{ Resources corev1.ResourceRequirements }
		}
	}
	testkit.Check(t, json.Unmarshal(body, &list))
	var sum resource.Quantity
	for i := range list.Items {
		sum.Add(*list.Items[i].Spec.Resources.Requests.Cpu())
	}
	if sum.Value() != want {
		t.Errorf("Karpenter asked for nodes for %d CPUs, want %d: %s\n%s", sum.Value(), want, body, k.tail())
	}
}

// refused waits until a pod has been tried in vain.
func (k *karpenter) refused(t *testing.T, name string) {
	t.Helper()
	waitFor(t, time.Minute, name+" to be tried", func() error {
		p, err := k.client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return nil
			}
		}
		return errors.New("it has no condition")
	})
}

// bound waits until a pod has a node.
func (k *karpenter) bound(t *testing.T, name string) {
	t.Helper()
	var last string
	waitFor(t, 3*time.Minute, name+" to have a node", func() error {
		p, err := k.client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || p.Spec.NodeName != "" {
			return err
		}
		last = fmt.Sprint(p.Status.Conditions, "\n", k.tail())
		return errors.New(last)
	})
}

// tail is the end of Karpenter's log.
func (k *karpenter) tail() string {
	text, err := os.ReadFile(k.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}
