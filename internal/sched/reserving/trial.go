package reserving

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/reservation"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/placement"
)

// account is the Reservations that a cycle sees: the live ones, or those of its trial.
type account interface {
	// Matching returns the Reservations that a pod may use, by node and in the order in which they are tried.
	Matching(p *reservation.Pod) map[string][]*reservation.Spec
	// Left returns what the users of a Reservation leave of it.
	Left(uid string) amount.List
}

// accountOf returns the Reservations of the trial that a cycle is on, or else the live ones. cs is nil outside of one.
func accountOf(cs fwk.CycleState, live *kube.Reservations) account {
	if cs != nil {
		if t := placement.OnTrial(cs); t != nil && t.Rooms != nil {
			return t.Rooms
		}
	}
	return live
}

// exchange replaces the reserve pod was by now on a node of the snapshot; nil stands for none. The node's generation
// remains, because the caller restores the snapshot before the cache updates it.
func (p *Plugin) exchange(node string, was, now *corev1.Pod) error {
	info, err := p.snapshot.NodeInfos().Get(node)
	if err != nil {
		return err
	}
	n := info.(*framework.NodeInfo)
	generation := n.Generation // of the cache: the snapshot is as before in the end
	defer func() { n.Generation = generation }()
	if was != nil {
		err = n.RemovePod(klog.Background(), was)
	}
	if err == nil && now != nil {
		n.AddPod(now)
	}
	return err
}

// Yield takes off the quotas what the chosen Reservation counts there for the pod of a cycle. ElasticQuota calls it
// just before it counts the pod itself, so that nothing counts twice.
func (p *Plugin) Yield(cs fwk.CycleState, pod *corev1.Pod, node string) {
	uid, _ := Chosen(cs, node)
	if uid == "" {
		return
	}
	if now, after := shrunk(p.copied(cs), pod, uid); after != nil {
		p.quotas.PutPod(after)
	} else if now != nil {
		p.quotas.RemovePod(now)
	}
}

// copied returns a copy of the Reservations that a cycle reads.
func (p *Plugin) copied(cs fwk.CycleState) *kube.ReservationTrial {
	if t := placement.OnTrial(cs); t != nil && t.Rooms != nil {
		return t.Rooms.Clone()
	}
	return p.reservations.Try()
}

// shrunk returns the reserve pod of a Reservation, and the one that is left once the pod uses the Reservation: nil if
// nothing is left. Both are nil if the pod cannot use it. Of rooms, it leaves the pod as a user.
func shrunk(rooms *kube.ReservationTrial, pod *corev1.Pod, uid string) (now, after *corev1.Pod) {
	now = rooms.ReservePod(types.UID(uid))
	if now == nil || rooms.Use(pod, uid) != nil {
		return nil, nil
	}
	return now, rooms.ReservePod(types.UID(uid))
}

// Inside reports whether admits is true for a Reservation that the pod may use, given its reserve pod and what is left
// of that once the pod uses the Reservation: nil for nothing.
func (p *Plugin) Inside(cs fwk.CycleState, pod *corev1.Pod, admits func(room, left *corev1.Pod) bool) bool {
	_, byNode, _ := p.matching(cs, pod) // a pod that cannot be read is refused by PreFilter
	if len(byNode) == 0 {
		return false
	}
	rooms := p.copied(cs)
	for _, all := range byNode {
		for _, s := range all {
			if room, left := shrunk(rooms, pod, s.UID); room != nil && admits(room, left) {
				return true
			}
			rooms.Release(pod)
		}
	}
	return false
}

// Usable returns a function that reports whether a pod is the reserve pod of a Reservation that one of these pods may
// use. It returns nil if they may use none.
func (p *Plugin) Usable(pods []*corev1.Pod) func(*corev1.Pod) bool {
	usable := map[types.UID]bool{}
	for _, pod := range pods {
		_, byNode, _ := p.matching(nil, pod) // a pod that cannot be read is refused later
		for _, all := range byNode {
			for _, s := range all {
				usable[types.UID(s.UID)] = true
			}
		}
	}
	if len(usable) == 0 {
		return nil
	}
	return func(on *corev1.Pod) bool { return usable[on.UID] }
}
