//go:build linux && e2e_install

package installed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/tenon-project/tenon/internal/local/kubeconf"
	"github.com/tenon-project/tenon/internal/local/pki"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/cgroupfs"
	"github.com/tenon-project/tenon/test/e2e/node/guest"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

const (
	nodeName = "here"
	// home is the namespace of the release, work that of the pods of the tests.
	home, work = "tenon-system", "default"
	// serviceAddress is the ClusterIP of the Service kubernetes.
	serviceAddress = "10.0.0.1"
	kubeletDir     = "/var/lib/kubelet"
)

// The components, by the names of their workloads, and the label that their pods have of them.
const (
	scheduler      = "tenon-scheduler"
	manager        = "tenon-manager"
	agent          = "tenon-agent"
	componentLabel = "app.kubernetes.io/name"
)

// cluster has one node and nothing of Tenon until helm installs it.
type cluster struct {
	*stage.Stage
	guest      *guest.Node // the second node, from joinGuest on
	runtime    *stage.Containerd
	client     kubernetes.Interface
	objects    dynamic.Interface
	authority  *pki.Authority
	server     kubeconf.Cluster
	kubeconfig string
	root       string // of the repository
}

// start starts the node beside the control plane, with kube-scheduler.
func start(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{Stage: stage.New(t)}
	var err error
	c.root, err = filepath.Abs("../../..")
	testkit.Check(t, err)
	stage.AddAddress(t, stage.NodeAddress)
	stage.AddAddress(t, serviceAddress)
	c.QuietSysctls()
	// The chart's default values name the usual place.
	testkit.Check(t, os.Symlink(filepath.Dir(c.NRISocket()), "/run/nri"))
	t.Cleanup(func() { testkit.Check(t, os.Remove("/run/nri")) })
	c.runtime = c.Containerd(stage.ContainerdOptions{})
	for _, program := range append(programs(), consoleProgram) {
		c.runtime.Import(filepath.Join(os.Getenv(imagesVariable), program+".tar"))
	}

	plane := c.Plane()
	c.client, c.objects = plane.Client, plane.Dynamic
	c.server = kubeconf.Cluster{Server: plane.Config.Host, Authority: plane.Config.CAData}
	address, err := url.Parse(plane.Config.Host)
	testkit.Check(t, err)
	c.Forward(serviceAddress+":443", address.Host)
	c.authority, err = pki.Open(filepath.Join(stage.PlaneDir, "pki"), time.Now())
	testkit.Check(t, err)
	c.kubeconfig = c.credential(t, "admin", "admin", "system:masters")
	c.startNode(t)
	account := c.credential(t, "kube-scheduler", "system:kube-scheduler")
	c.Run(stage.Command{Name: "kube-scheduler", Path: stage.Binary("kube-scheduler"), Args: []string{
		"--kubeconfig=" + account, "--authentication-kubeconfig=" + account, "--authorization-kubeconfig=" + account,
		"--leader-elect=false", "--bind-address=127.0.0.1",
	}})
	return c
}

// credential writes a kubeconfig of a user. That of tenon up leads to diagnostics, which a real cluster's does not.
func (c *cluster) credential(t *testing.T, name, user string, groups ...string) string {
	t.Helper()
	pair, err := c.authority.Issue(name, pki.Subject{User: user, Groups: groups})
	testkit.Check(t, err)
	file := c.Path("etc", name+".kubeconfig")
	testkit.Check(t, kubeconf.WriteCertificate(file, c.server, pair))
	return file
}

func (c *cluster) startNode(t *testing.T) {
	t.Helper()
	// The API server trusts the cluster's authority alone when it forwards ports.
	serving, err := c.authority.Issue("kubelet-serving", pki.Subject{
		User: "system:node:" + nodeName, Groups: []string{"system:nodes"}, Hosts: []string{nodeName, stage.NodeAddress},
	})
	testkit.Check(t, err)
	testkit.Check(t, os.MkdirAll(filepath.Join(kubeletDir, "pki"), 0o755))
	testkit.Check(t, os.WriteFile(filepath.Join(kubeletDir, "pki", "kubelet.crt"), serving.Cert, 0o644))
	testkit.Check(t, os.WriteFile(filepath.Join(kubeletDir, "pki", "kubelet.key"), serving.Key, 0o600))
	config := c.KubeletConfig(c.Group(), c.authority.CertificateFile())
	kubelet := c.Kubelet(stage.KubeletOptions{
		Node: nodeName, Dir: kubeletDir, Config: config,
		Kubeconfig: c.credential(t, "kubelet", "system:node:"+nodeName, "system:nodes"),
	})
	stage.Await(t, "the node", func() error {
		if !kubelet.Running() {
			t.Fatalf("the kubelet ended: %v", kubelet.Err())
		}
		node, err := c.client.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
		if err == nil && len(node.Spec.Taints) > 0 {
			err = fmt.Errorf("taint %s", node.Spec.Taints[0].Key)
		}
		return err
	})
}

