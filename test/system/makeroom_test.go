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
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	migration "github.com/tenon-project/tenon/api/migration/v1alpha1"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// The nodes of the cluster on which pods move.
const (
	gpuNode, otherGPUNode = "hgx-h100-0", "hgx-h100-1"
	armNode, otherArmNode = "arm64-1s-0", "arm64-1s-1"
)

// noPolicies is a configuration of the descheduler without plugins.
const noPolicies = `apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
deschedulingInterval: 1s
profiles:
- name: limits
  pluginConfig:
  - name: MigrationController
    args: {minPodAge: 0s}
`

// TestPodsMoveToRoomThatIsHeld moves pods with CPUs and GPUs of their own: by jobs, for pods and gangs that wait, and
// by policies.
func TestPodsMoveToRoomThatIsHeld(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "descheduler.yaml")
	testkit.Check(t, os.WriteFile(config, []byte(noPolicies), 0o600))
	l := up(t, 1, "--machine", "hgx-h100=2", "--machine", "arm64-1s=2", "--descheduler-config", config)
	for _, c := range []struct {
		name string
		try  func(*testing.T, *local)
	}{
		{"the successor of a pod has the CPUs and the GPU that were held for it", successorHasWhatWasHeld},
		{"two pods with GPUs go where the command says, and the pod that waits runs", roomForAPod},
		{"a pod goes so that a whole gang runs", roomForAGang},
		{"a gang moves whole or not at all", gangMovesWhole},
		{"a policy makes room for a pod that waits too long", func(t *testing.T, l *local) {
			roomByPolicy(t, l, config)
		}},
		{"a policy brings the free GPUs of two nodes together", func(t *testing.T, l *local) {
			defragmentByPolicy(t, l, config)
		}},
		{"a policy takes a pod off a node that uses too much", func(t *testing.T, l *local) {
			relieveByPolicy(t, l, config)
		}},
	} {
		if !t.Run(c.name, func(t *testing.T) { c.try(t, l) }) {
			return
		}
	}
}

// rooms are pods of a namespace that is deleted in the end, so that the next pods find the nodes empty.
type rooms struct {
	*local
	namespace string
}

func newRooms(t *testing.T, l *local, namespace string) rooms {
	t.Helper()
	r := rooms{l, namespace}
	_, err := l.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
	return r
}

// end deletes all that the namespace has, with the jobs of its pods.
func (r rooms) end(t *testing.T) {
	t.Helper()
	for _, kinds := range []string{"deployments", "statefulsets", "pods", "podmigrationjobs", "reservations"} {
		out, err := r.tenon("kubectl", "delete", kinds, "--all", "-n", r.namespace, "--grace-period=1")
		if err != nil {
			t.Fatalf("delete %s: %v\n%s", kinds, err, out)
		}
	}
}

func (l *local) tenon(args ...string) (string, error) {
	c := exec.Command(os.Getenv("TENON_BIN"), args...)
	c.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(l.dir, "kubeconfig"))
	out, err := c.CombinedOutput()
	return string(out), err
}

func (r rooms) all(t *testing.T, app string) []corev1.Pod {
	t.Helper()
	list, err := r.client.CoreV1().Pods(r.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	testkit.Check(t, err)
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

// create creates a pod, once its namespace takes pods.
func (r rooms) create(t *testing.T, p *corev1.Pod) {
	t.Helper()
	p.Namespace = r.namespace
	waitFor(t, time.Minute, "pod "+p.Name+" to be created", func() error {
		_, err := r.client.CoreV1().Pods(r.namespace).Create(t.Context(), p, metav1.CreateOptions{})
		return err
	})
}

func (r rooms) pod(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	p, err := r.client.CoreV1().Pods(r.namespace).Get(t.Context(), name, metav1.GetOptions{})
	testkit.Check(t, err)
	return p
}

// deploy creates a Deployment with one pod on each of the nodes.
func (r rooms) deploy(t *testing.T, app string, like *corev1.Pod, nodes ...string) {
	t.Helper()
	like.Labels["app"] = app
	_, err := r.client.AppsV1().Deployments(r.namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: app}, Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: like.Labels, Annotations: like.Annotations}, Spec: like.Spec,
			},
		},
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
	for i, node := range nodes {
		r.scale(t, app, i+1, node)
	}
}

