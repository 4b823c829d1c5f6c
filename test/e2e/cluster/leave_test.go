//go:build linux && e2e_install

package installed

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// leaving is a cluster whose node was recorded before the installation.
type leaving struct {
	*cluster
	node   string
	groups map[string]string
}

// readNode returns the Node without what its kubelet writes again and again.
func (l *leaving) readNode(t *testing.T) string {
	t.Helper()
	n, err := l.client.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	testkit.Check(t, err)
	shown := corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: n.Labels, Annotations: n.Annotations}}
	shown.Spec.Taints = n.Spec.Taints
	shown.Status = corev1.NodeStatus{Capacity: n.Status.Capacity, Allocatable: n.Status.Allocatable}
	for _, c := range n.Status.Conditions {
		shown.Status.Conditions = append(shown.Status.Conditions, corev1.NodeCondition{Type: c.Type, Status: c.Status})
	}
	text, err := yaml.Marshal(shown)
	testkit.Check(t, err)
	return string(text)
}

var sandbox = regexp.MustCompile("/[0-9a-f]{64}/")

// readGroups returns the CPUs, memory, quotas and shares of the groups of the tests' pods and of those above them, by
// names that a pod of the same name has again. A set of everything is as good as none: a kernel does not take an empty
// one. The kubelet adds up the shares of pods in the groups above them.
func (l *leaving) readGroups(t *testing.T) map[string]string {
	t.Helper()
	pods, err := l.client.CoreV1().Pods(work).List(t.Context(), metav1.ListOptions{})
	testkit.Check(t, err)
	var names []string
	for i := range pods.Items {
		p := &pods.Items[i]
		names = append(names, "pod"+string(p.UID), p.Name,
			strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "containerd://"), "container")
	}
	rename, found := strings.NewReplacer(names...), map[string]string{}
	shares, sums := []string{"cpu.shares", "cpu.weight"}, []string{"kubepods", "burstable", "besteffort"}
	sets := []string{"cpuset.cpus", "cpuset.mems"}
	settings := slices.Concat(sets, shares, []string{"cpuset.cpus.partition", "cpu.cfs_quota_us", "cpu.max"})
	for _, top := range l.Cgroups().Dirs(l.Group()) {
		testkit.Check(t, filepath.WalkDir(top, func(file string, d fs.DirEntry, err error) error {
			name := sandbox.ReplaceAllString(rename.Replace(strings.TrimPrefix(file, top)), "/sandbox/")
			ofOther := strings.Contains(name, "/pod") || name == "/"+d.Name()
			sum := slices.Contains(shares, d.Name()) && slices.Contains(sums, filepath.Base(filepath.Dir(file)))
			if ofOther || sum || !slices.Contains(settings, d.Name()) {
				return nil // also where another pod's group is gone by now
			}
			value, e := os.ReadFile(file)
			whole, _ := os.ReadFile(filepath.Join(top, d.Name()))
			effective, _ := os.ReadFile(filepath.Join(top, d.Name()+".effective")) // of cgroup v2
			if !slices.Contains(sets, d.Name()) || !bytes.Equal(value, whole) && !bytes.Equal(value, effective) {
				found[name] = string(value)
			}
			return errors.Join(err, e)
		}))
	}
	return found
}

// record runs pods of the shapes that Tenon gets later, under the cluster's scheduler.
func (l *leaving) record(t *testing.T) {
	pods := []*corev1.Pod{
		workload("lsr", "LSR", "1"), workload("ls", "LS", "50m"), workload("best-effort", "BE", ""),
		workload("plain", "", "10m"),
	}
	for _, p := range pods {
		p.Labels, p.Spec.SchedulerName = nil, ""
	}
	pods = l.create(t, pods...)
	l.node, l.groups = l.readNode(t), l.readGroups(t)
	if n := len(l.groups); n < 4*3*2 { // of a pod, its container and its sandbox
		t.Errorf("only %d values of groups: %v", n, l.groups)
	}
	l.remove(t, pods...)
}

// isAsBefore compares the node with the record.
func (l *leaving) isAsBefore(t *testing.T) {
	t.Helper()
	if diff := cmp.Diff(l.node, l.readNode(t)); diff != "" {
		t.Errorf("the Node (-before the installation +now):\n%s", diff)
	}
	if diff := cmp.Diff(l.groups, l.readGroups(t)); diff != "" {
		t.Errorf("groups (-before the installation +now):\n%s", diff)
	}
}

// startsPods creates pods that need no component of Tenon: a plain one, and one with labels of Tenon.
func (l *leaving) startsPods(t *testing.T) {
	t.Helper()
	plain, labelled := workload("plain-later", "", "10m"), workload("labelled", "LS", "10m")
	labelled.Labels["quota.scheduling.koordinator.sh/name"] = "missing"
	labelled.Labels["pod-group.scheduling.sigs.k8s.io"] = "missing"
	plain.Spec.SchedulerName, labelled.Spec.SchedulerName = "", ""
	l.remove(t, l.create(t, plain, labelled)...)
}

