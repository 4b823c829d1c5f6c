package oracle

import (
	"errors"
	"fmt"
	"slices"
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
	// Wide counts the admissions with a merge of more than 1,000 combinations, Large those on 4 NUMA nodes or more.
	Wide, Large int
	// Capped and Hanging are steps that were left out: too many combinations, or our model says the kubelet never
	// answers.
	Capped  []Capped
	Hanging []int
	// Unready counts restarts after which the kubelet did not start: its managers refuse a checkpoint of their own.
	Unready int
	// NeverStarts: both sides say that this kubelet never serves.
	NeverStarts bool
	// Refused is the code for which the model refuses the machine; nothing is compared then.
	Refused why.Code
}

// What counts as wide and large.
const (
	wideMerge    = 1000
	largeMachine = 4
)

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

// Run puts a case to both sides, step by step. Each admission that both accept is fed back into the model as the
// kubelet decided it. The case ends at the first undocumented difference, and at a panic or a hang.
func Run(c *Case, k Kubelet, mode Mode) (Outcome, error) {
	out := Outcome{Documented: map[string]int{}}
	started, err := k.Ask(&Request{Start: &c.Machine})
	if err != nil {
		return out, err
	}
	o, reason, err := newModel(c.Kubelet, &c.Machine)
	out.NeverStarts = errors.Is(err, errNeverStarts)
	switch {
	case out.NeverStarts && started.Error != "":
		return out, nil
	case out.NeverStarts:
		out.Difference, out.Answer = "the kubelet starts", started
		return out, nil
	case err != nil:
		return out, err
	case started.Error != "":
		out.Difference, out.Answer = "the kubelet does not start: "+started.Error, started
		return out, nil
	case reason.Code != why.None:
		out.Refused = reason.Code
		return out, nil
	}
	if own := o.reserved(); own != started.Reserved && c.Machine.CPUPolicy != "none" {
		out.Difference, out.Answer = fmt.Sprintf("reserved CPUs: kubelet %q, model %q", started.Reserved, own), started
		return out, nil
	}
	o.reports = len(c.Steps)%2 == 1
	for i, s := range c.Steps {
		var done bool
		var err error
		switch {
		case s.Delete != "":
			_, err = k.Ask(&Request{Delete: s.Delete})
			o.forget(s.Delete)
		case s.Restart:
			done, err = o.restart(i, k, mode, &out)
		default:
			done, err = o.admit(i, s.Admit, k, mode, &out)
		}
		if done || err != nil {
			return out, err
		}
	}
	return out, nil
}

// forget takes a pod off on our side.
func (o *model) forget(uid string) {
	o.state = o.state.Without(uid)
	o.running = slices.DeleteFunc(o.running, func(p *Pod) bool { return p.UID == uid })
}

// restart restarts the kubelet, which admits all pods again, and refuses some.
func (o *model) restart(i int, k Kubelet, mode Mode, out *Outcome) (bool, error) {
	a, err := k.Ask(&Request{Restart: true})
	if err != nil {
		return true, err
	}
	if a.Error != "" {
		out.Unready++
		return true, nil
	}
	before := o.running
	o.running, o.again = nil, true
	defer func() { o.again = false }()
	for _, p := range before {
		if done, err := o.admit(i, p, k, mode, out); done || err != nil {
			return done, err
		}
	}
	return false, nil
}

