package system

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tenon-project/tenon/api/annotation"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

const (
	nodesVerb = "__nodes"
	// suppressPercent is up to which use of a node best-effort pods may have what others leave, reclaimPercent the same
	// of batch amounts.
	suppressPercent, reclaimPercent = 65, 60
	// fewest is how many milli-CPU best-effort pods keep.
	fewest = 2000
	// serviceRequest is what a service requests, serviceUse the top of its wave, in CPUs.
	serviceRequest, serviceUse = 12, 16
	// latest is how many seconds in a row best-effort pods may have more than their share, soonest the same after their
	// agent has started.
	latest, soonest = 4, 15
)

// wave is a service whose load rises and falls with the clock.
type wave struct {
	node, pattern string
}

// at is what the service wants at a time, in milli-CPU, as docs/start/local-cluster.md describes the patterns.
func (w wave) at(now time.Time) float64 {
	second := float64(now.UnixMilli()%60_000) / 1000
	switch {
	case w.pattern == annotation.SimulateSine:
		return serviceUse * 1000 * (1 - math.Cos(2*math.Pi*second/60)) / 2
	case w.pattern == annotation.SimulateSteps:
		return serviceUse * 250 * (1 + math.Floor(second/15))
	case second < 10:
		return serviceUse * 1000
	}
	return serviceUse * 100
}

// used is what the pods of a simulated node have used since it was started.
type used struct {
	at       time.Time
	up       float64            // seconds since its start
	services map[string]float64 // by UID, in seconds of CPU time
	best     map[string]float64
}

// sampled follows a simulated node by its files.
type sampled struct {
	tree
	cpus      int
	before    used
	beginning int // samples since the last start
	over      int // samples in a row in which best-effort pods had more than their share
	// samples counts all, shrunk those in which services left best-effort pods less than all that they may have.
	samples                       atomic.Int64
	shrunk, longest, longestStart int
	busy                          float64 // CPU time of best-effort pods
	broken                        []string
}

// next returns what has been used, once the node has written it anew and before it writes again.
func (m *sampled) next() (u used, fresh bool, err error) {
	stat := filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(m.root))), "proc/stat")
	info, err := os.Stat(stat)
	if errors.Is(err, fs.ErrNotExist) {
		return u, false, nil // the node starts
	}
	if err != nil || !info.ModTime().After(m.before.at) {
		return u, false, err
	}
	u = used{at: info.ModTime(), services: map[string]float64{}, best: map[string]float64{}}
	text, err := os.ReadFile(stat)
	if err != nil {
		return u, false, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 5 {
		return u, false, nil
	}
	busy, _ := strconv.ParseFloat(fields[1], 64)
	idle, _ := strconv.ParseFloat(fields[4], 64)
	u.up = (busy + idle) / 100 / float64(m.cpus)
	err = filepath.WalkDir(filepath.Join(m.root, "kubepods"), func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil || d.Name() != "cpu.stat" || !podDir.MatchString(path) {
			return err
		}
		text, _ := os.ReadFile(path)
		usec, unwritten := strconv.ParseFloat(strings.TrimSpace(strings.TrimPrefix(string(text), "usage_usec ")), 64)
		into := u.services
		if strings.Contains(path, "/besteffort/") {
			into = u.best
		}
		if unwritten == nil { // else the pod has just ended, or starts
			into[podOf(filepath.Dir(path))] = usec / 1e6
		}
		return nil
	})
	after, errAfter := os.Stat(stat)
	return u, err == nil && errAfter == nil && after.ModTime().Equal(u.at), err
}

// look takes a sample, and checks it beside the one before.
func (m *sampled) look(services map[string]wave) error {
	now, fresh, err := m.next()
	if err != nil || !fresh {
		return err
	}
	before := m.before
	m.before = now
	passed := now.up - before.up
	if passed <= 0 || before.up == 0 { // it was started again, and counts from 0
		m.beginning, m.over = 0, 0
		return nil
	}
	if passed < 0.1 {
		m.before = before
		return nil
	}
	m.beginning++
	m.samples.Add(1)
	var served, best float64
	starved := ""
	for uid, total := range now.services {
		was, known := before.services[uid]
		milli := (total - was) / passed * 1000
		served += milli
		w, found := services[uid]
		if !known || !found {
			continue
		}
		// The clock that the machine read is up to a moment earlier than the time of its file.
		needs := min(serviceRequest*1000, w.at(now.at), w.at(now.at.Add(-200*time.Millisecond))) * 0.98
		if milli < needs-100 {
			starved += fmt.Sprintf(" the service %s has %.0fm of %.0fm;", w.pattern, milli, needs)
		}
	}
	for uid, total := range now.best {
		best += (total - before.best[uid]) / passed * 1000
		m.busy += total - before.best[uid]
	}
	whole := float64(m.cpus * 1000)
	share := max(whole*suppressPercent/100-served, fewest)
	if share < whole*suppressPercent/100-1000 {
		m.shrunk++
	}
	if best <= share+1100 { // a CPU that is shared in part
		m.over = 0
		return nil
	}
	m.over++
	limit := latest
	if m.beginning-m.over < soonest {
		limit = soonest
		m.longestStart = max(m.longestStart, m.over)
	} else {
		m.longest = max(m.longest, m.over)
	}
	if starved != "" || m.over > limit {
		m.broken = append(m.broken, fmt.Sprintf("%s, %d s after its start: best-effort pods use %.0fm for %d s, and "+
			"services leave %.0fm;%s", m.node, m.beginning, best, m.over, share, starved))
	}
	return nil
}

