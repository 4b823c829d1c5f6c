package badquota

import (
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
)

// Operation is what a user does with an object, in the words of the API server.
type Operation string

// The operations.
const (
	Create Operation = "CREATE"
	Update Operation = "UPDATE" // of the object of the same name
	Delete Operation = "DELETE"
)

// Case is one change that breaks a rule. Its name begins with the number of the rule.
type Case struct {
	World     []string // the quotas that there are, as Object reads them
	Pods      []string // namespace/quota
	Operation Operation
	Object    string // for a deletion what is deleted
	Refusal   []string
}

// Good quotas, for what is bad about others: a parent, and a child of it.
const (
	Parent = "{name: p, labels: {is-parent: 'true'}, min: {cpu: 25, memory: 25Gi}, max: {cpu: 100, memory: 100Gi}}"
	Child  = "{name: a, labels: {parent: p}, min: {cpu: 15, memory: 10Gi}, max: {cpu: 50, memory: 50Gi}}"
)

const (
	keys  = "quota.scheduling.koordinator.sh/"
	label = "metadata.labels[" + keys
	annot = "metadata.annotations[" + keys
)

// One is a quota of one CPU with more fields.
func One(fields string) string { return "{name: q, max: {cpu: 1}, " + fields + "}" }

// Object reads YAML in which keys of elastic quotas have no prefix, and the group is Koordinator's unless it is named:
// {group, name, namespace, labels, annotations, min, max, used}. What it returns is untyped, so that it can be wrong.
func Object(text string) (map[string]any, error) {
	var in struct {
		Group, Name, Namespace string
		Labels, Annotations    map[string]string
		Min, Max, Used         any
	}
	if err := yaml.UnmarshalStrict([]byte(text), &in); err != nil {
		return nil, fmt.Errorf("%s: %w", text, err)
	}
	prefixed := func(m map[string]string) map[string]any {
		out := map[string]any{}
		for key, value := range m {
			out[keys+key] = value
		}
		return out
	}
	if in.Group == "" {
		in.Group = v1alpha1.GroupName
	}
	if in.Namespace == "" {
		in.Namespace = "n"
	}
	return map[string]any{
		"apiVersion": in.Group + "/v1alpha1", "kind": "ElasticQuota",
		"metadata": map[string]any{
			"name": in.Name, "namespace": in.Namespace, "resourceVersion": "10",
			"labels": prefixed(in.Labels), "annotations": prefixed(in.Annotations),
		},
		"spec": map[string]any{"min": in.Min, "max": in.Max}, "status": map[string]any{"used": in.Used},
	}, nil
}

// Deep is a path of n quotas, d1 on top.
func Deep(n int) (world []string) {
	above := ""
	for i := range n {
		name := fmt.Sprintf("d%d", i+1)
		world = append(world, fmt.Sprintf("{name: %s, labels: {is-parent: 'true', parent: '%s'}, max: {cpu: 1}}",
			name, above))
		above = name
	}
	return world
}

