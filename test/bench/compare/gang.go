package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
)

const (
	// fillNamespace is that of pods that have nodes before a scheduler starts.
	fillNamespace = "fill"
	// aboveFill is a PriorityClass above their priority, 0.
	aboveFill = "above-fill"
	// idlePeriod is how long a scheduler is watched when all gangs that fit are bound. Tenon writes the reason of a pod
	// that waits when it has lasted for five seconds.
	idlePeriod = 15 * time.Second
	// pause is the time between two gangs that come to a warm scheduler.
	pause = 500 * time.Millisecond
	// arriving is how many gangs come one after the other in the cases of one gang.
	arriving = 10
)

// filler is a pod of which two fill a node, with the others of its gang.
var filler = workload{cpu: "16", memory: "1Gi", size: 8}

// gangs is how many gangs there are, how many of them fit, and on how many nodes; the other nodes are full of fillers.
type gangs struct{ exist, fit, free int }

func (c benchCase) ofGangs() bool { return c.gangs != nil && c.perSecond == 0 }

// gangSuite is Tenon's gangs beside those of Kubernetes, which are behind gates, and those of scheduler-plugins. It has
// the cases that are asked for besides its own: 2000x3 is 2,000 gangs of 3, and with 2000x3-rack each is in one rack.
func gangSuite(stock, community, tenon string, asked []string) suite {
	const gates = "--feature-gates=GenericWorkload=true,GangScheduling=true"
	const preempting = gates + ",WorkloadAwarePreemption=true"
	const gathering = gates + ",TopologyAwareWorkloadScheduling=true"
	small := workload{cpu: "100m", memory: "128Mi"}
	three := []string{"stock", "community", "tenon"}
	allFit := func(name string, n, size int) benchCase {
		c := benchCase{
			name: name, title: fmt.Sprintf("%d gangs of %d, all fit", n, size), load: small, among: three,
			gangs: func(nodes int) gangs { return gangs{n, n, nodes} },
		}
		c.load.size = size
		return c
	}
	halves := workload{cpu: "20", memory: "1Gi", size: 64}
	half := func(nodes int) gangs {
		fit := min(nodes/64, 8)
		return gangs{2 * fit, fit, min(nodes, 64*fit+32)}
	}
	racked := func(name string, n, size int) benchCase {
		c := allFit(name, n, size)
		c.load.rack, c.among = true, []string{"stock-gathering", "tenon-native"}
		c.title = fmt.Sprintf("%d gangs of %d, each in one rack of 50 nodes, all fit", n, size)
		return c
	}
	open := func(name string, rate int) []benchCase {
		alone := benchCase{
			name: name, title: fmt.Sprintf("%d plain pods/s", rate), ratioTo: name, load: small, perSecond: rate,
			among: []string{"stock", "tenon", "tenon-plain"},
		}
		both := alone
		both.name, both.title = name+"-half", alone.title+" beside gangs of which half fit"
		both.among, both.beside, both.gangs = []string{"stock", "tenon"}, halves, half
		waiting := both
		waiting.name, waiting.title = name+"-waiting", alone.title+" beside gangs of which half run and half wait"
		waiting.early = true
		return []benchCase{alone, both, waiting}
	}
	s := suite{
		contenders: []contender{
			{name: "stock", path: stock, flags: []string{gates}, native: true},
			{name: "stock-preempting", path: stock, flags: []string{preempting}, native: true},
			{
				name: "community", path: community,
				instead: map[string]string{"PrioritySort": ""}, also: "Coscheduling",
			},
			{name: "stock-gathering", path: stock, flags: []string{gathering}, native: true},
			{name: "tenon", path: tenon},
			{name: "tenon-native", path: tenon, native: true},
			{name: "tenon-plain", path: tenon, instead: map[string]string{"Coscheduling": ""}},
		},
		base: "tenon-plain", beside: []string{"stock", "community", "stock-gathering"}, digits: 2,
		plane: []string{
			preempting + ",TopologyAwareWorkloadScheduling=true", "--runtime-config=scheduling.k8s.io/v1alpha2=true",
		},
		cases: slices.Concat([]benchCase{
			allFit("fits", 16, 64), allFit("1000x3", 1000, 3), allFit("3x1000", 3, 1000), allFit("9x1000", 9, 1000),
			racked("750x4", 750, 4),
			{
				name: "half", title: "gangs of 64 of which half fit, one pod on a node", among: three,
				load: halves, gangs: half,
			},
			{
				name: "preempt", title: "gangs of 64 come to nodes full of gangs of 8, one pod in the place of two",
				among: append(three, "stock-preempting"), arrive: true,
				load: workload{cpu: "20", memory: "1Gi", size: 64, priority: aboveFill},
				gangs: func(nodes int) gangs {
					n := max(1, nodes/128)
					return gangs{n, n, 0}
				},
			},
			{
				name: "plain", title: "plain pods", ratioTo: "plain", load: small,
				among: []string{"tenon-plain", "tenon"},
			},
		}, open("open", 200), open("open100", 100)),
	}
	for _, size := range []int{3, 64, 200} {
		for _, rate := range []int{0, 20, 100} {
			c := benchCase{
				name:  fmt.Sprintf("one%d", size),
				title: fmt.Sprintf("one gang of %d comes to an idle scheduler", size), load: small,
				among: []string{"stock", "tenon-native"}, arrive: true, besidePods: rate,
				gangs: func(nodes int) gangs { return gangs{arriving, arriving, nodes} },
			}
			c.load.size = size
			if rate > 0 {
				c.name += fmt.Sprintf("-%d", rate)
				c.title = fmt.Sprintf("one gang of %d comes beside %d plain pods/s", size, rate)
			}
			s.cases = append(s.cases, c)
		}
	}
	for _, name := range asked {
		var n, size int
		shape, rack := strings.CutSuffix(name, "-rack")
		if _, err := fmt.Sscanf(shape, "%dx%d", &n, &size); err != nil || shape != fmt.Sprintf("%dx%d", n, size) ||
			n < 1 || size < 1 || slices.ContainsFunc(s.cases, func(c benchCase) bool { return c.name == name }) {
			continue
		}
		c := racked(name, n, size)
		if !rack {
			c = allFit(name, n, size)
			c.among = []string{"stock", "tenon-native"}
		}
		s.cases = append(s.cases, c)
	}
	return s
}