// scale gives a Deployment so many pods, the last of them on a node.
func (r rooms) scale(t *testing.T, app string, replicas int, node string) {
	t.Helper()
	all := []string{gpuNode, otherGPUNode, armNode, otherArmNode}
	for _, other := range all {
		r.patchNode(t, other, fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, other != node))
	}
	_, err := r.client.AppsV1().Deployments(r.namespace).Patch(t.Context(), app, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
	testkit.Check(t, err)
	waitFor(t, time.Minute, fmt.Sprintf("pod %d of %s on %s", replicas, app, node), func() error {
		pods := r.all(t, app)
		if len(pods) < replicas || slices.ContainsFunc(pods, func(p corev1.Pod) bool { return !isReady(&p) }) {
			return fmt.Errorf("%d pods", len(pods))
		}
		return nil
	})
	for _, other := range all {
		r.patchNode(t, other, `{"spec":{"unschedulable":null}}`)
	}
}

func (l *local) patchNode(t *testing.T, node, patch string) {
	t.Helper()
	_, err := l.client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	testkit.Check(t, err)
}

// runsOn waits until a pod is ready, and returns it.
func (r rooms) runsOn(t *testing.T, name, node string) (p *corev1.Pod) {
	t.Helper()
	waitFor(t, time.Minute, "pod "+name+" to run on "+node, func() error {
		if p = r.pod(t, name); p.Spec.NodeName != node || !isReady(p) {
			return fmt.Errorf("it is %s on node %q: %+v", p.Status.Phase, p.Spec.NodeName, p.Status.Conditions)
		}
		return nil
	})
	return p
}

// waits waits until the scheduler has found no node for a pod.
func (r rooms) waits(t *testing.T, name string) {
	t.Helper()
	waitFor(t, time.Minute, "the scheduler to refuse pod "+name, func() error {
		p := r.pod(t, name)
		if !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && why.Refuses(c.Reason)
		}) {
			return fmt.Errorf("it is on node %q: %+v", p.Spec.NodeName, p.Status.Conditions)
		}
		return nil
	})
}

// moved returns the jobs of pods of the namespace, once there are so many and all have succeeded, and checks that each
// successor runs where room was held for it, with the CPUs and devices of that room.
func (r rooms) moved(t *testing.T, want int, places <-chan reservation.Reservation) (jobs []migration.PodMigrationJob) {
	t.Helper()
	rest := r.client.CoreV1().RESTClient()
	waitFor(t, time.Minute, fmt.Sprintf("%d jobs to succeed", want), func() error {
		var list struct{ Items []migration.PodMigrationJob }
		text, err := rest.Get().AbsPath("/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs").DoRaw(t.Context())
		testkit.Check(t, err)
		testkit.Check(t, json.Unmarshal(text, &list))
		jobs = slices.DeleteFunc(list.Items, func(j migration.PodMigrationJob) bool {
			return j.Spec.PodRef.Namespace != r.namespace || j.Status.Phase != migration.PodMigrationJobSucceeded
		})
		if len(jobs) < want {
			return fmt.Errorf("%s", text)
		}
		return nil
	})
	if len(jobs) != want {
		t.Fatalf("%d pods have moved, want %d: %+v", len(jobs), want, jobs)
	}
	held := map[string]reservation.Reservation{}
	for i := range jobs {
		j := &jobs[i]
		name := j.Spec.ReservationOptions.ReservationRef.Name
		for waiting := time.After(time.Minute); held[name].Name == ""; {
			select {
			case place := <-places:
				held[place.Name] = place
			case <-waiting:
				t.Fatalf("no version of reservation %s has a node and no user", name)
			}
		}
		place, p := held[name], r.pod(t, j.Status.PodRef.Name)
		used, _, err := annotation.ParseReservationAllocated(p.Annotations[annotation.ReservationAllocatedKey])
		if err != nil || used.UID != place.UID || p.Spec.NodeName != place.Status.NodeName || !isReady(p) ||
			p.Spec.NodeName == startOf(j).Node {
			t.Errorf("%s left %s; %s is on %s in reservation %q (%v), and %s was held on %s", j.Spec.PodRef.Name,
				startOf(j).Node, p.Name, p.Spec.NodeName, used.Name, err, name, place.Status.NodeName)
		}
		for _, key := range []string{annotation.ResourceStatusKey, annotation.DeviceAllocatedKey} {
			if was, has := place.Annotations[key], p.Annotations[key]; was != has && !sameJSON(t, was, has) {
				t.Errorf("%s was held as %q, and %s has %q", key, was, p.Name, has)
			}
		}
	}
	return jobs
}

