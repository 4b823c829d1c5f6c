package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

const gpu = "nvidia.com/gpu"

// elastic is a quota under a parent, with amounts as "cpu=10,memory=1Gi".
func elastic(name, parent, floor, ceiling string) *v1alpha1.ElasticQuota {
	list := func(text string) corev1.ResourceList {
		return object.List(strings.FieldsFunc(text, func(r rune) bool { return r == '=' || r == ',' })...)
	}
	q := object.Quota("quotas/"+name, list(floor), list(ceiling))
	if parent != "" {
		q.Labels[annotation.QuotaParent] = parent
	}
	return q
}

// asking is a pod of a quota.
func asking(name, quotaName, on string, amounts map[corev1.ResourceName]string) corev1.Pod {
	p := pod(name, "", "", on, "")
	p.Labels[annotation.QuotaName] = quotaName
	requests := corev1.ResourceList{}
	for key, n := range amounts {
		requests[key] = resource.MustParse(n)
	}
	p.Spec.Containers[0].Resources.Requests = requests
	return p
}

// seedWorld is the example of seed 003 in GPUs, beside a tree of CPU and memory.
func seedWorld() ([]corev1.Node, []corev1.Pod, []*v1alpha1.ElasticQuota) {
	n := node("n", "64", nil)
	n.Status.Allocatable[gpu] = resource.MustParse("100")
	var pods []corev1.Pod
	gpus := func(name, quotaName, on, count string) {
		pods = append(pods, asking(name, quotaName, on, map[corev1.ResourceName]string{gpu: count}))
	}
	gpus("a", "a", "n", "5")
	gpus("b", "b", "n", "20")
	gpus("c", "c", "n", "25")
	gpus("c-waits", "c", "", "15")
	gpus("d", "d", "n", "40")
	gpus("d-waits", "d", "", "30")
	pods = append(pods, asking("serve", "serve", "n", map[corev1.ResourceName]string{"cpu": "6500m", "memory": "9Gi"}))
	eng := elastic("eng", "", "cpu=8,memory=16Gi", "cpu=24,memory=32Gi")
	eng.Labels[annotation.QuotaIsParent] = "true"
	idle := elastic("idle", "eng", "cpu=2,memory=0", "cpu=10,memory=16Gi")
	idle.Labels[annotation.QuotaAllowLent] = "false"
	return []corev1.Node{n}, pods, []*v1alpha1.ElasticQuota{
		elastic("a", "", gpu+"=10", gpu+"=40"), elastic("b", "", gpu+"=15", gpu+"=60"),
		elastic("c", "", gpu+"=20", gpu+"=50"), elastic("d", "", gpu+"=15", gpu+"=80"),
		eng, elastic("serve", "eng", "cpu=6,memory=8Gi", "cpu=20,memory=32Gi"), idle,
	}
}

func seedAccount() *kube.Quotas {
	s := kube.NewQuotas(func() time.Time { return born })
	nodes, pods, quotas := seedWorld()
	for i := range nodes {
		s.PutNode(&nodes[i])
	}
	for _, q := range quotas {
		s.PutQuota(q)
	}
	for i := range pods {
		s.PutPod(&pods[i])
	}
	return s
}

func TestQuotasAsGolden(t *testing.T) {
	quotas := quotasOf(seedAccount(), true)
	withRounds := &quotaOptions{rounds: true}
	golden(t, "quota.txt", drawQuotas(quotas, quotas, nil, &quotaOptions{}, paint{}, 0))
	golden(t, "quota-wide.txt", drawQuotas(quotas, quotas, nil, &quotaOptions{format: wide}, paint{}, 0))
	golden(t, "quota-rounds.txt", drawQuotas(quotas, quotas, nil, withRounds, paint{}, 0))
	narrow := drawQuotas(quotas, quotas, nil, withRounds, paint{ascii: true}, 50)
	for _, line := range strings.Split(narrow, "\n") {
		if len([]rune(line)) > 50 {
			t.Errorf("wider than the terminal: %s", line)
		}
	}
	none := quotasOf(kube.NewQuotas(time.Now), false)
	if got := drawQuotas(none, nil, nil, withRounds, paint{}, 0); !strings.HasPrefix(got,
		"no quota limits anything") {
		t.Errorf("without quotas: %s", got)
	}
}