// grant is an amount of CPU in milli, and of memory in bytes.
type grant [2]int64

func grantOf(list corev1.ResourceList, cpu, memory corev1.ResourceName) grant {
	c, b := list[cpu], list[memory]
	if cpu == corev1.ResourceCPU {
		return grant{c.MilliValue(), b.Value()}
	}
	return grant{c.Value(), b.Value()}
}

// shown is what a version of a Node grants.
type shown struct {
	version                   int64
	at                        time.Time
	capacity, reserved, batch grant
}

// reported is what a version of a NodeMetric says.
type reported struct {
	version int64
	// system is what neither pods nor applications use, services what pods use that are not batch pods. What the node
	// uses besides its pods would also have what pods used that have ended within the time of the report.
	system, services grant
}

// bound is a batch pod that was bound, or has ended.
type bound struct {
	version int64
	request grant // less than 0 of one that ended
}

// ledger is all that the API server has said of the batch amounts of nodes.
type batchLedger struct {
	mu      sync.Mutex
	nodes   map[string][]shown
	metrics map[string][]reported
	pods    map[string][]bound
	running map[string]*corev1.Pod // by UID
	service map[string]wave
	ended   int
}

func versionOf(o metav1.Object) int64 {
	n, _ := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	return n
}

func isBatch(name string) bool { return strings.HasPrefix(name, "nightly") }

func (b *batchLedger) seePod(e watch.Event) {
	p, ok := e.Object.(*corev1.Pod)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if pattern := p.Labels["wave"]; pattern != "" {
		b.service[string(p.UID)] = wave{p.Spec.NodeName, pattern}
	}
	if !isBatch(p.Name) || p.Spec.NodeName == "" {
		return
	}
	uid, request := string(p.UID), grantOf(p.Spec.Containers[0].Resources.Requests, convert.BatchCPU,
		convert.BatchMemory)
	ended := e.Type == watch.Deleted || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	switch was := b.running[uid]; {
	case was == nil && !ended:
		b.running[uid] = p
		b.pods[p.Spec.NodeName] = append(b.pods[p.Spec.NodeName], bound{versionOf(p), request})
	case was != nil && ended:
		delete(b.running, uid)
		b.ended++
		b.pods[p.Spec.NodeName] = append(b.pods[p.Spec.NodeName], bound{versionOf(p), grant{-request[0], -request[1]}})
	}
}

