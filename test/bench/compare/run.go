package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// contender is a scheduler under measurement.
type contender struct {
	name string
	path string // "" is the trivial binder
	// instead replaces plugins of the scheduler's default profiles by others, or by none for "", and also adds one at
	// the end, in the file config.
	instead map[string]string
	also    string
	config  string
	flags   []string
	native  bool // gangs are those of Kubernetes
	// reservations is the number of Reservations in the cluster.
	reservations int
}

// bench is one series: one control plane with one number of nodes.
type bench struct {
	cluster *cluster
	nodes   int
	scratch string
	self    string        // this binary, for the trivial binder
	limit   time.Duration // of one case of one scheduler
	// profiles is where CPU and heap profiles of each run go; "" for none, since profiling costs the profiled.
	profiles string
}

// command starts the contender against the control plane; metricsPort is 0 for the binder.
func (b *bench) command(ctx context.Context, who contender, run string) (*process, int, error) {
	log := filepath.Join(b.scratch, run+".log")
	if who.path == "" {
		p, err := start(ctx, log, b.self, "bind", b.cluster.config, strconv.Itoa(b.nodes))
		return p, 0, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, 0, err
	}
	args := b.arguments(who, port)
	if who.config != "" {
		args = append(args, "--config="+who.config)
	}
	p, err := start(ctx, log, who.path, args...)
	return p, port, err
}

func (b *bench) arguments(who contender, port int) []string {
	return append([]string{
		"--kubeconfig=" + b.cluster.config, "--leader-elect=false",
		"--kube-api-qps=50000", "--kube-api-burst=50000", "--kube-api-content-type=application/vnd.kubernetes.protobuf",
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
		"--cert-dir=" + filepath.Join(b.scratch, who.name),
		"--authentication-skip-lookup=true",
		"--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics,/debug/pprof/*",
	}, who.flags...)
}

// configure writes the configuration that the contender has by default with other plugins in the place of some. The
// file disables what upstream would add to the plugins that it names.
func (b *bench) configure(ctx context.Context, who contender) (string, error) {
	if len(who.instead) == 0 && who.also == "" {
		return "", nil
	}
	file := filepath.Join(b.scratch, who.name+".yaml")
	write := exec.CommandContext(ctx, who.path, append(b.arguments(who, 0), "--write-config-to="+file)...)
	if said, err := write.CombinedOutput(); err != nil {
		return "", fmt.Errorf("default configuration of %s: %w: %s", who.name, err, said)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var config map[string]any // not the type, which would add fields that an older scheduler refuses
	if err := yaml.Unmarshal(text, &config); err != nil {
		return "", err
	}
	for _, profile := range config["profiles"].([]any) {
		points, _, err := unstructured.NestedFieldNoCopy(profile.(map[string]any), "plugins", "multiPoint")
		if err != nil {
			return "", err
		}
		set := points.(map[string]any)
		enabled := set["enabled"].([]any)
		for plugin, other := range who.instead {
			at := slices.IndexFunc(enabled, func(p any) bool { return p.(map[string]any)["name"] == plugin })
			switch {
			case at < 0:
				return "", fmt.Errorf("the default configuration of %s has no plugin %s", who.name, plugin)
			case other == "":
				enabled = slices.Delete(enabled, at, at+1)
			default:
				enabled[at].(map[string]any)["name"] = other
			}
		}
		if who.also != "" {
			enabled = append(enabled, map[string]any{"name": who.also})
		}
		set["enabled"], set["disabled"] = enabled, []any{map[string]any{"name": "*"}}
	}
	if text, err = yaml.Marshal(config); err != nil {
		return "", err
	}
	return file, os.WriteFile(file, text, 0o600)
}

// burst creates n pods, then starts the scheduler and waits until those are bound that there is room for.
func (b *bench) burst(ctx context.Context, who contender, run string, w workload, n, room int) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	if err := b.cluster.addPods(ctx, run, w, 0, n); err != nil {
		return figures{}, fmt.Errorf("create pods: %w", err)
	}
	seen := newBinds(room, w.size)
	watching := make(chan error, 1)
	watchCtx, stopWatch := context.WithCancel(ctx)
	defer stopWatch()
	go func() { watching <- seen.follow(watchCtx, b.cluster) }()

	began := time.Now()
	for i := range n {
		seen.due(podName(run, i), began)
	}
	p, port, err := b.command(ctx, who, run)
	if err != nil {
		return figures{}, err
	}
	defer p.stop()
	from, err := b.cluster.account(p.cmd.Process.Pid)
	if err != nil {
		return figures{}, err
	}
	stored := func() {}
	if w.size > 0 || n == startPods { // work before the first bind counts
		stored = b.profile(ctx, port, run)
	}
	defer func() { stored() }()
	select {
	case <-seen.first:
	case <-ctx.Done():
		return figures{Of: room}, nil
	case err := <-p.done:
		p.done <- err
		return figures{}, fmt.Errorf("%s ended before its first bind (see %s.log): %w", who.name, run, err)
	}
	f := figures{Of: room, Startup: time.Since(began)}
	if w.size == 0 {
		if from, err = b.cluster.account(p.cmd.Process.Pid); err != nil {
			return f, err
		}
		f.StartCPU = from.scheduler
	}
	if w.size == 0 && n != startPods {
		stored = b.profile(ctx, port, run)
	}
	return b.finish(ctx, p, port, seen, f, from)
}

