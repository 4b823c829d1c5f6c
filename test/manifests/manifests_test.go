package manifests

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/deploy"
	agent "github.com/tenon-project/tenon/internal/agent/command"
	manager "github.com/tenon-project/tenon/internal/control/app"
	component "github.com/tenon-project/tenon/internal/control/serving"
	descheduler "github.com/tenon-project/tenon/internal/desched/app"
	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/install"
	"github.com/tenon-project/tenon/internal/local/pki"
	scheduler "github.com/tenon-project/tenon/internal/sched/app"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/test/controlplane"
)

// patience bounds a wait for something that takes a moment; it is long because machines may be slow.
const patience = 2 * time.Minute

// cluster is an API server with all of deploy in it, and a manager that answers the webhooks.
type cluster struct {
	client  kubernetes.Interface
	config  *rest.Config
	applier *install.Applier
	metrics string // the address of the manager's
}

// TestDeploy starts one API server, because a process can have only one, and asks everything of it.
func TestDeploy(t *testing.T) {
	c := start(t)
	t.Run("the DaemonSet is taken as it is", c.daemonSet)
	t.Run("scheduler and manager are taken as they are", c.workloads)
	t.Run("pods that will hold CPUs require the agent", c.fence)
	t.Run("CPUs of a bound pod are not resized", c.resize)
	t.Run("elastic quotas keep the rules of their tree", c.quotas)
	t.Run("the manager has the rights that its controllers need", c.controllers)
	t.Run("the manifests of the documentation are accepted", c.pages)
	t.Run("a profile makes batch pods, also beside a LimitRange", c.colocation)
	t.Run("the manifests of operators are taken as simulate takes them", c.operators)
	t.Run("pods of other schedulers are left alone", c.foreign) // the last: it takes the webhooks away
}

func start(t *testing.T) *cluster {
	t.Helper()
	p := controlplane.Start(t)
	client, err := kubernetes.NewForConfig(p.Config)
	testkit.Check(t, err)
	applier, err := install.NewApplier(p.Config)
	testkit.Check(t, err)
	c := &cluster{client, p.Config, applier, freeAddress(t)}
	for _, docs := range [][][]byte{deploy.CRDs(), deploy.RBAC(), deploy.PriorityClasses()} {
		objects, err := install.Parse(docs...)
		testkit.Check(t, err)
		testkit.Check(t, applier.Apply(t.Context(), objects))
	}
	serving, err := p.Authority.Issue("webhooks", pki.Subject{User: "webhooks", Hosts: []string{"127.0.0.1"}})
	testkit.Check(t, err)
	testkit.Check(t, p.Ports.Release(datadir.Webhooks))
	testkit.Check(t, p.Ports.Release(datadir.ManagerHealth))
	quotas := manager.DefaultQuotaOptions()
	quotas.Revoke.Delay, quotas.Revoke.Interval = time.Second, 100*time.Millisecond
	c.answer(t, manager.Options{
		Component: component.Component{
			RESTConfig: c.managerConfig(t), LeaderElectNamespace: "tenon-system",
			HealthAddress: p.Ports.Address(datadir.ManagerHealth),
		},
		MetricsAddress: c.metrics, Quotas: quotas, CertFile: serving.CertFile, KeyFile: serving.KeyFile,
		RequireNRIPlugin: true, WebhookAddress: p.Ports.Address(datadir.Webhooks),
		PublishDevices: true, SLOConfigNamespace: "tenon-system",
	})
	objects, err := install.Parse(deploy.Webhooks("default-scheduler", "tenon-scheduler")...)
	testkit.Check(t, err)
	testkit.Check(t,
		install.PointWebhooks(objects, "https://"+p.Ports.Address(datadir.Webhooks), p.Authority.Certificate()))
	testkit.Check(t, applier.Apply(t.Context(), objects))
	node, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0"}},
		metav1.CreateOptions{})
	testkit.Check(t, err)
	node.Status.Allocatable = object.List("cpu", "64", "memory", "256Gi", "pods", "110")
	node.Status.Capacity = node.Status.Allocatable
	_, err = client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
	testkit.Check(t, err)
	_, err = client.CoreV1().ServiceAccounts("default").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	testkit.Check(t, err)
	return c
}

