package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/core/fragment"
	"github.com/tenon-project/tenon/internal/testkit"
)

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	nodeHead = "sn,cpu_milli,memory_mib,gpu,model\n"
	podHead  = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
)

// made returns a cluster of 48 nodes, and pods of all kinds.
func made(t *testing.T) *trace {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 7))
	var nodes, pods strings.Builder
	nodes.WriteString(nodeHead)
	pods.WriteString(podHead)
	for i := range 48 {
		fmt.Fprintf(&nodes, "node-%02d,96000,393216,8,A\n", i)
	}
	for i := range 400 {
		switch rng.IntN(10) {
		case 0:
			fmt.Fprintf(&pods, "pod-%d,%d,8192,0,0,\n", i, 1000*(1+rng.IntN(8)))
		case 1:
			fmt.Fprintf(&pods, "pod-%d,64000,65536,8,1000,\n", i)
		case 2, 3, 4:
			fmt.Fprintf(&pods, "pod-%d,6000,16384,1,%d,\n", i, []int{320, 470, 650, 810}[rng.IntN(4)])
		default:
			fmt.Fprintf(&pods, "pod-%d,8000,16384,1,1000,A|B\n", i)
		}
	}
	loaded, err := load(write(t, "nodes.csv", nodes.String()), write(t, "pods.csv", pods.String()))
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

func TestRolloutAllocatesMoreThanLeastAllocated(t *testing.T) {
	t.Parallel()
	loaded := made(t)
	for seed := range uint64(3) {
		at := map[string]float64{}
		for _, name := range []string{"rollout", "least", "random", "bestfit", "fgd"} {
			got, err := replay(loaded, name, fragment.Standard(), seed)
			if err != nil {
				t.Fatal(err)
			}
			if got.at100 <= 0 || got.at100 > got.at130 || got.at130 > 100 {
				t.Errorf("seed %d: %s allocates %+v", seed, name, got)
			}
			again, _ := replay(loaded, name, fragment.Standard(), seed)
			if again != got {
				t.Errorf("seed %d: %s allocates %+v, then %+v", seed, name, got, again)
			}
			at[name] = got.at100
		}
		if at["rollout"] < at["least"]+10 || at["rollout"] < at["bestfit"] {
			t.Errorf("seed %d: %v; want rollout 10 percent above least and not below bestfit", seed, at)
		}
	}
}

