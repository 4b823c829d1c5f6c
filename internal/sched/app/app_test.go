package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/accounts"
	"github.com/tenon-project/tenon/internal/sched/diag"
	"github.com/tenon-project/tenon/internal/sched/upstream/hooks"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

func TestOptionsRefuse(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Options, *pflag.FlagSet)
		want   string
	}{
		"defaults": {func(*Options, *pflag.FlagSet) {}, ""},
		"names together with a file": {func(o *Options, fs *pflag.FlagSet) {
			o.ConfigFile = "f"
			_ = fs.Set("serve-scheduler-names", "a")
		}, "--serve-scheduler-names is not allowed with --config"},
		"no name": {func(o *Options, _ *pflag.FlagSet) { o.SchedulerNames = nil }, "at least one"},
		"a name twice": {
			func(o *Options, _ *pflag.FlagSet) { o.SchedulerNames = []string{"a", "a"} },
			`"a" twice`,
		},
		"plain port for all": {
			func(o *Options, _ *pflag.FlagSet) { o.LegacyDebugAddress = "0.0.0.0:1" },
			"must be a loopback address",
		},
		"plain port without one": {
			func(o *Options, _ *pflag.FlagSet) { o.LegacyDebugAddress = "127.0.0.1" },
			"missing port",
		},
		"flags without authentication and without a port for them": {
			func(o *Options, _ *pflag.FlagSet) { o.LegacyDebugAllowFlags = true },
			"--legacy-debug-allow-flags needs --legacy-debug-address",
		},
		"forecasts without a pause": {
			func(o *Options, _ *pflag.FlagSet) { o.ForecastInterval = 9 * time.Second },
			"--forecast-interval 9s is not allowed: use 0, or 10s and more",
		},
		"forecasts at the end of time": {
			func(o *Options, _ *pflag.FlagSet) { o.ForecastInterval = -time.Second },
			"--forecast-interval -1s is not allowed: use 0, or 10s and more",
		},
		"no forecasts": {func(o *Options, _ *pflag.FlagSet) { o.ForecastInterval = 0 }, ""},
		"no memory for rankings": {
			func(o *Options, _ *pflag.FlagSet) { o.RankingMegabytes = 0 },
			"--ranking-memory-mb=0 is not allowed: it must be 1 to 1048576",
		},
		"plain port on loopback": {func(o *Options, _ *pflag.FlagSet) { o.LegacyDebugAddress = "[::1]:0" }, ""},
		"plain port by name":     {func(o *Options, _ *pflag.FlagSet) { o.LegacyDebugAddress = "localhost:0" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := NewOptions()
			fs := o.Flags.FlagSet("tenon")
			tc.change(o, fs)
			err := o.validate(fs)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestOurGatesYieldToTheUsers(t *testing.T) {
	const batching, expectation = "OpportunisticBatching=true", "NominatedNodeNameForExpectation=false"
	for said, want := range map[string][]string{
		"":                                 {expectation, batching},
		":OpportunisticBatching=false":     {expectation},
		"kube:OpportunisticBatching=false": {"kube:" + expectation},
		"kube:NominatedNodeNameForExpectation=true,kube:OpportunisticBatching=false": nil,
		":GenericWorkload=true": {expectation, batching},
	} {
		if diff := cmp.Diff(want, missingGates(said)); diff != "" {
			t.Errorf("--feature-gates=%s (-want +got):\n%s", said, diff)
		}
	}
}

func TestTheSchedulerSeesNodesWithoutWhatIsReserved(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n", Annotations: map[string]string{annotation.NodeReservation: `{"resources":{"cpu":"32"}}`},
	}}
	node.Status.Allocatable = object.List("cpu", "128")
	client := fake.NewClientset(node)
	asItIs := func(i cache.SharedIndexInformer) cache.SharedIndexInformer { return i }
	factory := hooks.Informers(client, scheduler.NewInformerFactory(client, 0, nil), accounts.Accounts{}.Table(),
		asItIs, asItIs)
	seen := make(chan string, 1)
	if _, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { seen <- obj.(*corev1.Node).Status.Allocatable.Cpu().String() },
	}); err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	if got := <-seen; got != "96" {
		t.Errorf("allocatable are %s CPUs of 128 with 32 reserved, want 96", got)
	}
}

// writeKubeconfig returns a file that names an API server where none is.
func writeKubeconfig(t testing.TB) string {
	t.Helper()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: " +
		"u}}]\n" +
		"clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: u}]\n"
	testkit.Check(t, os.WriteFile(config, []byte(text), 0o600))
	return config
}