func (b *batchLedger) seeNode(n *corev1.Node) {
	s := shown{
		version: versionOf(n), at: time.Now(),
		capacity: grantOf(n.Status.Capacity, corev1.ResourceCPU, corev1.ResourceMemory),
		batch:    grantOf(n.Status.Allocatable, convert.BatchCPU, convert.BatchMemory),
	}
	allocatable := grantOf(n.Status.Allocatable, corev1.ResourceCPU, corev1.ResourceMemory)
	for r := range s.reserved {
		s.reserved[r] = s.capacity[r] - allocatable[r]
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.nodes[n.Name]; len(known) == 0 || known[len(known)-1].batch != s.batch {
		b.nodes[n.Name] = append(known, s)
	}
}

func (b *batchLedger) seeMetric(m *slo.NodeMetric) {
	if m.Status.NodeMetric == nil {
		return
	}
	grantIn := func(u slo.ResourceMap) grant {
		return grantOf(u.Resources, corev1.ResourceCPU, corev1.ResourceMemory)
	}
	said := reported{version: versionOf(m), system: grantIn(m.Status.NodeMetric.SystemUsage)}
	for _, row := range m.Status.PodsMetric {
		for r, n := range grantIn(row.PodUsage) {
			if !isBatch(row.Name) {
				said.services[r] += n
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.metrics[m.Name] = append(b.metrics[m.Name], said)
}

// most is the largest amount that may be granted by a report.
func (s shown) most(m reported, r int) int64 {
	m1 := s.capacity[r] - m.system[r] - m.services[r]
	policy := s.capacity[r]*reclaimPercent/100 - max(m.system[r], s.reserved[r]) - m.services[r]
	return max(min(m1, policy), 0)
}

// waves returns the services by UID.
func (b *batchLedger) waves() map[string]wave {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.service)
}

// check returns what was granted in excess, and how often amounts were granted.
func (b *batchLedger) check() (broken []string, grants int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, versions := range b.nodes {
		metrics := b.metrics[name]
		slices.SortFunc(metrics, func(x, y reported) int { return cmp.Compare(x.version, y.version) })
		for i, s := range versions {
			if s.capacity[0] == 0 || s.capacity[1] == 0 {
				broken = append(broken, fmt.Sprintf("%s at %d: its own amounts are gone: %+v", name, s.version, s))
			}
			if s.batch == (grant{}) {
				continue
			}
			grants++
			known, _ := slices.BinarySearchFunc(metrics, s.version, func(m reported, v int64) int {
				return cmp.Compare(m.version, v)
			})
			for r, n := range s.batch {
				// The manager may have read the report before the last one.
				most := int64(-1)
				for _, m := range metrics[max(0, known-2):known] {
					most = max(most, s.most(m, r))
				}
				if n > most {
					broken = append(broken, fmt.Sprintf("%s at %d: batch amount %d is %d, and its reports allow %d: "+
						"%+v", name, s.version, r, n, most, metrics[max(0, known-2):known]))
				}
				minute := float64(s.capacity[r]) / 10
				allowed, before := minute, int64(0)
				if i > 0 && versions[i-1].batch != (grant{}) {
					// Nodes say when they were written in whole seconds.
					before = versions[i-1].batch[r]
					allowed = min(minute, minute*(s.at.Sub(versions[i-1].at).Seconds()+2)/60)
				}
				if float64(n-before) > allowed+1 {
					broken = append(broken, fmt.Sprintf("%s at %d: batch amount %d grows from %d to %d within %v", name,
						s.version, r, before, n, s.at.Sub(versions[i-1].at)))
				}
			}
		}
		broken = append(broken, b.checkPods(name)...)
	}
	return broken, grants
}

// checkPods checks that no pod was bound beyond what its node granted.
func (b *batchLedger) checkPods(node string) (broken []string) {
	pods, versions := b.pods[node], b.nodes[node]
	slices.SortFunc(pods, func(x, y bound) int { return cmp.Compare(x.version, y.version) })
	var sum grant
	for _, p := range pods {
		granted := grant{}
		for i, s := range versions { // the scheduler may have read the version before the last one
			if s.version < p.version && (i+2 >= len(versions) || versions[i+2].version >= p.version) {
				for r := range granted {
					granted[r] = max(granted[r], s.batch[r])
				}
			}
		}
		for r := range sum {
			if sum[r] += p.request[r]; p.request[r] > 0 && sum[r] > granted[r] {
				broken = append(broken, fmt.Sprintf("%s at %d: batch pods have %d of amount %d, and %d are granted",
					node, p.version, sum[r], r, granted[r]))
			}
		}
	}
	return broken
}

// versions follows all versions of a kind of object until ctx ends.
func versions[T any](ctx context.Context, objects dynamic.ResourceInterface, see func(*T)) {
	take := func(o *unstructured.Unstructured) {
		var typed T
		if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &typed) == nil {
			see(&typed)
		}
	}
	for ctx.Err() == nil {
		list, err := objects.List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for i := range list.Items {
			take(&list.Items[i])
		}
		stream, err := objects.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
		if err != nil {
			continue
		}
		for e := range stream.ResultChan() {
			if o, ok := e.Object.(*unstructured.Unstructured); ok {
				take(o)
			}
		}
	}
}

// colocation is a cluster whose nodes have services with waves of load, and batch pods.
type colocation struct {
	*local
	*batchLedger
	machines []*sampled
}

// simulate is the annotation of a pod that uses CPU and memory.
func simulate(t *testing.T, cpu, memory string, s annotation.Simulate) object.PodOption {
	t.Helper()
	uses := object.List("cpu", cpu, "memory", memory)
	s.CPU, s.Memory = uses.Cpu(), uses.Memory()
	text, err := json.Marshal(s)
	testkit.Check(t, err)
	return object.Annotation(annotation.SimulateKey, string(text))
}

// serve creates services on each node, and a best-effort pod that requests nothing. Kubelets that start again reject
// batch pods beyond what their Node grants then; this one remains.
func (c *colocation) serve(t *testing.T) {
	t.Helper()
	for _, m := range c.machines {
		all := []*corev1.Pod{
			pod("nightly-"+m.node, object.Class("BE"), simulate(t, "30", "2Gi", annotation.Simulate{})),
		}
		for _, pattern := range []string{annotation.SimulateSine, annotation.SimulateSteps, annotation.SimulateBurst} {
			all = append(all, pod(m.node+"-"+pattern, object.Class("LS"), object.Label("wave", pattern),
				object.Requests("cpu", fmt.Sprint(serviceRequest), "memory", "32Gi"),
				simulate(t, fmt.Sprint(serviceUse), "24Gi", annotation.Simulate{Pattern: pattern})))
		}
		for _, p := range all {
			p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: m.node}
			_, err := c.client.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{})
			testkit.Check(t, err)
		}
	}
}