func TestAPodThatItsQuotaHoldsBackAsGolden(t *testing.T) {
	s := seedAccount()
	x := kube.Ask(s, func(a *quota.Account) *quota.Excess { return a.Admit("uid-d-waits") })
	if x == nil {
		t.Fatal("the pod is admitted")
	}
	explain := func(mayRead func(string) bool) (out view.Pod) {
		out = view.Pod{Pod: "default/d-waits", State: view.Pending, RootCause: &why.Wire{
			Code: why.QuotaExceeded, Plugin: "ElasticQuota", Phase: "PreFilter", Message: x.String(),
		}}
		s.Read(func(a *quota.Account) {
			out.Quota = view.QuotaLimitOf(a.Forest(), x, convert.QuotaText, mayRead)
		})
		return out
	}
	r := renderer{now: born}
	all := explain(func(string) bool { return true })
	golden(t, "explain-quota.txt", r.pod(explained{Pod: all}, corev1.PodPending))
	text, err := json.MarshalIndent(all.Quota, "", "  ")
	testkit.Check(t, err)
	golden(t, "explain-quota.json", string(text)+"\n")
	hidden := explain(func(string) bool { return false })
	if s := hidden.Quota.Shortages[0]; len(s.Borrowers) != 0 || s.BorrowersHidden != 2 {
		t.Errorf("a caller who may see no quota gets %+v", s)
	}
}