// planned returns what make-room would do, and checks that it does nothing.
func (r rooms) planned(t *testing.T, what string) (plan view.RoomAnswer) {
	t.Helper()
	before := r.versions(t)
	out, err := r.tenon("make-room", what, "-n", r.namespace, "--dry-run", "-o", "json")
	if err != nil {
		t.Fatalf("make-room %s --dry-run: %v\n%s", what, err, out)
	}
	testkit.Check(t, json.Unmarshal([]byte(out), &plan))
	if after := r.versions(t); !slices.Equal(before, after) {
		t.Errorf("a dry run has changed %v to %v", before, after)
	}
	return plan
}

// versions are the pods of the namespace with their nodes, and all jobs.
func (r rooms) versions(t *testing.T) (all []string) {
	t.Helper()
	list, err := r.client.CoreV1().Pods(r.namespace).List(t.Context(), metav1.ListOptions{})
	testkit.Check(t, err)
	for i := range list.Items {
		p := &list.Items[i]
		all = append(all, fmt.Sprint(p.Name, p.UID, p.Spec.NodeName, p.Status.NominatedNodeName, p.DeletionTimestamp))
	}
	out, err := r.tenon("kubectl", "get", "podmigrationjobs", "-o", "name")
	testkit.Check(t, err)
	return append(all, out)
}

// lost returns the pods of before, without those that moved, that do not run as they did.
func (r rooms) lost(t *testing.T, before []corev1.Pod, jobs []migration.PodMigrationJob) (names []string) {
	t.Helper()
	for i := range before {
		was := &before[i]
		if slices.ContainsFunc(jobs, func(j migration.PodMigrationJob) bool { return j.Spec.PodRef.UID == was.UID }) {
			continue
		}
		if now := r.pod(t, was.Name); now.UID != was.UID || !isReady(now) || now.Spec.NodeName != was.Spec.NodeName {
			names = append(names, was.Name)
		}
	}
	return names
}

// withGPU is a pod with CPUs and GPUs of its own.
func withGPU(name, percent string, more ...object.PodOption) *corev1.Pod {
	return pod(name, append(more, object.Class("LSR"),
		object.Both("cpu", "8", "memory", "1Gi", "koordinator.sh/gpu", percent))...)
}

// roomForAPod: of five GPUs in use, two must go to the other node for a pod of eight.
func roomForAPod(t *testing.T, l *local) {
	r := newRooms(t, l, "room")
	defer r.end(t)
	keeper := withGPU("keeper", "100")
	keeper.Spec.NodeSelector = map[string]string{corev1.LabelHostname: gpuNode}
	r.create(t, keeper)
	r.runsOn(t, "keeper", gpuNode)
	r.deploy(t, "web", withGPU("web", "100"), otherGPUNode, gpuNode)
	r.deploy(t, "api", withGPU("api", "100"), otherGPUNode, gpuNode)
	before := slices.Concat(r.all(t, "web"), r.all(t, "api"), []corev1.Pod{*r.pod(t, "keeper")})
	r.create(t, withGPU("train", "800"))
	r.waits(t, "train")

	plan := r.planned(t, "pod/train")
	if !plan.Found || !plan.Proven || len(plan.Moves) != 2 || plan.Placements[0].Node != otherGPUNode ||
		len(plan.Kept) != 1 || plan.Kept[0].Reasons[0].Code != string(evict.BarePod) {
		t.Fatalf("plan %+v", plan)
	}
	places := placed(t, l)
	out, err := r.tenon("make-room", "pod/train", "-n", r.namespace)
	if err != nil || !strings.Contains(out, "room/train is on "+otherGPUNode) {
		t.Fatalf("make-room: %v\n%s", err, out)
	}
	jobs := r.moved(t, 2, places)
	for _, j := range jobs {
		if !slices.ContainsFunc(plan.Moves, func(m view.RoomMove) bool {
			return m.UID == string(j.Spec.PodRef.UID) && m.Target == j.Status.NodeName
		}) {
			t.Errorf("%s moved to %s, and the plan was %+v", j.Spec.PodRef.Name, j.Status.NodeName, plan.Moves)
		}
	}
	r.runsOn(t, "train", otherGPUNode)
	if names := r.lost(t, before, jobs); len(names) > 0 || len(r.all(t, "web")) != 2 || len(r.all(t, "api")) != 2 {
		t.Errorf("%v have not run on", names)
	}
}

