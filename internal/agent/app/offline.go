package app

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/probe"
)

// nodeFile keeps, in the agent's folder, what the pools of the machine depend on of the Node.
const nodeFile = "node.json"

// apiPatience is how long the API server may take to answer before the agent uses what an earlier agent saved.
const apiPatience = 5 * time.Second

// serveWithoutAPI serves containers if the API server does not answer a new agent: with the pools of the Node that an
// earlier agent saved, and without the CPUs that its checkpoint names. It does nothing if CPUs may be a static
// kubelet's: only the API server knows which of its pods still run.
func (a *Agent) serveWithoutAPI(ctx context.Context) error {
	select {
	case <-a.o.Clock.After(apiPatience):
	case <-ctx.Done():
		return nil
	}
	a.beginning.Lock()
	defer a.beginning.Unlock()
	state := a.kubelet.State()
	if a.joined || !a.Writes() || state.IsStatic() || !state.Until.IsZero() {
		return nil
	}
	log := klog.FromContext(ctx)
	node, err := a.loadNode()
	if err != nil {
		log.Error(err, "Containers wait for the API server", "node", a.o.Node)
		return nil
	}
	if node == nil {
		return nil // no agent has worked here before
	}
	if annotation.IsLeaving(node.Annotations) {
		a.leaving.Store(true) // no container waits
		return nil
	}
	in := a.input(nil)
	in.Node = node
	a.enforcer.SetFacts(probe.NewDraft(in, a.o.Shared.facts).Facts) // its problems were reported when it was kept
	a.enforcer.Begin()
	a.enforcer.Engage()
	log.Info("The API server does not answer, containers get what an earlier agent has recorded", "node", a.o.Node)
	return nil
}

// saveNode writes the Node to the folder of the agent, for the next agent.
func (a *Agent) saveNode() error {
	node := a.CurrentNode()
	if node == nil || node == a.last.recorded {
		return nil
	}
	err := a.dir.Save(nodeFile, corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, UID: node.UID, Labels: node.Labels, Annotations: node.Annotations,
		},
		Status: corev1.NodeStatus{NodeInfo: node.Status.NodeInfo},
	})
	if err == nil {
		a.last.recorded = node
	}
	return err
}

// loadNode returns the Node that an earlier agent saved; nil if there is none, or no checkpoint beside it.
func (a *Agent) loadNode() (*corev1.Node, error) {
	if grants, err := a.dir.Read(grantsFile); err != nil || grants == "" {
		return nil, err
	}
	node := &corev1.Node{}
	if found, err := a.dir.Load(nodeFile, node); err != nil || !found {
		return nil, err
	}
	return node, nil
}
