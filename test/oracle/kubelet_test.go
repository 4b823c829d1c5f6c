//go:build oracle

package oracle

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tenon-project/tenon/internal/core/why"
)

var (
	minors   = flag.String("oracle.minor", "1.37", "kubelet minor")
	states   = flag.Int("oracle.states", 20_000, "admissions to compare")
	seed     = flag.Uint64("oracle.seed", 0, "seed of the cases; 0 draws one")
	workers  = flag.Int("oracle.workers", 2, "programs that run at once")
	programs = flag.String("oracle.program", "", "the program, where it has been built")
	caseFile = flag.String("oracle.case", "", "a file with one case: run it and print both answers")
	all      = flag.Bool("oracle.all", false, "go on after a difference and print all of them")
)

// Cases that are run apart, at most.
const (
	mostCapped  = 200
	mostHanging = 10
	// After so many states the run says where it is.
	progress = 100_000
	// From so many states on the shares of hard ones must hold.
	enoughStates = 10_000
	// A merge of more combinations would not end within the patience.
	mostCombinations = 1e7
)

// tally adds up outcomes. All fields are guarded by mu.
type tally struct {
	mu         sync.Mutex
	next       uint64
	states     int
	wide       int
	large      int
	documented map[string]int
	refused    map[why.Code]int
	failures   []failure
	capped     []Case
	hanging    []Case
	unready    int
	unserved   int
}

type failure struct {
	c Case
	o Outcome
}

func TestAgreesWithTheKubelet(t *testing.T) {
	if *caseFile != "" {
		t.Skip("a case was named")
	}
	if *seed == 0 {
		var b [8]byte
		_, _ = rand.Read(b[:])
		*seed = binary.LittleEndian.Uint64(b[:])
	}
	t.Logf("kubelet %s, seed 0x%x", *minors, *seed)
	path := build(t, *minors)
	sum := &tally{documented: map[string]int{}, refused: map[why.Code]int{}}
	began := time.Now()
	var wg sync.WaitGroup
	for range *workers {
		wg.Go(func() {
			p := &program{path: path, dir: t.TempDir()}
			defer p.stop()
			for sum.work(t, p) {
			}
			if p.note != "" {
				t.Log(p.note)
			}
		})
	}
	wg.Wait()
	wide := sum.apart(t, path)
	for _, f := range sum.failures {
		report(t, path, f)
	}
	known := 0
	for _, name := range slices.Sorted(maps.Keys(sum.documented)) {
		known += sum.documented[name]
		t.Logf("documented %s: %d", name, sum.documented[name])
	}
	t.Logf(
		"%d cases in %v, refused machines %v, kubelets that never start %d, restarts that the kubelet did not "+
			"survive %d, apart %d wide merges and %d hangs",
		sum.next, time.Since(began).Round(time.Second), sum.refused, sum.unserved, sum.unready, wide, len(sum.hanging))
	t.Logf("%d %% of the states have %d NUMA nodes or more, %d %% a merge of more than %d combinations",
		100*sum.large/max(sum.states, 1), largeMachine, 100*sum.wide/max(sum.states, 1), wideMerge)
	if sum.states >= enoughStates && (sum.large < sum.states*30/100 || sum.wide < sum.states*10/100) {
		t.Errorf("%d of %d states on large machines, want 30 %%; %d with wide merges, want 10 %%", sum.large,
			sum.states, sum.wide)
	}
	fmt.Printf("oracle kubelet=%s states=%d documented=%d undocumented=%d seed=0x%x\n", *minors, sum.states, known,
		len(sum.failures), *seed)
}

