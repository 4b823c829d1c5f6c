package sim

import (
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tenon-project/tenon/api/annotation"
	colocationv1alpha1 "github.com/tenon-project/tenon/api/colocation/v1alpha1"
	"github.com/tenon-project/tenon/api/config/sloconfig"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/control/admission"
	"github.com/tenon-project/tenon/internal/core/colocation"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// nodeMetric is a NodeMetric as the scheduler reads it, and as the manager does.
type nodeMetric struct {
	*kube.NodeMetric
	whole *slo.NodeMetric
}

// addColocationProfile adds a profile. The manager does not use one of a cluster that cannot be used.
func (w *world) addColocationProfile(at origin, t *colocationv1alpha1.ClusterColocationProfile, p *problems) {
	usable, err := admission.NewProfile(t)
	if err == nil {
		w.colocationProfiles = append(w.colocationProfiles, usable)
	} else if !at.stored {
		p.add(at, "%s", oneLine(err))
	}
}

// configure reads the ConfigMap slo-controller-config, of which the input may have one.
func (w *world) configure(at origin, m *corev1.ConfigMap, p *problems) {
	if !w.claim(at, sloconfig.Name, "", m.Name, p) {
		return
	}
	config, err := sloconfig.Read(m)
	if err != nil && at.file != clusterName {
		for line := range strings.Lines(err.Error()) {
			p.add(at, "%s", strings.Replace(strings.TrimSpace(line), sloconfig.Name+": ", "data.", 1))
		}
	}
	w.config = config
}

// colocate changes pods that are created as the ClusterColocationProfiles say.
func (w *world) colocate(warn io.Writer, p *problems) {
	slices.SortFunc(w.colocationProfiles, func(a, b *admission.Profile) int { return strings.Compare(a.Name, b.Name) })
	namespaces, fallback := readWebhooks(w).namespaces["/mutate-pod-profile"], w.fallbackClass()
	for i := range w.pending {
		entry := &w.pending[i]
		entry.given = maps.Clone(entry.Annotations)
		namespace := labels.Set(w.namespace(entry.Namespace).Labels)
		if entry.stored || !namespaces.Matches(namespace) {
			continue
		}
		// The API server computes the priority again after the first call, and asks once more. A pod may be a batch
		// pod only then.
		for range 2 {
			if len(entry.refused) > 0 || !slices.Contains(schedulerNames, entry.Spec.SchedulerName) ||
				!w.colocatePod(entry, namespace, fallback, warn, p) {
				break
			}
		}
	}
}

func (w *world) colocatePod(entry *pod, namespace labels.Set, fallback *schedulingv1.PriorityClass, warn io.Writer,
	p *problems,
) (changed bool) {
	out, answer := admission.Colocate(entry.Pod, namespace, w.colocationProfiles, func(profile string) int {
		return draw(profile, entry.Namespace, entry.Name)
	})
	for _, r := range answer.Refusals {
		entry.refused = append(entry.refused, Reason{Code: r.Code, Message: r.String()})
	}
	for _, text := range answer.Warnings {
		warnf(warn, "warning: Pod %s/%s: %s", entry.Namespace, entry.Name, text)
	}
	if equality.Semantic.DeepEqual(entry.Pod, out) {
		return false
	}
	if out.Namespace != entry.Namespace || out.Name != entry.Name || out.Spec.NodeName != "" {
		p.add(entry.origin, "a ClusterColocationProfile whose spec.patch changes metadata.name, metadata.namespace or "+
			"spec.nodeName is not supported")
		return false
	}
	out.UID = entry.UID
	scheme().Default(out)
	*entry.Pod = *out
	if text := w.priority(entry.Pod, fallback); text != "" {
		entry.refused = append(entry.refused, Reason{
			Code: why.InvalidField, Message: "changed by ClusterColocationProfiles: " + text,
		})
	}
	for _, err := range create(entry.Pod) {
		entry.refused = append(entry.refused, Reason{
			Code: why.InvalidField, Message: "changed by ClusterColocationProfiles: " + err.Error(),
		})
	}
	return true
}

// draw returns the number from 0 to 99 that a profile draws for a pod: the same in each simulation.
func draw(profile, namespace, name string) int {
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%s/%s/%s", profile, namespace, name) // never fails
	return int(h.Sum32() % 100)
}

// reclaim gives Nodes the batch and mid amounts that the manager would write into their status, without the delay with
// which they grow. Nodes of a cluster have what they show.
func (w *world) reclaim(warn io.Writer, p *problems) {
	if w.config != nil && len(w.config.Ignored) > 0 {
		warnf(warn, "warning: ConfigMap %s: has no effect: %s", sloconfig.Name, strings.Join(w.config.Ignored, ", "))
	}
	now, on := w.latest(), w.podsByNode()
	metrics := map[string]*slo.NodeMetric{}
	for _, m := range w.metrics {
		metrics[m.Name] = m.whole
	}
	for _, n := range w.nodes {
		at := w.seen[fmt.Sprintf("%T /%s", n, n.Name)]
		strategy, err := w.config.Strategy(n)
		switch {
		case at.file == clusterName:
			continue
		case err != nil:
			p.add(at, "%s", oneLine(err))
			continue
		case !*strategy.Enable:
			continue
		}
		for _, native := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if _, given := n.Status.Capacity[native]; !given {
				addAmount(&n.Status.Capacity, native, n.Status.Allocatable[native])
			}
		}
		for name := range convert.Granted(colocation.Grant{}) {
			delete(n.Status.Capacity, name)
			delete(n.Status.Allocatable, name)
		}
		accounts, ok := convert.Reclaim(&strategy, n, metrics[n.Name], on[n.Name], now)
		var g colocation.Grant
		for r, a := range accounts {
			g.Batch[r], g.Mid[r] = a.Batch, a.Mid
		}
		if ok {
			addAmounts(n, convert.Granted(g))
		} else if !annotation.IsLeaving(n.Annotations) {
			warnf(warn, "warning: Node %s: no batch or mid amounts: no NodeMetric of it in the input has its use of "+
				"CPU and memory and is at most %d minutes older than the latest time", n.Name,
				*strategy.DegradeTimeMinutes)
		}
	}
}

// podsByNode returns the pods that have a node, as those that run.
func (w *world) podsByNode() map[string][]*corev1.Pod {
	on, schedulers, now := map[string][]*corev1.Pod{}, convert.NewSchedulers(schedulerNames...), w.latest()
	for _, entry := range w.existing {
		running := *entry.Pod
		start(&running, now)
		on[running.Spec.NodeName] = append(on[running.Spec.NodeName], schedulers.Trusted(&running))
	}
	return on
}
