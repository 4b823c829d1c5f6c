package rights

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/annotation"
	device "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/deploy"
	"github.com/tenon-project/tenon/internal/core/comparison"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/local/install"
	"github.com/tenon-project/tenon/internal/sim/shadow"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
	"github.com/tenon-project/tenon/test/controlplane"
)

// TestShadowBesideKubeScheduler compares 30 pods that kube-scheduler binds, with the role that tenon shadow prints. No
// kubelet runs: a pod that has a node keeps it.
func TestShadowBesideKubeScheduler(t *testing.T) {
	folder := t.TempDir()
	policy, audit := filepath.Join(folder, "policy.yaml"), filepath.Join(folder, "audit.log")
	testkit.Check(t, os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\n"+
		"omitStages: [RequestReceived]\nrules:\n- level: Metadata\n"), 0o600))
	p := controlplane.Start(t, "--audit-policy-file="+policy, "--audit-log-path="+audit)
	c := &cluster{server: p.Server, admin: asUser(t, p.Config)}
	c.equip(t)
	var role rbacv1.ClusterRole
	testkit.Check(t, yaml.UnmarshalStrict([]byte(shadow.Role), &role))
	c.grant(t, "shadow", role.Rules)

	stock := c.child(t, stockKey+"=1")
	testkit.Check(t, stock.Start())
	t.Cleanup(func() {
		_ = stock.Process.Kill()
		_ = stock.Wait()
	})
	verb := c.child(t, verbKey+"=--as shadow --count 30 -o json")
	said, err := verb.StderrPipe()
	testkit.Check(t, err)
	var out bytes.Buffer
	verb.Stdout = &out
	testkit.Check(t, verb.Start())
	wanted := map[string]asks{}
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "Waits for pods") {
			wanted = c.ask(t)
		}
	}
	testkit.Check(t, verb.Wait())
	decoder := json.NewDecoder(&out)
	decoder.DisallowUnknownFields()
	var report view.ShadowReport
	testkit.Check(t, decoder.Decode(&report))
	if report.Compared != 30 || len(report.Pods) != 30 || report.Nodes != 4 || report.Topologies != 4 ||
		report.Inventories != 1 || len(report.Skipped) > 0 || report.Until.Before(report.Since) {
		t.Errorf("the report is not complete: %+v", report)
	}
	outcomes, rejects := 0, 0
	for _, n := range report.Summary.Outcomes {
		outcomes += n
	}
	for i := range report.Pods {
		got := &report.Pods[i]
		now, err := c.admin.typed.CoreV1().Pods("default").Get(t.Context(), strings.TrimPrefix(got.Pod, "default/"),
			metav1.GetOptions{})
		testkit.Check(t, err)
		if problem := wanted[now.Name].check(now, got); problem != "" {
			t.Errorf("%s: %s\n%+v\n%+v", got.Pod, problem, got, got.Tenon)
		}
		if got.Bound.Kubelet != nil {
			rejects++
		}
	}
	if outcomes != 30 || rejects != 2 || report.Summary.KubeletRefusals != rejects {
		t.Errorf("%d outcomes, %d pods that a kubelet would reject: %+v", outcomes, rejects, report.Summary)
	}
	c.refuses(t)
	text, err := os.ReadFile(audit)
	testkit.Check(t, err)
	reads := 0
	for line := range bytes.Lines(text) {
		var e struct {
			Verb, RequestURI, UserAgent string
			ImpersonatedUser            *struct{ Username string }
		}
		if json.Unmarshal(line, &e) != nil || e.ImpersonatedUser == nil || e.UserAgent != "tenon-shadow" {
			continue
		}
		if reads++; !slices.Contains([]string{"get", "list", "watch"}, e.Verb) {
			t.Errorf("the verb has sent %s %s", e.Verb, e.RequestURI)
		}
	}
	if reads == 0 {
		t.Error("no request of the verb was seen")
	}
}

// equip makes four nodes with topologies: two plain ones, one with GPUs, and one whose kubelet gives no pod CPUs of
// more than one NUMA node.
func (c *cluster) equip(t *testing.T) {
	t.Helper()
	applier, err := install.NewApplier(c.admin.config)
	testkit.Check(t, err)
	crds, err := install.Parse(deploy.CRDs()...)
	testkit.Check(t, err)
	testkit.Check(t, applier.Apply(t.Context(), crds))
	testkit.Check(t, applier.AwaitEstablished(t.Context(), crds))
	for _, name := range []string{"plain-0", "plain-1", "gpu", "kubelet"} {
		amounts := []string{"cpu", "32", "memory", "64Gi", "pods", "110"}
		annotations, labels := map[string]string{}, map[string]string{corev1.LabelHostname: name, "pool": "main"}
		switch name {
		case "gpu":
			amounts = append(amounts, "koordinator.sh/gpu-core", "800", "koordinator.sh/gpu-memory-ratio", "800")
			var devices []any
			for i := range int64(8) {
				devices = append(devices, map[string]any{
					"type": "gpu", "id": fmt.Sprintf("GPU-%d", i), "minor": i, "health": true,
					"resources": map[string]any{
						"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100",
						"koordinator.sh/gpu-memory": "8Gi",
					},
					"topology": map[string]any{"socketID": i / 4, "nodeID": i / 2},
				})
			}
			c.put(t, device.Resource(), "Device", map[string]any{
				"metadata": map[string]any{
					"name": name, "annotations": map[string]any{annotation.DeviceModeKey: "Own"},
				},
				"spec": map[string]any{"devices": devices},
			})
		case "kubelet":
			delete(labels, "pool")
			annotations[annotation.KubeletKey] = `{"version":"v1.36.3","cpu":{"policy":"static","reserved":"0"},` +
				`"topology":{"policy":"single-numa-node"}}`
		}
		node := testobject.Node(name, labels, amounts...)
		status := node.Status
		made, err := c.admin.typed.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
		testkit.Check(t, err)
		made.Status = status
		made.Status.NodeInfo.KubeletVersion = "v1.36.3"
		_, err = c.admin.typed.CoreV1().Nodes().UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
		testkit.Check(t, err)
		text, err := json.Marshal(testobject.Topology(name, grid.Worked().Build(t), annotations))
		testkit.Check(t, err)
		var fields map[string]any
		testkit.Check(t, json.Unmarshal(text, &fields))
		fields["zones"] = []any{}
		c.put(t, v1alpha2.Resource(), "NodeResourceTopology", fields)
	}
}

