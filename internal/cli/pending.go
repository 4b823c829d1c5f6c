package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/view"
)

// pendingGroup is the pods that wait for one root cause.
type pendingGroup struct {
	RootCause string   `json:"rootCause"`
	Class     string   `json:"class"`
	Count     int      `json:"count"`
	Pods      []string `json:"pods"`
	// Oldest is the creation of the pod that waits longest.
	Oldest  time.Time `json:"oldest"`
	Message string    `json:"message"`
}

// askedAtMost bounds the pods of a list about which the scheduler is asked.
const askedAtMost = 20

// pending shows what waits, by what the pods' conditions say: one request, whatever the size of the cluster. The
// scheduler, which may be nil, is asked about the first few pods that carry no word of any.
func (o *explainOptions) pending(ctx context.Context, cl cluster, scheduler *diagnostics, out io.Writer, p paint,
	namespace string, width int,
) error {
	pods, err := cl.core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", "").String(), LabelSelector: o.list.selector,
	})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	answers := make([]view.Pod, len(pods.Items))
	asked := 0
	for i := range pods.Items {
		answers[i] = view.FromObject(describe.Pod(&pods.Items[i]))
		if root := answers[i].RootCause; scheduler == nil || root == nil || root.Code != why.NotAttempted ||
			asked == askedAtMost {
			continue
		}
		asked++
		if a, err := scheduler.explain(ctx, pods.Items[i].Namespace, pods.Items[i].Name); err == nil &&
			a.RootCause != nil {
			answers[i] = a
		}
	}
	groups := groupPending(answers)
	err = printAnswer(out, o.list.format, newList("PendingList", groups),
		func(w io.Writer) error { return pendingTable(w, groups, time.Now(), p, width) })
	if err == nil && o.exitCode && len(groups) > 0 {
		return errNegative
	}
	return err
}

// groupPending groups by root cause, most pods first. Pods of a group are sorted by name.
func groupPending(pods []view.Pod) []pendingGroup {
	byCause := map[string]*pendingGroup{}
	for _, answer := range pods {
		if answer.RootCause == nil {
			continue
		}
		since := time.Time{}
		if answer.Since != nil {
			since = *answer.Since
		}
		cause := answer.RootCause.Code.String()
		g := byCause[cause]
		if g == nil {
			g = &pendingGroup{RootCause: cause, Class: answer.RootCause.Class, Oldest: since}
			byCause[cause] = g
		}
		g.Pods = append(g.Pods, answer.Pod)
		if !since.After(g.Oldest) {
			g.Oldest, g.Message = since, answer.RootCause.Message
		}
	}
	groups := make([]pendingGroup, 0, len(byCause))
	for _, g := range byCause {
		slices.Sort(g.Pods)
		g.Count = len(g.Pods)
		groups = append(groups, *g)
	}
	slices.SortFunc(groups, func(a, b pendingGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.RootCause, b.RootCause))
	})
	return groups
}

func pendingTable(w io.Writer, groups []pendingGroup, now time.Time, p paint, width int) error {
	if len(groups) == 0 {
		_, err := fmt.Fprintln(w, "no pod is pending")
		return err
	}
	t := columns{right: map[int]bool{1: true}, width: width, paint: p}
	t.add("ROOT CAUSE", "PODS", "OLDEST", "EXAMPLE", "MESSAGE")
	for _, g := range groups {
		t.add(g.RootCause, strconv.Itoa(g.Count), age(now.Sub(g.Oldest)), g.Pods[0], g.Message)
	}
	return t.write(w)
}