// colocation creates pods in a namespace whose LimitRange adds limits: batch pods have none of CPU and memory.
func (c *cluster) colocation(t *testing.T) {
	for _, text := range []string{
		`{apiVersion: v1, kind: Namespace, metadata: {name: data, labels: {team: data}}}`,
		`{apiVersion: v1, kind: ServiceAccount, metadata: {namespace: data, name: default}}`,
		`{apiVersion: v1, kind: LimitRange, metadata: {namespace: data, name: limits}, spec: {limits: [{type: Container,
  default: {cpu: "1", memory: 1Gi}, defaultRequest: {cpu: 250m, memory: 512Mi}}]}}`,
		`{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: sandbox}, handler: sandbox,
  overhead: {podFixed: {cpu: 100m, memory: 64Mi}}}`,
		`{apiVersion: config.koordinator.sh/v1alpha1, kind: ClusterColocationProfile, metadata: {name: spark}, spec: {
  namespaceSelector: {matchLabels: {team: data}}, selector: {matchLabels: {app: spark}}, qosClass: BE,
  priorityClassName: koord-batch, koordinatorPriority: 10,
  patch: {spec: {tolerations: [{key: batch, operator: Exists}]}}}}`,
	} {
		objects, err := install.Parse([]byte(text))
		testkit.Check(t, err)
		testkit.Check(t, c.applier.Apply(t.Context(), objects))
	}
	pods := c.client.CoreV1().Pods("data")
	var got *corev1.Pod
	for deadline := time.Now().Add(time.Minute); ; { // the manager learns of the profile by a watch
		pod := object.Pod("spark", object.Scheduler("tenon-scheduler"), object.Label("app", "spark"),
			object.Requests("cpu", "500m"))
		pod.Namespace, pod.UID = "data", ""
		var err error
		got, err = pods.Create(t.Context(), pod, metav1.CreateOptions{})
		testkit.Check(t, err)
		if got.Labels["koordinator.sh/qosClass"] == "BE" || time.Now().After(deadline) {
			break
		}
		testkit.Check(t, pods.Delete(t.Context(), "spark", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
		time.Sleep(50 * time.Millisecond)
	}
	if diff := cmp.Diff(corev1.ResourceRequirements{
		Requests: object.List("kubernetes.io/batch-cpu", "500", "kubernetes.io/batch-memory", "512Mi"),
		Limits:   object.List("kubernetes.io/batch-cpu", "1k", "kubernetes.io/batch-memory", "1Gi"),
	}, got.Spec.Containers[0].Resources); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	if *got.Spec.Priority != 5000 || got.Labels["koordinator.sh/priority"] != "10" ||
		got.Status.QOSClass != corev1.PodQOSBestEffort {
		t.Errorf("priority %d, labels %v, QoS %s", *got.Spec.Priority, got.Labels, got.Status.QOSClass)
	}
	sandboxed := object.Pod("sandboxed", object.Scheduler("tenon-scheduler"), object.Label("app", "spark"),
		object.Requests("cpu", "500m"), func(p *corev1.Pod) { p.Spec.RuntimeClassName = new("sandbox") })
	sandboxed.Namespace, sandboxed.UID = "data", ""
	got, err := pods.Create(t.Context(), sandboxed, metav1.CreateOptions{})
	testkit.Check(t, err)
	if diff := cmp.Diff(object.List("cpu", "100m", "memory", "64Mi"), got.Spec.Overhead); diff != "" {
		t.Errorf("overhead of a sandbox (-want +got):\n%s", diff)
	}
	if q := got.Spec.Containers[0].Resources.Requests["kubernetes.io/batch-cpu"]; q.Value() != 500 {
		t.Errorf("a batch pod in a sandbox requests %+v", got.Spec.Containers[0].Resources.Requests)
	}
	bad, err := install.Parse([]byte(`{apiVersion: config.koordinator.sh/v1alpha1, kind: ClusterColocationProfile,
  metadata: {name: bad}, spec: {selector: {matchExpressions: [{key: a, operator: Like}]}}}`))
	testkit.Check(t, err)
	for deadline := time.Now().Add(time.Minute); ; { // profiles do not wait for a manager that is slow
		err = c.applier.Apply(t.Context(), bad)
		if err != nil || time.Now().After(deadline) {
			break
		}
		bad[0].SetName(bad[0].GetName() + "x")
	}
	if err == nil || !strings.Contains(err.Error(), "spec.selector") {
		t.Errorf("a profile with a bad selector: %v", err)
	}
}

// answer runs a manager until the test ends.
func (c *cluster) answer(t *testing.T, o manager.Options) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- manager.Run(ctx, o) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("manager: %v", err)
		}
	})
	testkit.Check(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.HealthAddress+"/readyz",
				http.NoBody)
			if err != nil {
				return false, err
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return false, nil //nolint:nilerr // it does not listen yet
			}
			return response.StatusCode == http.StatusOK, response.Body.Close()
		}))
}

