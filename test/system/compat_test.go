package system

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// TestAnotherReleaseOfKubernetes runs Tenon on the kube-apiserver that TENON_APISERVER names, of the minor release
// TENON_MINOR, such as 1.33. Without TENON_APISERVER it is the one that is built in.
func TestAnotherReleaseOfKubernetes(t *testing.T) {
	minor := os.Getenv("TENON_MINOR")
	if minor == "" {
		t.Skip("NOT RUN: other releases of Kubernetes: TENON_MINOR names none (make test-compat)")
	}
	c := &release{up(t, 1, "--machine", "epyc-2s", "--machine", "hgx-h100", "--api-server",
		os.Getenv("TENON_APISERVER"))}
	version, err := c.client.Discovery().ServerVersion()
	testkit.Check(t, err)
	if version.Major+"."+version.Minor != minor {
		t.Fatalf("the API server is %s, want %s", version.GitVersion, minor)
	}
	t.Run("pods of each class", c.places)
	t.Run("a share of a GPU", c.shares)
	t.Run("a gang", c.gathers)
	t.Run("a gang of Kubernetes' own PodGroup", c.gathersNative)
	t.Run("a claim", c.claims)
	t.Run("a claim of a PodGroup", c.sharesAClaim)
	t.Run("a quota", c.limits)
	t.Run("a migration", c.moves)
	t.Run("webhooks", c.refuses)
	t.Run("an agent and the objects of another node", c.keepsNodesApart)
	t.Run("status", c.isWell)
	t.Run("logs", c.logsAreQuiet)
	t.Run("the manifests of the chart", c.installs) // the last: it takes the webhooks away
}

// release is a local cluster on an API server of another release of Kubernetes.
type release struct{ *local }

func (c *release) create(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, p := range pods {
		_, err := c.client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), p, metav1.CreateOptions{})
		testkit.Check(t, err)
	}
}

// running returns a pod once its container runs.
func (c *release) running(t *testing.T, name string) (found *corev1.Pod) {
	t.Helper()
	waitFor(t, 2*time.Minute, name+" to run", func() (err error) {
		found, err = c.client.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && (found.Status.Phase != corev1.PodRunning || len(found.Status.ContainerStatuses) == 0) {
			err = fmt.Errorf("%s %v", found.Status.Phase, found.Status.Conditions)
		}
		return err
	})
	return found
}

// tenon returns what a command prints, and fails with what it says besides.
func (c *release) tenon(t *testing.T, arguments ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), binary(t), arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(c.dir, "kubeconfig"))
	var errs strings.Builder
	command.Stderr = &errs
	text, err := command.Output()
	if err != nil {
		t.Fatalf("tenon %v: %v\n%s%s", arguments, err, text, errs.String())
	}
	return string(text)
}

func (c *release) places(t *testing.T) {
	for class, exclusive := range map[string]bool{"LSE": true, "LSR": true, "LS": false, "BE": false} {
		name := strings.ToLower(class)
		options := []object.PodOption{object.Class(class), object.PriorityClass("koord-prod")}
		if class == "BE" {
			options[1] = object.PriorityClass("koord-batch")
		}
		c.create(t, pod(name, append(options, object.Both("cpu", "2", "memory", "1Gi"))...))
		bound := c.running(t, name)
		got := bound.Annotations[annotation.ResourceStatusKey]
		if strings.Contains(got, `"cpuset"`) != exclusive {
			t.Errorf("%s has %q, want CPUs of its own: %v", name, got, exclusive)
		}
		var answer struct {
			Actual *view.Cgroups `json:"actual"`
		}
		waitFor(t, time.Minute, "the agent's answer about "+name, func() error {
			err := json.Unmarshal([]byte(c.tenon(t, "explain", "pod/"+name, "-o", "json")), &answer)
			if err == nil && answer.Actual == nil {
				err = errors.New("no answer")
			}
			return err
		})
	}
}

func (c *release) shares(t *testing.T) {
	c.create(t, pod("share", object.Both("cpu", "1", "memory", "1Gi", "koordinator.sh/gpu", "50")))
	if p := c.running(t, "share"); !strings.Contains(p.Annotations[annotation.DeviceAllocatedKey], `"gpu"`) {
		t.Errorf("no GPU in %v", p.Annotations)
	}
}

// apply creates an object of the group of quotas and PodGroups.
func (c *release) apply(t *testing.T, namespace, resource string, o metav1.Object) {
	t.Helper()
	o.SetNamespace(namespace)
	body, err := json.Marshal(o)
	testkit.Check(t, err)
	path := "/apis/" + v1alpha1.GroupName + "/v1alpha1/namespaces/" + namespace + "/" + resource
	testkit.Check(t, c.client.CoreV1().RESTClient().Post().AbsPath(path).Body(body).Do(t.Context()).Error())
}

