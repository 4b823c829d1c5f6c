package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// PastOf returns what a file records of the fleet over time. It reads what was recorded and decides nothing itself.
// Times are rounded up to milliseconds: at a millisecond, all that was recorded until then has happened. Reservations
// without a pod are not in it.
func PastOf(name string, file io.Reader) (view.Past, error) {
	h := history{
		past: view.Past{
			File: name, Nodes: []view.PastNode{}, Pods: []view.PastPod{}, Refused: []view.PastRefusal{},
		},
		pods: map[types.UID]*pastPod{}, uids: map[string]types.UID{}, nodes: map[string]int{},
	}
	reader := NewReader(file)
	for {
		record, err := reader.Next()
		if errors.Is(err, io.EOF) {
			h.reserve()
			return h.past, nil
		}
		if err == nil {
			err = h.add(record)
		}
		if err != nil {
			return view.Past{}, fmt.Errorf("%s: line %d: %w", name, reader.Line(), err)
		}
	}
}

// history is the past up to a record.
type history struct {
	past view.Past
	at   time.Time // of the record
	// reserved are the pods that were reserved at the snapshot, until its objects are there; loaded is the last of
	// them.
	reserved []Decision
	loaded   uint64
	objects  Decoder
	pods     map[types.UID]*pastPod
	uids     map[string]types.UID // of the pods, by namespace/name
	nodes    map[string]int       // indices in past.Nodes of those that exist
}

// pastPod is a pod that exists.
type pastPod struct {
	pod *corev1.Pod
	// placed is the index of its entry in past.Pods; -1 while it is on no node.
	placed  int
	refused pastReason
}

// pastReason is why a pod was refused last.
type pastReason struct{ why, nominated string }

// add applies a record.
func (h *history) add(record *Record) error {
	h.at = record.Time.UTC().Add(time.Millisecond - 1).Truncate(time.Millisecond)
	h.past.To = h.at
	if record.Gen > h.loaded {
		h.reserve()
	}
	switch {
	case record.Snapshot != nil:
		h.past.From, h.reserved = h.at, record.Snapshot.Reserved
		h.loaded = record.Gen + uint64(max(record.Snapshot.Objects, 0))
	case record.Event != nil:
		return h.event(record.Event)
	case record.Decision != nil:
		h.decision(record.Decision)
	}
	return nil
}

// reserve puts the pods on their nodes that were reserved at the snapshot.
func (h *history) reserve() {
	for i := range h.reserved {
		h.decision(&h.reserved[i])
	}
	h.reserved = nil
}

func (h *history) event(e *Event) error {
	switch {
	case e.Op == Release || e.Op == Forget:
		h.leave(types.UID(e.UID))
		return nil
	case e.Kind != "Pod" && e.Kind != "Node":
		return nil
	}
	o, err := h.objects.Decode(e)
	if err != nil {
		return err
	}
	switch o := o.(type) {
	case *corev1.Node:
		h.node(o, e.Op == Delete)
	case *corev1.Pod:
		h.pod(o, e.Op == Delete)
	}
	return nil
}

func (h *history) node(n *corev1.Node, gone bool) {
	i, known := h.nodes[n.Name]
	switch {
	case gone && known:
		h.past.Nodes[i].To = h.at
		delete(h.nodes, n.Name)
	case !gone && !known:
		i = len(h.past.Nodes)
		h.nodes[n.Name] = i
		h.past.Nodes = append(h.past.Nodes, view.PastNode{Node: n.Name, From: h.at})
	}
	if !gone {
		h.past.Nodes[i].MilliCPU = n.Status.Allocatable.Cpu().MilliValue()
	}
}

func (h *history) pod(p *corev1.Pod, gone bool) {
	if gone || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		h.end(p.UID)
		return
	}
	key := p.Namespace + "/" + p.Name
	if before := h.uids[key]; before != p.UID { // the deletion of the pod of that name was not seen
		h.end(before)
	}
	h.uids[key] = p.UID
	known := h.pods[p.UID]
	if known == nil {
		known = &pastPod{placed: -1}
		h.pods[p.UID] = known
	}
	known.pod = p
	if p.Spec.NodeName != "" {
		h.place(known, &Decision{Node: p.Spec.NodeName})
	}
}

// decision applies what was decided about a pod. The reserve pod of a Reservation is not one.
func (h *history) decision(d *Decision) {
	p := h.pods[types.UID(d.UID)]
	switch {
	case p == nil:
	case d.Refused == "" && d.Node != "":
		h.place(p, d)
	default:
		reason := pastReason{cmp.Or(d.Refused, "no node"), d.Nominated}
		if p.refused != reason {
			h.past.Refused = append(h.past.Refused, view.PastRefusal{
				Pod: d.Pod, Time: h.at, Why: reason.why, Nominated: reason.nominated,
			})
		}
		p.refused = reason
	}
}

// place puts a pod on a node, unless it is there already.
func (h *history) place(p *pastPod, d *Decision) {
	if p.placed >= 0 {
		if h.past.Pods[p.placed].Node == d.Node {
			return
		}
		h.leave(p.pod.UID)
	}
	placed := view.PastPod{
		Pod: p.pod.Namespace + "/" + p.pod.Name, Node: d.Node, From: h.at, Feasible: d.Feasible, Of: d.Of,
	}
	requests := resourcehelper.PodRequests(p.pod, resourcehelper.PodResourcesOptions{})
	placed.MilliCPU = requests.Cpu().MilliValue()
	if member, isMember := convert.GangPod(p.pod); isMember {
		placed.Gang = member.Gang
	}
	p.placed, p.refused = len(h.past.Pods), pastReason{}
	h.past.Pods = append(h.past.Pods, placed)
}

// end removes a pod.
func (h *history) end(uid types.UID) {
	h.leave(uid)
	delete(h.pods, uid)
}

// leave takes a pod off its node.
func (h *history) leave(uid types.UID) {
	p := h.pods[uid]
	if p == nil || p.placed < 0 {
		return
	}
	placed := &h.past.Pods[p.placed]
	placed.To = h.at
	for _, c := range p.pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			placed.Why = c.Reason
		}
	}
	p.placed = -1
}