// Cases are changes of ElasticQuotas that break a rule, by rule and symptom.
func Cases() map[string]Case {
	return map[string]Case{
		"V1 a negative min": {nil, nil, Create, One("min: {cpu: -1}"), []string{
			"spec.min: q quota.Spec.Min's value < 0, in dimensions: [cpu] (V1)",
		}},
		"V1 a negative max": {nil, nil, Create, "{name: q, max: {cpu: -1}}", []string{
			"spec.max: q quota.Spec.Max's value < 0, in dimensions: [cpu] (V1)",
		}},
		"V1 a negative weight": {nil, nil, Create, One(`annotations: {shared-weight: '{"cpu":-1}'}`), []string{
			annot + "shared-weight]: byte 7: cpu: must not be negative (V1)",
		}},
		"V1 a negative total": {nil, nil, Create, One(`annotations: {total-resource: '{"cpu":"-2"}'}`), []string{
			annot + "total-resource]: byte 7: cpu: must not be negative (V1)",
		}},
		"V1 a weight that is cut off": {nil, nil, Create, One(`annotations: {shared-weight: '{"cpu":1'}`), []string{
			annot + "shared-weight]: byte 8: unexpected end of JSON input (V1)",
		}},
		"V1 a weight that is a number": {nil, nil, Create, One(`annotations: {shared-weight: '60'}`), []string{
			annot + "shared-weight]: byte 2: want an object, got number (V1)",
		}},
		"V1 a weight that is a word": {
			nil, nil, Create, One(`annotations: {shared-weight: '{"cpu":"high"}'}`),
			[]string{
				annot + "shared-weight]: byte 7: cpu: quantities must match", "(V1)",
			},
		},
		"V1 unschedulable resources that are a list": {
			nil, nil, Create, One(`annotations: {unschedulable-resource: '[]'}`),
			[]string{annot + "unschedulable-resource]: byte 1: want an object, got array (V1)"},
		},
		"V1 an admission that is text": {nil, nil, Create, One(`annotations: {admission: 'yes'}`), []string{
			annot + "admission]: byte 1: invalid character", "(V1)",
		}},
		"V1 namespaces that are not JSON": {nil, nil, Create, One(`annotations: {namespaces: 'a,b'}`), []string{
			annot + "namespaces]: byte 1: invalid character 'a' looking for beginning of value (V1)",
		}},
		"V1 a namespace in capitals": {nil, nil, Create, One(`annotations: {namespaces: '["A"]'}`), []string{
			annot + `namespaces]: byte 0: [0]: Invalid value "A": a lowercase RFC 1123 label must consist of`, "(V1)",
		}},
		"V1 strict keys that are no list": {
			nil, nil, Create, One(`annotations: {max-strict-check-resource-keys: 'cpu'}`),
			[]string{annot + "max-strict-check-resource-keys]: byte 1: invalid character 'c'", "(V1)"},
		},
		"V1 a resource key with a space": {nil, nil, Create, One(`annotations: {resource-keys: '["a b"]'}`), []string{
			annot + `resource-keys]: byte 0: [0]: Invalid value "a b": name part must consist of`, "(V1)",
		}},
		"V1 is-parent: yes": {nil, nil, Create, One(`labels: {is-parent: 'yes'}`), []string{
			label + `is-parent]: Unsupported value "yes": supported true, false (V1)`,
		}},
		"V1 allow-lent-resource: False": {nil, nil, Create, One(`labels: {allow-lent-resource: 'False'}`), []string{
			label + `allow-lent-resource]: Unsupported value "False": supported true, false (V1)`,
		}},
		"V1 is-root: 1": {nil, nil, Create, One(`labels: {is-root: '1'}`), []string{
			label + `is-root]: Unsupported value "1": supported true, false (V1)`,
		}},
		"V1 ignore-default-tree without a value": {nil, nil, Create, One(`labels: {ignore-default-tree: ''}`), []string{
			label + `ignore-default-tree]: Unsupported value "": supported true, false (V1)`,
		}},
		"V1 allow-force-update: TRUE": {nil, nil, Create, One(`labels: {allow-force-update: 'TRUE'}`), []string{
			label + `allow-force-update]: Unsupported value "TRUE": supported true, false (V1)`,
		}},
		"V1 a min that is a word": {nil, nil, Create, One("min: {cpu: many}"), []string{
			"spec.min: byte 7: cpu: quantities must match", "(V1)",
		}},
		"V1 a max that is a list": {nil, nil, Create, "{name: q, max: [cpu]}", []string{
			"spec.max: byte 1: want an object, got array (V1)",
		}},
		"V1 a min that takes seconds to read": {nil, nil, Create, One("min: {cpu: '1e-9999999'}"), []string{
			"spec.min: byte 7: cpu: quantity \"1e-9999999\" is out of range (V1)",
		}},
		"V2 min above max": {nil, nil, Create, "{name: q, min: {cpu: 5}, max: {cpu: 3}}", []string{
			"spec.min[cpu]: resourceKey cpu of quota q min 5 > max 3 (V2)",
		}},
		"V2 min without max": {nil, nil, Create, One("min: {memory: 1Gi}"), []string{
			"spec.min[memory]: resourceKey memory of quota q is included in min, which is not included in max (V2)",
		}},
		"V3 no such parent": {nil, nil, Create, One("labels: {parent: p}"), []string{
			label + "parent]: q has parentName p but not find parentInfo (V3)",
		}},
		"V3 a parent that is a leaf": {
			[]string{"{name: p, max: {cpu: 1}}"},
			nil, Create,
			One("labels: {parent: p}"),
			[]string{
				label + "parent]: q has parentName p but the parentQuotaInfo's IsParent is false (V3)",
			},
		},
		"V4 a parent becomes a leaf": {
			[]string{Parent, Child},
			nil, Update, "{name: p, min: {cpu: 25, memory: 25Gi}, max: {cpu: 100, memory: 100Gi}}",
			[]string{label + "is-parent]: quota has children, isParent is forbidden to modify as false: p has 1, " +
				"such as a (V4)"},
		},
		"V4 a leaf with pods becomes a parent": {
			[]string{One("")},
			[]string{"x/q", "y/q"},
			Update, One("labels: {is-parent: 'true'}"),
			[]string{
				label + "is-parent]: quota has bound pods, isParent is forbidden to modify as true: q has 2 pods, " +
					"such as " +
					"those of namespace x (V4)",
			},
		},
		"V4 a leaf with the pods of a listed namespace becomes a parent": {
			[]string{One(`annotations: {namespaces: '["x"]'}`)},
			[]string{"x/"},
			Update,
			One(`labels: {is-parent: 'true'}, annotations: {namespaces: '["x"]'}`),
			[]string{"is-parent]: quota has bound pods, isParent is forbidden to modify as true: q has 1 pods", "(V4)"},
		},
		"V5 children with more min than their parent": {
			[]string{Parent, Child},
			nil, Create,
			"{name: b, labels: {parent: p}, min: {cpu: 11, memory: 15Gi}, max: {cpu: 50, memory: 50Gi}}",
			[]string{"spec.min[cpu]: the children's min exceeds the parent's: " +
				"all brothers' MinQuota > parent MinQuota, parent: p; cpu: 26 > 25 (V5)"},
		},
		"V5 a parent with less min than its children": {
			[]string{Parent, Child},
			nil, Update,
			"{name: p, labels: {is-parent: 'true'}, min: {cpu: 25, memory: 9Gi}, max: {cpu: 100, memory: 100Gi}}",
			[]string{
				"spec.min[memory]: the children's min exceeds the parent's: " +
					"all children's MinQuota > current MinQuota, current: p; memory: 10Gi > 9Gi (V5)",
			},
		},
		"V6 the tree changes": {
			[]string{One("labels: {tree-id: a}")},
			nil, Update, One("labels: {tree-id: b}"),
			[]string{label + "tree-id]: q tree id changed [a] vs [b] (V6)"},
		},
		"V6 another tree than the parent's": {
			[]string{Parent},
			nil, Create,
			"{name: a, labels: {parent: p, tree-id: t}, max: {cpu: 50, memory: 50Gi}}",
			[]string{label + "tree-id]: a tree id is different from parent p, [t] vs [] (V6)"},
		},
		"V7 a child without a resource of its parent": {
			[]string{Parent},
			nil, Create, "{name: a, labels: {parent: p}, max: {cpu: 50}}",
			[]string{"spec.max: a's max keys [cpu] are not the same with p's [cpu memory] (V7)"},
		},
		"V7 a child with a min that its parent lacks": {
			[]string{"{name: p, labels: {is-parent: 'true'}, max: {cpu: 9}}"},
			nil, Create,
			"{name: a, labels: {parent: p}, min: {cpu: 0}, max: {cpu: 9}}",
			[]string{"spec.min: a's min keys [cpu] are not all included in p's [] (V7)"},
		},
		"V8 max below used": {
			[]string{"{name: q, max: {nvidia.com/gpu: 8}, used: {nvidia.com/gpu: 6}}"},
			nil, Update,
			`{name: q, max: {nvidia.com/gpu: 5}, annotations: {max-strict-check-resource-keys: '["nvidia.com/gpu"]'}}`,
			[]string{"spec.max[nvidia.com/gpu]: resourceKey nvidia.com/gpu of quota q max 5 < used 6 (V8)"},
		},
		"V9 a parent with children": {[]string{Parent, Child}, nil, Delete, Parent, []string{
			"metadata.name: delete quota failed, quota p has 1 child quotas, such as a (V9)",
		}},
		"V9 a quota with pods that name it": {[]string{One("")}, []string{"x/q"}, Delete, One(""), []string{
			"metadata.name: delete quota failed, quota q has 1 pods, such as those of namespace x (V9)",
		}},
		"V9 a quota with the pods of its namespace": {
			[]string{"{name: q, namespace: q, max: {cpu: 1}}"},
			[]string{"q/"},
			Delete, "{name: q, namespace: q, max: {cpu: 1}}",
			[]string{"metadata.name: delete quota failed, quota q has 1 pods, such as those of namespace q (V9)"},
		},
		"V9 the default quota": {
			[]string{"{name: koordinator-default-quota, max: {cpu: 1}}"},
			nil, Delete,
			"{name: koordinator-default-quota, max: {cpu: 1}}",
			[]string{"metadata.name: delete quota failed, quota koordinator-default-quota is reserved (V9)"},
		},
		"V10 the name in another namespace": {[]string{One("")}, nil, Create, One("namespace: other"), []string{
			"metadata.name: n/q of scheduling.sigs.k8s.io exists already: names are unique in the cluster (V10)",
		}},
		"V10 the name in the other group": {[]string{One("")}, nil, Create, One("group: scheduling.x-k8s.io"), []string{
			"metadata.name: n/q of scheduling.sigs.k8s.io exists already: names are unique in the cluster (V10)",
		}},
		"V11 a namespace in two lists": {
			[]string{`{name: a, max: {cpu: 1}, annotations: {namespaces: '["x"]'}}`},
			nil, Create,
			One(`namespace: m, annotations: {namespaces: '["w","x"]'}`),
			[]string{annot + "namespaces]: namespace x is listed by q and by a (V11)"},
		},
		"V11 a list against the quota of a namespace": {
			[]string{"{name: x, namespace: x, max: {cpu: 1}}"},
			nil, Create, One(`annotations: {namespaces: '["x"]'}`),
			[]string{annot + "namespaces]: namespace x is listed by q and has its own quota x (V11)"},
		},
		"V11 the only quota of a listed namespace": {
			[]string{`{name: a, max: {cpu: 1}, annotations: {namespaces: '["x"]'}}`},
			nil, Create, One("namespace: x"),
			[]string{"metadata.name: namespace x has its own quota q and is listed by a (V11)"},
		},
		"V13 its own parent": {
			[]string{Parent},
			nil, Update,
			"{name: p, labels: {is-parent: 'true', parent: p}, min: {cpu: 25, memory: 25Gi}, max: {cpu: 100, memory: " +
				"100Gi}}",
			[]string{label + "parent]: parent p is p or below it: p -> p (V13)"},
		},
		"V13 below its own child": {
			[]string{
				"{name: p, labels: {is-parent: 'true'}, max: {cpu: 1}}",
				"{name: c, labels: {is-parent: 'true', parent: p}, max: {cpu: 1}}",
			},
			nil, Update, "{name: p, labels: {is-parent: 'true', parent: c}, max: {cpu: 1}}",
			[]string{label + "parent]: parent c is p or below it: p -> c -> p (V13)"},
		},
		"V13 a path of 17": {Deep(16), nil, Create, "{name: q, labels: {parent: d16}, max: {cpu: 1}}", []string{
			label + "parent]: q with parentName d16 is on a path of more than 16 quotas (V13)",
		}},
		"V14 a weight without max": {nil, nil, Create, One(`annotations: {shared-weight: '{"gpu":1}'}`), []string{
			annot + "shared-weight][gpu]: resourceKey gpu of quota q is included in shared-weight, which is not " +
				"included in " +
				"max (V14)",
		}},
		"V15 a max of an int64": {
			[]string{"{name: a, max: {memory: 8191Pi}}"},
			nil, Create, "{name: q, max: {memory: 9223372036854775807}}",
			[]string{"spec.max[memory]: resourceKey memory of quota q max 9223372036854775807 > 1Ei, the most that a " +
				"quota can have (V15)"},
		},
		"V15 a min of an int64": {
			[]string{"{name: a, min: {memory: 8191Pi}, max: {memory: 8191Pi}}"},
			nil, Create,
			"{name: q, min: {memory: 7Ei}, max: {memory: 7Ei}}",
			[]string{
				"spec.min[memory]: resourceKey memory of quota q min 7Ei > 1Ei, the most that a quota can have (V15)",
				"spec.max[memory]: resourceKey memory of quota q max 7Ei > 1Ei, the most that a quota can have (V15)",
			},
		},
		"V15 a weight of an int64": {
			[]string{`{name: a, max: {cpu: 1}, annotations: {shared-weight: '{"cpu":"9223372036854775"}'}}`},
			nil, Create,
			One(`annotations: {shared-weight: '{"cpu":"9223372036854775"}'}`),
			[]string{
				annot + "shared-weight][cpu]: resourceKey cpu of quota q weight 9223372036854775 > " +
					"1152921504606846976m, the most that a quota can have (V15)",
			},
		},
		"V16 two roots of a tree": {
			[]string{"{name: a, labels: {is-root: 'true', is-parent: 'true', tree-id: t}, max: {cpu: 1}}"},
			nil, Create,
			One("labels: {is-root: 'true', tree-id: t}"),
			[]string{label + "is-root]: q and a are both the root of tree [t] (V16)"},
		},
		"V16 a root without a tree": {nil, nil, Create, One("labels: {is-root: 'true'}"), []string{
			label + "is-root]: q is the root of a tree and has no tree id (V16)",
		}},
		"V17 the root is edited": {
			[]string{"{name: koordinator-root-quota, max: {cpu: 1}}"},
			nil, Update,
			"{name: koordinator-root-quota, max: {cpu: 2}}",
			[]string{
				"metadata.name: quota koordinator-root-quota is reserved: it cannot be created or edited; ",
				"(V17)",
			},
		},
		"V17 the system quota is created": {
			nil, nil, Create, "{name: koordinator-system-quota, max: {cpu: 2}}",
			[]string{
				"metadata.name: quota koordinator-system-quota is reserved: it cannot be created or edited; ",
				"(V17)",
			},
		},
	}
}