// newScheduler sets a scheduler up against an API server that is never asked.
func newScheduler(t testing.TB, args ...string) *Scheduler {
	t.Helper()
	return newSchedulerWith(t, nil, args...)
}

func newSchedulerWith(t testing.TB, with []Option, args ...string) *Scheduler {
	t.Helper()
	config := writeKubeconfig(t)
	o := NewOptions(with...)
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	for _, f := range o.Flags.FlagSets {
		fs.AddFlagSet(f)
	}
	if err := fs.Parse(append([]string{"--kubeconfig=" + config, "--secure-port=0", "--leader-elect=false"},
		args...)); err != nil {
		t.Fatal(err)
	}
	testkit.Check(t, o.applyGates())
	testkit.Check(t, o.ComponentGlobalsRegistry.Set())
	s, err := Setup(t.Context(), o)
	testkit.Check(t, err)
	return s
}

func TestPortWithoutAuthenticationChangesNothing(t *testing.T) {
	s := newScheduler(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Check(t, err)
	s.options.LegacyDebugAddress = free.Addr().String()
	_ = free.Close()
	testkit.Check(t, s.servePlain(t.Context(), func(err error) { t.Error(err) }))
	for path, value := range map[string]string{
		"/debug/flags/v": "5", "/debug/flags/s": "7", "/debug/flags/f": "true",
		"/apis/v1/__services__": "", "/apis/v1/plugins/NodeNUMAResource/other": "",
	} {
		for _, method := range []string{"PUT", "POST", "PATCH", "DELETE"} {
			r, err := http.NewRequestWithContext(t.Context(), method,
				"http://"+s.options.LegacyDebugAddress+path, strings.NewReader(value))
			testkit.Check(t, err)
			answer, err := http.DefaultClient.Do(r)
			testkit.Check(t, err)
			body, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if answer.StatusCode != http.StatusMethodNotAllowed ||
				!strings.Contains(string(body), "use the secure port") {
				t.Errorf("%s %s: %d %s, want 405 with the port to use", method, path, answer.StatusCode, body)
			}
		}
	}
	if n, on := s.flags.TopScores(), s.flags.FilterFailures(); n != 0 || on {
		t.Errorf("flags changed: scores of %d nodes, filter failures %v", n, on)
	}
	answer, err := http.Get("http://" + s.options.LegacyDebugAddress + "/debug/flags")
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Errorf("GET /debug/flags: %v, %v; want 200", answer, err)
	}
	_ = answer.Body.Close()
}

// TestTheSeedsCurlLinesWorkWithoutAuthenticationWhereThatIsAllowed: `curl -X PUT IP:10251/debug/flags/v --data '5'`.
func TestTheSeedsCurlLinesWorkWithoutAuthenticationWhereThatIsAllowed(t *testing.T) {
	s := newScheduler(t)
	diagnostics, err := s.diagnostics(t.Context(), nil)
	testkit.Check(t, err)
	h := withFlags(diagnostics, diag.ReadOnly(diagnostics, "use the secure port"))
	for _, tt := range []struct {
		host, method, path, value string
		code                      int
		want                      string
	}{
		{"127.0.0.1:10251", "PUT", "/debug/flags/v", "5", 200, "successfully set klog.logging.verbosity to 5\n"},
		{"localhost:10251", "PUT", "/debug/flags/s", "100", 200, "successfully set debugTopNScores to 100\n"},
		{"[::1]:10251", "PUT", "/debug/flags/f", "true", 200, "successfully set debugFilterFailure to true\n"},
		{"127.0.0.1:10251", "POST", "/debug/flags/s", "3", 406, "unsupported http method\n"},
		{"page.example:10251", "PUT", "/debug/flags/s", "3", 405, "method PUT is not allowed"},
		{"127.0.0.1", "PUT", "/debug/flags/s", "3", 405, "method PUT is not allowed"},
		{"127.0.0.1:10251", "PUT", "/apis/v1/decisions", "3", 405, "method PUT is not allowed"},
		{"127.0.0.1:10251", "PUT", "/debug/flags/v", "0", 200, "successfully set klog.logging.verbosity to 0\n"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, strings.NewReader(tt.value))
		r.Host = tt.host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s %s%s: got %d %q, want %d %q", tt.method, tt.host, tt.path, w.Code, w.Body, tt.code, tt.want)
		}
	}
	if n := s.flags.TopScores(); n != 100 {
		t.Errorf("scores of %d nodes are printed, want 100", n)
	}
}

