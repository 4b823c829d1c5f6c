package app

import (
	"context"
	gojson "encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/annotation"
)

// Conditions of a Node, besides report.Conflict.
const (
	// ModeConflict: the wish in the label topology-mode cannot be met.
	ModeConflict = "tenon.sh/TopologyModeConflict"
	// SourceDegraded: the machine's files contradict themselves or cannot be read; the last good topology counts.
	SourceDegraded = "tenon.sh/TopologySourceDegraded"
	// StateUnreadable: a record of the kubelet's managers cannot be used; the last good one counts.
	StateUnreadable = "tenon.sh/KubeletStateUnreadable"
	// StateContradictory: the kubelet has recorded CPUs as given to two pods, or as given and free at once. The record
	// is used as it is: those CPUs are not allocated to other pods.
	StateContradictory = "tenon.sh/KubeletStateContradictory"
	// StaticActive: a static kubelet has recorded CPUs for one pod that are exclusive to another. The agent's values
	// hold.
	StaticActive = "tenon.sh/KubeletStaticActive"
	// EnforcementDegraded: containers may start without the agent.
	EnforcementDegraded = annotation.EnforcementDegraded
)

// conditions writes conditions of one Node: only what changes, and no False where there never was a True.
type conditions struct {
	client  kubernetes.Interface
	node    string
	clock   clock.PassiveClock
	current func() *corev1.Node
	wrote   func(corev1.NodeCondition)

	mu   sync.Mutex // guards last
	last map[string]corev1.NodeCondition
}

// set makes a condition hold or not.
func (c *conditions) set(ctx context.Context, kind string, holds bool, reason, message string) error {
	message = shorten("%s", message) // the policy tenon-agent-own-conditions has the same limit
	status := corev1.ConditionFalse
	if holds {
		status = corev1.ConditionTrue
	}
	old, known := c.lookup(kind)
	if !known && !holds {
		return nil
	}
	if known && old.Status == status && (!holds || old.Reason == reason && old.Message == message) {
		return nil
	}
	now := metav1.NewTime(c.clock.Now())
	cond := corev1.NodeCondition{
		Type: corev1.NodeConditionType(kind), Status: status, Reason: reason, Message: message,
		LastHeartbeatTime: now, LastTransitionTime: now,
	}
	if known && old.Status == status {
		cond.LastTransitionTime = old.LastTransitionTime
	}
	patch, err := gojson.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{cond}}})
	if err != nil {
		return fmt.Errorf("encode condition %s: %w", kind, err)
	}
	_, err = c.client.CoreV1().Nodes().Patch(ctx, c.node, types.StrategicMergePatchType, patch, metav1.PatchOptions{},
		"status")
	if err != nil {
		return fmt.Errorf("set condition %s of Node %s: %w", kind, c.node, err)
	}
	c.wrote(cond)
	c.mu.Lock()
	c.last[kind] = cond
	c.mu.Unlock()
	return nil
}

// lookup prefers the last write to the state of the watch, which may be older.
func (c *conditions) lookup(kind string) (corev1.NodeCondition, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cond, ok := c.last[kind]; ok {
		return cond, true
	}
	node := c.current()
	if node == nil {
		return corev1.NodeCondition{}, false
	}
	for _, cond := range node.Status.Conditions {
		if string(cond.Type) == kind {
			return cond, true
		}
	}
	return corev1.NodeCondition{}, false
}

// forget drops what was written: the Node is another one now.
func (c *conditions) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.last)
}
