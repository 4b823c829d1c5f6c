package app

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/inject"
)

// Refresh is one resync, beside Run while that waits.
func (a *Agent) Refresh(ctx context.Context) { a.refresh(ctx) }

// WantedPlugins are the device plugins that a node needs.
func WantedPlugins(n *inject.Node, node *corev1.Node, lost func(resource string) bool,
	running map[string]context.CancelFunc,
) map[string]int {
	return wantedPlugins(n, exhausted(node, lost), running)
}

// Table is the desired state of the cgroup tree of this moment.
func (a *Agent) Table() desired.Table { return a.enforcer.Table() }

// HostsOf are the applications of a NodeSLO that are measured, by their groups.
var HostsOf = hostsOf