// gangs measures one scheduler with gangs.
func (b *bench) gangs(ctx context.Context, who contender, run string, kase benchCase) (f figures, err error) {
	w, fill, n := kase.load, filler, kase.gangs(b.nodes)
	w.native, fill.native = who.native, who.native
	defer func() { err = errors.Join(err, b.cluster.removeGangs(ctx, w.podGroups())) }()
	if err := b.cluster.fill(ctx, run, fill, n.free, b.nodes); err != nil {
		return f, fmt.Errorf("fill nodes: %w", err)
	}
	early := 0 // gangs that exist when the scheduler starts
	if !kase.arrive {
		early = n.exist
	}
	if err := b.cluster.addGangs(ctx, namespace, run, w, 0, early); err != nil {
		return f, err
	}
	writes, err := b.cluster.writes(ctx)
	if err != nil {
		return f, err
	}
	writes += float64(n.exist*w.size + n.exist - early) // the harness's own
	if kase.arrive {
		f, err = b.arrivals(ctx, who, run, kase, w, n.exist)
	} else {
		f, err = b.burst(ctx, who, run, w, n.exist*w.size, n.fit*w.size)
	}
	if err != nil {
		return f, err
	}
	pods, took := f.Bound, f.Gangs.Slowest
	if kase.arrive {
		pods, took = w.size, f.P50
	}
	f.PodsPerSecond = float64(pods) / max(took, time.Millisecond).Seconds()
	if kase.besidePods > 0 { // whose writes are not counted apart
		f.Gangs.Writes = 0
		return f, nil
	}
	f.Gangs.Writes = (f.Gangs.Writes - writes) / float64(max(1, f.Bound))
	f.Gangs.Evicted, f.Gangs.PartEvicted, err = b.cluster.lost(ctx, 2*(b.nodes-n.free))
	return f, err
}

