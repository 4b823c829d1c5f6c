package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/internal/core/fragment"
)

const most = 1 << 40 // milli-CPU or MiB

// node is a node with what it has free.
type node struct {
	fragment.State
	name    string
	memory  int64  // MiB
	gpus    int64  // milli of all its GPUs
	version uint32 // how often a pod came or left
}

type pod struct {
	fragment.Spec
	memory int64 // MiB
	kind   int   // equal for pods with equal specs
}

// runsOn reports whether the pod may use GPUs of a model.
func (p *pod) runsOn(m fragment.Model) bool {
	return p.Models == 0 || p.Models&fragment.ModelsOf(m) != 0
}

// demand is what the pod asks for of GPUs, in milli.
func (p *pod) demand() int64 { return p.GPUs * p.Milli }

type trace struct {
	nodes    []node // ascending name
	pods     []pod
	specs    []fragment.Weighted // by kind, with the number of pods
	capacity int64               // milli of all GPUs
	models   []string
	period   // of a replay in time
}

func load(nodes, pods string) (*trace, error) {
	t := &trace{}
	kinds := map[fragment.Spec]int{}
	err := table(nodes, func(row *row) {
		n := node{name: row.cell(0), memory: row.number(2, 0, most)}
		n.MilliCPU = row.number(1, 0, most)
		n.Free = slices.Repeat([]int64{fragment.Whole}, int(row.number(3, 0, fragment.MaxGPUs)))
		n.Model = t.model(row.cell(4))
		n.gpus = int64(len(n.Free)) * fragment.Whole
		t.capacity += n.gpus
		t.nodes = append(t.nodes, n)
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(t.nodes, func(a, b node) int { return strings.Compare(a.name, b.name) })
	err = table(pods, func(row *row) {
		p := pod{memory: row.number(2, 0, most)}
		p.MilliCPU, p.GPUs = row.number(1, 0, most), row.number(3, 0, fragment.MaxGPUs)
		switch p.GPUs {
		case 0:
		case 1:
			p.Milli = row.number(4, 1, fragment.Whole)
		default:
			p.Milli = fragment.Whole
		}
		if models := row.cell(5); models != "" {
			for model := range strings.SplitSeq(models, "|") {
				p.Models |= fragment.ModelsOf(t.model(model))
			}
		}
		t.count(&p, kinds)
		t.pods = append(t.pods, p)
	})
	switch {
	case err != nil:
	case len(t.models) > 64:
		err = fmt.Errorf("%d GPU models; must be at most 64", len(t.models))
	case t.capacity == 0:
		err = fmt.Errorf("%s: no node has GPUs", nodes)
	case !slices.ContainsFunc(t.pods, func(p pod) bool { return p.demand() > 0 }):
		err = fmt.Errorf("%s: no pod asks for GPUs", pods)
	}
	return t, err
}

// count counts a pod among those with equal specs, and sets its kind.
func (t *trace) count(p *pod, kinds map[fragment.Spec]int) {
	kind, known := kinds[p.Spec]
	if !known {
		kind = len(t.specs)
		kinds[p.Spec] = kind
		t.specs = append(t.specs, fragment.Weighted{Spec: p.Spec})
	}
	p.kind = kind
	t.specs[kind].Weight++
}

// model returns the number of a model.
func (t *trace) model(name string) fragment.Model {
	at := slices.Index(t.models, name)
	if at < 0 {
		at = len(t.models)
		t.models = append(t.models, name)
	}
	return fragment.Model(at)
}

// arrivals returns the pods in the order of a seed.
func (t *trace) arrivals(rng *rand.Rand) []pod {
	pods, demand := slices.Clone(t.pods), int64(0)
	for i := range pods {
		demand += pods[i].demand()
	}
	for demand*10 < t.capacity*13 {
		p := t.pods[rng.IntN(len(t.pods))]
		demand += p.demand()
		pods = append(pods, p)
	}
	rng.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	return pods
}

// row is a line of a table; err is its first fault.
type row struct {
	path         string
	line         int
	head, values []string
	err          error
}

// cell returns a column; nothing where the table does not have it.
func (r *row) cell(column int) string {
	if column >= len(r.values) {
		return ""
	}
	return r.values[column]
}

// number reads a column; low where it has a fault.
func (r *row) number(column int, low, high int64) int64 {
	n, err := strconv.ParseInt(r.values[column], 10, 64)
	if err == nil && n >= low && n <= high {
		return n
	}
	if r.err == nil {
		r.err = fmt.Errorf("%s:%d: %s is %q; must be a number from %d to %d", r.path, r.line, r.head[column],
			r.values[column], low, high)
	}
	return low
}

// table calls each with the lines of a file below the first one, which must have five columns at least.
func table(path string, each func(*row)) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	lines, err := csv.NewReader(bytes.NewReader(content)).ReadAll()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for i, values := range lines {
		if len(values) < 5 {
			return fmt.Errorf("%s has %d columns; must have at least 5", path, len(values))
		}
		r := row{path: path, line: i + 1, head: lines[0], values: values}
		if i == 0 {
			continue
		}
		if each(&r); r.err != nil {
			return r.err
		}
	}
	return nil
}
