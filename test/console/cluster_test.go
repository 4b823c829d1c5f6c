package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// followed is a local cluster, its console in a browser, and its administrator.
type followed struct {
	*browser
	*administrator
	kubeconfig string
}

// tenon runs a verb and reads what it prints as JSON.
func (f *followed) tenon(into any, args ...string) {
	f.browser.t.Helper()
	c := exec.Command(tenon(f.browser.t), append(args, "-o", "json")...)
	c.Env = append(os.Environ(), "KUBECONFIG="+f.kubeconfig)
	out, err := c.Output()
	if err == nil {
		err = json.Unmarshal(out, into)
	}
	if err != nil {
		f.browser.t.Fatalf("tenon %q: %v\n%s", args, err, out)
	}
}

// within waits for a state of the page, and prints how long that took and its budget.
func (f *followed) within(budget time.Duration, what, script string) {
	f.browser.t.Helper()
	begun := time.Now()
	f.do("wait for "+what, chromedp.Poll[chromedp.Void](script, chromedp.WithPollingTimeout(patience)))
	took := time.Since(begun)
	f.browser.t.Logf("%s after %v, with a budget of %v", what, took.Round(time.Millisecond), budget)
	if took > generous*budget {
		f.browser.t.Errorf("%s after %v", what, took)
	}
}

// shown is a script that looks for a text.
func shown(text string) string { return fmt.Sprintf("document.body.innerText.includes(%q)", text) }

// TestTheConsoleFollowsACluster: what the commands and the API server say is on the pages, and soon.
func TestTheConsoleFollowsACluster(t *testing.T) {
	kubeconfig, address := startCluster(t)
	f := &followed{newBrowser(t, address), newAdministrator(t, kubeconfig), kubeconfig}
	f.size(1440, 900)
	f.do("open the console", chromedp.Navigate(address))
	f.shows("● live", "pods wait")
	f.checkFits()
	f.checkTryChangesNothing()
	f.checkTime()
	f.checkCordon()
	f.checkSilence()
	f.checkFaults()
}

