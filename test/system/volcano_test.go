package system

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// volcanoPod is pod i of a mix of Guaranteed pods with whole CPUs and Volcano's policies: 100 CPUs for each 50 pods, of
// the 126 that a node has for pods.
func volcanoPod(i int) *corev1.Pod {
	policies := []string{"restricted", "single-numa-node", "best-effort"}
	pod := pod(fmt.Sprintf("numa-%04d", i),
		object.Annotation(annotation.VolcanoTopologyPolicy, policies[i%len(policies)]),
		object.Both("cpu", fmt.Sprint(1+i%2), "memory", "64Mi"))
	side := func(cpus string) {
		object.Container("side", "app")(pod)
		object.Both("cpu", cpus, "memory", "64Mi")(pod)
	}
	switch i % 8 {
	case 3: // 2 + 1
		side("1")
	case 6: // 1 + 4
		side("4")
	}
	return pod
}

// Law (seed 004, where it lists what Volcano lacks): with reservation, pods that are created and bound in parallel get
// from their kubelets what the scheduler said, and no kubelet rejects one.
func TestSchedulerAndKubeletsAgreeUnderConcurrency(t *testing.T) {
	t.Parallel()
	const writers = 20
	count, nodes := size(500, 1000), size(10, 20)
	l := up(t, 1, "--machine", fmt.Sprintf("epyc-2s@static,restricted,follow=%d", nodes))
	ctx := t.Context()
	pods := l.client.CoreV1().Pods(metav1.NamespaceDefault)
	began := time.Now()
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for i := w; i < count; i += writers {
				l.submit(t, volcanoPod(i))
			}
		})
	}
	writing.Wait()
	created := time.Since(began)

	var list *corev1.PodList
	waitFor(t, time.Duration(size(3, 6))*time.Minute, "every pod to run, or to fail", func() error {
		// A list of so many pods is work for the cluster that the test waits for.
		time.Sleep(time.Second) //nolint:forbidigo // see above
		var err error
		if list, err = pods.List(ctx, metav1.ListOptions{}); err != nil {
			return err
		}
		phases := map[corev1.PodPhase]int{}
		for i := range list.Items {
			phases[list.Items[i].Status.Phase]++
		}
		if phases[corev1.PodRunning]+phases[corev1.PodFailed] != count {
			return fmt.Errorf("of %d pods: %v", count, phases)
		}
		return nil
	})
	t.Logf("%d pods created in %v, all settled after %v", count, created.Round(time.Millisecond),
		time.Since(began).Round(time.Millisecond))

	given := map[string]map[string]string{} // by UID and container, as the kubelets recorded it
	for n := range nodes {
		for uid, containers := range cpuManagerState(t, l.dir, fmt.Sprintf("epyc-2s-%d", n)) {
			given[uid] = containers
		}
	}
	for i := range list.Items {
		for _, fault := range disagreements(&list.Items[i], given[string(list.Items[i].UID)]) {
			t.Error(fault)
		}
	}
	if len(given) != count {
		t.Errorf("the kubelets gave CPUs to %d pods, want %d", len(given), count)
	}
	metrics := schedulerMetrics(t, l)
	// A Binding that the API server does not answer in time is made once more, with a prediction of its own.
	if got := metrics["tenon_topology_predictions_total"]; got < float64(count) {
		t.Errorf("%v predictions, want %d", got, count)
	}
	waitFor(t, time.Minute, "the scheduler to hear of every placement", func() error {
		n, err := unconfirmed(ctx, l, count)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d pods are not reported", n)
		}
		return err
	})
	for _, name := range []string{"tenon_topology_mispredict_total", "tenon_kubelet_rejections_total"} {
		if got := schedulerMetrics(t, l)[name]; got != 0 {
			t.Errorf("%s is %v, want 0", name, got)
		}
	}
}

// disagreements holds what the scheduler wrote on a pod against what its kubelet gave its containers.
func disagreements(pod *corev1.Pod, given map[string]string) []string {
	if pod.Status.Phase == corev1.PodFailed {
		return []string{fmt.Sprintf("pod %s failed on %s: %s: %s", pod.Name, pod.Spec.NodeName, pod.Status.Reason,
			pod.Status.Message)}
	}
	predicted, _, err := annotation.ParsePredictedPlacement(pod.Annotations[annotation.PredictedPlacementKey])
	if err != nil || len(predicted.Containers) == 0 {
		return []string{fmt.Sprintf("pod %s on %s carries no prediction: %v", pod.Name, pod.Spec.NodeName, err)}
	}
	var out []string
	for _, c := range pod.Spec.Containers {
		want, wrong := cpuset.ParseIDs(predicted.Containers[c.Name].CPUs)
		got, broken := cpuset.ParseIDs(given[c.Name])
		if wrong != nil || broken != nil || len(got) != int(c.Resources.Requests.Cpu().Value()) ||
			cpuset.FormatIDs(want) != cpuset.FormatIDs(got) {
			out = append(out, fmt.Sprintf("pod %s/%s on %s: predicted CPUs %q, given %q", pod.Name, c.Name,
				pod.Spec.NodeName,
				predicted.Containers[c.Name].CPUs, given[c.Name]))
		}
	}
	return out
}

// cpuManagerState reads a simulated node's checkpoint: CPUs by pod and container.
func cpuManagerState(t *testing.T, dir, node string) map[string]map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "nodes", node, "var/lib/kubelet/cpu_manager_state"))
	testkit.Check(t, err)
	var state struct {
		PolicyName string                       `json:"policyName"`
		Entries    map[string]map[string]string `json:"entries"`
	}
	if err := json.Unmarshal(text, &state); err != nil || state.PolicyName != "static" {
		t.Fatalf("cpu_manager_state of %s: policy %q, %v", node, state.PolicyName, err)
	}
	return state.Entries
}

// unconfirmed counts the running pods, of count, of which no agent has reported the placement yet.
func unconfirmed(ctx context.Context, l *local, count int) (int, error) {
	reported := map[string]bool{}
	text, err := l.client.CoreV1().RESTClient().Get().AbsPath(
		"/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	var list struct {
		Items []struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
		} `json:"items"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return 0, err
	}
	for _, o := range list.Items {
		state, _, err := annotation.ParseNUMAState(o.Metadata.Annotations[annotation.NUMAStateKey])
		if err != nil {
			return 0, err
		}
		for uid := range state.Pods {
			reported[string(uid)] = true
		}
	}
	return count - len(reported), nil
}

// schedulerMetrics returns the sums of the scheduler's metrics over their labels, those of ours.
func schedulerMetrics(t *testing.T, l *local) map[string]float64 {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(l.dir, "kubeconfig"))
	testkit.Check(t, err)
	// the scheduler's own certificate
	cfg.TLSClientConfig.CAData, cfg.TLSClientConfig.CAFile, cfg.TLSClientConfig.Insecure = nil, "", true
	transport, err := rest.TransportFor(cfg)
	testkit.Check(t, err)
	text, err := os.ReadFile(filepath.Join(l.dir, "ports.json"))
	testkit.Check(t, err)
	var ports map[string]int
	testkit.Check(t, json.Unmarshal(text, &ports))
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	resp, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/metrics", ports["scheduler-secure"]))
	testkit.Check(t, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("the scheduler's metrics: %s", resp.Status)
	}
	sums := map[string]float64{}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "tenon_") {
			continue
		}
		name, _, _ := strings.Cut(line, "{")
		at := strings.LastIndexByte(line, ' ')
		if value, err := strconv.ParseFloat(line[at+1:], 64); err == nil {
			sums[name] += value
		}
	}
	return sums
}