// roomForAGang: 32 and 40 CPUs are free, for two members of 21 CPUs that start with a third one or not at all.
func roomForAGang(t *testing.T, l *local) {
	r := newRooms(t, l, "gangroom")
	defer r.end(t)
	cpus := func(name, n string, more ...object.PodOption) *corev1.Pod {
		p := pod(name, append(more, object.Class("LSR"), object.Both("cpu", n, "memory", "1Gi"))...)
		p.Spec.NodeSelector = map[string]string{corev1.LabelArchStable: "arm64"}
		return p
	}
	keeper := cpus("keeper", "8")
	keeper.Spec.NodeSelector = map[string]string{corev1.LabelHostname: armNode}
	r.create(t, keeper)
	r.deploy(t, "web", cpus("web", "12"), otherArmNode, armNode)
	r.deploy(t, "api", cpus("api", "12"), otherArmNode, armNode)
	before := slices.Concat(r.all(t, "web"), r.all(t, "api"), []corev1.Pod{*r.runsOn(t, "keeper", armNode)})
	members := []string{"member-0", "member-1", "member-2"}
	for _, name := range members {
		r.create(t, cpus(name, "21", object.Gang("train", "3")))
	}
	for _, name := range members {
		r.waits(t, name)
	}

	plan := r.planned(t, "gang/train")
	if !plan.Found || !plan.Proven || len(plan.Moves) != 1 || len(plan.Placements) != 3 {
		t.Fatalf("plan %+v", plan)
	}
	places := placed(t, l)
	out, err := r.tenon("make-room", "gang/train", "-n", r.namespace)
	if err != nil {
		t.Fatalf("make-room: %v\n%s", err, out)
	}
	jobs := r.moved(t, 1, places)
	for _, p := range plan.Placements {
		r.runsOn(t, strings.TrimPrefix(p.Pod, r.namespace+"/"), p.Node)
	}
	if names := r.lost(t, before, jobs); len(names) > 0 {
		t.Errorf("%v have not run on", names)
	}
}

// migrate creates a job for a pod.
func (r rooms) migrate(t *testing.T, name, pod string) {
	t.Helper()
	body := fmt.Appendf(nil, `{"apiVersion":"scheduling.koordinator.sh/v1alpha1","kind":"PodMigrationJob","metadata":`+
		`{"name":%q},"spec":{"podRef":{"namespace":%q,"name":%q}}}`, name, r.namespace, pod)
	testkit.Check(t, r.client.CoreV1().RESTClient().Post().
		AbsPath("/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs").Body(body).Do(t.Context()).Error())
}

// gangMovesWhole: a job for one member waits until there are jobs for all of them; then each has room before the first
// one is evicted. Another program creates the members again, as operators of training jobs do.
func gangMovesWhole(t *testing.T, l *local) {
	r := newRooms(t, l, "gang")
	defer r.end(t)
	member := func(name string) *corev1.Pod {
		return withGPU(name, "100", object.Gang("pair", "2"), object.Grace(1),
			object.Annotation("descheduler.alpha.kubernetes.io/evict", "true"))
	}
	names := []string{"member-0", "member-1"}
	var old []*corev1.Pod
	for _, name := range names {
		r.create(t, member(name))
	}
	for _, name := range names {
		waitFor(t, time.Minute, name+" to run", func() error {
			if p := r.pod(t, name); !isReady(p) {
				return fmt.Errorf("it is %s", p.Status.Phase)
			}
			return nil
		})
		old = append(old, r.pod(t, name))
	}
	places := placed(t, l)
	r.migrate(t, "gang-0", names[0])
	waitFor(t, time.Minute, "the job of one member to be refused", func() error {
		out, err := r.tenon("kubectl", "get", "podmigrationjob", "gang-0", "-o", "jsonpath={.status.reason}")
		if err == nil && out != string(evict.GangMinimum) {
			err = fmt.Errorf("its reason is %q", out)
		}
		return err
	})
	r.migrate(t, "gang-1", names[1])
	back := map[string]bool{}
	waitFor(t, time.Minute, "both members to be evicted", func() error {
		for i, name := range names {
			if p, err := r.client.CoreV1().Pods(r.namespace).Get(t.Context(), name, metav1.GetOptions{}); err != nil {
				r.create(t, member(name))
				back[name] = true
			} else if p.UID != old[i].UID {
				back[name] = true
			}
		}
		if len(back) < 2 {
			return fmt.Errorf("evicted are %v", back)
		}
		return nil
	})
	r.moved(t, 2, places)
}

// useConfig gives the descheduler another configuration.
func useConfig(t *testing.T, l *local, file, text string) {
	t.Helper()
	testkit.Check(t, os.WriteFile(file, []byte(text), 0o600))
	waitFor(t, time.Minute, "a descheduler to stop", func() error {
		pids, err := l.processes("__descheduler")
		if err == nil && pids[0] == 0 { // it starts again, and no process has the PID
			err = errors.New("none runs")
		}
		if err != nil {
			return err
		}
		return syscall.Kill(pids[0], syscall.SIGKILL)
	})
}