func (c *release) gathers(t *testing.T) {
	c.apply(t, metav1.NamespaceDefault, "podgroups", object.PodGroup("ring", 3))
	member := func(name string) *corev1.Pod {
		return pod(name, object.Label(annotation.PodGroup, "ring"), object.Both("cpu", "1", "memory", "1Gi"))
	}
	c.create(t, member("ring-0"), member("ring-1"))
	waitFor(t, time.Minute, "two members to wait for the third", func() error {
		if text := c.tenon(t, "gang", "ring"); !strings.Contains(text, "Waiting") {
			return errors.New(text)
		}
		return nil
	})
	c.create(t, member("ring-2"))
	for _, name := range []string{"ring-0", "ring-1", "ring-2"} {
		c.running(t, name)
	}
}

// nativeGangs is the version of Kubernetes' own PodGroups that the API server of a local cluster serves, by release.
func nativeGangs() string {
	return map[string]string{"1.36": "v1alpha2", "1.37": "v1beta1"}[os.Getenv("TENON_MINOR")]
}

func (c *release) gathersNative(t *testing.T) {
	version := nativeGangs()
	if version == "" {
		t.Skipf("NOT RUN: a native gang: the API server of %s serves no PodGroups", os.Getenv("TENON_MINOR"))
	}
	kind := schema.GroupVersionKind{Group: v1alpha1.NativeGroupName, Version: version, Kind: "PodGroup"}
	groups := "/apis/" + kind.GroupVersion().String() + "/namespaces/default/podgroups"
	request := func(r *rest.Request, body string) {
		t.Helper()
		testkit.Check(t, r.Body([]byte(body)).Do(t.Context()).Error())
	}
	client := c.client.CoreV1().RESTClient()
	request(client.Post().AbsPath(groups), fmt.Sprintf(`{"apiVersion":%q,"kind":"PodGroup","metadata":{"name":`+
		`"native"},"spec":{"schedulingPolicy":{"gang":{"minCount":3}}}}`, kind.GroupVersion()))
	member := func(name string) *corev1.Pod {
		p := pod(name, object.Both("cpu", "1", "memory", "1Gi"))
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("native")}
		return p
	}
	members := []string{"native-0", "native-1"}
	c.create(t, member("native-0"), member("native-1"))
	waitFor(t, time.Minute, "two members to wait for the third", func() error {
		if text := c.tenon(t, "gang", "native"); !strings.Contains(text, "Waiting") {
			return errors.New(text)
		}
		return nil
	})
	if version == "v1alpha2" { // its minCount cannot be changed
		c.create(t, member("native-2"))
		members = append(members, "native-2")
	} else {
		request(client.Patch(types.MergePatchType).AbsPath(groups+"/native"),
			`{"spec":{"schedulingPolicy":{"gang":{"minCount":2}}}}`)
	}
	for _, name := range members {
		c.running(t, name)
	}
	waitFor(t, time.Minute, "the condition that the gang has started", func() error {
		body, err := client.Get().AbsPath(groups + "/native").DoRaw(t.Context())
		var group struct {
			Status struct{ Conditions []metav1.Condition }
		}
		if err == nil {
			err = json.Unmarshal(body, &group)
		}
		if err == nil && !meta.IsStatusConditionTrue(group.Status.Conditions, v1alpha1.ScheduledCondition(kind)) {
			err = fmt.Errorf("conditions %v", group.Status.Conditions)
		}
		return err
	})
}

// attributes are those of a device.
type attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute

// layDevice gives the first node a device of a class of its own, and makes a template of claims for it, one-CLASS.
func (c *release) layDevice(t *testing.T, class string, about attributes) (node string) {
	t.Helper()
	nodes, err := c.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	testkit.Check(t, err)
	node, devices, driver := nodes.Items[0].Name, c.client.ResourceV1(), class+".example.com"
	_, err = devices.DeviceClasses().Create(t.Context(), &resourcev1.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: class},
		Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{{
			CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", driver)},
		}}},
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
	_, err = devices.ResourceSlices().Create(t.Context(), &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: node + "-" + class},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: driver, NodeName: &node, Devices: []resourcev1.Device{{Name: class + "-0", Attributes: about}},
			Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		},
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
	_, err = devices.ResourceClaimTemplates("default").Create(t.Context(), &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "one-" + class},
		Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{
			Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
				Name: class, Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class},
			}}},
		}},
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
	return node
}