// helm runs Helm for the release of the tests and returns what it prints.
func (c *cluster) helm(t *testing.T, arguments ...string) string {
	t.Helper()
	const none = "/nonexistent" // neither settings nor plugins of this user
	text, err := c.run(t, os.Getenv(helmVariable), append(arguments, "--namespace", home),
		"HELM_CACHE_HOME="+none, "HELM_CONFIG_HOME="+none, "HELM_DATA_HOME="+none)
	if err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(arguments, " "), err, text)
	}
	return text
}

// tenon runs the command line and reads the JSON that it prints.
func (c *cluster) tenon(t *testing.T, into any, arguments ...string) {
	t.Helper()
	text, err := c.run(t, stage.Binary("tenon"), append(arguments, "-o", "json"))
	if e := json.Unmarshal([]byte(text), into); err != nil || e != nil {
		t.Fatalf("tenon %s: %v\n%s", strings.Join(arguments, " "), errors.Join(err, e), text)
	}
}

// run returns what a program prints; the error has what it says besides.
func (c *cluster) run(t *testing.T, program string, arguments []string, env ...string) (string, error) {
	t.Helper()
	var errs strings.Builder
	command := exec.CommandContext(t.Context(), program, arguments...)
	command.Env = append(append(os.Environ(), "KUBECONFIG="+c.kubeconfig), env...)
	command.Stderr = &errs
	text, err := command.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, errs.String())
	}
	return string(text), err
}

// pods returns those of a component that have not ended, by name.
func (c *cluster) pods(t *testing.T, component string) []corev1.Pod {
	t.Helper()
	list, err := c.client.CoreV1().Pods(home).List(t.Context(),
		metav1.ListOptions{LabelSelector: componentLabel + "=" + component})
	testkit.Check(t, err)
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods
}

// create sends pods and returns them when they run.
func (c *cluster) create(t *testing.T, pods ...*corev1.Pod) []*corev1.Pod {
	t.Helper()
	for _, p := range pods {
		_, err := c.client.CoreV1().Pods(work).Create(t.Context(), p, metav1.CreateOptions{})
		testkit.Check(t, err)
	}
	running := make([]*corev1.Pod, len(pods))
	for i, p := range pods {
		running[i] = c.awaitPod(t, p, "run", isReady)
	}
	return running
}

// awaitPod returns a pod when it is as it is wanted.
func (c *cluster) awaitPod(t *testing.T, p *corev1.Pod, to string, holds func(*corev1.Pod) bool) (found *corev1.Pod) {
	t.Helper()
	stage.AwaitWithin(t, guestPatience, "pod "+p.Name+" to "+to, func() (err error) {
		found, err = c.client.CoreV1().Pods(work).Get(t.Context(), p.Name, metav1.GetOptions{})
		if err == nil && !holds(found) {
			err = errors.New(state(found))
		}
		return err
	})
	return found
}

// remove deletes pods and returns when they are gone.
func (c *cluster) remove(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, p := range pods {
		testkit.Check(t, c.client.CoreV1().Pods(work).Delete(t.Context(), p.Name, metav1.DeleteOptions{}))
	}
	for _, p := range pods {
		stage.AwaitWithin(t, guestPatience, "pod "+p.Name+" to be gone", func() error {
			found, err := c.client.CoreV1().Pods(work).Get(t.Context(), p.Name, metav1.GetOptions{})
			if err == nil {
				err = errors.New(state(found))
			} else if apierrors.IsNotFound(err) {
				err = nil
			}
			return err
		})
	}
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// state says how far a pod is.
func state(p *corev1.Pod) string {
	text, err := json.Marshal(p.Status)
	return fmt.Sprintf("%s: %s %v", p.Name, text, err)
}

// processes returns those of a pod's containers, without its sandbox, and the groups that they are in.
func (c *cluster) processes(p *corev1.Pod) (groups []string, pids []int, err error) {
	for _, s := range p.Status.ContainerStatuses {
		group := path.Join(c.PodGroup(p), strings.TrimPrefix(s.ContainerID, "containerd://"))
		file, err := c.Cgroups().Path(group, "cpuset.cpus")
		if err != nil {
			return nil, nil, err
		}
		found := cgroupfs.Processes(filepath.Dir(file))
		if len(found) == 0 {
			return nil, nil, fmt.Errorf("pod %s: no process in %s", p.Name, group)
		}
		groups, pids = append(groups, group), append(pids, found...)
	}
	if len(groups) == 0 {
		return nil, nil, fmt.Errorf("pod %s has no containers", p.Name)
	}
	return groups, pids, nil
}

// status returns a line of /proc/PID/status.
func status(pid int, key string) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("process %d has no %s", pid, key)
}

