package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/internal/core/fragment"
)

// rareBelow is the part of all GPUs, in percent, below which a variant names no model.
const rareBelow = 1

// variant is a trace in which some pods can only run on the models that they name.
type variant struct {
	percent int    // of the pods with GPUs, those that name models
	draw    string // how the models are drawn
}

// draws returns the names of the ways in which models are drawn: one model in proportion to its GPUs, one in inverse
// proportion, or one to three, each in one of these two ways.
func draws() []string { return []string{"capacity", "rarity", "lists"} }

// variantsOf reads a flag: PERCENT:DRAW, or all.
func variantsOf(text string) (all []variant, err error) {
	if text == "all" {
		for _, percent := range []int{5, 10, 20, 33} {
			for _, draw := range draws() {
				all = append(all, variant{percent, draw})
			}
		}
		return all, nil
	}
	number, draw, _ := strings.Cut(text, ":")
	percent, err := strconv.Atoi(number)
	if err != nil || percent < 1 || percent > 100 || !slices.Contains(draws(), draw) {
		return nil, fmt.Errorf("-models is %q; must be all or PERCENT:DRAW, with 1 to 100 and %s", text,
			strings.Join(draws(), ", "))
	}
	return []variant{{percent, draw}}, nil
}

// compareVariants prints what rollout and FGD allocate of variants of a trace. It fails where FGD allocates more.
func compareVariants(out io.Writer, t *trace, variants []variant, settings fragment.Settings, seeds int) error {
	fmt.Fprintf(out, "| Pods that name models | drawn by | rollout | FGD | difference |\n|---:|---|---:|---:|---:|\n")
	sum, behind := 0.0, ""
	for _, v := range variants {
		limited := t.limit(v)
		rollout, err := measure(io.Discard, limited, "rollout", settings, seeds)
		if err != nil {
			return err
		}
		fgd, err := measure(io.Discard, limited, "fgd", settings, seeds)
		if err != nil {
			return err
		}
		more := median(rollout) - median(fgd)
		fmt.Fprintf(out, "| %d %% | %s | %.2f (%.2f–%.2f) | %.2f | %+.2f |\n", v.percent, v.draw, median(rollout),
			rollout[0], rollout[len(rollout)-1], median(fgd), more)
		if sum += more; more < 0 {
			behind = fmt.Sprintf("%d:%s", v.percent, v.draw)
		}
	}
	fmt.Fprintf(out, "variants=%d seeds=%d mean difference=%+.2f\n", len(variants), seeds, sum/float64(len(variants)))
	if behind != "" {
		return fmt.Errorf("-models %s: rollout allocates less than FGD", behind)
	}
	return nil
}

// limit returns a variant of a trace. It does not name models that have no node with as many GPUs as the pod asks for.
func (t *trace) limit(v variant) *trace {
	limited := *t
	limited.pods, limited.specs = slices.Clone(t.pods), nil
	gpus, largest := make([]int64, len(t.models)), make([]int64, len(t.models))
	for i := range t.nodes {
		n := &t.nodes[i]
		gpus[n.Model] += n.gpus
		largest[n.Model] = max(largest[n.Model], int64(len(n.Free)))
	}
	rng := rand.New(rand.NewPCG(1, uint64(v.percent)))
	model := func(p *pod, rare bool) fragment.Models {
		weights, sum := make([]float64, len(gpus)), 0.0
		for m, n := range gpus {
			switch {
			case largest[m] < p.GPUs || n*100 < t.capacity*rareBelow:
			case rare:
				weights[m] = 1 / float64(n)
			default:
				weights[m] = float64(n)
			}
			sum += weights[m]
		}
		at := rng.Float64() * sum
		for m, w := range weights {
			if at -= w; at < 0 {
				return fragment.ModelsOf(fragment.Model(m))
			}
		}
		return 0
	}
	kinds := map[fragment.Spec]int{}
	for i := range limited.pods {
		p := &limited.pods[i]
		if p.GPUs > 0 && rng.IntN(100) < v.percent {
			switch v.draw {
			case "lists":
				for range 1 + rng.IntN(3) {
					p.Models |= model(p, rng.IntN(2) == 0)
				}
			default:
				p.Models = model(p, v.draw == "rarity")
			}
		}
		limited.count(p, kinds)
	}
	return &limited
}