// openLoop starts the scheduler, lets it settle, then creates pods at a fixed rate whatever becomes of them. When a
// quarter of them exist, or before the scheduler does, gangs may start whose pods were there from the beginning.
func (b *bench) openLoop(ctx context.Context, who contender, run string, kase benchCase, n int) (f figures, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	w, release := kase.load, func(context.Context) error { return nil }
	var released time.Time
	if kase.gangs != nil {
		load := kase.beside
		load.native = who.native
		defer func() {
			err = errors.Join(err, b.cluster.removeGangs(context.WithoutCancel(ctx), load.podGroups()))
		}()
		if release, err = b.cluster.addHeld(ctx, run, load, kase.gangs(b.nodes), b.nodes); err != nil {
			return figures{}, err
		}
	}
	if kase.backlog > 0 {
		if err := b.cluster.addRunning(ctx, run, b.nodes); err != nil {
			return figures{}, fmt.Errorf("fill nodes: %w", err)
		}
	}
	if kase.early {
		if err := release(ctx); err != nil {
			return figures{}, err
		}
		release = func(context.Context) error { return nil }
	}
	p, port, err := b.command(ctx, who, run)
	if err != nil {
		return figures{}, err
	}
	defer p.stop()
	if !sleep(ctx, 8*time.Second) {
		return figures{}, ctx.Err()
	}
	seen := newBinds(n, 0)
	watching := make(chan error, 1)
	watchCtx, stopWatch := context.WithCancel(ctx)
	defer stopWatch()
	go func() { watching <- seen.follow(watchCtx, b.cluster) }()
	from, err := b.cluster.account(p.cmd.Process.Pid)
	if err != nil {
		return figures{}, err
	}
	began := time.Now()
	created, stored := make(chan error, n+2), func() {}
	defer func() { stored() }()
	go func() { created <- b.cluster.addBacklog(ctx, run, kase.backlog, kase.ownSizes) }()
	if kase.churn > 0 {
		churning, stopChurn := context.WithCancel(ctx)
		defer stopChurn()
		go b.cluster.churn(churning, run, b.nodes, kase.churn, seen)
	}
	for i := range n {
		if i == n/4 {
			stored = b.profile(ctx, port, run)
			released = time.Now()
			go func() { created <- release(ctx) }()
		}
		due := began.Add(time.Duration(i) * time.Second / time.Duration(kase.perSecond))
		if !sleep(ctx, time.Until(due)) {
			return figures{}, ctx.Err()
		}
		pod := w.pod(run, i)
		seen.due(pod.Name, due) // late sends count from when they were due, else a stall hides itself
		go func() {
			_, err := b.cluster.kube.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
			created <- err
		}()
	}
	for range n + 2 {
		if err := <-created; err != nil {
			return figures{}, fmt.Errorf("create pod or PodGroup: %w", err)
		}
	}
	f, err = b.finish(ctx, p, port, seen, figures{Of: n}, from)
	if err == nil && kase.gangs != nil && !kase.early {
		n := kase.gangs(b.nodes)
		var last time.Time
		last, err = b.cluster.lastOf(ctx, 2*(b.nodes-n.free)+n.fit*kase.beside.size)
		f.Gangs.Slowest = last.Sub(released)
	}
	return f, err
}