// arrivals starts the scheduler, lets it settle, then creates one gang after the other, each when the last is bound.
// Meanwhile plain pods come at the rate of the case.
func (b *bench) arrivals(ctx context.Context, who contender, run string, kase benchCase, w workload, n int) (figures,
	error,
) {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	var plain sync.WaitGroup
	defer plain.Wait()
	defer cancel()
	p, port, err := b.command(ctx, who, run)
	if err != nil {
		return figures{}, err
	}
	defer p.stop()
	seen := newBinds(n*w.size, w.size)
	watching := make(chan error, 1)
	go func() { watching <- seen.follow(ctx, b.cluster) }()
	if !sleep(ctx, 8*time.Second) {
		return figures{}, ctx.Err()
	}
	if kase.besidePods > 0 {
		plain.Go(func() { b.cluster.addPlain(ctx, run+"-plain", kase.besidePods) })
		if !sleep(ctx, 2*time.Second) {
			return figures{}, ctx.Err()
		}
	}
	from, err := b.cluster.account(p.cmd.Process.Pid)
	if err != nil {
		return figures{}, err
	}
	for i := 0; i < n && sleep(ctx, pause); i++ {
		if err := b.cluster.addGangs(ctx, namespace, run, w, i, i+1); err != nil {
			return figures{}, err
		}
		comes := time.Now()
		for pod := range w.size {
			seen.due(w.pod(run, i*w.size+pod).Name, comes)
		}
		if err := b.cluster.addPods(ctx, run, w, i*w.size, (i+1)*w.size); err != nil {
			return figures{}, fmt.Errorf("create pods: %w", err)
		}
		for seen.count() < (i+1)*w.size && sleep(ctx, 2*time.Millisecond) {
			continue
		}
	}
	return b.finish(ctx, p, port, seen, figures{Of: n * w.size}, from)
}

// addPlain creates small pods of no gang at a fixed rate until ctx ends, in the namespace that is not watched.
func (c *cluster) addPlain(ctx context.Context, run string, perSecond int) {
	w := workload{cpu: "10m", memory: "16Mi"}
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	var creates sync.WaitGroup
	defer creates.Wait()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		pod := w.pod(run, i)
		pod.Namespace = fillNamespace
		creates.Go(func() { // one that is not created is one less beside the gangs
			_, _ = c.kube.CoreV1().Pods(fillNamespace).Create(ctx, pod, metav1.CreateOptions{})
		})
	}
}

// gangFigures are figures that only gangs have. With these, P50 and P99 are of gangs: from the first pod's creation, or
// from the scheduler's start where pods are older, to the last pod's bind.
type gangFigures struct {
	Slowest     time.Duration `json:"slowestNanoseconds"`
	CPUSeconds  float64       `json:"schedulerCPUSeconds"` // with its start, where pods are older
	Writes      float64       `json:"writesPerPod"`        // requests to the API server that change something
	Partial     int           `json:"partial"`             // gangs that are bound in part
	IdleCPUms   float64       `json:"idleSchedulerCPUmsPerSecond"`
	IdleWrites  float64       `json:"idleWritesPerSecond"`
	Evicted     int           `json:"evicted"`
	PartEvicted int           `json:"partEvicted"` // gangs that were evicted in part
}

// finishGangs adds what gangs have to the figures of a run, and watches the scheduler while the rest waits.
func (b *bench) finishGangs(ctx context.Context, p *process, seen *binds, f figures, from, to account) (figures,
	error,
) {
	ctx = context.WithoutCancel(ctx) // the account of a run that took too long counts as well
	took, _ := seen.gangs()
	g := &f.Gangs
	f.P50, f.P99, g.Slowest = percentile(took, 0.50), percentile(took, 0.99), percentile(took, 1)
	g.CPUSeconds = (to.scheduler - from.scheduler).Seconds()
	var err error
	if g.Writes, err = b.cluster.writes(ctx); err != nil {
		return f, err
	}
	if len(seen.created) > seen.want {
		sleep(ctx, idlePeriod)
		later, err := b.cluster.account(p.cmd.Process.Pid)
		if err != nil {
			return f, err
		}
		writes, err := b.cluster.writes(ctx)
		if err != nil {
			return f, err
		}
		g.IdleCPUms = (later.scheduler - to.scheduler).Seconds() * 1000 / idlePeriod.Seconds()
		g.IdleWrites = (writes - g.Writes) / idlePeriod.Seconds()
	}
	f.Bound = seen.count()
	_, g.Partial = seen.gangs()
	return f, nil
}

// gangs returns how long each gang took that is bound, in ascending order, and how many are bound in part.
func (b *binds) gangs() (took []time.Duration, partial int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	bound, slowest := map[int]int{}, map[int]time.Duration{}
	for pod, t := range b.bound {
		i := podIndex(pod) / b.size
		bound[i]++
		slowest[i] = max(slowest[i], t.Sub(b.created[pod]))
	}
	for i, n := range bound {
		if n < b.size {
			partial++
		} else {
			took = append(took, slowest[i])
		}
	}
	slices.Sort(took)
	return took, partial
}

// podIndex is the number in the name that workload.pod gave.
func podIndex(name string) int {
	i, _ := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	return i
}

func gangName(run string, i int) string { return fmt.Sprintf("%s-g%04d", run, i) }