func (c *cluster) daemonSet(t *testing.T) {
	var ds appsv1.DaemonSet
	testkit.Check(t, yaml.UnmarshalStrict(deploy.Agent()[0], &ds))
	created, err := c.client.AppsV1().DaemonSets(ds.Namespace).Create(t.Context(), &ds, metav1.CreateOptions{
		DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict,
	})
	testkit.Check(t, err)
	spec := created.Spec.Template.Spec
	if _, err := c.client.CoreV1().ServiceAccounts(ds.Namespace).Get(t.Context(), spec.ServiceAccountName,
		metav1.GetOptions{}); err != nil {
		t.Errorf("its service account: %v", err)
	}
	pod := &corev1.Pod{ObjectMeta: *created.Spec.Template.ObjectMeta.DeepCopy(), Spec: *spec.DeepCopy()}
	pod.Name, pod.Namespace = "tenon-agent-x", ds.Namespace
	if _, err := c.client.CoreV1().Pods(ds.Namespace).Create(t.Context(), pod,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("its pod: %v", err)
	}
	container := spec.Containers[0]
	if s := container.SecurityContext; s.Privileged != nil && *s.Privileged || !*s.ReadOnlyRootFilesystem ||
		*s.AllowPrivilegeEscalation ||
		!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 {
		t.Errorf("the agent has more rights than it needs: %+v", s)
	}
	writable := []string{}
	for _, m := range container.VolumeMounts {
		if !m.ReadOnly {
			writable = append(writable, m.MountPath)
		}
	}
	if diff := cmp.Diff([]string{
		"/host/sys/fs/cgroup", "/host/var/lib/kubelet/device-plugins", "/host/run/cdi", "/host/var/lib/tenon-agent",
		"/var/run/nri", "/run/tenon",
	}, writable); diff != "" {
		t.Errorf("folders that the agent may write (-want +got):\n%s", diff)
	}
	flags(t, container)
	recipe := exec.CommandContext(t.Context(), "bash", "../../hack/release.sh", "name", "tenon-agent")
	recipe.Env = append(recipe.Environ(), "VERSION=devel") // as between releases
	name, err := recipe.Output()
	testkit.Check(t, err)
	if got := strings.TrimSpace(string(name)); got != container.Image {
		t.Errorf("the recipe builds %s, the container runs %s", got, container.Image)
	}
}

// workloads checks that the API server takes everything that belongs to the Deployments, and that the programs know
// every argument and serve the ports.
func (c *cluster) workloads(t *testing.T) {
	objects, err := install.Parse(deploy.Workloads()...)
	testkit.Check(t, err)
	testkit.Check(t, c.applier.Apply(t.Context(), objects))
	for name, command := range map[string]*cobra.Command{
		"tenon-scheduler": scheduler.NewCommand(), "tenon-manager": manager.NewCommand(),
		"tenon-descheduler": descheduler.NewCommand(),
	} {
		d, err := c.client.AppsV1().Deployments("tenon-system").Get(t.Context(), name, metav1.GetOptions{})
		testkit.Check(t, err)
		container := d.Spec.Template.Spec.Containers[0]
		if container.Command[0] != "/"+name {
			t.Errorf("%s starts %v", name, container.Command)
		}
		if err := command.ParseFlags(container.Args); err != nil {
			t.Errorf("arguments of %s: %v", name, err)
		}
		for _, port := range container.Ports {
			flag := command.Flags().Lookup(map[string]string{
				"https": "secure-port", "webhooks": "webhook-address", "metrics": "metrics-address",
				"serving": "serving-address",
				"health":  "health-address",
			}[port.Name])
			if flag == nil || strings.TrimPrefix(flag.Value.String(), ":") != strconv.Itoa(int(port.ContainerPort)) {
				t.Errorf("%s: port %s is %d, the program serves %v", name, port.Name, port.ContainerPort, flag)
			}
		}
	}
}

