package deviceshare

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/testkit"
)

func TestSummariesOfDevices(t *testing.T) {
	t.Parallel()
	devices := made(3, "A")
	devices[1].Healthy = false
	devices[2].Total, devices[2].Minor = device.Vector{}, 0 // the minor of another one; memory of unknown size
	devices = append(devices, device.Device{Type: device.RDMA, ID: "0000:09:00.0", Minor: -1, Healthy: true})
	lost := holds("lost", 10, "GPU-9")
	lost.Namespace = "secret"
	v := viewOf(t, true, devices, holds("p", 50, "GPU-0"), lost)
	views := map[string]*ledger.View{"n": v, "bare": ledger.New(ledger.Facts{}).View()}
	s := endpoints(func() []string { return []string{"bare", "n", "unknown"} },
		func(node string) *ledger.View { return views[node] }, func() []fragments { return nil })
	ask := func(i int, node string, mayRead func(string) bool) string {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.SetPathValue("name", node)
		body := s.Endpoints[i].Answer(r, mayRead)
		if body == nil {
			return ""
		}
		text, err := json.Marshal(body)
		testkit.Check(t, err)
		return string(text)
	}
	all := func(string) bool { return true }
	amounts := func(core, memory, ratio string) string {
		if memory != "" {
			memory = `"koordinator.sh/gpu-memory":"` + memory + `",`
		}
		ratio = `"koordinator.sh/gpu-memory-ratio":"` + ratio + `"`
		return `{"koordinator.sh/gpu-core":"` + core + `",` + memory + ratio + `}`
	}
	and := func(list, more string) string { return strings.TrimSuffix(list, "}") + more + "}" }
	whole, half, unknown := amounts("100", "80Gi", "100"), amounts("50", "40Gi", "50"), amounts("100", "", "100")
	const nic, sum = `"rdma":{"0000:09:00.0":{"koordinator.sh/rdma":"100"}}`, `,"koordinator.sh/rdma":"100"`
	asked := `{"0":` + amounts("50", "", "50") + `}`
	first := `{"deviceTotal":` + and(amounts("300", "160Gi", "300"), sum) +
		`,"deviceFree":` + and(amounts("150", "40Gi", "150"), sum) + `,"deviceUsed":` + half +
		`,"deviceTotalDetail":{"gpu":{"0":` + whole + `,"1":` + whole + `,"GPU-2":` + unknown + `},` + nic +
		`},"deviceFreeDetail":{"gpu":{"0":` + half + `,"1":{},"GPU-2":` + unknown + `},` + nic +
		`},"deviceUsedDetail":{"gpu":{"0":` + half + `,"1":{},"GPU-2":{}},"rdma":{"0000:09:00.0":{}}},`
	const last = `"ids":{"gpu":{"0":"GPU-0","1":"GPU-1","GPU-2":"GPU-2"},"rdma":{"0000:09:00.0":"0000:09:00.0"}},` +
		`"version":`
	want := first + `"allocateSet":{"gpu":{"default/p":` + asked + `,"secret/lost":{"-1":` + amounts("10", "", "10") +
		`}}},` + last
	got := ask(0, "n", all)
	if diff := cmp.Diff(want, got[:min(len(want), len(got))]); diff != "" {
		t.Errorf("a node (-want +got):\n%s", diff)
	}
	if list := ask(1, "", all); list != `{"n":`+got+`}` {
		t.Errorf("all nodes: %s", list)
	}
	hidden := ask(0, "n", func(namespace string) bool { return namespace == "default" })
	want = first + `"allocateSet":{"gpu":{"default/p":` + asked + `}},"podsHidden":1,` + last
	if diff := cmp.Diff(want, hidden[:min(len(want), len(hidden))]); diff != "" {
		t.Errorf("for a caller who may not read a namespace (-want +got):\n%s", diff)
	}
	if list := ask(1, "", func(namespace string) bool { return namespace == "default" }); list != "{}" {
		t.Errorf("all nodes, for a caller who may not read all pods: %s", list)
	}
	for _, node := range []string{"bare", "unknown"} {
		if got := ask(0, node, all); got != "" {
			t.Errorf("node %s: %s", node, got)
		}
	}
}