// join makes the pod one of the gang's.
func (w workload) join(pod *corev1.Pod, gang string) {
	if w.native {
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &gang}
	} else {
		pod.Labels[annotation.CommunityPodGroup] = gang
	}
}

func (w workload) podGroups() schema.GroupVersionResource {
	if w.native {
		return schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1alpha2", Resource: "podgroups"}
	}
	return v1alpha1.PodGroupResource(v1alpha1.CommunityGroupName)
}

// addGangs creates the PodGroups first…last-1 of a run. Members that are reserved wait as long for the others as in
// the configuration that scheduler-plugins publishes: ten seconds.
func (c *cluster) addGangs(ctx context.Context, namespace, run string, w workload, first, last int) error {
	spec := map[string]any{"minMember": int64(w.size), "scheduleTimeoutSeconds": int64(10)}
	if w.native {
		spec = map[string]any{
			"schedulingPolicy": map[string]any{"gang": map[string]any{"minCount": int64(w.size)}},
			"disruptionMode":   "PodGroup", "priorityClassName": w.priority,
		}
		if w.rack {
			spec["schedulingConstraints"] = map[string]any{"topology": []any{map[string]any{"key": rackLabel}}}
		}
	}
	groups := w.podGroups()
	return each(ctx, last-first, func(ctx context.Context, i int) error {
		group := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": groups.GroupVersion().String(), "kind": "PodGroup",
			"metadata": map[string]any{"name": gangName(run, first+i)}, "spec": spec,
		}}
		_, err := c.dynamic.Resource(groups).Namespace(namespace).Create(ctx, group, metav1.CreateOptions{})
		return err
	})
}

