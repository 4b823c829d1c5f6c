package status

import (
	"context"
	gojson "encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/event"
)

type statement struct{ reason, message string }

// Setter is Set of one condition.
type Setter = func(ctx context.Context, holds bool, reason, message string) error

// Condition returns Set for one of the sources that report on a condition.
func (r *Reporter) Condition(kind event.Reason, source string) Setter {
	return func(ctx context.Context, holds bool, reason, message string) error {
		r.mu.Lock()
		bySource := r.joined[kind]
		if bySource == nil {
			bySource = map[string]statement{}
			r.joined[kind] = bySource
		}
		delete(bySource, source)
		if holds {
			bySource[source] = statement{reason, message}
		}
		for i, other := range slices.Sorted(maps.Keys(bySource)) {
			if i == 0 {
				holds, reason, message = true, bySource[other].reason, bySource[other].message
				continue
			}
			message += "; " + bySource[other].message
		}
		r.mu.Unlock()
		return r.Set(ctx, kind, holds, reason, message)
	}
}

// Set makes a condition hold or not. It writes only what changes, and no False where there never was a True.
func (r *Reporter) Set(ctx context.Context, kind event.Reason, holds bool, reason, message string) error {
	if kind != event.NodeLeft && r.o.Agent.Leaves() {
		return nil
	}
	message = shorten("%s", message) // the policy tenon-agent-own-conditions has the same limit
	status := corev1.ConditionFalse
	if holds {
		status = corev1.ConditionTrue
	}
	old, known := r.lookup(kind)
	if !known && !holds {
		return nil
	}
	if known && old.Status == status && (!holds || old.Reason == reason && old.Message == message) {
		return nil
	}
	now := metav1.NewTime(r.o.Clock.Now())
	cond := corev1.NodeCondition{
		Type: corev1.NodeConditionType(kind.Condition()), Status: status, Reason: reason, Message: message,
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
	if known && old.Status == status {
		cond.LastTransitionTime = old.LastTransitionTime
	}
	patch, err := gojson.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{cond}}})
	if err != nil {
		return fmt.Errorf("encode condition %s: %w", kind, err)
	}
	_, err = r.o.Client.CoreV1().Nodes().Patch(ctx, r.o.Node, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("set condition %s of Node %s: %w", kind, r.o.Node, err)
	}
	r.o.Metrics.ConditionWrites.WithLabelValues(kind.Condition()).Inc()
	if holds {
		r.Event(kind, "%s", message)
	}
	r.mu.Lock()
	r.written[kind] = cond
	r.mu.Unlock()
	return nil
}

// lookup prefers the last write to the state of the watch, which may be older.
func (r *Reporter) lookup(kind event.Reason) (corev1.NodeCondition, bool) {
	r.mu.Lock()
	cond, ok := r.written[kind]
	r.mu.Unlock()
	if ok {
		return cond, true
	}
	node := r.o.Agent.CurrentNode()
	if node == nil {
		return corev1.NodeCondition{}, false
	}
	for _, cond := range node.Status.Conditions {
		if string(cond.Type) == kind.Condition() {
			return cond, true
		}
	}
	return corev1.NodeCondition{}, false
}

// Forget drops what was written: the Node is another one now.
func (r *Reporter) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.written)
}