// put makes an object from its fields.
func (c *cluster) put(t *testing.T, version schema.GroupVersionResource, kind string, fields map[string]any) {
	t.Helper()
	o := &unstructured.Unstructured{Object: fields}
	o.SetAPIVersion(version.GroupVersion().String())
	o.SetKind(kind)
	_, err := c.admin.objects.Resource(version).Create(t.Context(), o, metav1.CreateOptions{})
	testkit.Check(t, err)
}

// asks is what a pod asks for, and whether the kubelet of its node would reject it.
type asks struct {
	cpus, gpus int
	rejected   bool
}

// ask creates 30 pods, and returns what each asks for.
func (c *cluster) ask(t *testing.T) map[string]asks {
	t.Helper()
	_, err := c.admin.typed.CoreV1().ServiceAccounts("default").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	all := map[string]asks{}
	create := func(name string, a asks, selector map[string]string, options ...testobject.PodOption) {
		pod := testobject.Pod("default/"+name, append([]testobject.PodOption{
			testobject.Container("c", "x"), testobject.Scheduler(corev1.DefaultSchedulerName),
		}, options...)...)
		pod.UID, pod.Spec.AutomountServiceAccountToken, pod.Spec.NodeSelector = "", new(bool), selector
		pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} // no node is ready
		_, err := c.admin.typed.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
		testkit.Check(t, err)
		all[name] = a
	}
	main := map[string]string{"pool": "main"}
	for i := range 2 {
		create(fmt.Sprintf("wide-%d", i), asks{rejected: true}, map[string]string{corev1.LabelHostname: "kubelet"},
			testobject.Both("cpu", "12", "memory", "1Gi"))
	}
	for i := range 8 {
		create(fmt.Sprintf("exclusive-%d", i), asks{cpus: 4}, main, testobject.Class("LSR"),
			testobject.Both("cpu", "4", "memory", "1Gi"))
		create(fmt.Sprintf("gpu-%d", i), asks{gpus: 1}, main, testobject.Both("cpu", "2", "memory", "1Gi",
			"koordinator.sh/gpu-core", "100", "koordinator.sh/gpu-memory-ratio", "100"))
	}
	for i := range 12 {
		create(fmt.Sprintf("plain-%d", i), asks{}, main, testobject.Requests("cpu", "500m"))
	}
	return all
}

// check returns what is wrong with the comparison of a pod, "" for nothing.
func (a asks) check(now *corev1.Pod, got *view.ShadowPod) string {
	has := func(n *view.ShadowNode) bool {
		cpus, err := cpuset.Parse(n.CPUSet)
		return err == nil && cpus.Len() == a.cpus && len(n.Devices["gpu"]) == a.gpus &&
			n.Score != nil == (got.Feasible > 1)
	}
	switch {
	case got.UID != string(now.UID) || got.Scheduler != corev1.DefaultSchedulerName || got.Nodes != 4 ||
		got.Bound.Node != now.Spec.NodeName || got.BoundAt.IsZero():
		return "a field is missing or wrong"
	case a.rejected && (got.Outcome != comparison.Nowhere || got.RootCause == nil || len(got.Bound.Refusals) == 0 ||
		got.Bound.Kubelet == nil || got.Bound.Kubelet.Code != why.KubeletTopologyAffinity):
		return "want a pod that the kubelet would reject"
	case a.rejected:
		return ""
	case a.gpus > 0 && got.Outcome != comparison.Same:
		return "there is one node with GPUs"
	case !slices.Contains([]comparison.Outcome{comparison.Same, comparison.Equal, comparison.Better}, got.Outcome):
		return "the node has room"
	case !has(&got.Bound) || !has(got.Tenon):
		return "CPUs, GPUs or a score are missing"
	case (got.Tenon.Node == got.Bound.Node) != (got.Outcome == comparison.Same):
		return "the outcome contradicts the nodes"
	}
	return ""
}

// refuses: the API server allows the account of the verb no write, with any client.
func (c *cluster) refuses(t *testing.T) {
	t.Helper()
	config := rest.CopyConfig(c.admin.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "shadow"}
	writer := asUser(t, config)
	pods, name := writer.typed.CoreV1().Pods("default"), "plain-0"
	_, created := pods.Create(t.Context(), testobject.Pod("default/new", testobject.Container("c", "x")),
		metav1.CreateOptions{})
	_, patched := pods.Patch(t.Context(), name, types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
	for verb, err := range map[string]error{
		"create": created, "patch": patched, "delete": pods.Delete(t.Context(), name, metav1.DeleteOptions{}),
		"bind": pods.Bind(t.Context(), &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Target: corev1.ObjectReference{Kind: "Node", Name: "plain-0"},
		}, metav1.CreateOptions{}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s a pod: %v, want Forbidden", verb, err)
		}
	}
}