func (c *cluster) removeGangs(ctx context.Context, groups schema.GroupVersionResource) error {
	var errs []error
	for _, name := range []string{namespace, fillNamespace} {
		errs = append(errs, c.dynamic.Resource(groups).Namespace(name).
			DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	}
	return errors.Join(errs...)
}

// fill binds two pods to each node from the first on. They end as soon as they are deleted: no kubelet runs.
func (c *cluster) fill(ctx context.Context, run string, w workload, first, nodes int) error {
	n := 2 * (nodes - first)
	if err := c.addGangs(ctx, fillNamespace, run, w, 0, n/w.size); err != nil {
		return err
	}
	return each(ctx, n, func(ctx context.Context, i int) error {
		pod := w.pod(run, i)
		pod.Namespace, pod.Spec.NodeName = fillNamespace, nodeName(first+i/2)
		pod.Spec.TerminationGracePeriodSeconds = new(int64)
		_, err := c.kube.CoreV1().Pods(fillNamespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
}

// addHeld creates the pods of gangs that come while plain pods do, and what fills the nodes. Their schedulers hold them
// until release creates the PodGroups.
func (c *cluster) addHeld(ctx context.Context, run string, w workload, n gangs, nodes int) (
	release func(context.Context) error, err error,
) {
	fill := filler
	fill.native = w.native
	if err := c.fill(ctx, run, fill, n.free, nodes); err != nil {
		return nil, fmt.Errorf("fill nodes: %w", err)
	}
	run += "-beside"
	err = each(ctx, n.exist*w.size, func(ctx context.Context, i int) error {
		pod := w.pod(run, i)
		pod.Namespace = fillNamespace
		_, err := c.kube.CoreV1().Pods(fillNamespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	return func(ctx context.Context) error { return c.addGangs(ctx, fillNamespace, run, w, 0, n.exist) }, err
}

// lastOf waits until n pods of fillNamespace have nodes and returns when the last one got its own, to the second. What
// fills the nodes was created with them, and counts as if it came first.
func (c *cluster) lastOf(ctx context.Context, n int) (last time.Time, err error) {
	for bound := 0; bound < n; {
		list, err := c.kube.CoreV1().Pods(fillNamespace).List(ctx, metav1.ListOptions{FieldSelector: placed})
		if err != nil {
			return last, fmt.Errorf("%d of %d pods of gangs have nodes: %w", bound, n, err)
		}
		bound = len(list.Items)
		for i := range list.Items {
			for _, c := range list.Items[i].Status.Conditions {
				if c.Type == corev1.PodScheduled && c.LastTransitionTime.After(last) {
					last = c.LastTransitionTime.Time
				}
			}
		}
		if bound < n {
			sleep(ctx, time.Second)
		}
	}
	return last, nil
}

// lost returns how many of n fillers are gone, and how many gangs lost a part of theirs.
func (c *cluster) lost(ctx context.Context, n int) (pods, parts int, err error) {
	left, err := c.kube.CoreV1().Pods(fillNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, 0, err
	}
	members := map[int]int{}
	for i := range left.Items {
		members[podIndex(left.Items[i].Name)/filler.size]++
	}
	for _, m := range members {
		if m < filler.size {
			parts++
		}
	}
	return n - len(left.Items), parts, nil
}

var writeCount = regexp.MustCompile(
	`(?m)^apiserver_request_total\{.*,resource="(\w*)",.*verb="(?:POST|PUT|PATCH|DELETE)".*\} (\S+)$`)

// writes counts the requests that changed something, but for the leases of the API server itself.
func (c *cluster) writes(ctx context.Context) (sum float64, err error) {
	text, err := c.kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the API server's metrics: %w", err)
	}
	for _, found := range writeCount.FindAllSubmatch(text, -1) {
		n, err := strconv.ParseFloat(string(found[2]), 64)
		if err != nil {
			return 0, err
		}
		if string(found[1]) != "leases" {
			sum += n
		}
	}
	return sum, nil
}

// gangColumns are the figures of gangs; those with ratios have one to each of suite.beside.
var gangColumns = []struct {
	title, format string
	ratios        bool
	value         func(figures) float64
}{
	{"last gang, s", "%.3f", true, func(f figures) float64 { return f.Gangs.Slowest.Seconds() }},
	{"pods/s", "%.0f", false, func(f figures) float64 { return f.PodsPerSecond }},
	{"gang p50, s", "%.3f", true, func(f figures) float64 { return f.P50.Seconds() }},
	{"gang p99, s", "%.3f", false, func(f figures) float64 { return f.P99.Seconds() }},
	{"CPU-s", "%.2f", true, func(f figures) float64 { return f.Gangs.CPUSeconds }},
	{"writes/pod", "%.2f", false, func(f figures) float64 { return f.Gangs.Writes }},
	{"idle: CPU-ms/s", "%.1f", false, func(f figures) float64 { return f.Gangs.IdleCPUms }},
	{"writes/s", "%.1f", false, func(f figures) float64 { return f.Gangs.IdleWrites }},
	{"evicted pods", "%.0f", false, func(f figures) float64 { return float64(f.Gangs.Evicted) }},
	{"gangs in part", "%.0f", false, func(f figures) float64 { return float64(f.Gangs.PartEvicted) }},
	{"control plane CPU-ms/pod", "%.2f", false, func(f figures) float64 { return f.PlaneCPUms }},
	{"peak memory, MB", "%.0f", false, func(f figures) float64 { return float64(f.PeakMemory) / 1e6 }},
}

// gangTable writes the medians of the cases with gangs as Markdown. A round in which a gang was bound in part, or one
// that fits was not bound, is named and does not count for the medians.
func gangTable(w io.Writer, results []result, s suite, sizes []int) {
	for _, nodes := range sizes {
		head, line := "| Case | Scheduler |", "|---|---|"
		for _, column := range gangColumns {
			head, line = head+" "+column.title+" |", line+"---:|"
			for _, other := range s.beside {
				if column.ratios {
					head, line = head+" × "+other+" |", line+"---:|"
				}
			}
		}
		fmt.Fprintf(w, "\n### Gangs, %d nodes\n\n%s\n%s\n", nodes, head, line)
		for _, c := range slices.DeleteFunc(slices.Clone(s.cases), func(c benchCase) bool { return !c.ofGangs() }) {
			for _, who := range s.contenders {
				rows := pick(results, c.name, nodes, who.name)
				good := slices.DeleteFunc(slices.Clone(rows), failed)
				if bad := slices.IndexFunc(rows, failed); bad >= 0 {
					f := rows[bad].Figures
					fmt.Fprintf(w, "| %s | %s | FAILED in %d of %d rounds: bound %d/%d, %d gangs in part %s |\n",
						c.title, who.name, len(rows)-len(good), len(rows), f.Bound, f.Of, f.Gangs.Partial,
						rows[bad].Error)
				}
				if len(good) == 0 {
					continue
				}
				fmt.Fprintf(w, "| %s | %s |", c.title, who.name)
				for _, column := range gangColumns {
					fmt.Fprintf(w, " "+column.format+" |", median(good, column.value))
					for _, other := range s.beside {
						if column.ratios {
							base := slices.DeleteFunc(pick(results, c.name, nodes, other), failed)
							fmt.Fprintf(w, " %s |", s.ratio(good, base, column.value))
						}
					}
				}
				fmt.Fprintln(w)
			}
		}
	}
}

func failed(r result) bool { return r.Error != "" || !r.Figures.complete() }
