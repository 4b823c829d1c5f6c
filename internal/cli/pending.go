package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/view"
)

const askedAtMost = 20

// pending shows what waits, by what the pods' conditions say: one request, whatever the size of the cluster. The
// scheduler is asked about the first few pods whose conditions say nothing.
func (e *explanation) pending(ctx context.Context) error {
	if e.allNamespaces {
		e.namespace = metav1.NamespaceAll
	}
	pods, err := e.core.CoreV1().Pods(e.namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", "").String(), LabelSelector: e.list.selector,
	})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	answers := make([]view.Pod, len(pods.Items))
	asked := 0
	for i := range pods.Items {
		answers[i] = view.FromObject(describe.Pod(&pods.Items[i]))
		if root := answers[i].RootCause; len(e.scheduler.replicas) == 0 || root == nil ||
			root.Code != why.NotAttempted || asked == askedAtMost {
			continue
		}
		asked++
		var said view.Pod
		err := e.scheduler.explain(ctx, &said, "", pods.Items[i].Namespace, pods.Items[i].Name)
		if err == nil && said.RootCause != nil {
			answers[i] = said
		}
	}
	groups := groupPending(answers)
	var names []string
	for _, g := range groups {
		for _, pod := range g.Pods {
			names = append(names, podName(pod))
		}
	}
	return e.print(newList("PendingList", groups), len(groups) > 0, func() string { return e.render.pending(groups) },
		names...)
}

// podName returns what -o name prints of a pod that is given as namespace/name.
func podName(pod string) string { return "pod/" + path.Base(pod) }

// groupPending groups by root cause, most pods first. Pods of a group are sorted by name.
func groupPending(pods []view.Pod) []*view.PendingGroup {
	groups := map[string]*view.PendingGroup{}
	for _, answer := range pods {
		if answer.RootCause == nil {
			continue
		}
		since, cause := ptr.Deref(answer.Since, time.Time{}), answer.RootCause.Code.String()
		g := groups[cause]
		if g == nil {
			g = &view.PendingGroup{RootCause: cause, Class: answer.RootCause.Class}
			groups[cause] = g
		}
		older := cmp.Or(since.Compare(g.Oldest), strings.Compare(answer.Pod, g.Example))
		if len(g.Pods) == 0 || older < 0 {
			g.Oldest, g.Example, g.Message = since, answer.Pod, answer.RootCause.Message
		}
		g.Pods = append(g.Pods, answer.Pod)
	}
	for _, g := range groups {
		slices.Sort(g.Pods)
		g.Count = len(g.Pods)
	}
	return slices.SortedFunc(maps.Values(groups), func(a, b *view.PendingGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.RootCause, b.RootCause))
	})
}

func (r *renderer) pending(groups []*view.PendingGroup) string {
	if len(groups) == 0 {
		return "no pod is pending\n"
	}
	t := columns{right: 1, width: r.width, paint: r.paint}
	t.add("ROOT CAUSE", "PODS", "OLDEST", "EXAMPLE", "MESSAGE")
	for _, g := range groups {
		t.add(g.RootCause, g.Count, age(r.now.Sub(g.Oldest)), g.Example, g.Message)
	}
	return t.String()
}