// fill creates Jobs whose pods ask for more than all batch amounts, and waits until some run on each node.
func (c *colocation) fill(t *testing.T) {
	t.Helper()
	for i, runFor := range []time.Duration{15 * time.Second, time.Minute} {
		p := pod("p", object.Class("BE"), object.Requests(string(convert.BatchCPU), "1500", string(convert.BatchMemory),
			"2Gi"), simulate(t, "20", "2Gi", annotation.Simulate{RunFor: &metav1.Duration{Duration: runFor}}))
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		n := int32(3 * len(c.machines))
		_, err := c.client.BatchV1().Jobs("default").Create(t.Context(), &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("nightly-", i)},
			Spec: batchv1.JobSpec{
				Completions: new(100 * n), Parallelism: &n, BackoffLimit: new(int32(1000)),
				Template: corev1.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec},
			},
		}, metav1.CreateOptions{})
		testkit.Check(t, err)
	}
	waitFor(t, time.Minute, "batch pods on each node", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, m := range c.machines {
			if len(c.pods[m.node]) == 0 {
				return fmt.Errorf("%s has none", m.node)
			}
		}
		return nil
	})
}

// signal sends a signal to the process of a verb.
func (c *colocation) signal(t *testing.T, verb string, s syscall.Signal) {
	t.Helper()
	waitFor(t, time.Minute, "a process "+verb, func() error {
		pids, err := c.processes(verb)
		if err == nil && pids[0] == 0 {
			err = errors.New("there is none")
		}
		if err != nil {
			return err
		}
		return syscall.Kill(pids[0], s)
	})
}

// await waits until each node has written that many samples more.
func (c *colocation) await(t *testing.T, samples int64) {
	t.Helper()
	want := make([]int64, len(c.machines))
	for i, m := range c.machines {
		want[i] = m.samples.Load() + samples
	}
	waitFor(t, 3*time.Minute, "samples of all nodes", func() error {
		for i, m := range c.machines {
			if n := m.samples.Load(); n < want[i] {
				return fmt.Errorf("%s has %d of %d", m.node, n, want[i])
			}
		}
		return nil
	})
}

// grants returns the batch amounts of all nodes, and the version of the list.
func (c *colocation) grants(t *testing.T) (all map[string]grant, version string) {
	t.Helper()
	list, err := c.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	testkit.Check(t, err)
	all = map[string]grant{}
	for i := range list.Items {
		all[list.Items[i].Name] = grantOf(list.Items[i].Status.Allocatable, convert.BatchCPU, convert.BatchMemory)
	}
	return all, list.ResourceVersion
}

// granted waits until all nodes grant batch amounts, or none does.
func (c *colocation) granted(t *testing.T, want bool) {
	t.Helper()
	waitFor(t, 3*time.Minute, fmt.Sprint("batch amounts: ", want), func() error {
		all, _ := c.grants(t)
		for name, a := range all {
			if (a[0] > 0) != want {
				return fmt.Errorf("%s grants %v", name, a)
			}
		}
		return nil
	})
}