// claims shows that a pod has its exclusive CPUs on the NUMA node of its device, which a later pod gets when it has
// ended.
func (c *release) claims(t *testing.T) {
	if os.Getenv("TENON_MINOR") == "1.33" {
		t.Skip("NOT RUN: ResourceClaims: the API server of 1.33 does not serve resource.k8s.io/v1")
	}
	const at = 3 // of the NUMA nodes 0 to 3
	node := c.layDevice(t, "local", attributes{"resource.kubernetes.io/numaNode": {IntValue: new(int64(at))}})
	for _, name := range []string{"local-0", "local-1"} {
		p := pod(name, object.Class("LSR"), object.PriorityClass("koord-prod"),
			object.Both("cpu", "4", "memory", "1Gi"),
			object.Annotation(annotation.NUMATopologySpecKey, `{"numaTopologyPolicy":"SingleNUMANode"}`))
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "local", ResourceClaimTemplateName: new("one-local")}}
		c.create(t, p)
		got := c.running(t, name)
		status, _, err := annotation.ParseResourceStatus(got.Annotations[annotation.ResourceStatusKey])
		if err != nil || got.Spec.NodeName != node || len(status.NUMANodeResources) != 1 ||
			status.NUMANodeResources[0].Node != at || status.CPUSet == "" {
			t.Errorf("%s is on %s with %+v (%v), want CPUs of NUMA node %d of %s", name, got.Spec.NodeName, status, err,
				at, node)
		}
		text, device := c.tenon(t, "explain", "pod/"+name), "local.example.com/"+node+"/local-0 on numa 3"
		if !strings.Contains(text, device) {
			t.Errorf("explain does not name the device of %s:\n%s", name, text)
		}
		testkit.Check(t, c.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(t.Context(), name,
			*metav1.NewDeleteOptions(0)))
	}
}

// sharesAClaim shows that the pods of a PodGroup of Kubernetes 1.37 share a claim, which is reserved for the PodGroup.
func (c *release) sharesAClaim(t *testing.T) {
	if nativeGangs() != "v1beta1" {
		t.Skipf("NOT RUN: a claim of a PodGroup: the API server of %s keeps none", os.Getenv("TENON_MINOR"))
	}
	node, devices := c.layDevice(t, "card", nil), c.client.ResourceV1()
	_, err := c.client.SchedulingV1beta1().PodGroups("default").Create(t.Context(), &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Name: "sharing"},
		Spec: schedulingv1beta1.PodGroupSpec{
			SchedulingPolicy: schedulingv1beta1.PodGroupSchedulingPolicy{
				Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: 2},
			},
			ResourceClaims: []schedulingv1beta1.PodGroupResourceClaim{{
				Name: "card", ResourceClaimTemplateName: new("one-card"),
			}},
		},
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
	for _, name := range []string{"sharing-0", "sharing-1"} {
		p := pod(name, object.Both("cpu", "1", "memory", "1Gi"))
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("sharing")}
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "card", ResourceClaimTemplateName: new("one-card")}}
		c.create(t, p)
	}
	for _, name := range []string{"sharing-0", "sharing-1"} {
		if got := c.running(t, name).Spec.NodeName; got != node {
			t.Errorf("%s is on %s, want %s", name, got, node)
		}
	}
	all, err := devices.ResourceClaims("default").List(t.Context(), metav1.ListOptions{})
	testkit.Check(t, err)
	all.Items = slices.DeleteFunc(all.Items, func(c resourcev1.ResourceClaim) bool {
		return c.Spec.Devices.Requests[0].Name != "card"
	})
	var users []string
	for i := range all.Items {
		for _, r := range all.Items[i].Status.ReservedFor {
			users = append(users, r.Resource+" "+r.Name)
		}
	}
	if got := strings.Join(users, ", "); len(all.Items) != 1 || got != "podgroups sharing" {
		t.Errorf("%d claims are reserved for %s, want one for the PodGroup", len(all.Items), got)
	}
}

func (c *release) limits(t *testing.T) {
	// A quota counts the pods of its namespace, and those that name it.
	c.apply(t, metav1.NamespacePublic, "elasticquotas",
		object.Quota("team", object.List("cpu", "2"), object.List("cpu", "4")))
	one := func(name string) *corev1.Pod {
		return pod(name, object.Label(annotation.QuotaName, "team"), object.Both("cpu", "3", "memory", "1Gi"))
	}
	c.create(t, one("within"))
	c.running(t, "within")
	c.create(t, one("beyond"))
	waitFor(t, time.Minute, "explain to name the quota", func() error {
		if text := c.tenon(t, "explain", "pod/beyond"); !strings.Contains(text, "quota team") {
			return errors.New(text)
		}
		return nil
	})
}