// flags checks that the agent knows every argument.
func flags(t *testing.T, container corev1.Container) {
	t.Helper()
	command, rest, err := agent.New(nil).Find(container.Args)
	testkit.Check(t, err)
	if command.Name() != "run" || container.Command[0] != "/tenon-agent" {
		t.Fatalf("the container starts %v %v", container.Command, container.Args)
	}
	if err := command.ParseFlags(rest); err != nil {
		t.Errorf("arguments %v: %v", rest, err)
	}
	root, err := command.Flags().GetString("root")
	testkit.Check(t, err)
	mounts := map[string]bool{}
	for _, m := range container.VolumeMounts {
		mounts[m.MountPath] = true
	}
	for _, need := range []string{"sys", "proc", "sys/fs/cgroup", "var/lib/kubelet", "var/lib/tenon-agent"} {
		if !mounts[filepath.Join(root, need)] {
			t.Errorf("nothing of the host is mounted at %s", filepath.Join(root, need))
		}
	}
	for _, flag := range []string{"nri-socket", "hook-socket"} {
		socket, err := command.Flags().GetString(flag)
		testkit.Check(t, err)
		if !mounts[filepath.Dir(socket)] {
			t.Errorf("--%s=%s: its folder is not mounted", flag, socket)
		}
	}
	if health, err := command.Flags().GetString("health-address"); err != nil ||
		!strings.HasSuffix(health, container.LivenessProbe.HTTPGet.Port.String()) ||
		!strings.HasPrefix(health, container.LivenessProbe.HTTPGet.Host+":") {
		t.Errorf("the probes ask %+v, the agent serves %s", container.LivenessProbe.HTTPGet, health)
	}
}

// pod is a pod of one container with whole CPUs.
func pod(name, class, cpus string) *corev1.Pod {
	p := object.Pod(name, object.Class(class), object.Container("app", "x"), object.Both("cpu", cpus, "memory", "1Gi"))
	p.Spec.AutomountServiceAccountToken = new(bool)
	p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{
		{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.NotRequired},
	}
	return p
}

func (c *cluster) fence(t *testing.T) {
	pods := c.client.CoreV1().Pods("default")
	for class, want := range map[string]string{"LSE": `["tenon-agent"]`, "LS": ""} {
		got, err := pods.Create(t.Context(), pod("fence-"+strings.ToLower(class), class, "2"), metav1.CreateOptions{})
		testkit.Check(t, err)
		if got.Annotations[annotation.RequiredPlugins] != want {
			t.Errorf("%s pod: %s is %q, want %q", class, annotation.RequiredPlugins,
				got.Annotations[annotation.RequiredPlugins], want)
		}
	}
	torn := pod("torn", "LSE", "2")
	torn.Annotations = map[string]string{annotation.RequiredPlugins: "tenon-agent"}
	if _, err := pods.Create(t.Context(), torn, metav1.CreateOptions{}); !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), "must be a list of NRI plugin names") {
		t.Errorf("a list that is none: %v, want invalid with the rule", err)
	}
}

