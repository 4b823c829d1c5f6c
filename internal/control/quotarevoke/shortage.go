package quotarevoke

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/core/quota"
)

// rejection returns what the scheduler said of a pod that its last cycle rejected.
func rejection(pod *corev1.Pod) (message string, rejected bool) {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled {
			return c.Message, c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
		}
	}
	return "", false
}

// shortage reads which of the resources that a pod asks for its quotas or the nodes lacked, and the quota that refused;
// no resources for a pod that could not run whatever others give back. Three texts say so, of any scheduler: that of a
// quota, that of NodeResourcesFit, and the JSON with which Tenon's messages end.
func shortage(message string, asked quota.Amounts) (names []string, level string) {
	if head, tail, ofQuota := strings.Cut(message, "exceedDimensions: ["); ofQuota {
		_, level, _ = strings.Cut(head, "quotaName: ")
		level, _, _ = strings.Cut(level, ",")
		tail, _, _ = strings.Cut(tail, "]")
		named := strings.FieldsFunc(tail, func(r rune) bool { return r == ' ' || r == ',' })
		return slices.DeleteFunc(named, func(name string) bool { return asked[name] == 0 }), level
	}
	words := strings.FieldsFunc(message, func(r rune) bool { return strings.ContainsRune(" ,;", r) })
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		said := strings.Contains(message, `"resource":"`+name+`"`)
		for i, word := range words[:max(len(words)-1, 0)] {
			said = said || word == "Insufficient" && strings.TrimSuffix(words[i+1], ".") == name
		}
		if said && asked[name] > 0 {
			names = append(names, name)
		}
	}
	return names, ""
}