// moves shows that a PodMigrationJob moves a pod with CPUs of its own to another node, and that its successor has some.
func (c *release) moves(t *testing.T) {
	labels := map[string]string{"app": "db", annotation.QoSClass: "LSR"}
	podSpec := pod("p", object.PriorityClass("koord-prod"), object.Both("cpu", "2", "memory", "1Gi"))
	_, err := c.client.AppsV1().StatefulSets(metav1.NamespaceDefault).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec.Spec},
		},
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
	old := c.running(t, "db-0")
	c.running(t, "db-1") // the budget of unavailable pods has room for db-0
	moved := move(t, c.local, old, func() {}).target
	if moved.Spec.NodeName == old.Spec.NodeName ||
		!strings.Contains(moved.Annotations[annotation.ResourceStatusKey], `"cpuset"`) {
		t.Errorf("from node %s to %s, with %v", old.Spec.NodeName, moved.Spec.NodeName, moved.Annotations)
	}
}

// refuses shows that webhooks refuse a pod of Tenon's schedulers, and are not asked about one of another.
func (c *release) refuses(t *testing.T) {
	pods := c.client.CoreV1().Pods(metav1.NamespaceDefault)
	wrong := pod("wrong", object.Class("XL"), object.Both("cpu", "1"))
	if _, err := pods.Create(t.Context(), wrong, metav1.CreateOptions{}); err == nil ||
		!strings.Contains(err.Error(), "supported LSE, LSR, LS, BE, SYSTEM") {
		t.Errorf("a pod of the class XL: %v", err)
	}
	wrong.Spec.SchedulerName = "another-scheduler"
	got, err := pods.Create(t.Context(), wrong, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil || len(got.Annotations) != 0 {
		t.Errorf("a pod of another scheduler: %v, annotations %v", err, got)
	}
}

// keepsNodesApart shows that the admission policy is in force: the account of an agent may write reports, but none of
// another node.
func (c *release) keepsNodesApart(t *testing.T) {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(c.dir, "pki", "agent-epyc-2s-0.kubeconfig"))
	testkit.Check(t, err)
	agent, err := dynamic.NewForConfig(config)
	testkit.Check(t, err)
	for node, allowed := range map[string]bool{"epyc-2s-0": true, "hgx-h100-0": false} {
		_, err := agent.Resource(v1alpha2.Resource()).Patch(t.Context(), node, "application/merge-patch+json",
			[]byte(`{"metadata":{"labels":{"example.com/seen":"1"}}}`), metav1.PatchOptions{})
		if allowed && err != nil || !allowed && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("the agent of epyc-2s-0 writes the topology of %s: %v, want allowed: %v", node, err, allowed)
		}
	}
}

// installs shows that the API server takes each object of the chart and knows each field of it.
func (c *release) installs(t *testing.T) {
	// Those of the local cluster lead to an address, those of the chart to a Service.
	c.tenon(t, "kubectl", "delete", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "tenon")
	manifests, err := filepath.Abs("../../deploy/manifests")
	testkit.Check(t, err)
	text := c.tenon(t, "kubectl", "apply", "--dry-run=server", "--server-side", "--force-conflicts",
		"--validate=strict", "-k", manifests)
	for _, kind := range []string{
		"customresourcedefinition", "clusterrole", "validatingadmissionpolicy", "validatingwebhookconfiguration",
		"deployment", "daemonset", "networkpolicy", "priorityclass", "poddisruptionbudget",
	} {
		if !strings.Contains(text, "\n"+kind) {
			t.Errorf("no %s in\n%s", kind, text)
		}
	}
}

// isWell shows that tenon status finds no fault, and that the version is said.
func (c *release) isWell(t *testing.T) {
	text := c.tenon(t, "status", "--wait", "2m")
	if !strings.Contains(text, os.Getenv("TENON_MINOR")) {
		t.Errorf("the release is not in\n%s", text)
	}
	if version := nativeGangs(); !strings.Contains(text, "podgroups of scheduling.k8s.io/"+version) && version != "" {
		t.Errorf("no API of native gangs, want %s, in\n%s", version, text)
	}
	t.Log(text)
}

// logsAreQuiet shows that no component asks for a resource that the API server lacks again and again.
func (c *release) logsAreQuiet(t *testing.T) {
	logs, err := filepath.Glob(filepath.Join(c.dir, "log", "*"))
	testkit.Check(t, err)
	for _, log := range logs {
		if strings.Contains(filepath.Base(log), "control-plane") {
			continue
		}
		text, err := os.ReadFile(log)
		testkit.Check(t, err)
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "could not find the requested resource") {
				t.Errorf("%s: %s", filepath.Base(log), line)
				break
			}
		}
	}
}