// TestEveryPathAnswersOnThePortWithoutAuthentication asks, over TCP, for what __services__ lists, for the paths of seed
// 003 and for its curl lines.
func TestEveryPathAnswersOnThePortWithoutAuthentication(t *testing.T) {
	a := newAsked(t)
	a.equip("n", grid.Worked(), map[string]string{}, 2, 110)
	testkit.Check(t, a.config.InformerFactory.Core().V1().Nodes().Informer().GetStore().Add(object.Node("n", nil)))
	a.know(exclusive("waits", "2"), exclusive("member", "2", object.Label(annotation.PodGroup, "g")))
	a.add(bound("runs", "n", list(0, 2)))
	free, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Check(t, err)
	a.options.LegacyDebugAddress, a.options.LegacyDebugAllowFlags = free.Addr().String(), true
	_ = free.Close()
	testkit.Check(t, a.servePlain(t.Context(), func(err error) { t.Error(err) }))
	ask := func(method, path, body string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+a.options.LegacyDebugAddress+path,
			strings.NewReader(body))
		testkit.Check(t, err)
		answer, err := http.DefaultClient.Do(r)
		testkit.Check(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		testkit.Check(t, err)
		if answer.StatusCode != http.StatusOK || len(text) == 0 {
			t.Errorf("%s %s: got %d %q, want 200 and an answer", method, path, answer.StatusCode, text)
		}
		return string(text)
	}
	var services map[string][]string
	testkit.Check(t, json.Unmarshal([]byte(ask("GET", "/apis/v1/__services__/", "")), &services))
	named := func(path string) string { // what the path's :name is the name of
		for part, name := range map[string]string{
			"/gang/": "g", "/gangs/": "g", "/quota/": "koordinator-root-quota", "/quotas/": "koordinator-root-quota",
			"/pods/": "waits",
		} {
			if strings.Contains(path, part) {
				return name
			}
		}
		return "n"
	}
	for _, path := range services["GET"] {
		filled := strings.NewReplacer(":nodeName", "n", ":namespace", "default", ":name", named(path)).Replace(path)
		if strings.HasSuffix(path, "/explain") {
			filled += "?namespace=default&pod=waits"
		}
		ask("GET", filled, "")
	}
	for _, path := range services["POST"] {
		ask("POST", path, `{"ask":{"pods":["default/waits"]}}`)
	}
	for _, path := range seedPaths {
		if !slices.Contains(services["GET"], path) {
			t.Errorf("__services__ does not list %s", path)
		}
	}
	ask("GET", "/apis/v1/plugins/NodeNUMAResources/cpuTopologyOptions/n", "") // as the seed spells the plugin
	for path, value := range map[string]string{"v": "0", "s": "0", "f": "false"} {
		ask("PUT", "/debug/flags/"+path, value)
	}
	ask("GET", "/debug/flags", "")
}

// seedPaths are those of seed 003, as it prints them.
var seedPaths = []string{
	"/apis/v1/__services__", "/apis/v1/nodes/:nodeName", "/apis/v1/plugins/Coscheduling/gang/:namespace/:name",
	"/apis/v1/plugins/DeviceShare/nodeDeviceSummaries", "/apis/v1/plugins/DeviceShare/nodeDeviceSummaries/:name",
	"/apis/v1/plugins/ElasticQuota/quota/:name", "/apis/v1/plugins/NodeNUMAResource/availableCPUs/:nodeName",
	"/apis/v1/plugins/NodeNUMAResource/cpuTopologyOptions/:nodeName",
}