// uninstall removes the release without tenon leave. What that means is in the chart's notes and in tenon doctor.
func (l *leaving) uninstall(t *testing.T) {
	l.helm(t, "upgrade", "tenon", filepath.Join(l.root, "deploy/chart"), "--reset-values", "--set", small)
	l.awaitImages(t, version)
	l.isWell(t)
	l.holds(t, l.bound(t))
	notes, end := l.helm(t, "get", "notes", "tenon"), l.keep(t, l.bound(t))
	l.helm(t, "uninstall", "tenon")
	l.awaitGone(t)
	pods := l.client.CoreV1().Pods(work)
	waiting, err := pods.Create(t.Context(), workload("waiting", "", "10m"), metav1.CreateOptions{})
	testkit.Check(t, err)
	refused := workload("refused", "", "10m")
	refused.Spec.PriorityClassName = "koord-prod"
	_, err = pods.Create(t.Context(), refused, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), "no PriorityClass with name koord-prod") {
		t.Errorf("a pod with a PriorityClass of the chart: %v", err)
	}
	l.startsPods(t)
	waiting, err = pods.Get(t.Context(), waiting.Name, metav1.GetOptions{})
	testkit.Check(t, err)
	if waiting.Spec.NodeName != "" {
		t.Errorf("a pod of tenon-scheduler: %s", state(waiting))
	}
	l.remove(t, waiting)
	end()
	l.startsAgain(t)
	const files, command = "rm -rf /var/lib/tenon-agent /run/tenon", "tenon leave"
	for _, want := range append(l.remains(t), files, command, "crd -l", "NRI's default validator", "tenon-scheduler",
		"koord-prod") {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes do not name %q:\n%s", want, notes)
		}
	}
	for want, arguments := range map[string][]string{files: {"doctor"}, command: {"doctor", "--node", nodeName}} {
		if said, err := l.run(t, stage.Binary("tenon"), arguments); !strings.Contains(said, want) {
			t.Errorf("tenon %v does not name %q: %v\n%s", arguments, want, err, said)
		}
	}
	l.tenon(t, &statusAnswer{}, "leave", "--yes", "--wait", "2m")
	if diff := cmp.Diff(l.node, l.readNode(t)); diff != "" {
		t.Errorf("the Node (-before the installation +after tenon leave):\n%s", diff)
	}
}

// remains returns what is left of the release, as arguments of kubectl delete.
func (l *leaving) remains(t *testing.T) (names []string) {
	t.Helper()
	for _, list := range []string{
		"api/v1/namespaces/" + home + "/secret", "api/v1/namespaces/" + home + "/configmap",
		"apis/coordination.k8s.io/v1/namespaces/" + home + "/lease",
		"apis/admissionregistration.k8s.io/v1/validatingwebhookconfiguration",
		"apis/admissionregistration.k8s.io/v1/mutatingwebhookconfiguration",
	} {
		text, err := l.client.CoreV1().RESTClient().Get().AbsPath("/" + list + "s").DoRaw(t.Context())
		testkit.Check(t, err)
		var found metav1.PartialObjectMetadataList
		testkit.Check(t, yaml.Unmarshal(text, &found))
		for _, o := range found.Items {
			if o.Name != "kube-root-ca.crt" { // of the cluster
				names = append(names, filepath.Base(list)+"/"+o.Name)
			}
		}
	}
	return names
}

// startsAgain kills a container with CPUs of its own. The runtime's validator refuses it without the agent, and lets it
// start when it is off.
func (l *leaving) startsAgain(t *testing.T) {
	t.Helper()
	for _, pid := range l.running(t)["lsr"] {
		testkit.Check(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	lsr := workload("lsr", "LSR", "1")
	l.awaitPod(t, lsr, "be refused", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses[0].State.Waiting
		return s != nil && strings.Contains(s.Message, `required plugin "tenon-agent"`)
	})
	l.runtime.DisableValidator()
	l.awaitPod(t, lsr, "start", isReady)
}

// running returns the processes of the pods that the first cases left, by pod.
func (l *leaving) running(t *testing.T) map[string][]int {
	t.Helper()
	found := map[string][]int{}
	for p := range l.bound(t) {
		_, pids, err := l.processes(p)
		testkit.Check(t, err)
		found[p.Name] = pids
	}
	return found
}

// leave takes Tenon off as the guide to run the agent says: no new fences, the validator off, tenon leave, uninstall.
func (l *leaving) leave(t *testing.T) {
	chart := filepath.Join(l.root, "deploy/chart")
	l.helm(t, "install", "tenon", chart, "--set", small+",manager.requireNRIPlugin=false")
	l.isWell(t)
	l.holds(t, l.bound(t))
	// The agent learns from a container that the runtime's validator is off.
	l.remove(t, l.create(t, workload("after-validator", "LS", "10m"))...)
	before := l.running(t)
	l.tenon(t, &statusAnswer{}, "leave", "--yes", "--wait", "2m")
	l.isAsBefore(t)
	l.helm(t, "uninstall", "tenon")
	l.awaitGone(t)
	l.isAsBefore(t)
	if diff := cmp.Diff(before, l.running(t)); diff != "" {
		t.Errorf("processes of the pods (-before +after leaving):\n%s", diff)
	}
	l.startsPods(t)
}
