package app

import (
	"context"
	"strings"

	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/agent/tune"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/qos"
)

// IsCRIO reports whether the node's container runtime is CRI-O.
func (a *Agent) IsCRIO() bool {
	node := a.CurrentNode()
	return node != nil && strings.HasPrefix(node.Status.NodeInfo.ContainerRuntimeVersion, "cri-o:")
}

// ExclusiveChanged returns a channel that holds a token after Exclusive has come to have another answer.
func (a *Agent) ExclusiveChanged() <-chan struct{} { return a.enforcer.ExclusiveChanged() }

// Exclusive returns the pods that run on CPUs of their own, and what they ask of the machine's files; false while not
// all of them are known. Under CRI-O, how deep CPUs sleep is the runtime's, which reads the same annotation.
func (a *Agent) Exclusive() ([]tune.Pod, bool) {
	found, known := a.enforcer.Exclusive()
	var pods []tune.Pod
	for _, x := range found {
		cpus, err := cpuset.ParseIDs(x.CPUs)
		if err != nil {
			continue // it is the kernel's own text
		}
		p := tune.Pod{
			UID: x.UID, CPUs: cpus, Latency: x.Asks.Latency,
			AsksCRIO: x.Asks.Interrupts == annotation.InterruptsLeave,
		}
		p.Quiet = p.AsksCRIO || x.Class == qos.LSE && x.Asks.Interrupts == annotation.InterruptsByClass
		if a.IsCRIO() {
			p.Latency = ""
		}
		pods = append(pods, p)
	}
	return pods, known
}

// Tuned keeps the condition TuningFailed. What the kernel lets no program change is not a failure.
func (a *Agent) Tuned(ctx context.Context, findings []tune.Finding) {
	text, reason := tune.Describe(findings, tune.Failed, tune.Foreign), "AnotherWriter"
	if tune.Describe(findings, tune.Failed) != "" {
		reason = "WriteFailed"
	}
	holds := text != ""
	if !holds {
		text, reason = "files of the machine are as pods ask", "Tuned"
	}
	if err := a.status.Set(ctx, event.TuningFailed, holds, reason, text); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot report settings of the machine", "node", a.o.Node)
	}
}