// TestBestEffortPodsYieldWhileAgentsAndManagerDie has services with waves of load on each node, beside Jobs whose pods
// ask for more than all batch amounts and use more than they ask for, and kills agents, with their machines, and the
// manager. At each second of each node: no service is below its request while best-effort pods have more than their
// share, and these are back at their share within seconds. Each batch amount is at most what the last reports allow
// (M1), and grows by at most a tenth of the node a minute, whichever manager writes it. No batch pod is bound beyond
// it. A manager that is stopped grants nothing, and what agents that are stopped have reported grants nothing once it
// is a minute old. What is not granted any more is gone from the Nodes, and nothing else of them.
func TestBestEffortPodsYieldWhileAgentsAndManagerDie(t *testing.T) {
	t.Parallel()
	l := up(t, 1, "--machine", "arm64-1s", "--nodes", fmt.Sprint(size(3, 20)))
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(l.dir, "kubeconfig"))
	testkit.Check(t, err)
	objects, err := dynamic.NewForConfig(config)
	testkit.Check(t, err)
	c := &colocation{local: l, batchLedger: &batchLedger{
		nodes: map[string][]shown{}, metrics: map[string][]reported{}, pods: map[string][]bound{},
		running: map[string]*corev1.Pod{}, service: map[string]wave{},
	}}
	forest, err := trees(l.dir)
	testkit.Check(t, err)
	for _, tr := range forest {
		c.machines = append(c.machines, &sampled{tree: tr, cpus: 64})
	}
	ctx, stop := context.WithCancel(t.Context())
	var following sync.WaitGroup
	defer following.Wait()
	defer stop()
	following.Go(func() { l.follow(ctx, c.seePod) })
	following.Go(func() {
		versions(ctx, objects.Resource(corev1.SchemeGroupVersion.WithResource("nodes")), c.seeNode)
	})
	following.Go(func() { versions(ctx, objects.Resource(slo.NodeMetrics()), c.seeMetric) })
	for _, m := range c.machines {
		following.Go(func() {
			for ticker := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil; <-ticker.C {
				if err := m.look(c.waves()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	_, err = l.client.CoreV1().ConfigMaps("tenon-system").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "slo-controller-config"},
		Data: map[string]string{
			"colocation-config": fmt.Sprintf(`{"enable":true,"cpuReclaimThresholdPercent":%d,"degradeTimeMinutes":1,`+
				`"memoryReclaimThresholdPercent":%[1]d,"metricAggregateDurationSeconds":2,`+
				`"metricReportIntervalSeconds":2}`, reclaimPercent),
			"resource-threshold-config": fmt.Sprintf(
				`{"clusterStrategy":{"enable":true,"cpuSuppressThresholdPercent":%d}}`, suppressPercent),
		},
	}, metav1.CreateOptions{})
	testkit.Check(t, err)
	c.granted(t, true)
	c.fill(t)
	c.serve(t)
	c.await(t, 3)
	for i := range kills() {
		c.signal(t, []string{nodesVerb, managerVerb}[i%2], syscall.SIGKILL)
		c.await(t, int64(size(1, 10)))
	}
	c.signal(t, managerVerb, syscall.SIGSTOP)
	c.await(t, 1) // what it has sent has arrived
	before, _ := c.grants(t)
	c.await(t, int64(size(2, 20)))
	if after, _ := c.grants(t); !maps.Equal(before, after) {
		t.Errorf("without a manager, amounts changed from %v to %v", before, after)
	}
	c.signal(t, managerVerb, syscall.SIGKILL)
	if *soak {
		c.granted(t, true)
		c.signal(t, nodesVerb, syscall.SIGSTOP)
		c.granted(t, false)
		c.signal(t, nodesVerb, syscall.SIGCONT)
		c.granted(t, true)
		c.await(t, 20)
	}
	_, err = l.client.CoreV1().ConfigMaps("tenon-system").Patch(t.Context(), "slo-controller-config",
		types.MergePatchType, []byte(`{"data":{"colocation-config":"{\"enable\":false}"}}`), metav1.PatchOptions{})
	testkit.Check(t, err)
	c.granted(t, false)
	stop()
	following.Wait()
	broken, grants := c.check()
	samples, shrunk, longest, longestStart := int64(0), 0, 0, 0
	for _, m := range c.machines {
		broken = append(broken, m.broken...)
		samples, shrunk = samples+m.samples.Load(), shrunk+m.shrunk
		longest, longestStart = max(longest, m.longest), max(longestStart, m.longestStart)
		if m.busy == 0 {
			t.Errorf("%s: no best-effort pod ran", m.node)
		}
	}
	for _, text := range broken {
		t.Error(text)
	}
	t.Logf("%d samples, in %d of which services left less than all; best-effort pods had more than their share for at "+
		"most %d s, %d s after a start; %d grants, %d batch pods ended", samples, shrunk, longest, longestStart, grants,
		c.ended)
	if shrunk == 0 || grants == 0 {
		t.Error("nothing was tried")
	}
}
