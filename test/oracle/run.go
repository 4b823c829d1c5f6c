package oracle

import (
	"fmt"
	"strings"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Kubelet answers requests: a program, or in a test something that answers like one.
type Kubelet interface {
	// Ask sends one request and returns the answer; an answer that does not come in time is one with Hung set. After a
	// hang or a panic the kubelet is a fresh one that needs a start.
	Ask(r *Request) (*Answer, error)
}

// Outcome is what a case came to.
type Outcome struct {
	// States is the number of admissions compared, Documented the part that differs in a known way, by name.
	States     int
	Documented map[string]int
	// Difference is the first undocumented one, "" for none, and Step the step that it happened at.
	Difference string
	Step       int
	Answer     *Answer
	// Capped and Hanging are steps that were left out: too many combinations, or our model says the kubelet never answers.
	Capped  []Capped
	Hanging []int
	// Refused is the code for which the model refuses the machine; nothing is compared then.
	Refused why.Code
}

// Capped is a step whose merge has more combinations than the machine's cap.
type Capped struct {
	Step         int
	Combinations float64
}

// Mode says what a run does with steps that a run of many states leaves out.
type Mode uint8

// Modes.
const (
	// SkipHanging leaves out admissions that our model says never end.
	SkipHanging Mode = iota
	// ExpectHang puts them to the kubelet: no answer is what is expected, and ends the case.
	ExpectHang
)

// Run puts a case to both sides, step by step. Each admission that both accept is fed back into the model as the kubelet
// decided it. The case ends at the first undocumented difference, and at a panic or a hang.
func Run(c *Case, k Kubelet, mode Mode) (Outcome, error) {
	out := Outcome{Documented: map[string]int{}}
	started, err := k.Ask(&Request{Start: &c.Machine})
	if err != nil {
		return out, err
	}
	if started.Error != "" {
		out.Difference, out.Answer = "the kubelet does not start: "+started.Error, started
		return out, nil
	}
	reserved := started.Reserved
	if c.Machine.CPUPolicy == "none" {
		reserved = ""
	}
	o, reason, err := newModel(c.Kubelet, &c.Machine, reserved)
	if err != nil {
		return out, err
	}
	if reason.Code != why.None {
		out.Refused = reason.Code
		return out, nil
	}
	o.reports = len(c.Steps)%2 == 1
	for i, s := range c.Steps {
		if s.Delete != "" {
			if _, err := k.Ask(&Request{Delete: s.Delete}); err != nil {
				return out, err
			}
			o.state = o.state.Without(s.Delete)
			continue
		}
		done, err := o.step(i, s.Admit, k, mode, &out)
		if done || err != nil {
			return out, err
		}
	}
	return out, nil
}

// step admits one pod on both sides; it reports whether the case ends here.
func (o *model) step(i int, p *Pod, k Kubelet, mode Mode, out *Outcome) (bool, error) {
	pod := o.pod(p)
	var pred prediction
	var next *kubelet.State
	next, pred.placement, pred.refusal = o.state.Admit(pod)
	pred.fits = o.state.Fits(pod).Code == why.None
	hangs := pred.refusal != nil && pred.refusal.Reason.Code == why.KubeletWouldHang
	if hangs && mode == SkipHanging {
		out.Hanging = append(out.Hanging, i)
		return false, nil
	}
	a, err := k.Ask(&Request{Admit: o.prefer(p, pred.placement)})
	if err != nil {
		return true, err
	}
	if a.Capped {
		out.Capped = append(out.Capped, Capped{Step: i, Combinations: a.Combinations})
		return false, nil
	}
	out.States++
	if hangs || a.Hung {
		if hangs != a.Hung {
			out.Difference, out.Step, out.Answer = fmt.Sprintf("the kubelet hangs: %v, model %s", a.Hung, describe(pred.refusal)), i, a
		}
		return true, nil
	}
	v := o.compare(p, pred, a)
	switch {
	case len(v.differences) == 0:
	case v.known != nil:
		out.Documented[v.known.name]++
	default:
		out.Difference, out.Step, out.Answer = strings.Join(v.differences, "\n"), i, a
		return true, nil
	}
	if !a.Admitted {
		o.state = next
		return false, nil
	}
	actual, err := o.placement(a.Containers)
	if err != nil {
		return true, err
	}
	// What Admit predicts and what a report says are two ways into a state; both are walked, by case.
	if len(v.differences) == 0 && !o.reports {
		o.state = next
		return false, nil
	}
	o.state, o.told = o.state.With(pod, actual), true
	return o.bookedTwice(), nil
}

// bookedTwice reports whether two pods have one CPU and the model was told of a pod by report. The kubelet frees such a CPU
// with either pod, as the model does for what it predicted itself; of what is reported the other pod keeps its CPU. So
// the two part on purpose.
func (o *model) bookedTwice() bool {
	if !o.told {
		return false
	}
	var seen cpuset.Set
	for _, pl := range o.state.Placements() {
		var own cpuset.Set
		for _, g := range pl {
			own.Include(&g.CPUs)
		}
		if own.Overlaps(&seen) {
			return true
		}
		seen.Include(&own)
	}
	return false
}