// foreign creates pods of three other schedulers with every key that Tenon knows, while the manager answers and, last,
// while it does not.
func (c *cluster) foreign(t *testing.T) {
	schedulers := []string{"volcano", "yunikorn", "my-own-scheduler"}
	create := func(name, scheduler string, seed int) (sent, got *corev1.Pod, err error) {
		p := pod(name, "", "2")
		p.Labels, p.Annotations, p.Spec.SchedulerName = map[string]string{}, map[string]string{}, scheduler
		for i, s := range annotation.Supports() {
			for j, key := range s.Keys {
				key = strings.ReplaceAll(key, "*", "x")
				switch {
				case seed > 2 && (i+j+seed)%3 == 0: // the first pod of each scheduler has all keys
				case s.Place == annotation.PodLabel:
					p.Labels[key] = []string{"LSE", "BE", "teams", "5500"}[(seed+i)%4]
				case s.Place == annotation.PodAnnotation:
					p.Annotations[key] = []string{"{", "restricted", "{}", `{"cpuset":"0-3"}`}[(seed+j)%4]
				}
			}
		}
		requests := p.Spec.Containers[0].Resources.Requests
		limits := p.Spec.Containers[0].Resources.Limits
		switch seed % 4 {
		case 0:
			limits[corev1.ResourceCPU] = resource.MustParse("4")
		case 1:
			requests["kubernetes.io/gpu"] = resource.MustParse("100")
			limits["kubernetes.io/gpu"] = resource.MustParse("100")
		case 2:
			requests["example.com/dpu"], limits["example.com/dpu"] = resource.MustParse("1"), resource.MustParse("1")
		}
		got, err = c.client.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{})
		return p, got, err
	}
	compare := func(seed int, suffix string) {
		t.Helper()
		sent, got, err := create(fmt.Sprintf("foreign-%d%s", seed, suffix), schedulers[seed%3], seed)
		if err != nil {
			t.Errorf("pod of %s: %v", schedulers[seed%3], err)
			return
		}
		if diff := cmp.Diff([]any{sent.Labels, sent.Annotations, sent.Spec.Containers[0].Resources},
			[]any{got.Labels, got.Annotations, got.Spec.Containers[0].Resources}); diff != "" {
			t.Errorf("pod of %s is changed (-sent +got):\n%s", schedulers[seed%3], diff)
		}
		got.Labels[annotation.QoSClass], got.Annotations[annotation.ResourceStatusKey] = "LSR", `{"cpuset":"0"}`
		if _, err := c.client.CoreV1().Pods("default").Update(t.Context(), got, metav1.UpdateOptions{}); err != nil {
			t.Errorf("change of a pod of %s: %v", schedulers[seed%3], err)
		}
	}
	if _, _, err := create("own", "tenon-scheduler", 0); !apierrors.IsInvalid(err) {
		t.Errorf("a pod of tenon-scheduler with the same keys: %v, want invalid", err)
	}
	for seed := range 300 {
		compare(seed, "")
	}
	objects, err := install.Parse(deploy.Webhooks("default-scheduler", "tenon-scheduler")...)
	testkit.Check(t, err)
	authority, err := pki.Open(t.TempDir(), time.Now())
	testkit.Check(t, err)
	testkit.Check(t, install.PointWebhooks(objects, "https://127.0.0.1:1", authority.Certificate()))
	testkit.Check(t, c.applier.Apply(t.Context(), objects))
	testkit.Check(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true,
		func(context.Context) (bool, error) { // the API server follows the configurations
			_, _, err := create("own", "tenon-scheduler", 0)
			return apierrors.IsInternalError(err), nil
		}))
	for seed := range 300 {
		compare(seed, "-down")
	}
}

func (c *cluster) resize(t *testing.T) {
	bound := map[string]*corev1.Pod{}
	for _, class := range []string{"LSR", "LS"} {
		bound[class] = c.run(t, pod("resize-"+strings.ToLower(class), class, "2"))
	}
	tests := map[string]struct {
		class, patch string
		refused      bool
	}{
		"more CPUs for a pod that holds some": {"LSR", `{"requests":{"cpu":"4"},"limits":{"cpu":"4"}}`, true},
		"fewer of them":                       {"LSR", `{"requests":{"cpu":"1"},"limits":{"cpu":"1"}}`, true},
		"more memory for it": {
			"LSR", `{"requests":{"memory":"2Gi"},"limits":{"memory":"2Gi"}}`,
			false,
		},
		"more CPUs for a pod of the pool": {"LS", `{"requests":{"cpu":"3"},"limits":{"cpu":"3"}}`, false},
		"more memory for a pod of the pool too": {
			"LS", `{"requests":{"memory":"3Gi"},"limits":{"memory":"3Gi"}}`,
			false,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			patch := []byte(`{"spec":{"containers":[{"name":"app","resources":` + tt.patch + `}]}}`)
			_, err := c.client.CoreV1().Pods("default").Patch(t.Context(), bound[tt.class].Name,
				types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "resize")
			switch {
			case !tt.refused:
				testkit.Check(t, err)
			case !apierrors.IsInvalid(err) || !strings.Contains(err.Error(),
				"spec.containers[0].resources: cpu of a bound pod cannot be resized"):
				t.Errorf("%v, want invalid with field and rule", err)
			}
		})
	}
}

// run binds a pod to a node without a kubelet, and reports of it what a kubelet would.
func (c *cluster) run(t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	pods := c.client.CoreV1().Pods("default")
	p, err := pods.Create(t.Context(), p, metav1.CreateOptions{})
	testkit.Check(t, err)
	testkit.Check(t, pods.Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name},
		Target:     corev1.ObjectReference{Kind: "Node", Name: "n0"},
	}, metav1.CreateOptions{}))
	p, err = pods.Get(t.Context(), p.Name, metav1.GetOptions{})
	testkit.Check(t, err)
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "app", Ready: true, Image: "x", ImageID: "x", ContainerID: "x://1",
		Resources:          &p.Spec.Containers[0].Resources,
		AllocatedResources: p.Spec.Containers[0].Resources.Requests,
		State:              corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}
	p, err = pods.UpdateStatus(t.Context(), p, metav1.UpdateOptions{})
	testkit.Check(t, err)
	return p
}
