package coscheduling

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube"
)

// option is a way to make room on one node: the victims that a dry run names there, and all that goes with them. It
// holds until a unit is taken or returned, as gangs may have lost or regained members elsewhere.
type option struct {
	// victims are those on the node.
	victims []*corev1.Pod
	// units have the victims, and the other members of gangs that cannot spare them, on whatever nodes. Pods that go
	// already are in none.
	units []*unit
	// loss is that of all units together.
	loss gang.Loss
}

// unit is pods that are evicted together or not at all: one pod, or as many members of a gang as it cannot be without.
type unit struct {
	// pods are as the snapshot has them.
	pods []fwk.PodInfo
	// loss is as if no other unit were evicted.
	loss gang.Loss
	// violates is set once the unit has exceeded a disruption budget when it was taken. It stays set when the unit is
	// returned: such units are the first to be spared.
	violates bool
}

// option returns what is evicted with these pods of one node for a member. It returns nil and the gang that cannot go
// where a gang would lose members that it needs and one of the others may not be evicted, or is on no node yet.
func (p *preemption) option(uid string, pods []*corev1.Pod) (o *option, kept string) {
	preemptor, may := p.preemptor(uid), p.cluster.Plugins.Preemption(p.profile(uid)).Rules()
	// A victim of the dry run is known; the other members of its gang are looked up.
	known, uids := map[string]*corev1.Pod{}, make([]string, 0, len(pods))
	for _, pod := range pods {
		known[string(pod.UID)] = pod
		uids = append(uids, string(pod.UID))
	}
	o = &option{victims: pods}
	for _, together := range units(p.cluster.Gangs, uids, p.gone) {
		u, whole := &unit{}, true
		for _, uid := range together {
			pod := known[uid]
			if pod == nil {
				pod = p.cluster.Gangs.Pod(uid)
			} else {
				kept = p.cluster.Gangs.GangOf(pod)
			}
			info, node := p.find(pod)
			whole = whole && info != nil && may(node, info, preemptor)
			u.pods = append(u.pods, info)
		}
		if !whole {
			return nil, kept
		}
		u.loss = p.lossOf(u)
		o.units = append(o.units, u)
	}
	o.loss = p.lossOf(o.units...)
	return o, ""
}

// find returns a pod as the snapshot has it, nil where it has not.
func (p *preemption) find(pod *corev1.Pod) (fwk.PodInfo, fwk.NodeInfo) {
	if pod != nil && pod.Spec.NodeName == "" { // it is not known to be bound
		pod, _ = p.cluster.Core.Cached(pod)
	}
	if pod == nil {
		return nil, nil
	}
	node, err := p.lister.Get(pod.Spec.NodeName)
	if err != nil {
		return nil, nil
	}
	for _, info := range node.GetPods() {
		if info.GetPod().UID == pod.UID {
			return info, node
		}
	}
	return nil, nil
}

// lossOf returns what is lost with units, beside the victims that are taken already: these have used up their share of
// the disruption budgets. No unit has pods that terminate: these are taken before all others.
func (p *preemption) lossOf(units ...*unit) gang.Loss {
	loss := gang.Loss{Units: len(units)}
	charges := gang.Charges{}
	maps.Copy(charges, p.charges)
	for _, u := range units {
		for _, info := range u.pods {
			pod := info.GetPod()
			loss.Add(kube.VictimOf(pod))
			if charges.Add(p.budgets.Of(pod)) {
				loss.Violations++
			}
		}
	}
	return loss
}

// removeVictims takes the pods of a unit off their nodes, until rollback.
func (p *preemption) removeVictims(u *unit) {
	p.moveVictims(u, true)
	p.undo = append(p.undo, func() { p.moveVictims(u, false) })
}

// returnVictims puts the pods of a unit back on their nodes, until rollback.
func (p *preemption) returnVictims(u *unit) {
	p.moveVictims(u, false)
	p.undo = append(p.undo, func() { p.moveVictims(u, true) })
}

// moveVictims takes the pods of a unit off the snapshot, or puts them back, and lets all else follow: the accounts of
// nodes, the dry runs of quotas, the disruption budgets and what is known of the nodes. An error makes the attempt
// void.
func (p *preemption) moveVictims(u *unit, away bool) {
	if away {
		p.taken = append(p.taken, u)
	} else {
		at := len(p.taken) - 1 // most come back from behind
		for p.taken[at] != u {
			at--
		}
		p.taken = slices.Delete(p.taken, at, at+1)
	}
	for _, info := range u.pods {
		pod := info.GetPod()
		uid, name := string(pod.UID), pod.Spec.NodeName
		move, count := p.trial.Return, (*quota.Account).Give
		var err error
		if away {
			move, count = p.trial.Leave, (*quota.Account).Take
			err = p.session.Remove(klog.FromContext(p.ctx), pod)
			u.violates = !terminates(pod) && p.charges.Add(p.budgets.Of(pod)) || u.violates
			p.gone[uid] = true
			if len(pod.Spec.ResourceClaims) > 0 {
				p.departed = append(p.departed, pod)
			}
		} else {
			err = p.session.Return(info)
			if !terminates(pod) {
				p.charges.Remove(p.budgets.Of(pod))
			}
			delete(p.gone, uid)
			p.departed = slices.DeleteFunc(p.departed, func(d *corev1.Pod) bool { return d.UID == pod.UID })
		}
		p.broken = p.broken || err != nil
		move(name, uid)
		if p.quotas != nil {
			p.cluster.Quotas.Read(func(a *quota.Account) { count(a, p.quotas, uid) })
		}
		p.markChanged(name)
	}
}
