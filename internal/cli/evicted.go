package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/internal/view"
)

// pastWindow is how long an API server keeps Events by default.
const pastWindow = time.Hour

// evictors are who sends an Event about a pod that was evicted, by its reason. Its message begins with prefix, unless
// it is about an eviction that was refused or called off. PodEvicted is missing: its job says more.
var evictors = map[string]struct{ evictor, prefix string }{
	event.Preempted.String():         {view.EvictedByPreemption, ""},
	event.GangInterrupted.String():   {view.EvictedByGang, "evicted: "},
	event.QuotaRevoked.String():      {view.EvictedByQuota, "evicted: "},
	event.BestEffortEvicted.String(): {view.EvictedByAgent, "evicted: "},
	"Evicted":                        {view.EvictedByKubelet, ""},
	"TaintManagerEviction":           {view.EvictedByTaint, "Marking for deletion"},
}

// otherEvents leaves out the Events of pods that are most in number, so that one list has all reasons of evictors.
const otherEvents = "involvedObject.kind=Pod,reason!=Scheduled,reason!=FailedScheduling,reason!=Pulling," +
	"reason!=Pulled,reason!=Created,reason!=Started,reason!=Killing,reason!=BackOff,reason!=Unhealthy"

// past returns the pods that were evicted within an hour, the latest first. The error about Events, which a user may
// not be allowed to list, comes with what PodMigrationJobs say.
func (c cluster) past(ctx context.Context, now time.Time) (all []view.Evicted, eventsUnread, err error) {
	since := now.Add(-pastWindow)
	_, err = each(ctx, c, v1alpha1.Resource(), "", func(text []byte) (j v1alpha1.PodMigrationJob, err error) {
		err = json.Unmarshal(text, &j)
		return j, err
	}, func(j v1alpha1.PodMigrationJob) {
		if e := evictionOf(&j); e.Evicted != nil && e.Evicted.After(since) {
			all = append(all, view.Evicted{
				Pod: e.Pod, Time: *e.Evicted, By: cmp.Or(e.Plugin, view.EvictedByUser),
				Why: cmp.Or(e.Wish, "PodMigrationJob "+j.Name),
			})
		}
	})
	if err != nil {
		return nil, nil, err
	}
	events, err := c.core.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: otherEvents})
	if err != nil {
		eventsUnread = fmt.Errorf("only PodMigrationJobs are shown: %w", rightMissing(err, "list on events"))
		events = &corev1.EventList{}
	}
	type eviction struct {
		pod     types.UID
		evictor string
	}
	seen := map[eviction]bool{} // an Event may come twice
	for i := range events.Items {
		e := &events.Items[i]
		who, known := evictors[e.Reason]
		pod, at := e.InvolvedObject, eventTime(e)
		key := eviction{pod.UID, who.evictor}
		if !known || pod.Kind != "Pod" || !strings.HasPrefix(e.Message, who.prefix) || !at.After(since) || seen[key] {
			continue
		}
		seen[key] = true
		all = append(all, view.Evicted{
			Pod: pod.Namespace + "/" + pod.Name, Time: at, By: who.evictor,
			Why: strings.TrimPrefix(e.Message, "evicted: "),
		})
	}
	slices.SortFunc(all, func(a, b view.Evicted) int {
		return cmp.Or(b.Time.Compare(a.Time), strings.Compare(a.Pod, b.Pod))
	})
	return all, eventsUnread, nil
}

// eventTime returns when an Event was sent last.
func eventTime(e *corev1.Event) time.Time {
	at := e.CreationTimestamp.Time
	for _, t := range []time.Time{e.EventTime.Time, e.LastTimestamp.Time} {
		if t.After(at) {
			at = t
		}
	}
	if s := e.Series; s != nil && s.LastObservedTime.After(at) {
		at = s.LastObservedTime.Time
	}
	return at
}

func (c cluster) showPast(ctx context.Context, w, warn io.Writer, format, namespace string, width int) error {
	all, unread, err := c.past(ctx, time.Now())
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(e view.Evicted) bool {
		return namespace != "" && !strings.HasPrefix(e.Pod, namespace+"/")
	})
	if unread != nil {
		say(warn, "warning: %v\n", unread)
	}
	return printAnswer(w, format, newList("EvictedList", all), func() string {
		if len(all) == 0 {
			return "no pod was evicted within the last hour\n"
		}
		t := columns{width: width}
		t.add("POD", "AGE", "BY", "WHY")
		for _, e := range all {
			t.add(e.Pod, age(time.Since(e.Time)), e.By, cmp.Or(e.Why, "-"))
		}
		return t.String()
	})
}
