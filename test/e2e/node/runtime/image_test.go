//go:build e2e_node

package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/deploy"
	"github.com/tenon-project/tenon/internal/agent/doctor"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/view"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// TestTheAgentWorksAsItsDaemonSetRunsIt imports the agent's image and runs it with the mounts, the arguments and the
// few rights that the chart gives it: it keeps pods on their CPUs, and can write what it has to.
func TestTheAgentWorksAsItsDaemonSetRunsIt(t *testing.T) {
	w := newWorld(t, byNRI, options{noAgent: true})
	w.runDaemonSet()

	_, pool := w.run(pod("pool"))
	w.wants(pool, allCPUs)
	_, bound := w.run(pod("bound", withClass("LSR"), guaranteed("1"), allocated(exclusive), fenced))
	w.wants(bound, exclusive)
	w.wants(pool, shared)
	w.never(bound, exclusive)

	w.inspects("bound", bound.Group, exclusive)
	w.isWell()

	// By NRI the runtime writes. What another writer changes, the agent itself has to write.
	testkit.Check(t, w.s.Cgroups().Write(bound.Group, "cpuset.cpus", allCPUs))
	w.wants(bound, exclusive)
}

// Without the folder of NRI's socket the agent connects to no runtime. It says so, and what is fenced does not start.
func TestWithoutTheFolderOfNRIBoundPodsDoNotStart(t *testing.T) {
	w := newWorld(t, byNRI, options{noAgent: true})
	w.runDaemonSet("nri")
	w.condition("tenon.sh/EnforcementDegraded", "True", "NoTransport")
	b, err := w.runtime.RunPod(t.Context(),
		w.bind(pod("bound", withClass("LSR"), guaranteed("1"), allocated(exclusive), fenced)))
	if err == nil {
		err = w.refused(t.Context(), b, "main")
	}
	if err != nil && !strings.Contains(err.Error(), `required plugin "`+annotation.NRIPlugin+`"`) {
		t.Errorf("the runtime says %q, want the plugin in it", err)
	}
}

// inspects checks what the agent says of the only container of a pod.
func (w *world) inspects(name, group, cpus string) {
	w.Helper()
	text, err := w.ask(view.CgroupsPath("default", name))
	testkit.Check(w, err)
	var p view.Cgroups
	if err := json.Unmarshal(text, &p); err != nil {
		w.Fatalf("%v in %s", err, text)
	}
	for _, g := range p.Groups {
		for _, v := range g.Values {
			if strings.HasSuffix(g.Path, group) && v.File == "cpuset.cpus" && v.Got == cpus && v.Effective == cpus &&
				v.State == view.Matches {
				return
			}
		}
	}
	w.Errorf("%s does not report to be on CPUs %s: %s", group, cpus, text)
}

// isWell asks doctor about runtime and agent, as an administrator on the node does.
func (w *world) isWell() {
	w.Helper()
	text, err := exec.CommandContext(w.Context(), stage.Binary("tenon-agent"), "doctor", "-o", "json").Output()
	// something may fail that the stage does not have
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		w.Fatal(err)
	}
	var d doctor.Diagnosis
	if err := json.Unmarshal(text, &d); err != nil {
		w.Fatalf("%v in %s", err, text)
	}
	got := map[string]doctor.Finding{}
	for _, f := range d.Findings {
		got[f.Check] = f
	}
	for _, check := range []string{
		"kernel", "runtime-version", "nri", "nri-validator", "nri-socket", "writers",
		"agent",
	} {
		if got[check].Status != doctor.OK {
			w.Errorf("doctor finds %+v, want %s to be ok", got[check], check)
		}
	}
}

// runDaemonSet runs the pod of the agent's DaemonSet, without some of its volumes, and waits until it is ready.
func (w *world) runDaemonSet(without ...string) {
	w.Helper()
	var ds appsv1.DaemonSet
	testkit.Check(w, yaml.UnmarshalStrict(deploy.Agent()[0], &ds))
	w.importImage(ds.Spec.Template.Spec.Containers[0].Image)
	p := w.bind(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "tenon-agent", Namespace: ds.Namespace, Labels: ds.Spec.Template.Labels},
		Spec:       ds.Spec.Template.Spec,
	})
	for _, v := range p.Spec.Volumes {
		if v.HostPath != nil {
			testkit.Check(w, os.MkdirAll(v.HostPath.Path, 0o755))
		}
	}
	b, err := w.runtime.RunPod(w.Context(), p)
	if err != nil {
		w.Fatalf("run the sandbox: %v", err)
	}
	config := w.containerOf(p, without)
	made, err := w.runtime.Client().CreateContainer(w.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: b.ID, Config: config,
		SandboxConfig: &runtimeapi.PodSandboxConfig{
			Metadata:     &runtimeapi.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: string(p.UID)},
			LogDirectory: w.s.Path("agent-log"), Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: b.Group},
		},
	})
	if err == nil {
		_, err = w.runtime.Client().StartContainer(w.Context(),
			&runtimeapi.StartContainerRequest{ContainerId: made.GetContainerId()})
	}
	if err != nil {
		w.Fatalf("run the container: %v", err)
	}
	w.Cleanup(func() {
		if w.Failed() {
			text, _ := os.ReadFile(w.s.Path("agent-log", config.GetLogPath()))
			w.Logf("the agent's log:\n%s", text)
		}
	})
	w.awaitReady(p.Spec.Containers[0].ReadinessProbe.HTTPGet)
}