func TestEndpoints(t *testing.T) {
	s := newScheduler(t)
	diagnostics, err := s.diagnostics(t.Context(), nil)
	testkit.Check(t, err)
	server := httptest.NewServer(s.server(t.Context()).Endpoints(diagnostics))
	t.Cleanup(server.Close)
	get := func(path string) (int, string) {
		t.Helper()
		r, err := http.Get(server.URL + path)
		testkit.Check(t, err)
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		testkit.Check(t, err)
		return r.StatusCode, string(body)
	}
	expect := func(path string, code int, text string) {
		t.Helper()
		got, body := get(path)
		if got != code || !strings.Contains(body, text) {
			t.Errorf("GET %s: got %d %s, want %d with %q", path, got, body, code, text)
		}
	}
	expect("/healthz", 200, "ok")
	expect("/livez", 200, "ok")
	expect("/readyz", 500, "accounts")
	expect("/metrics", 200, `tenon_build_info{component="tenon-scheduler"`)
	expect("/metrics", 200, `tenon_config_info{component="tenon-scheduler",hash="`)
	expect("/debug/flags", 200, "")
	expect("/apis/v1/nodes/n", 503, "not leader")
	s.store.MarkSynced()
	expect("/readyz", 200, "ok") // not being the leader is not a failure
	s.core.Tracker.Leading.Store(true)
	s.store.PutNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	expect("/apis/v1/__services__", 200, "availableCPUs")
	expect("/apis/v1/__services__", 200, `"/apis/v1/plugins/ElasticQuota/quota/:name",`+
		`"/apis/v1/plugins/ElasticQuota/quotas","/apis/v1/plugins/ElasticQuota/quotas/:name"`)
	expect("/apis/v1/plugins/ElasticQuota/quota/none", 404, "cannot find quota none")
	expect("/apis/v1/plugins/ElasticQuota/quota/koordinator-root-quota", 200, `"name":"koordinator-root-quota"`)
	expect("/apis/v1/plugins/NodeNUMAResource/availableCPUs/absent", 404, "cannot find node")
	expect("/apis/v1/plugins/DeviceShare/nodeDeviceSummaries/absent", 404, "cannot find node absent")
	expect("/apis/v1/plugins/NodeNUMAResources/cpuTopologyOptions/n", 200, "cpuTopology")
	expect("/apis/v1/plugins/NodeNUMAResource/availableCPUs/n", 200, "availableCPUs")
	expect("/apis/v1/plugins/Reservation/nodeReservations/absent", 404, "cannot find node absent")
	expect("/apis/v1/plugins/NodeNUMAResource/mispredictions", 200, "[]")
	for name, reason := range map[string]string{"rejected": "TopologyAffinityError", "crashed": ""} {
		pod := testPod(name)
		pod.Spec.NodeName, pod.Status = "n", corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason}
		testkit.Check(t, s.failed.GetStore().Add(pod))
	}
	expect("/apis/v1/explain/pods/default/rejected", 200, `"rejection":{"node":"n","reason":"TopologyAffinityError"}`)
	expect("/apis/v1/explain/pods/default/crashed", 404, "cannot find pod")

	expectDevices(t, s, expect)
}

// expectDevices asks about a pod that has half a GPU.
func expectDevices(t *testing.T, s *Scheduler, expect func(path string, code int, text string)) {
	t.Helper()
	gpu := func(id string, minor int) string {
		return fmt.Sprintf(`{"type":"gpu","id":%q,"minor":%d,"health":true,"resources":`+
			`{"koordinator.sh/gpu-memory":"8Gi"}}`, id, minor)
	}
	d, err := kube.ReadDevice(fmt.Appendf(nil, `{"metadata":{"name":"n","annotations":{%q:"Own"}},"spec":{"devices":`+
		`[%s,%s]}}`, annotation.DeviceModeKey, gpu("GPU-a", 0), gpu("GPU-b", 1)))
	testkit.Check(t, err)
	s.store.PutDevice(d)
	amounts := object.List("koordinator.sh/gpu", "50")
	pod := testPod("shares")
	pod.Spec.NodeName = "n"
	pod.Spec.Containers = []corev1.Container{{
		Name: "c", Resources: corev1.ResourceRequirements{Requests: amounts, Limits: amounts},
	}}
	pod.Annotations = map[string]string{annotation.DeviceAllocatedKey: `{"gpu":[{"minor":1,"id":"GPU-b","resources":` +
		`{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory-ratio":"50"}}]}`}
	s.store.PutPod(pod)
	testkit.Check(t, s.config.InformerFactory.Core().V1().Pods().Informer().GetStore().Add(pod))
	expect("/apis/v1/explain/pods/default/shares", 200, `"devices":{"gpu":[{"minor":1,"id":"GPU-b",`)
	expect("/apis/v1/explain/pods/default/shares", 200, `"decided":"mask"`)
	expect("/apis/v1/explain/pods/default/shares", 200, `"held":true`)
	expect("/apis/v1/plugins/DeviceShare/nodeDeviceSummaries/n", 200, `"allocateSet":{"gpu":{"default/shares":{"1":`)
}

