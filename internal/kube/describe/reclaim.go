package describe

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/config/sloconfig"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/colocation"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Reclaim says what a Node grants batch pods of each amount of which it has less left than a pod asks for, and what
// takes the rest. pods are those of the Node.
func Reclaim(node *corev1.Node, m *slo.NodeMetric, s *sloconfig.Strategy, pods []*corev1.Pod, asks colocation.Amounts,
	now time.Time,
) (notes []string) {
	say := func(format string, args ...any) {
		notes = append(notes, fmt.Sprintf("node %s grants batch pods "+format, append([]any{node.Name}, args...)...))
	}
	accounts, ok := convert.Reclaim(s, node, m, pods, now)
	switch {
	case !*s.Enable:
		say("nothing: %s of %s is not enabled for it", sloconfig.ColocationKey, sloconfig.Name)
		return notes
	case !ok:
		say("nothing: its NodeMetric has no report of the last %d minutes", *s.DegradeTimeMinutes)
		return notes
	}
	granted, requested := convert.BatchOf(node), colocation.Amounts{}
	for _, p := range pods {
		if !convert.Ended(p) {
			for r, n := range convert.BatchRequest(p) {
				requested[r] += n
			}
		}
	}
	for r, text := range []func(int64) string{cpuText, memoryText} {
		a, left := &accounts[r], max(granted[r]-requested[r], 0)
		if left >= asks[r] {
			continue
		}
		grows := ""
		if a.Batch > granted[r] {
			grows = ", growing to " + text(a.Batch)
		}
		say("%s of %s %s%s, and %s of it is left: other pods take %s, the system uses %s (%s is reserved), and %s is "+
			"kept free", text(granted[r]), text(a.Capacity), []string{"CPUs", "memory"}[r], grows, text(left),
			text(a.High), text(a.System), text(a.Reserved), text(a.Margin))
	}
	return notes
}