// confined reports how the containers of a pod differ from a set of CPUs.
func (c *cluster) confined(p *corev1.Pod, cpus string) error {
	if p.Spec.NodeName == guestName {
		return c.confinedOnGuest(p, cpus)
	}
	groups, pids, err := c.processes(p)
	if err != nil {
		return err
	}
	for _, group := range groups {
		got, err := c.Cgroups().Read(group, "cpuset.cpus")
		if err == nil && got != cpus {
			err = fmt.Errorf("pod %s: cpuset.cpus is %q, want %q", p.Name, got, cpus)
		}
		if err != nil {
			return err
		}
	}
	for _, pid := range pids {
		got, err := status(pid, "Cpus_allowed_list")
		if err == nil && got != cpus {
			err = fmt.Errorf("pod %s: process %d may use %q, want %q", p.Name, pid, got, cpus)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// holds waits until pods have their CPUs.
func (c *cluster) holds(t *testing.T, want map[*corev1.Pod]string) {
	t.Helper()
	stage.Await(t, "every pod to have its CPUs", func() error {
		for p, cpus := range want {
			if err := c.confined(p, cpus); err != nil {
				return err
			}
		}
		return nil
	})
}

// log returns what a pod has printed: which CPUs and memory it may use, and each change.
func (c *cluster) log(t *testing.T, p *corev1.Pod) string {
	t.Helper()
	text, err := c.client.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{}).
		DoRaw(context.WithoutCancel(t.Context()))
	testkit.Check(t, err)
	return string(text)
}

// keep looks at the CPUs of pods until the function that it returns is called, which fails the test where a pod has
// lost one or was given another, or has noticed that itself.
func (c *cluster) keep(t *testing.T, want map[*corev1.Pod]string) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	noticed := map[*corev1.Pod]string{}
	for p, cpus := range want {
		stage.Await(t, "pod "+p.Name+" to notice its CPUs", func() error {
			noticed[p] = c.log(t, p)
			lines := strings.Split(noticed[p], "Cpus_allowed_list=")
			if got, _, _ := strings.Cut(lines[len(lines)-1], "\n"); got != cpus {
				return fmt.Errorf("%q, want %q", got, cpus)
			}
			if !strings.Contains(noticed[p], "ready=") {
				return errors.New("it has not printed everything yet")
			}
			return nil
		})
	}
	result := make(chan error, 1)
	go func() {
		looks := 0
		for ctx.Err() == nil {
			began, pause := time.Now(), 5*time.Millisecond
			for p, cpus := range want {
				if err := c.confined(p, cpus); err != nil {
					result <- err
					return
				}
				if p.Spec.NodeName == guestName { // a look costs what its pods lack
					pause = 9 * time.Since(began)
				}
			}
			looks++
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
		if looks == 0 {
			result <- errors.New("the CPUs were never looked at")
			return
		}
		result <- nil
	}()
	return func() {
		t.Helper()
		cancel()
		testkit.Check(t, <-result)
		for p := range want {
			found, err := c.client.CoreV1().Pods(work).Get(context.WithoutCancel(ctx), p.Name, metav1.GetOptions{})
			testkit.Check(t, err)
			// A stage before this one has ended the pods that it left, and they were started again.
			before, now := p.Status.ContainerStatuses[0], found.Status.ContainerStatuses[0]
			if found.UID != p.UID || now.ContainerID != before.ContainerID {
				t.Errorf("pod %s was restarted: %s, before %s", p.Name, state(found), before.ContainerID)
			} else if diff := cmp.Diff(noticed[p], c.log(t, p)); diff != "" {
				t.Errorf("pod %s noticed (-before +now):\n%s", p.Name, diff)
			}
		}
	}
}