// work runs one case; false when there are enough states or something failed.
func (s *tally) work(t *testing.T, p *program) bool {
	s.mu.Lock()
	index := s.next
	s.next++
	enough := s.states >= *states || len(s.failures) > 0 && !*all || t.Failed()
	s.mu.Unlock()
	if enough {
		return false
	}
	c := Draw(*minors, *seed, index)
	err := p.ready(&c)
	var o Outcome
	if err == nil {
		o, err = Run(&c, p, SkipHanging)
	}
	if err != nil {
		t.Errorf("case %d: %v", index, err)
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.states / progress
	s.add(c, o)
	if o.Difference != "" {
		t.Logf("case %d, step %d: %s", index, o.Step, o.Difference)
	}
	if after := s.states / progress; after > before {
		t.Logf("%d states", s.states)
	}
	return true
}

func (s *tally) add(c Case, o Outcome) {
	s.states += o.States
	s.wide += o.Wide
	s.large += o.Large
	s.unready += o.Unready
	if o.NeverStarts {
		s.unserved++
	}
	for name, n := range o.Documented {
		s.documented[name] += n
	}
	if o.Refused != why.None {
		s.refused[o.Refused]++
	}
	if o.Difference != "" {
		s.failures = append(s.failures, failure{c, o})
	}
	for _, at := range o.Capped {
		if at.Combinations <= mostCombinations && len(s.capped) < min(mostCapped, *states/5000) {
			s.capped = append(s.capped, until(c, at.Step, o))
		}
	}
	for _, at := range o.Hanging {
		if len(s.hanging) < min(mostHanging, *states/20_000) {
			s.hanging = append(s.hanging, until(c, at, o))
		}
	}
}

// until is the case up to a step, without the other steps that were left out.
func until(c Case, step int, o Outcome) Case {
	out := clone(c)
	out.Steps = nil
	for i, s := range c.Steps[:step+1] {
		left := slices.Contains(o.Hanging, i) ||
			slices.ContainsFunc(o.Capped, func(x Capped) bool { return x.Step == i })
		if i == step || !left {
			out.Steps = append(out.Steps, s)
		}
	}
	return out
}

// apart runs the cases that were left out, without the cap, and returns how many wide merges were compared.
func (s *tally) apart(t *testing.T, path string) int {
	p := &program{path: path, dir: t.TempDir()}
	defer p.stop()
	wide := 0
	for _, c := range s.capped {
		c.Machine.Cap = 0
		o, err := Run(&c, p, SkipHanging)
		if err != nil {
			t.Error(err)
			return wide
		}
		if o.Answer != nil && o.Answer.Hung {
			t.Logf("a merge took more than %v", patience)
			continue
		}
		wide++
		s.addApart(c, o)
	}
	for _, c := range s.hanging {
		c.Machine.Cap = 0
		o, err := Run(&c, p, ExpectHang)
		if err != nil {
			t.Error(err)
			return wide
		}
		s.addApart(c, o)
	}
	return wide
}

// addApart counts the last step only: the others were counted before.
func (s *tally) addApart(c Case, o Outcome) {
	s.states++
	if o.Difference != "" {
		s.failures = append(s.failures, failure{c, o})
	}
}

// report shrinks a failing case and prints it with both answers.
func report(t *testing.T, path string, f failure) {
	t.Helper()
	p := &program{path: path, dir: t.TempDir()}
	defer p.stop()
	mode := SkipHanging
	if f.o.Answer != nil && f.o.Answer.Hung {
		mode = ExpectHang
	}
	last := f.o
	small := Shrink(f.c, 400, func(c Case) bool {
		o, err := Run(&c, p, mode)
		if err == nil && o.Difference != "" && o.Answer.Started == f.o.Answer.Started &&
			o.Answer.Hung == f.o.Answer.Hung && o.Answer.Panic == f.o.Answer.Panic &&
			o.Answer.Error == f.o.Answer.Error {
			last = o
			return true
		}
		return false
	})
	small.Machine.Trace = true
	if o, err := Run(&small, p, mode); err == nil && o.Difference != "" {
		last = o
	}
	t.Errorf("step %d: %s\nkubelet: %s\ncase: %s", last.Step, last.Difference, text(last.Answer), text(small))
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func TestCase(t *testing.T) {
	if *caseFile == "" {
		t.Skip("name a file with -oracle.case")
	}
	b, err := os.ReadFile(*caseFile)
	if err != nil {
		t.Fatal(err)
	}
	var c Case
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	c.Machine.Trace = true
	p := &program{path: build(t, c.Kubelet), dir: t.TempDir()}
	defer p.stop()
	o, err := Run(&c, p, ExpectHang)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v\nkubelet: %s", o, text(o.Answer))
}
