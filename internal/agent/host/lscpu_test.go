package host_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/testkit"
)

// exception is a capture on which lscpu is not a valid reference in one column, or in all.
type exception struct {
	column string // "" = lscpu does not read the tree
	reason string
}

// exceptions are also listed in docs/reference/probe.md.
var exceptions = map[string]exception{
	"16em64t-4s2c2t-offlines": {"", "has no cpu/possible"},
	"256ppc-8n8s4t":           {"", "has no cpu/possible"},
	"96em64t-4no4pa3ca2co":    {"", "has no cpu/possible"},
	"40intel64-4n10c+pci-conflicts": {
		"socket",
		"lscpu follows core_siblings, where one CPU carries a foreign mask; the package ids are consistent",
	},
}

// compareWithLscpu compares which CPUs share a core, a socket and a NUMA node; the numbers of those may differ.
func compareWithLscpu(t *testing.T, name, dir string, m *topo.Machine) {
	t.Helper()
	if _, err := exec.LookPath("lscpu"); err != nil {
		//nolint:forbidigo // seen without -v
		fmt.Printf("NOT RUN: %s: comparison with lscpu: util-linux is not installed\n", t.Name())
		return
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "lscpu", "--sysroot", dir, "-p=CPU,CORE,SOCKET,NODE")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	except, listed := exceptions[name]
	if err != nil {
		if !listed || except.column != "" {
			t.Errorf("lscpu: %v: %s", err, stderr.String())
		}
		return
	}
	if listed && except.column == "" {
		t.Errorf("lscpu reads this machine, though it is listed as unreadable (%s)", except.reason)
	}
	theirs := parseLscpu(t, string(out))
	ours := published(t, m)
	for _, column := range []string{"core", "socket", "node"} {
		diff := cmp.Diff(theirs[column].groups(), ours[column].groups())
		switch skipped := listed && except.column == column; {
		case diff != "" && !skipped:
			t.Errorf("CPUs by %s (-lscpu +ours):\n%s", column, diff)
		case diff == "" && skipped:
			t.Errorf("CPUs by %s agree, though lscpu is listed as wrong here (%s)", column, except.reason)
		}
	}
}

// labels maps a CPU to the name of its group.
type labels map[int]string

// groups returns the groups as sorted lists of CPUs, without their names.
func (l labels) groups() []string {
	members := map[string][]int{}
	for _, cpu := range slices.Sorted(maps.Keys(l)) {
		members[l[cpu]] = append(members[l[cpu]], cpu)
	}
	var out []string
	for _, cpus := range members {
		out = append(out, fmt.Sprint(cpus))
	}
	slices.Sort(out)
	return out
}

func parseLscpu(t *testing.T, out string) map[string]labels {
	t.Helper()
	columns := map[string]labels{"core": {}, "socket": {}, "node": {}}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(strings.TrimSpace(line), ",")
		if len(f) != 4 {
			t.Fatalf("lscpu printed %q, want 4 columns", line)
		}
		cpu, err := strconv.Atoi(f[0])
		testkit.Check(t, err)
		columns["core"][cpu], columns["socket"][cpu], columns["node"][cpu] = f[1], f[2], f[3]
	}
	return columns
}

// published lists the online CPUs as tenon-agent probe prints them.
func published(t *testing.T, m *topo.Machine) map[string]labels {
	t.Helper()
	nrt := probe.Topology(probe.Input{NodeName: "n0", Machine: m, Mode: annotation.ModeOwn})
	d, _, err := annotation.ParseCPUTopologyDetail(nrt.Annotations[annotation.CPUTopology])
	testkit.Check(t, err)
	columns := map[string]labels{"core": {}, "socket": {}, "node": {}}
	for _, c := range d.Detail {
		columns["core"][int(c.ID)] = fmt.Sprint(c.Core)
		columns["socket"][int(c.ID)] = fmt.Sprint(c.Socket)
		columns["node"][int(c.ID)] = fmt.Sprint(c.Node)
	}
	return columns
}

func TestReferenceListsTheComparisonsWithLscpu(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(testkit.RepoRoot(t), "docs", "reference", "probe.md"))
	testkit.Check(t, err)
	for name := range captured {
		row := "| " + name + " | all | |"
		switch x := exceptions[name]; x.column {
		case "socket":
			row = fmt.Sprintf("| %s | core, node | socket: %s |", name, x.reason)
		case "":
			if x.reason != "" {
				row = fmt.Sprintf("| %s | nothing | `lscpu` does not read it: %s |", name, x.reason)
			}
		}
		if !strings.Contains(string(text), row) {
			t.Errorf("docs/reference/probe.md has no line %q", row)
		}
	}
}