// admit admits one pod on both sides; it reports whether the case ends here.
func (o *model) admit(i int, p *Pod, k Kubelet, mode Mode, out *Outcome) (bool, error) {
	object := p.object()
	pod, err := read(object)
	if err != nil {
		return true, err
	}
	var pred prediction
	var next *kubelet.State
	next, pred.placement, pred.refusal = o.state.Admit(pod)
	pred.fits = o.state.Fits(pod).Code == why.None
	hangs := pred.refusal != nil && pred.refusal.Reason.Code == why.KubeletWouldHang
	if hangs && mode == SkipHanging {
		out.Hanging = append(out.Hanging, i)
		return false, nil
	}
	pred.served = o.onTheWay(pod, pred)
	a, err := k.Ask(&Request{Admit: &Admission{Pod: object, Again: o.again, Prefer: o.prefer(pred.served)}})
	if err != nil {
		return true, err
	}
	if a.Capped {
		o.forget(p.UID)
		served := o.before(pod, a.Last)
		o.state, o.external = o.state.With(pod, served).Without(p.UID), true
		out.Capped = append(out.Capped, Capped{Step: i, Combinations: a.Combinations})
		return o.bookedTwice(served), nil
	}
	out.States++
	if a.Combinations > wideMerge {
		out.Wide++
	}
	if o.machine.NumNUMA() >= largeMachine {
		out.Large++
	}
	if hangs || a.Hung {
		if hangs != a.Hung {
			out.Difference, out.Step, out.Answer = fmt.Sprintf("the kubelet hangs: %v, model %s", a.Hung,
				describe(pred.refusal)), i, a
		}
		return true, nil
	}
	if pred.panics() || a.Panic != "" {
		if pred.panics() != (a.Panic != "") {
			out.Difference, out.Step, out.Answer = fmt.Sprintf("the kubelet panics: %s, model %s", a.Panic,
				describe(pred.refusal)), i, a
		}
		return true, nil
	}
	v := o.compare(p, pred, a)
	if o.trace && len(v.differences) == 0 {
		v.differences = o.compareHints(pod, a)
	}
	switch {
	case len(v.differences) == 0:
	case v.known != nil:
		out.Documented[v.known.name]++
	default:
		out.Difference, out.Step, out.Answer = strings.Join(v.differences, "\n"), i, a
		return true, nil
	}
	actual, err := o.placement(a.Containers)
	if err != nil {
		return true, err
	}
	if !a.Admitted {
		if len(v.differences) > 0 { // what a plugin chose for one container may have moved the next one
			next, o.external = o.state.With(pod, actual), true
		}
		o.state = next.Without(p.UID)
		return o.bookedTwice(actual), nil
	}
	o.running = append(o.running, p)
	// What Admit predicts and what a report says are two ways into a state; both are walked, by case.
	if len(v.differences) == 0 && !o.reports && !o.stubborn {
		o.state = next
		return false, nil
	}
	o.state, o.external = o.state.With(pod, actual), true
	return o.bookedTwice(nil), nil
}

// before is what the containers of a pod get whose merges come before a container's; an empty name is a merge for the
// whole pod.
func (o *model) before(p *kubelet.Pod, container string) kubelet.Placement {
	var served kubelet.Placement
	for _, s := range o.state.Explain(p).Steps {
		if container == "" || s.Container == container {
			break
		}
		if s.Given != nil {
			served = append(served, *s.Given)
		}
	}
	return served
}

// onTheWay is what the containers of a pod get; of a pod that is refused, those that were served before.
func (o *model) onTheWay(p *kubelet.Pod, pred prediction) kubelet.Placement {
	if pred.refusal == nil || len(o.devices) == 0 || len(p.Containers) == 1 {
		return pred.placement
	}
	var served kubelet.Placement
	for _, s := range o.state.Explain(p).Steps {
		if s.Given != nil {
			served = append(served, *s.Given)
		}
	}
	return served
}

// bookedTwice reports whether two pods have one CPU, or one pod and what a refused pod had, and the model was given a
// report of a pod. The kubelet frees such a CPU with either pod, as the model does for what it predicted itself; of
// what is reported the other pod keeps its CPU. So the two part on purpose.
func (o *model) bookedTwice(refused kubelet.Placement) bool {
	if !o.external {
		return false
	}
	var seen cpuset.Set
	for _, g := range refused {
		seen.Include(&g.CPUs)
	}
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