const onePolicy = noPolicies + `- name: policy
  plugins: {balance: {enabled: [{name: %[1]s}]}}
  pluginConfig:
  - name: %[1]s
    args: %[2]s
`

// roomByPolicy: the policy MakeRoom moves a pod for one that waits longer than a second.
func roomByPolicy(t *testing.T, l *local, config string) {
	r := newRooms(t, l, "policy")
	defer r.end(t)
	cpus := func(name, n string) *corev1.Pod {
		p := pod(name, object.Class("LSR"), object.Both("cpu", n, "memory", "1Gi"))
		p.Spec.NodeSelector = map[string]string{corev1.LabelArchStable: "arm64"}
		return p
	}
	r.deploy(t, "web", cpus("web", "24"), armNode, otherArmNode)
	places := placed(t, l)
	r.create(t, cpus("train", "60"))
	r.waits(t, "train")
	useConfig(t, l, config, fmt.Sprintf(onePolicy, "MakeRoom", "{pendingFor: 1s, namespaces: {include: [policy]}}"))
	defer useConfig(t, l, config, noPolicies)
	jobs := r.moved(t, 1, places)
	r.runsOn(t, "train", startOf(&jobs[0]).Node)
	if plugin := jobs[0].Annotations[annotation.MigrationPlugin]; plugin != "policy/MakeRoom" {
		t.Errorf("the job is of %q", plugin)
	}
}

// defragmentByPolicy: five GPUs are free on each of two nodes, and pods of eight are expected, as some have come.
func defragmentByPolicy(t *testing.T, l *local, config string) {
	r := newRooms(t, l, "fragments")
	defer r.end(t)
	larges := []string{"large-0", "large-1", "large-2"} // one runs, and the others wait
	for _, name := range larges {
		large := withGPU(name, "800", object.Grace(1))
		large.Spec.NodeSelector = map[string]string{corev1.LabelHostname: otherGPUNode}
		r.create(t, large)
	}
	r.runsOn(t, "large-0", otherGPUNode)
	r.deploy(t, "part", withGPU("part", "300", object.Grace(1)), gpuNode)
	for _, name := range slices.Backward(larges) {
		testkit.Check(t, r.client.CoreV1().Pods(r.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	r.scale(t, "part", 2, otherGPUNode)
	places := placed(t, l)
	useConfig(t, l, config, fmt.Sprintf(onePolicy, "Defragment",
		"{minFall: 50, evictableNamespaces: {include: [fragments]}}"))
	defer useConfig(t, l, config, noPolicies)
	jobs := r.moved(t, 1, places)
	if plugin := jobs[0].Annotations[annotation.MigrationPlugin]; plugin != "policy/Defragment" {
		t.Errorf("the job is of %q", plugin)
	}
}

// relieveByPolicy: two pods request little, and use 52 of the 64 CPUs of their node by its reports. One of them moves
// to the node that uses nothing, where it is within the thresholds.
func relieveByPolicy(t *testing.T, l *local, config string) {
	r := newRooms(t, l, "load")
	defer r.end(t)
	t.Cleanup(func() {
		if t.Failed() {
			out, err := l.tenon("kubectl", "get", "nodemetrics", "-o", "yaml")
			t.Log("what the nodes reported:", out, err)
		}
	})
	_, err := l.client.CoreV1().ConfigMaps("tenon-system").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "slo-controller-config"},
		Data: map[string]string{
			"colocation-config": `{"metricAggregateDurationSeconds":5,"metricReportIntervalSeconds":1}`,
		},
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
	r.deploy(t, "busy", pod("busy", object.Requests("cpu", "1", "memory", "1Gi"), object.Grace(1),
		object.Annotation("tenon.sh/simulate", `{"cpu":"26","memory":"1Gi"}`)), armNode, armNode)
	places := placed(t, l)
	useConfig(t, l, config, fmt.Sprintf(onePolicy, "LowNodeLoad", "{lowThresholds: {cpu: 45}, highThresholds: "+
		"{cpu: 75}, anomalyCondition: {consecutiveAbnormalities: 2}, evictableNamespaces: {include: [load]}, "+
		"nodeSelector: {matchLabels: {kubernetes.io/arch: arm64}}}"))
	defer useConfig(t, l, config, noPolicies)
	jobs := r.moved(t, 1, places)
	p := r.pod(t, jobs[0].Status.PodRef.Name)
	if plugin := jobs[0].Annotations[annotation.MigrationPlugin]; plugin != "policy/LowNodeLoad" ||
		p.Spec.NodeName != otherArmNode {
		t.Errorf("the job is of %q, and moved its pod to %s", plugin, p.Spec.NodeName)
	}
}
