package command_test

import (
	"bytes"
	gojson "encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/component-base/metrics"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/app"
	"github.com/tenon-project/tenon/internal/agent/command"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/testkit"
)

const (
	memoryFile = "var/lib/kubelet/memory_manager_state"

	memoryRecord = `{"policyName":"Static","machineState":{` +
		`"0":{"numberOfAssignments":1,"memoryMap":{"memory":{"total":8192,"systemReserved":0,"allocatable":8192,` +
		`"reserved":4096,"free":4096}},"cells":[0]}},` +
		`"entries":{"uid-a":{"main":[{"numaAffinity":[0],"type":"memory","size":4096}]}},"checksum":1}`
)

// run executes tenon-agent with arguments.
func run(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	c := command.New(nil)
	var out, errs bytes.Buffer
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(&errs)
	err = c.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

func tree(t *testing.T, name string) string {
	t.Helper()
	d, _, err := machine.Parse(name)
	testkit.Check(t, err)
	dir := filepath.Join(testkit.Dir(t), "my-machine")
	testkit.Check(t, d.Write(dir))
	return dir
}

func TestProbePrintsOneListAndDocuments(t *testing.T) {
	t.Parallel()
	dir := tree(t, "hybrid")
	text, notes, err := run(t, "probe", "--root", dir, "-o", "json")
	if err != nil || notes != "" {
		t.Fatalf("probe = %v, %q", err, notes)
	}
	var list struct {
		APIVersion, Kind string
		Items            []v1alpha2.NodeResourceTopology
	}
	testkit.Check(t, gojson.Unmarshal([]byte(text), &list))
	if list.APIVersion != "v1" || list.Kind != "List" || len(list.Items) != 1 {
		t.Fatalf("%s %s of %d items, want a v1 List of one", list.APIVersion, list.Kind, len(list.Items))
	}
	nrt := list.Items[0]
	if nrt.Kind != "NodeResourceTopology" || nrt.Name != "my-machine" || len(nrt.Zones) != 1 {
		t.Errorf("item 0 is %s %s with %d zones", nrt.Kind, nrt.Name, len(nrt.Zones))
	}
	detail, _, err := annotation.ParseCPUTopologyDetail(nrt.Annotations[annotation.CPUTopology])
	if err != nil || len(detail.Detail) != 32 {
		t.Errorf("cpu-topology has %d CPUs, %v, want 32", len(detail.Detail), err)
	}
	text, _, err = run(t, "probe", "--root", dir, "--node-name", "n7")
	if err != nil || !strings.HasPrefix(text, "---\n") {
		t.Fatalf("probe -o yaml = %v, %.40q", err, text)
	}
	var fromYAML v1alpha2.NodeResourceTopology
	testkit.Check(t, yaml.UnmarshalStrict([]byte(strings.TrimPrefix(text, "---\n")), &fromYAML))
	if fromYAML.Name != "n7" ||
		fromYAML.Annotations[annotation.CPUTopology] != nrt.Annotations[annotation.CPUTopology] {
		t.Errorf("yaml describes another machine than json")
	}
}

func TestProbeOfEqualTreesPrintsEqualBytes(t *testing.T) {
	t.Parallel()
	var texts []string
	for range 2 {
		text, _, err := run(t, "probe", "--root", tree(t, "snc2"), "--node-name", "n0", "--kubelet",
			"static,full-pcpus-only,distribute-cpus-across-numa,reserved=0,56")
		testkit.Check(t, err)
		texts = append(texts, text)
	}
	if texts[0] != texts[1] {
		t.Error("two equal machines are printed differently")
	}
}

func TestCommandLinesThatCannotBeMeantAreRefused(t *testing.T) {
	t.Parallel()
	dir := tree(t, "hybrid")
	for want, args := range map[string][]string{
		"must not write cpusets":          {"probe", "--root", dir, "--disable-query-kubelet-config"},
		"needs --feature-gates=CPUSet":    {"run", "--root", dir, "--disable-query-kubelet-config=true"},
		`unknown feature gate "CPUSet"`:   {"probe", "--root", dir, "--feature-gates", "CPUSet=true"},
		`unknown kubelet setting "fast"`:  {"probe", "--root", dir, "--kubelet", "fast"},
		`output "xml": want yaml or json`: {"probe", "--root", dir, "-o", "xml"},
		"/does/not/exist":                 {"probe", "--root", "/does/not/exist"},
		"unknown command":                 {"start"},
		"--resync -3s: want 1s or more":   {"run", "--root", dir, "--resync", "-3s"},
		`--device-mode: byte 0: Unsupported value "Mine": supported Own, Follow, Moving`: {
			"run", "--root", dir, "--device-mode", "Mine",
		},
		"want a loopback address":  {"run", "--root", dir, "--health-address", "0.0.0.0:10271"},
		"configure the API client": {"run", "--root", dir, "--kubeconfig", filepath.Join(dir, "none")},
	} {
		if _, _, err := run(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("tenon-agent %s: error = %v, want one that says %q", strings.Join(args, " "), err, want)
		}
	}
}

func TestPhaseOneIsAccepted(t *testing.T) {
	t.Parallel()
	text, _, err := run(t, "probe", "--root", tree(t, "hybrid"), "--disable-query-kubelet-config", "--feature-gates",
		"CPUSetAllocator=false")
	if err != nil || !strings.Contains(text, "Blind") || strings.Contains(text, annotation.CPUSharedPoolsKey) {
		t.Errorf("probe = %v, want the topology alone:\n%s", err, text)
	}
}

func TestHealthAndMetricsAreServed(t *testing.T) {
	t.Parallel()
	registry := metrics.NewKubeRegistry()
	app.NewShared().Metrics.Register(registry.MustRegister, registry.CustomMustRegister)
	ready := errors.New("the node's topology is not published yet")
	server := httptest.NewServer(app.Handler(func() error { return nil }, func() error { return ready }, registry))
	defer server.Close()
	get := func(path string) (int, string) {
		r, err := http.Get(server.URL + path)
		testkit.Check(t, err)
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		testkit.Check(t, err)
		return r.StatusCode, string(body)
	}
	if code, text := get("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "not published") {
		t.Errorf("/readyz = %d %q while not ready", code, text)
	}
	ready = nil
	for _, path := range []string{"/healthz", "/livez", "/readyz", "/metrics"} {
		if code, text := get(path); code != http.StatusOK {
			t.Errorf("%s = %d %q, want 200", path, code, text)
		}
	}
}

func TestProbePrintsWhatIsPublishedForVolcanoAndWhatTheKubeletRecorded(t *testing.T) {
	t.Parallel()
	dir := tree(t, "hybrid")
	testkit.Check(t, os.MkdirAll(filepath.Join(dir, "var/lib/kubelet"), 0o755))
	testkit.Check(t, os.WriteFile(filepath.Join(dir, memoryFile), []byte(memoryRecord), 0o644))
	args := []string{
		"probe", "--root", dir, "--kubelet", "static,reserved=0-1,memory-static,restricted",
		"--publish-numatopology", "-o", "json",
	}
	text, notes, err := run(t, args...)
	if err != nil || notes != "" {
		t.Fatalf("probe = %v, %q", err, notes)
	}
	var list struct {
		Items []struct {
			Kind     string
			Metadata struct{ Annotations map[string]string }
			Spec     nodeinfo.NumatopoSpec
		}
	}
	testkit.Check(t, gojson.Unmarshal([]byte(text), &list))
	if len(list.Items) != 2 || list.Items[0].Kind != "NodeResourceTopology" || list.Items[1].Kind != "Numatopology" {
		t.Fatalf("items: %+v", list.Items)
	}
	if got := list.Items[0].Metadata.Annotations[annotation.NUMAStateKey]; !strings.Contains(got,
		`"free":{"memory":"4Ki"}`) || strings.Contains(got, "uid-a") {
		t.Errorf("numa-state = %s, want the memory, and no unknown pod", got)
	}
	if got := list.Items[1].Spec; got.NumaResMap["cpu"].Allocatable != "2-31" ||
		got.Policies["TopologyManagerPolicy"] != "restricted" {
		t.Errorf("Numatopology = %+v", got)
	}
	testkit.Check(t, os.WriteFile(filepath.Join(dir, memoryFile), []byte("{"), 0o644))
	text, notes, err = run(t, args...)
	if err != nil || strings.Contains(text, "numa-state") ||
		!strings.Contains(notes, "cannot be used: "+filepath.Join(dir, memoryFile)) {
		t.Errorf("with a torn record: %v, notes %q", err, notes)
	}
}

// TestProbeKnowsTheKubeletFromTheMachinesFiles: what it reported to the agent takes precedence over its records, and a
// flag over both.
func TestProbeKnowsTheKubeletFromTheMachinesFiles(t *testing.T) {
	t.Parallel()
	dir := tree(t, "hybrid")
	put := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		testkit.Check(t, os.MkdirAll(filepath.Dir(file), 0o755))
		testkit.Check(t, os.WriteFile(file, []byte(text), 0o644))
	}
	prints := func(want, note string, args ...string) {
		t.Helper()
		text, notes, err := run(t, append([]string{"probe", "--root", dir, "-o", "json"}, args...)...)
		if err != nil || !strings.Contains(text, want) || !strings.Contains(notes, note) {
			t.Errorf("probe %v = %v, notes %q, want the note %q and %s in\n%s", args, err, notes, note, want, text)
		}
	}
	prints(`{\"policy\":\"none\"}`, "")
	put("var/lib/kubelet/cpu_manager_state", `{"policyName":"static","defaultCpuSet":"0-19","checksum":1}`)
	prints(`{\"policy\":\"static\"}`, "the policies that its state files show")
	put("var/lib/tenon-agent/kubelet.json",
		`{"Kubelet":{"cpu":{"policy":"static","reserved":"0-1"},"topology":{"policy":"restricted"}}}`)
	prints(`{\"policy\":\"static\",\"reservedCPUs\":\"0-1\"}`, "the settings that it reported to an earlier agent")
	prints(`{\"policy\":\"static\",\"reservedCPUs\":\"2\"}`, "", "--kubelet", "static,reserved=2")
}