// finish waits for the last bind and fills in the figures.
func (b *bench) finish(ctx context.Context, p *process, port int, seen *binds, f figures, from account) (figures,
	error,
) {
	select {
	case <-seen.all:
	case <-ctx.Done():
	case err := <-p.done:
		p.done <- err // the binder ends by itself when it has bound everything
		select {
		case <-seen.all:
		case <-time.After(5 * time.Second):
		}
	}
	to, err := b.cluster.account(p.cmd.Process.Pid)
	if port == 0 { // the binder ends by itself; its account is in its exit state, and counts from its start
		err = <-p.done
		p.done <- err
		from.scheduler, to.scheduler = 0, p.cmd.ProcessState.UserTime()+p.cmd.ProcessState.SystemTime()
		if err == nil {
			to.plane, err = cpu(b.cluster.pid)
		}
	}
	if err != nil {
		return f, err
	}
	f.Bound = seen.count()
	f.PodsPerSecond, f.P50, f.P99 = seen.rates()
	f.SchedulerCPUms = (to.scheduler - from.scheduler).Seconds() * 1000 / float64(max(1, f.Bound))
	f.PlaneCPUms = (to.plane - from.plane).Seconds() * 1000 / float64(max(1, f.Bound))
	if port != 0 {
		if f.PeakMemory, err = peakMemory(p.cmd.Process.Pid); err != nil {
			return f, err
		}
		f.BatchHints = scrape(ctx, port, "scheduler_batch_attempts_total", "scheduler_batch_cache_flushed_total")
		f.Refused = refusedOf(scrape(ctx, port, attempts+"_sum", attempts+"_count"))
	}
	if seen.size > 0 {
		return b.finishGangs(ctx, p, seen, f, from, to)
	}
	return f, nil
}

// attempts is the metric of how long scheduling attempts take.
const attempts = "scheduler_scheduling_attempt_duration_seconds"

// refusedOf reads the attempts that ended without a node.
func refusedOf(counters map[string]float64) (r refused) {
	var seconds float64
	for name, value := range counters {
		switch {
		case !strings.Contains(name, `result="unschedulable"`):
		case strings.Contains(name, "_sum"):
			seconds += value
		default:
			r.Attempts += value
		}
	}
	r.Milliseconds = seconds * 1000 / max(1, r.Attempts)
	return r
}

// scrape reads counters from the scheduler's metrics, keyed by name and labels. What cannot be read is left out.
func scrape(ctx context.Context, port int, names ...string) map[string]float64 {
	body, err := get(ctx, port, "/metrics")
	if err != nil {
		return nil
	}
	out := map[string]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(body)); lines.Scan(); {
		for _, name := range names {
			rest, ok := strings.CutPrefix(lines.Text(), name)
			if !ok {
				continue
			}
			i := strings.LastIndexByte(rest, ' ')
			if i < 0 {
				continue
			}
			if v, err := strconv.ParseFloat(rest[i+1:], 64); err == nil {
				out[strings.TrimPrefix(name, "scheduler_")+rest[:i]] = v
			}
		}
	}
	return out
}

// get reads a path of the scheduler's secure port.
func get(ctx context.Context, port int, path string) ([]byte, error) {
	// The scheduler's certificate is its own, made for this run; nothing secret is read.
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		Timeout:   time.Minute,
	} //nolint:gosec // loopback, self-signed
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet,
		fmt.Sprintf("https://127.0.0.1:%d%s", port, path), nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", path, resp.Status)
	}
	return io.ReadAll(resp.Body)
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func freePort(ctx context.Context) (int, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, errors.New("listener has no TCP address")
	}
	return addr.Port, nil
}

func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	return strings.Fields(string(text))[0]
}