// quotaServer is an API server with ElasticQuotas of Koordinator's group, or without.
func quotaServer(t *testing.T, serves bool) *httptest.Server {
	t.Helper()
	nodes, pods, quotas := seedWorld()
	rest := apiServer(t, nodes, pods, nil).Config.Handler
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !serves || r.URL.Path != "/apis/"+v1alpha1.GroupName+"/v1alpha1/elasticquotas" {
			rest.ServeHTTP(w, r)
			return
		}
		list := v1alpha1.ElasticQuotaList{
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupName + "/v1alpha1", Kind: "ElasticQuotaList"},
		}
		for _, q := range quotas {
			list.Items = append(list.Items, *q)
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(list); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func TestQuotasOfAServer(t *testing.T) {
	asked := ""
	scheduler := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.String()
		all := map[string]view.Quota{}
		for _, q := range quotasOf(seedAccount(), r.URL.Query().Get("rounds") == "true") {
			all[q.Name] = q
		}
		if err := json.NewEncoder(w).Encode(all); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(scheduler.Close)
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"message": "no such path ` + r.URL.Path + `"}`))
	}))
	t.Cleanup(plain.Close)
	api := quotaServer(t, true)
	with, without := kubeconfig(t, api.URL, scheduler.URL), kubeconfig(t, api.URL)
	none := kubeconfig(t, quotaServer(t, false).URL)

	for name, c := range map[string]struct {
		args []string
		code int
		want []string // of the output, or of the error
	}{
		"the scheduler is asked": {
			[]string{"quota", "--kubeconfig", with}, 0, []string{"QUOTA (" + gpu + ")", "\n  d "},
		},
		"else the objects answer": {
			[]string{"quota", "--kubeconfig", without, "--rounds"},
			0,
			[]string{"ROUND 1: 45", "+19", "+12", "+14 -9", "ROUND 2: 9"},
		},
		"a scheduler that is down": {
			[]string{"quota", "--kubeconfig", without, "--diagnostics", "http://127.0.0.1:1"},
			0,
			[]string{"QUOTA (cpu)", "warning: ", "this is what the objects say"},
		},
		"one quota": {
			[]string{"quota", "serve", "--kubeconfig", with},
			0,
			[]string{"quota eng/serve\n", "    serve ", "cpu below eng: ", "cpu below koordinator-root-quota: "},
		},
		"explain answers the same": {
			[]string{"explain", "quota/serve", "--kubeconfig", with},
			0,
			[]string{"quota eng/serve\n", "cpu below eng: "},
		},
		"as YAML": {
			[]string{"quota", "-o", "yaml", "--kubeconfig", without},
			0,
			[]string{"apiVersion: cli.tenon.sh/v1\n", "kind: QuotaList", "name: koordinator-root-quota"},
		},
		"the default tree": {
			[]string{"quota", "--tree", "", "--kubeconfig", without}, 0, []string{"  eng "},
		},
		"an unknown quota": {
			[]string{"quota", "serv", "--kubeconfig", with},
			2,
			[]string{`error: quota "serv" not found, did you mean "serve"? (there are a, b, c, d, eng, idle, `},
		},
		"an unknown tree": {
			[]string{"quota", "--tree", "x", "--kubeconfig", with},
			2,
			[]string{`error: tree "x" not found (there are "" (the default tree))`},
		},
		"a tree and a name": {
			[]string{"quota", "a", "--tree", "x", "--kubeconfig", with},
			2,
			[]string{"--tree and a name exclude each other"},
		},
		"two names": {
			[]string{"quota", "a", "b", "--kubeconfig", with}, 2, []string{"too many arguments"},
		},
		"names of quotas, for other commands": {
			[]string{"quota", "-o", "name", "--kubeconfig", with}, 0, []string{"quota/a\nquota/b\nquota/c\n"},
		},
		"one name": {[]string{"quota", "a", "-o", "name", "--kubeconfig", with}, 0, []string{"quota/a\n"}},
		"a JSON path of a list": {
			[]string{
				"quota", "--kubeconfig", with, "-o",
				`jsonpath={range .items[*]}{.name}={.min.nvidia\.com/gpu} {end}`,
			},
			0,
			[]string{"a=10 b=15 c=20 d=15 eng= "},
		},
		"a number in a JSON path": {
			[]string{"quota", "d", "-o", `jsonpath={.trace.nvidia\.com/gpu.pool}`, "--kubeconfig", with},
			0,
			[]string{"45"},
		},
		"a JSON path without a template": {
			[]string{"quota", "-o", "jsonpath", "--kubeconfig", with},
			2,
			[]string{"-o jsonpath: template format specified but no template given; use jsonpath=TEMPLATE"},
		},
		"a JSON path that is not closed": {
			[]string{"quota", "-o", "jsonpath={.items", "--kubeconfig", with}, 2, []string{"unclosed action"},
		},
		"an unknown format": {
			[]string{"quota", "-o", "xml", "--kubeconfig", with},
			2,
			[]string{"-o xml is not allowed: use table, wide, name, json, yaml, jsonpath=TEMPLATE"},
		},
		"flags of explain that are for pods": {
			[]string{"explain", "quota/a", "--hints", "--kubeconfig", with},
			2,
			[]string{"are not for quotas"},
		},
		"a scheduler without the plugin": {
			[]string{"quota", "--kubeconfig", without, "--diagnostics", plain.URL},
			4,
			[]string{"no such path /apis/v1/plugins/ElasticQuota/quotas", "without the plugin ElasticQuota"},
		},
		"a cluster without the kind": {
			[]string{"quota", "--kubeconfig", none},
			2,
			[]string{"serves no ElasticQuota, neither of scheduling.sigs.k8s.io nor of scheduling.x-k8s.io"},
		},
		"no cluster": {
			[]string{"quota", "--kubeconfig", kubeconfig(t, "http://127.0.0.1:1")},
			4,
			[]string{"is the cluster running?"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errOut := run(t, "tenon", c.args...)
			if code != c.code {
				t.Errorf("exit code %d, want %d: %s", code, c.code, errOut)
			}
			for _, want := range c.want {
				if !strings.Contains(out+errOut, want) {
					t.Errorf("the output lacks %q:\n%s%s", want, out, errOut)
				}
			}
		})
	}

	_, list, _ := run(t, "tenon", "quota", "-o", "json", "--kubeconfig", with)
	if asked != "/apis/v1/plugins/ElasticQuota/quotas?rounds=false" {
		t.Errorf("for a list the scheduler was asked for %s", asked)
	}
	golden(t, "quota.json", list)
	_, one, _ := run(t, "kubectl-tenon", "quota", "d", "-o", "json", "--kubeconfig", with)
	golden(t, "quota-one.json", one)
}

func TestSiblingsShareTheirExactShares(t *testing.T) {
	const siblings = 200
	s := kube.NewQuotas(func() time.Time { return born })
	n := node("n", "10000", nil)
	s.PutNode(&n)
	for i := range siblings {
		name := fmt.Sprintf("q%03d", i)
		s.PutQuota(elastic(name, "", "cpu=10", "cpu=400"))
		p := asking(name, name, "", map[corev1.ResourceName]string{"cpu": strconv.Itoa(i)})
		s.PutPod(&p)
	}
	if quotas := quotasOf(s, true); len(quotas) != siblings+3 || len(quotas[100].Trace) != 1 {
		t.Fatalf("got %d quotas", len(quotas))
	}
	// The shares of one set allocate for each sibling; made for each quota anew they would be siblings times as many.
	if each := testing.AllocsPerRun(1, func() { quotasOf(s, true) }) / siblings; each > 10*siblings {
		t.Errorf("%v allocations for each of %d siblings", each, siblings)
	}
}