func TestPodsOnlyRunOnTheirModels(t *testing.T) {
	t.Parallel()
	loaded, err := load(write(t, "nodes.csv", nodeHead+"a,8000,100,1,A\nb,8000,100,1,B\n"),
		write(t, "pods.csv", podHead+"p,1000,1,1,1000,B|C\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"rollout", "fgd", "random", "bestfit", "least"} {
		if got, err := replay(loaded, name, fragment.Standard(), 1); err != nil || got.at130 != 50 {
			t.Errorf("%s: %+v, %v; want 50 percent", name, got, err)
		}
	}
}

// What the scheduler makes of a small cluster is close to that of the replay, whoever owns the pods.
func TestTheSchedulerAllocatesWhatTheReplayDoes(t *testing.T) {
	loaded := made(t)
	loaded.nodes = loaded.nodes[:12]
	loaded.capacity = 12 * 8 * fragment.Whole
	want, err := replay(loaded, "rollout", fragment.Standard(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, owned := range []bool{false, true} {
		got, err := schedule(loaded, 1, owned)
		if err != nil || math.Abs(got-want.at100) > tolerance {
			t.Errorf("owned by ReplicaSets: %t: %.2f percent, %v; the replay allocates %.2f", owned, got, err,
				want.at100)
		}
	}
	loaded.pods[0].Milli, loaded.pods[0].GPUs = 325, 1
	loaded.pods = loaded.pods[:1]
	if _, err := schedule(loaded, 1, false); err == nil || !strings.Contains(err.Error(), "multiple of 10") {
		t.Errorf("325 milli: %v", err)
	}
}

func TestTheRepositoryRepeatsThePublishedReplays(t *testing.T) {
	t.Parallel()
	dir := testkit.SharedData(t, "openb")
	for trace, least := range map[string]float64{"default": 95.5, "multigpu50": 96.5} {
		check := trace == "default"
		var out strings.Builder
		err := run([]string{
			"-nodes", filepath.Join(dir, "openb_node_list_gpu_node.csv"), "-seeds", "1",
			fmt.Sprintf("-check=%t", check),
			"-pods", filepath.Join(dir, "openb_pod_list_"+trace+".csv"),
		}, &out)
		if err != nil {
			t.Errorf("%v\n%s", err, &out)
			continue
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		var at100, low, high float64
		format := "openb trace=" + trace + " seeds=1 alloc100=%f min=%f max=%f"
		_, err = fmt.Sscanf(lines[len(lines)-1], format, &at100, &low, &high)
		checked := strings.Contains(out.String(), "check: fgd")
		if err != nil || at100 < least || low != at100 || high != at100 || checked != check {
			t.Errorf("trace %s: %v, want at least %.1f, after a check: %t\n%s", trace, err, least, check, &out)
		}
	}
}

// Where pods name models, rollout allocates more than FGD.
func TestWherePodsNameModelsMoreIsAllocatedThanByFGD(t *testing.T) {
	t.Parallel()
	dir := testkit.SharedData(t, "openb")
	var out strings.Builder
	err := run([]string{
		"-nodes", filepath.Join(dir, "openb_node_list_gpu_node.csv"), "-seeds", "1", "-check=false",
		"-pods", filepath.Join(dir, "openb_pod_list_default.csv"), "-models", "20:lists",
	}, &out)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var more float64
	_, faulty := fmt.Sscanf(lines[len(lines)-1], "variants=1 seeds=1 mean difference=%f", &more)
	if err != nil || faulty != nil || more < 0.5 {
		t.Errorf("%v, %v: %+.2f percent above FGD, want 0.5\n%s", err, faulty, more, &out)
	}
}

// A variant of a trace limits as many pods as it says to models that can run them, and leaves the trace as it is.
func TestVariantsNameModelsThatCanRunThePod(t *testing.T) {
	t.Parallel()
	nodes, pods := nodeHead, podHead
	for i := range 20 {
		nodes += fmt.Sprintf("a%d,9,9,8,A\nb%d,9,9,2,B\n", i, i)
	}
	nodes += "c,9,9,1,C\n" // 1 of 201 GPUs
	for i := range 1000 {
		pods += fmt.Sprintf("p%d,1,1,1,500,\nq%d,1,1,8,1000,\nr%d,1,1,0,0,\n", i, i, i)
	}
	loaded, err := load(write(t, "nodes.csv", nodes), write(t, "pods.csv", pods))
	if err != nil {
		t.Fatal(err)
	}
	a, b := fragment.ModelsOf(loaded.model("A")), fragment.ModelsOf(loaded.model("B"))
	for draw, onB := range map[string]int{"capacity": 40, "rarity": 160, "lists": 83} { // 200 × 1/5, 4/5, 1/2, at first
		limited := loaded.limit(variant{percent: 20, draw: draw})
		count := map[fragment.Spec]int{}
		for i := range limited.pods {
			p := limited.pods[i]
			if limited.specs[p.kind].Spec != p.Spec || loaded.pods[i].Models != 0 {
				t.Fatalf("%s: pod %d is %+v of kind %+v, and %+v in the trace", draw, i, p.Spec,
					limited.specs[p.kind].Spec, loaded.pods[i].Spec)
			}
			p.MilliCPU, p.Milli = 0, 0
			count[p.Spec]++
		}
		one, eight, both := count[fragment.Spec{GPUs: 1, Models: b}], count[fragment.Spec{GPUs: 8, Models: a}], a|b
		if eight < 160 || eight > 240 || one < onB-35 || one > onB+35 {
			t.Errorf("%s: %d pods of eight GPUs on model A, want about 200; %d of one on B, want about %d", draw, eight,
				one, onB)
		}
		delete(count, fragment.Spec{})
		for _, models := range []fragment.Models{0, a, b, both} {
			delete(count, fragment.Spec{GPUs: 1, Models: models})
		}
		delete(count, fragment.Spec{GPUs: 8})
		delete(count, fragment.Spec{GPUs: 8, Models: a})
		if len(count) > 0 {
			t.Errorf("%s: also %+v", draw, count)
		}
	}
}

func TestFaultsOfFilesAndFlagsAreNamed(t *testing.T) {
	t.Parallel()
	nodes, pods := write(t, "nodes.csv", nodeHead+"a,1,1,1,A\n"), write(t, "pods.csv", podHead+"p,1,1,1,500,\n")
	for want, args := range map[string][]string{
		"-nodes and -pods are required": {"-pods", pods},
		"-seeds must be 1 or more":      {"-nodes", nodes, "-pods", pods, "-seeds", "0"},
		"-policy is \"best\"; must be":  {"-nodes", nodes, "-pods", pods, "-policy", "best"},
		`-models is "5:most"; must be all or PERCENT:DRAW, with 1 to 100 and capacity, rarity, lists`: {
			"-nodes", nodes, "-pods", pods, "-models", "5:most",
		},
		"-models is \"0:lists\"; must be all or": {"-nodes", nodes, "-pods", pods, "-models", "0:lists"},
		`:2: gpu is "65"; must be a number from 0 to 64`: {
			"-nodes", write(t, "n.csv", nodeHead+"a,1,1,65,A\n"), "-pods", pods,
		},
		`:2: gpu_milli is "half"; must be a number from 1 to 1000`: {
			"-nodes", nodes, "-pods", write(t, "p.csv", podHead+"p,1,1,1,half,\n"),
		},
		`:2: gpu_milli is "0"; must be a number from 1 to 1000`: {
			"-nodes", nodes, "-pods", write(t, "p.csv", podHead+"p,1,1,1,0,\n"),
		},
		"columns; must have at least 5": {"-nodes", nodes, "-pods", write(t, "p.csv", "name,cpu\n")},
		"no pod asks for GPUs":          {"-nodes", nodes, "-pods", write(t, "p.csv", podHead+"p,1,1,0,0,\n")},
		"no node has GPUs":              {"-nodes", write(t, "n.csv", nodeHead+"a,1,1,0,A\n"), "-pods", pods},
	} {
		var out strings.Builder
		if err := run(args, &out); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// The scores of the paper's measure on a node whose fragmentation falls by 0.3 GPUs, or grows by 0.29.
func TestScoresOfFGD(t *testing.T) {
	t.Parallel()
	if fall, rise := fgdScore(300_000), fgdScore(-290_000); fall != 57 || rise != 42 {
		t.Errorf("scores %d and %d, want 57 and 42", fall, rise)
	}
}