// checkFits compares how many pods of 1, 2, 4 and 8 GPUs fit with what the verb capacity counts.
func (f *followed) checkFits() {
	f.browser.t.Helper()
	f.open("/gpus")
	f.shows("Pods of 8 GPU that still fit")
	got := run(f.browser, "read", chromedp.Evaluate[[]int](
		`[...document.querySelectorAll(".number b")].map((e) => Number(e.innerText))`))
	var want []int
	for _, n := range []int{1, 2, 4, 8} {
		manifest := filepath.Join(f.browser.t.TempDir(), "pod.yaml")
		text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"asks","namespace":"default"},"spec":{
			"schedulerName":"tenon-scheduler","containers":[{"name":"c","image":"busybox","resources":{
			"requests":{"nvidia.com/gpu":"%d"},"limits":{"nvidia.com/gpu":"%[1]d"}}}]}}`, n)
		if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
			f.browser.t.Fatal(err)
		}
		var answer struct{ Room int }
		f.tenon(&answer, "capacity", "-f", manifest)
		want = append(want, answer.Room)
	}
	if !slices.Equal(got, want) || got[0] == 0 {
		f.browser.t.Errorf("pods of 1, 2, 4 and 8 GPUs: the page says %v, tenon capacity %v", got, want)
	}
}

// versions are the resource versions of pods, and the specs of what others write the status of: not all kinds have a
// subresource for it, so their generations change too.
func (f *followed) versions() map[string]string {
	f.browser.t.Helper()
	out := map[string]string{}
	const group = "/apis/scheduling.sigs.k8s.io/v1alpha1/"
	for _, path := range []string{"/api/v1/pods", group + "podgroups", group + "elasticquotas"} {
		var list struct {
			Items []struct {
				Metadata struct{ Namespace, Name, UID, ResourceVersion string }
				Spec     json.RawMessage
			}
		}
		f.ask(http.MethodGet, path, "application/json", nil, &list)
		for _, o := range list.Items {
			m := o.Metadata
			version := m.ResourceVersion
			if path != "/api/v1/pods" {
				version = string(o.Spec)
			}
			out[path+"/"+m.Namespace+"/"+m.Name+"/"+m.UID] = version
		}
	}
	var nodes struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     json.RawMessage
		}
	}
	f.ask(http.MethodGet, "/api/v1/nodes", "application/json", nil, &nodes)
	for _, n := range nodes.Items {
		out["node/"+n.Metadata.Name] = string(n.Spec)
	}
	return out
}

// checkTryChangesNothing: a fix that is tried shows the pod before and after, and no object of the cluster changes.
func (f *followed) checkTryChangesNothing() {
	f.browser.t.Helper()
	before := f.versions()
	f.open("/pending?pod=default/pretrain")
	f.click("one more node like hgx-h100-0")
	f.shows("Before: now", "After", "would be placed", "hgx-h100-0-whatif-1")
	after := f.versions()
	for name, version := range before {
		if after[name] != version {
			f.browser.t.Errorf("%s was %q and is %q after a fix was tried", name, version, after[name])
		}
	}
	if len(before) < 20 || len(after) != len(before) {
		f.browser.t.Errorf("%d objects before, %d after", len(before), len(after))
	}
}

// checkTime compares the fleet at moments with what the verb replay prints from the journal.
func (f *followed) checkTime() {
	f.browser.t.Helper()
	files, err := filepath.Glob(filepath.Join(filepath.Dir(f.kubeconfig), "journal", "*", "journal-*.jsonl"))
	if err != nil || len(files) == 0 {
		f.browser.t.Fatalf("no journal: %v", err)
	}
	file := slices.Max(files)
	type node struct {
		Node, Requested, Allocatable string
		Pods                         int
	}
	var past struct {
		From, To time.Time
		Pods     []struct{ From time.Time }
		Fleet    []node
	}
	f.tenon(&past, "replay", file, "--fleet")
	if len(past.Pods) < 20 {
		f.browser.t.Fatalf("the journal has %d pods", len(past.Pods))
	}
	middle := past.Pods[len(past.Pods)/2].From
	for _, at := range []time.Time{past.From, middle.Add(-time.Millisecond), middle, past.To} {
		text := at.UTC().Format("2006-01-02T15:04:05.000Z")
		f.tenon(&past, "replay", file, "--fleet", "--until", text)
		var want []string
		for _, n := range past.Fleet {
			milli := strings.TrimSuffix(n.Requested, "m")
			cpus, err := strconv.ParseFloat(milli, 64)
			if err != nil {
				f.browser.t.Fatal(err)
			}
			if milli != n.Requested {
				cpus /= 1000
			}
			want = append(want, fmt.Sprintf("%s %d %v", n.Node, n.Pods, cpus))
		}
		f.open("/time?table=then&at=" + text)
		f.shows("The nodes at")
		got := run(f.browser, "read", chromedp.Evaluate[[]string](`[...document.querySelectorAll("main tbody tr")]
			.map((r) => [...r.cells].slice(0, 3).map((c) => c.innerText).join(" "))`))
		if !slices.Equal(got, want) {
			f.browser.t.Errorf("at %s the page has %q, tenon replay %q", text, got, want)
		}
	}
}

// checkCordon: a node that is cordoned has its mark within two seconds.
func (f *followed) checkCordon() {
	f.browser.t.Helper()
	f.open("/fleet")
	f.shows("5 of 5 nodes")
	cordon := func(on bool) {
		var node any
		f.ask(http.MethodPatch, "/api/v1/nodes/arm64-1s-0", "application/merge-patch+json",
			fields{"spec": fields{"unschedulable": on}}, &node)
	}
	cordon(true)
	f.within(2*time.Second, "the mark of a cordoned node", shown("■ cordoned"))
	cordon(false)
	f.within(5*time.Second, "a node without a mark", "!"+shown("■ cordoned"))
}

// checkSilence stops kubelets and agents as they are. The page has the mark of a kubelet within five seconds of the
// condition of the Node, and that of an agent when three of its periods have passed, not before.
func (f *followed) checkSilence() {
	f.browser.t.Helper()
	const period = 5 * time.Second
	var changed any
	f.ask(http.MethodPatch, "/api/v1/namespaces/tenon-system/configmaps/slo-controller-config",
		"application/merge-patch+json", fields{"data": fields{
			"colocation-config": fmt.Sprintf(`{"enable":true,"metricReportIntervalSeconds":%d}`, int(period.Seconds())),
		}}, &changed)
	type metric struct {
		Metadata struct{ Name string }
		Spec     struct {
			MetricCollectPolicy struct{ ReportIntervalSeconds int }
		}
		Status struct{ UpdateTime time.Time }
	}
	metrics := func() (all []metric) {
		var list struct{ Items []metric }
		f.ask(http.MethodGet, "/apis/slo.koordinator.sh/v1alpha1/nodemetrics", "application/json", nil, &list)
		return list.Items
	}
	f.until("agents report each five seconds", func() bool {
		all := metrics()
		return len(all) == 5 && !slices.ContainsFunc(all, func(m metric) bool {
			return m.Spec.MetricCollectPolicy.ReportIntervalSeconds != 5 || time.Since(m.Status.UpdateTime) > 2*period
		})
	})
	f.open("/")
	f.shows("0 agents down", "0 NotReady")
	for _, pid := range processes(f.browser.t, "__nodes", filepath.Dir(f.kubeconfig)) {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			f.browser.t.Fatal(err)
		}
		defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }() // it may have ended
	}
	f.do("wait for silent agents", chromedp.Poll[chromedp.Void](
		`!document.body.innerText.includes("0 agents down")`, chromedp.WithPollingTimeout(patience)))
	oldest := time.Now()
	for _, m := range metrics() {
		if m.Status.UpdateTime.Before(oldest) {
			oldest = m.Status.UpdateTime
		}
	}
	silence := time.Since(oldest)
	f.browser.t.Logf("an agent is down %v after its last report", silence.Round(time.Millisecond))
	if silence < 3*period || silence > 3*period+generous*5*time.Second {
		f.browser.t.Errorf("an agent is down %v after its last report, want three periods of %v", silence, period)
	}
	f.until("a Node is not ready", func() bool {
		var list struct {
			Items []struct {
				Status struct {
					Conditions []struct{ Type, Status string }
				}
			}
		}
		f.ask(http.MethodGet, "/api/v1/nodes", "application/json", nil, &list)
		for _, n := range list.Items {
			for _, c := range n.Status.Conditions {
				if c.Type == "Ready" && c.Status != "True" {
					return true
				}
			}
		}
		return false
	})
	f.within(5*time.Second, "the mark of a kubelet",
		`document.body.innerText.includes("▲") && !document.body.innerText.includes("0 NotReady")`)
}

// until waits for a state of the cluster.
func (f *followed) until(what string, holds func() bool) {
	f.browser.t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			f.browser.t.Fatalf("not reached: %s", what)
		}
	}
}

// processes are those of this machine with all of some arguments.
func processes(t *testing.T, args ...string) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		line := strings.Split(string(text), "\x00")
		if err != nil || slices.ContainsFunc(args, func(a string) bool { return !slices.Contains(line, a) }) {
			continue // it has ended, or is another one
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	if len(pids) == 0 {
		t.Fatalf("no process has the arguments %q", args)
	}
	return pids
}
