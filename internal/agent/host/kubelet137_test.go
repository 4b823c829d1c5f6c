package host_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/testkit"
)

// The records in testdata/kubelet-1.37 were written by the state packages of kubelet 1.37.2 with the feature
// PodLevelResourceManagers on.

const (
	byContainer = "8f4d3c1e-0000-4000-8000-000000000001"
	asOne       = "8f4d3c1e-0000-4000-8000-000000000002"
)

// records is a root with one record of the kubelet, changed by a function.
func records(t *testing.T, file string, change func(string) string) host.Root {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "kubelet-1.37", file))
	testkit.Check(t, err)
	return write(t, map[string]string{"var/lib/kubelet/" + file: change(string(text))})
}

// before is the part of a text before another one.
func before(text, end string) string {
	text, _, _ = strings.Cut(text, end)
	return text
}

func unchanged(text string) string { return text }

func TestWhatKubelet137GavePodsAsAWholeIsRead(t *testing.T) {
	t.Parallel()
	cpus, err := host.ReadCPUState(records(t, "cpu_manager_state", unchanged))
	testkit.Check(t, err)
	want := host.CPUState{
		Policy: "static", Default: []int{0, 1, 6, 7},
		Pods: map[string][]int{byContainer: {2, 3}, asOne: {4, 5}},
		Containers: map[string]map[string][]int{
			byContainer: {"main": {2, 3}}, asOne: {host.WholePod: {4, 5}},
		},
	}
	if d := cmp.Diff(want, cpus); d != "" {
		t.Errorf("cpu_manager_state (-want +got):\n%s", d)
	}
	memory, err := host.ReadMemoryState(records(t, "memory_manager_state", unchanged))
	testkit.Check(t, err)
	pods := map[string]map[string][]host.MemoryBlock{
		byContainer: {"main": {{NUMAIDs: []int{0}, Type: "memory", Bytes: 2 << 30}}},
		asOne:       {host.WholePod: {{NUMAIDs: []int{0}, Type: "memory", Bytes: 3 << 30}}},
	}
	if d := cmp.Diff(pods, memory.Pods); d != "" {
		t.Errorf("memory_manager_state (-want +got):\n%s", d)
	}
}

// The copy for older kubelets lacks pods that were given CPUs as a whole, so it never replaces data that is broken.
func TestBrokenDataOfKubelet137IsAnError(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(string) string
		want   string
	}{
		"another pool under the same checksum": {
			func(s string) string { return strings.Replace(s, `\"0-1,6-7\"`, `\"0-1,6\"`, 1) }, "dataChecksum is",
		},
		"another checksum": {
			func(s string) string { return strings.Replace(s, `"dataChecksum":`, `"dataChecksum":1`, 1) },
			"dataChecksum is",
		},
		"no checksum": {
			func(s string) string { return before(s, `,"dataChecksum"`) + "}" }, "dataChecksum is 0",
		},
		"data that is an object": {func(s string) string { return `{"data":{}}` }, "cannot unmarshal"},
		"an end in the middle":   {func(s string) string { return s[:80] }, "unexpected end"},
	} {
		for _, file := range []string{"cpu_manager_state", "memory_manager_state"} {
			if strings.HasPrefix(name, "another pool") && file != "cpu_manager_state" {
				continue
			}
			root := records(t, file, test.change)
			_, err := host.ReadCPUState(root)
			if file == "memory_manager_state" {
				_, err = host.ReadMemoryState(root)
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), file) {
				t.Errorf("%s, %s: %v, want %q", file, name, err, test.want)
			}
		}
	}
	empty := func(s string) string {
		return before(s, `"data":`) + `"data":"","dataChecksum":0}`
	}
	if s, err := host.ReadCPUState(records(t, "cpu_manager_state", empty)); err != nil || len(s.Pods[asOne]) != 1 {
		t.Errorf("without data: %v, %v, want the record of version 2", s, err)
	}
}
