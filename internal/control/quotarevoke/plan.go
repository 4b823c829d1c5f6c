package quotarevoke

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// plan is a revocation with the objects of its pods.
type plan struct {
	donor    quota.Spec
	claimant string // a pod; "" with Strict
	due      time.Time
	units    [][]*corev1.Pod
	// text says why, levels by how much, kept why not more.
	text, levels, kept string
}

// snapshot is the cluster while a pass plans.
type snapshot struct {
	*Controller
	account *quota.Account
	now     time.Time
	pods    map[string]*corev1.Pod // by UID, those that holders were made of
	budgets *kube.Budgets          // nil until holders are asked for
	gangs   map[string]*quota.Gang // nil until holders are asked for
	err     error
}

// plan returns what is to be taken back now. What cannot be read is not decided on.
func (c *Controller) plan(ctx context.Context, now time.Time) []plan {
	s := &snapshot{Controller: c, now: now, pods: map[string]*corev1.Pod{}}
	var plans []plan
	c.Read(func(a *quota.Account) {
		s.account = a
		for _, r := range c.revoker.Plan(now, a.Forest(), s.claimants, s.holders) {
			plans = append(plans, s.translate(r))
		}
	})
	if s.err != nil {
		klog.FromContext(ctx).Error(s.err, "Revocation not planned")
		return nil
	}
	return plans
}

func (s *snapshot) translate(r quota.Revocation) plan {
	p := plan{donor: *r.Donor.Spec(), due: r.Due}
	var levels []string
	for _, l := range r.Levels {
		name := s.account.Forest().NameOf(l.Dimension)
		levels = append(levels, fmt.Sprintf("%s used %s, goal %s, predicted %s", name,
			convert.QuotaText(name, l.Used), convert.QuotaText(name, l.Goal), convert.QuotaText(name, l.After)))
	}
	p.levels = strings.Join(levels, "; ")
	p.text = fmt.Sprintf("quota %s uses more than its share (%s)", r.Donor.Name(), p.levels)
	if r.Claimant != nil {
		p.claimant = r.Claimant.Pod
		p.text += fmt.Sprintf(" and pod %s of quota %s waits for it", p.claimant, r.Claimant.Quota.Name())
	}
	for _, victims := range r.Victims {
		var unit []*corev1.Pod
		for _, h := range victims {
			unit = append(unit, s.pods[h.UID])
		}
		p.units = append(p.units, unit)
	}
	var kept []string
	for _, k := range r.Kept {
		kept = append(kept, fmt.Sprintf("%s/%s: %s", k.Pod.Namespace, k.Pod.Name, k.Why))
	}
	slices.Sort(kept)
	p.kept = strings.Join(kept, ", ")
	return p
}

// claimants returns the pending pods that their last scheduling cycle rejected by a quota or for lack of a resource.
func (s *snapshot) claimants() []quota.Claimant {
	pods, err := s.Pods.List(labels.Everything())
	if s.err = cmp.Or(s.err, err); err != nil {
		return nil
	}
	var out []quota.Claimant
	for _, pod := range pods {
		message, rejected := rejection(pod)
		if !rejected || pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
			continue
		}
		member, known := s.account.Find(string(pod.UID))
		if !known {
			continue
		}
		short, level := shortage(message, member.Amounts)
		if x := s.account.Admit(string(pod.UID)); x != nil && level != "" {
			// A repeated refusal by quotas is not written again: another quota may refuse the pod by now.
			short, level = nil, x.Quota
			for _, lacking := range x.Shortages {
				short = append(short, lacking.Dimension)
			}
		}
		for _, name := range short {
			out = append(out, quota.Claimant{
				Pod: pod.Namespace + "/" + pod.Name, Quota: member.Quota, Dimension: s.account.Forest().Dimension(name),
				Level: s.account.Forest().Find(level),
			})
		}
	}
	slices.SortFunc(out, func(a, b quota.Claimant) int { return strings.Compare(a.Pod, b.Pod) })
	return out
}

// holders returns the pods that a quota's use consists of. One whose object is not known any more is about to go.
func (s *snapshot) holders(q *quota.Quota) []quota.Holder {
	if s.gangs == nil {
		all, err := s.Budgets.List(labels.Everything())
		s.err = cmp.Or(s.err, err)
		s.budgets, s.gangs = kube.NewBudgets(all), s.account.Gangs()
	}
	var out []quota.Holder
	for _, m := range s.account.Members(q) {
		if m.State == quota.Pending {
			continue
		}
		h := quota.Holder{Member: m, Gang: s.gangs[m.Gang]}
		pod, err := s.Pods.Pods(m.Namespace).Get(m.Name)
		if err != nil || string(pod.UID) != m.UID || m.Leaving {
			h.Leaving = true
			out = append(out, h)
			continue
		}
		s.pods[m.UID] = pod
		_, static := pod.Annotations[corev1.MirrorPodAnnotationKey] // its kubelet keeps it, whatever the API says
		h.NonPreemptible = h.NonPreemptible || static
		h.Budgets = s.budgetsOf(pod)
		out = append(out, h)
	}
	return out
}

// budgetsOf returns the disruption budgets that count a pod. One whose eviction was refused a moment ago has none left.
func (s *snapshot) budgetsOf(pod *corev1.Pod) []*gang.Budget {
	if s.refused.IsInBackOffSinceUpdate(string(pod.UID), s.now) {
		return []*gang.Budget{{}}
	}
	return s.budgets.Of(pod)
}

// rejection returns what the scheduler said of a pod that its last cycle rejected.
func rejection(pod *corev1.Pod) (message string, rejected bool) {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled {
			return c.Message, c.Status == corev1.ConditionFalse && why.Refuses(c.Reason)
		}
	}
	return "", false
}

// shortage reads which of the resources that a pod asks for its quotas or the nodes lacked, and the quota that refused;
// no resources for a pod that could not run whatever others give back. Three texts say so, of any scheduler: that of a
// quota, that of NodeResourcesFit, and the JSON with which Tenon's messages end.
func shortage(message string, asked amount.List) (names []string, level string) {
	if head, tail, ofQuota := strings.Cut(message, "exceedDimensions: ["); ofQuota {
		_, level, _ = strings.Cut(head, "quotaName: ")
		level, _, _ = strings.Cut(level, ",")
		tail, _, _ = strings.Cut(tail, "]")
		named := strings.FieldsFunc(tail, func(r rune) bool { return r == ' ' || r == ',' })
		return slices.DeleteFunc(named, func(name string) bool { return asked[name] == 0 }), level
	}
	words := strings.FieldsFunc(message, func(r rune) bool { return strings.ContainsRune(" ,;", r) })
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		said := strings.Contains(message, `"resource":"`+name+`"`)
		for i, word := range words[:max(len(words)-1, 0)] {
			said = said || word == "Insufficient" && strings.TrimSuffix(words[i+1], ".") == name
		}
		if said && asked[name] > 0 {
			names = append(names, name)
		}
	}
	return names, ""
}
