package workload

import (
	"fmt"
	"maps"
	"strconv"
)

// Content returns the metadata and the spec of the template of the pods, as fields of an object that others may not
// change. The spec has the scheduler and the priority class of the object where it names none.
func (s *PodSet) Content() (map[string]any, error) {
	content := map[string]any{}
	switch template, isObject := s.Template.(map[string]any); {
	case isObject:
		content["metadata"], content["spec"] = template["metadata"], template["spec"]
	case s.Template != nil:
		return nil, &ValueError{s.At, "must be an object"}
	case s.PodSpec != nil:
		content["spec"] = s.PodSpec
	case s.Containers != nil:
		content["spec"] = map[string]any{"containers": containersOf(s.Containers)}
	default:
		return nil, fmt.Errorf("the template of the pods of role %s is missing", s.Role)
	}
	if spec, isObject := content["spec"].(map[string]any); isObject {
		spec = maps.Clone(spec)
		for field, name := range map[string]string{"schedulerName": s.Scheduler, "priorityClassName": s.PriorityClass} {
			if own := spec[field]; name != "" && (own == nil || own == "") {
				spec[field] = name
			}
		}
		content["spec"] = spec
	}
	return content, nil
}

// containersOf keeps of containers what Kubernetes has too: other fields of the same names can be of other types.
func containersOf(value any) any {
	list, ok := value.([]any)
	if !ok {
		return value
	}
	out := make([]any, len(list))
	for i := range list {
		given, ok := list[i].(map[string]any)
		if !ok {
			return value
		}
		name, _ := given["name"].(string)
		if name == "" {
			name = "container-" + strconv.Itoa(i)
		}
		out[i] = map[string]any{"name": name, "image": given["image"], "resources": given["resources"]}
	}
	return out
}