// awaitReady asks what the kubelet's probe asks.
func (w *world) awaitReady(probe *corev1.HTTPGetAction) {
	w.Helper()
	stage.Await(w, "the agent in its container", func() error {
		_, err := w.ask(probe.Path)
		return err
	})
	if at := probe.Host + ":" + probe.Port.String(); at != healthAddress {
		w.Errorf("the probe asks %s, want %s", at, healthAddress)
	}
}

// healthAddress is where the agent of the DaemonSet answers.
const healthAddress = "127.0.0.1:10271"

// ask asks the agent over HTTP.
func (w *world) ask(target string) ([]byte, error) {
	request, err := http.NewRequestWithContext(w.Context(), http.MethodGet, "http://"+healthAddress+target, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return text, err
}

// importImage packs the agent and gives the image to the runtime.
func (w *world) importImage(name string) {
	w.Helper()
	archive := w.s.Path("agent.tar")
	pack := exec.CommandContext(w.Context(), "go", "run", "./hack/node/pack", "-o", archive, "-arch", goruntime.GOARCH,
		name+"="+stage.Binary("tenon-agent"))
	pack.Dir = "../../../.."
	imports := exec.CommandContext(w.Context(), stage.Tool("ctr"), "--address", w.s.Socket(), "--namespace", "k8s.io",
		"images", "import", archive)
	for _, cmd := range []*exec.Cmd{pack, imports} {
		if text, err := cmd.CombinedOutput(); err != nil {
			w.Fatalf("%v: %v\n%s", cmd.Args, err, text)
		}
	}
}

// containerOf translates the pod's only container as a kubelet does. What is another one on this stage are the NRI
// socket's folder, and the group of the pods. Some volumes are left out.
func (w *world) containerOf(p *corev1.Pod, without []string) *runtimeapi.ContainerConfig {
	w.Helper()
	c := p.Spec.Containers[0]
	seccomp := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: c.Name}, Image: &runtimeapi.ImageSpec{Image: c.Image},
		LogPath: "agent.log",
		Command: c.Command, Args: append(append([]string(nil), c.Args...), "--cgroup-root="+w.s.Group(),
			"--resync="+time.Second.String()),
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: stage.Resources(c.Resources),
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{
					Network: runtimeapi.NamespaceMode_NODE,
					Pid:     runtimeapi.NamespaceMode_NODE,
				},
				RunAsUser:      &runtimeapi.Int64Value{Value: *c.SecurityContext.RunAsUser},
				RunAsGroup:     &runtimeapi.Int64Value{Value: *c.SecurityContext.RunAsGroup},
				ReadonlyRootfs: *c.SecurityContext.ReadOnlyRootFilesystem,
				NoNewPrivs:     !*c.SecurityContext.AllowPrivilegeEscalation,
				Capabilities:   &runtimeapi.Capability{}, Seccomp: seccomp,
			},
		},
	}
	for _, capability := range c.SecurityContext.Capabilities.Drop {
		config.Linux.SecurityContext.Capabilities.DropCapabilities = append(
			config.Linux.SecurityContext.Capabilities.DropCapabilities, string(capability))
	}
	at, err := url.Parse(w.plane.Config.Host)
	testkit.Check(w, err)
	for name, value := range map[string]string{
		"NODE_NAME": p.Spec.NodeName, "KUBERNETES_SERVICE_HOST": at.Hostname(),
		"KUBERNETES_SERVICE_PORT": at.Port(),
	} {
		config.Envs = append(config.Envs, &runtimeapi.KeyValue{Key: name, Value: []byte(value)})
	}
	from := map[string]string{}
	for _, v := range p.Spec.Volumes {
		if v.HostPath != nil {
			from[v.Name] = v.HostPath.Path
		}
	}
	from["nri"] = filepath.Dir(w.s.NRISocket())
	for _, m := range c.VolumeMounts {
		if from[m.Name] != "" && !slices.Contains(without, m.Name) { // not the token's, which is below
			config.Mounts = append(config.Mounts,
				&runtimeapi.Mount{HostPath: from[m.Name], ContainerPath: m.MountPath, Readonly: m.ReadOnly})
		}
	}
	config.Mounts = append(config.Mounts, &runtimeapi.Mount{
		HostPath: w.serviceAccount(p), ContainerPath: "/var/run/secrets/kubernetes.io/serviceaccount", Readonly: true,
	})
	return config
}

// serviceAccount writes the pod's token, bound to it, as a kubelet does.
func (w *world) serviceAccount(p *corev1.Pod) string {
	w.Helper()
	answer, err := w.plane.Client.CoreV1().ServiceAccounts(p.Namespace).CreateToken(w.Context(),
		p.Spec.ServiceAccountName, &authentication.TokenRequest{
			Spec: authentication.TokenRequestSpec{BoundObjectRef: &authentication.BoundObjectReference{
				APIVersion: "v1",
				Kind:       "Pod", Name: p.Name, UID: p.UID,
			}},
		}, metav1.CreateOptions{})
	testkit.Check(w, err)
	w.s.Write("serviceaccount/ca.crt", string(w.plane.Config.CAData))
	return filepath.Dir(w.s.Write("serviceaccount/token", answer.Status.Token))
}