func TestMistakesInTheConfigurationNameFileAndField(t *testing.T) {
	const head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
	for name, c := range map[string]struct{ text, field string }{
		"an unknown field": {head + "profilez: []\n", `profilez: unknown field`},
		"a field twice":    {head + "parallelism: 4\nparallelism: 5\n", `parallelism: is there twice`},
		"an argument of a plugin": {head +
			"profiles: [{schedulerName: x, plugins: {multiPoint: {enabled: [{name: NodeNUMAResource}]}}, " +
			"pluginConfig: [{name: NodeNUMAResource, args: {foo: 1}}]}]\n", "foo"},
		"two owners of gangs": {head +
			"profiles: [{schedulerName: x, plugins: {multiPoint: {enabled: [{name: Coscheduling}, {name: " +
			"GangScheduling}]}}}]\n", "profile x: plugin Coscheduling and plugin GangScheduling are both enabled"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "scheduler.yaml")
			testkit.Check(t, os.WriteFile(file, []byte(c.text), 0o600))
			o := NewOptions()
			o.ConfigFile = file
			o.SecureServing.BindPort, o.Master = 0, "http://127.0.0.1:1"
			_, err := Setup(t.Context(), o)
			if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), c.field) {
				t.Errorf("got %v, want %s and %s", err, file, c.field)
			}
		})
	}
}

func TestASchedulerWithTwoOwnersOfGangsDoesNotStart(t *testing.T) {
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{
		features.GenericWorkload: true,
	})
	o := NewOptions()
	o.SecureServing.BindPort, o.Master = 0, "http://127.0.0.1:1"
	_, err := Setup(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "plugin Coscheduling and plugin GangScheduling are both enabled") {
		t.Errorf("got %v, want both plugins named", err)
	}
}

func TestASchedulerThatWouldQueuePodsWithANodeDoesNotStart(t *testing.T) {
	const gate = features.InPlacePodVerticalScalingSchedulerPreemption
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate,
		featuregatetesting.FeatureOverrides{gate: true})
	o := NewOptions()
	o.SecureServing.BindPort, o.Master = 0, "http://127.0.0.1:1"
	if _, err := Setup(t.Context(), o); err == nil || !strings.Contains(err.Error(), string(gate)+" is not supported") {
		t.Errorf("got %v, want the gate named", err)
	}
}

func TestRunEndsWithoutErrorWhenItsContextDoes(t *testing.T) {
	s := newScheduler(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Run(ctx, s); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want no error", err)
	}
}

// TestConcealedNominationsAreShownToTheWholeScheduler: the informer of pods has them, whatever the API server shows, so
// also the queue and plugins of Kubernetes.
func TestConcealedNominationsAreShownToTheWholeScheduler(t *testing.T) {
	member := object.Pod("default/a", object.Scheduler(SchedulerName), object.Gang("g", "2"))
	member.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	item, err := json.Marshal(member)
	testkit.Check(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch q := r.URL.Query(); {
		case q.Get("sendInitialEvents") != "": // as a server that does not stream lists
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid",`+
				`"code":422}`)
		case q.Get("watch") != "":
			<-r.Context().Done()
		default:
			_, _ = fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},`+
				`"items":[%s]}`, item)
		}
	}))
	t.Cleanup(server.Close)
	config := writeKubeconfig(t)
	text, err := os.ReadFile(config)
	testkit.Check(t, err)
	text = bytes.ReplaceAll(text, []byte("http://127.0.0.1:1"), []byte(server.URL))
	testkit.Check(t, os.WriteFile(config, text, 0o600))
	s := newScheduler(t, "--kubeconfig="+config)
	s.gangs.PutPod(member)
	s.gangs.Conceal(string(member.UID), "n")
	pods := s.config.InformerFactory.Core().V1().Pods().Informer()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { pods.RunWithContext(ctx) })
	defer running.Wait()
	defer stop()
	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced) {
		t.Fatal("the pods are not read")
	}
	if p := kube.Get[corev1.Pod](pods, "default/a"); p == nil || p.Status.NominatedNodeName != "n" {
		t.Errorf("the informer has %+v, want a pod that is nominated to n", p)
	}
}

// TestReasonsForAutoscalersAreTheDefault, and the flag restores the reason of Kubernetes.
func TestReasonsForAutoscalersAreTheDefault(t *testing.T) {
	if newScheduler(t).reporter.PlainReasons || !newScheduler(t, "--autoscaler-reasons=false").reporter.PlainReasons {
		t.Error("the flag --autoscaler-reasons does not decide about the reasons")
	}
}
