package fragment_test

import (
	"math/rand/v2"
	"testing"

	"github.com/tenon-project/tenon/internal/core/fragment"
)

// cluster is how many GPUs are free of each of three models, each on a node of its own.
type cluster [3]int

func (c cluster) gpus() int { return c[0] + c[1] + c[2] }

// after is the cluster when a pod has taken a GPU of a model.
func (c cluster) after(m fragment.Model) cluster {
	c[m]--
	return c
}

// tiny is a demand for whole GPUs, and how many pods clusters are expected to serve of it before as many have arrived
// as GPUs were free.
type tiny struct {
	specs   []fragment.Weighted
	weights float64
	choose  func(c cluster, p fragment.Spec) fragment.Model // nil for the best choice of all
	known   map[[4]int]float64
}

// serve is how many of the next pods are served, by trying every pod.
func (d *tiny) serve(c cluster, pods int) float64 {
	key := [4]int{c[0], c[1], c[2], pods}
	served, known := d.known[key]
	if known || pods == 0 || c.gpus() == 0 {
		return served
	}
	for _, p := range d.specs {
		best := d.serve(c, pods-1)
		if models := d.choices(c, p.Spec); len(models) > 0 {
			best = 0
			for _, m := range models {
				best = max(best, 1+d.serve(c.after(m), pods-1))
			}
		}
		served += float64(p.Weight) / d.weights * best
	}
	d.known[key] = served
	return served
}

// choices are the models that a pod may be placed on.
func (d *tiny) choices(c cluster, p fragment.Spec) (models []fragment.Model) {
	for m := range fragment.Model(len(c)) {
		if c[m] > 0 && allowed(p, m) {
			models = append(models, m)
		}
	}
	if len(models) > 1 && d.choose != nil {
		return []fragment.Model{d.choose(c, p)}
	}
	return models
}

// largest returns the model on which a pod gains the most by the values of a cluster's free GPUs.
func largest(t *testing.T, specs []fragment.Weighted) func(cluster, fragment.Spec) fragment.Model {
	t.Helper()
	values := map[cluster]*fragment.Generation{}
	return func(c cluster, p fragment.Spec) (best fragment.Model) {
		g := values[c]
		if g == nil {
			var free fragment.Supply
			for m, n := range c {
				free[m] = int64(n) * fragment.Whole
			}
			var err error
			if g, err = fragment.New(specs, free, fragment.Settings{Sequences: 10}, newMemo()); err != nil {
				t.Fatal(err)
			}
			values[c] = g
		}
		gain, found := int64(0), false
		for m, n := range c {
			s := fragment.State{Free: []int64{fragment.Whole}, Model: fragment.Model(m)}
			if choice, fits := g.Choose(s, p, 1); fits && n > 0 && (!found || choice.Gain > gain) {
				gain, best, found = choice.Gain, fragment.Model(m), true
			}
		}
		return best
	}
}

// Pods that can use any model leave the GPUs that others are limited to: of tiny clusters nearly as many pods are
// served as by the best of all policies, which knows the demand and tries every future.
func TestLimitedPodsAreServedAlmostAsByTheBestPolicy(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 3))
	ours, best := 0.0, 0.0
	for i := range 60 {
		c := cluster{random.IntN(5), 1 + random.IntN(4), 1 + random.IntN(6)}
		one := fragment.Spec{GPUs: 1, Milli: fragment.Whole}
		specs := []fragment.Weighted{{Spec: one, Weight: 50 + random.Int64N(50)}}
		for range 1 + random.IntN(3) {
			one.Models = fragment.Models(1 + random.IntN(6)) // one or two of three
			specs = append(specs, fragment.Weighted{Spec: one, Weight: 1 + random.Int64N(40)})
		}
		d := tiny{specs: specs, known: map[[4]int]float64{}}
		for _, p := range specs {
			d.weights += float64(p.Weight)
		}
		most := d.serve(c, c.gpus())
		d.known, d.choose = map[[4]int]float64{}, largest(t, specs)
		got := d.serve(c, c.gpus())
		if got < 0.97*most {
			t.Errorf("case %d: free %v, demand %+v: serves %.3f of %d pods, the best policy %.3f", i, c, specs, got,
				c.gpus(), most)
		}
		ours += got
		best += most
	}
	if ours < 0.995*best {
		t.Errorf("serves %.2f pods, the best policies %.2f", ours, best)
	}
}
