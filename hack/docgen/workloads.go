package main

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenon-project/tenon/internal/core/workload"
)

// workloads is the page of the kinds whose pods start together.
func workloads() []byte {
	var b bytes.Buffer
	b.WriteString(`# Objects of operators

<!-- Written by hack/docgen from internal/core/workload. -->

` + "`tenon simulate` and `tenon check manifest`" + ` create the pods of these objects as their operators do, and say
which of them start together. In a cluster, the manager makes [gangs](../guide/gang.md) of them by the same rules.
A kind is one of these:

- *Grouped*: each role is a gang, and all gangs of an object start together or none does.
- *Never*: pods start one by one. A kind with roles forms a gang if the object or its template has the annotation
  ` + "`tenon.sh/gang-min`" + `: a number of pods, or ` + "`all`" + `.
- *Parent*: the operator makes other objects of it, whose rules count.

From a pod upwards, the first owner that is *Grouped* or *Never* decides, or one above it that *covers* its kind.

These pods are in no gang:

- pods of an object, a template or a Namespace with the label ` + "`tenon.sh/gang: \"off\"`" + `
- pods that name a gang themselves, and pods of schedulers that Tenon does not serve
- pods of a role that comes *later*, after others have started
- all pods of an object with a minimum that it cannot reach, or with more than 64 gangs that start together

An object may have 100,000 pods. [What becomes of each kind](kinds.md) has an example of each, with the command that
shows its gangs.

## In a cluster

A pod that an operator creates gets the label ` + "`pod-group.scheduling.sigs.k8s.io`" + ` at its creation, and the
leading manager creates the PodGroups that these labels name, owned by the object:

` + "```text" + `
operator ── creates ─► pod ─► webhook of the manager ─► label: r-gpu
RayCluster r ─► leading manager ─► PodGroups r-headgroup (1), r-gpu (4), which list each other
                                     └─ a pod whose PodGroup does not exist yet waits
` + "```" + `

- The minimum follows the object: replicas, suspension, restarts. A role that is added after others have started
  starts on its own. A PodGroup that no gang needs any more has a minimum of 1 until its last pod ends.
- A PodGroup of another owner is never changed. If it has the name of a gang, or if that name is longer than 63
  characters, the gang's name ends with a hash.
- Pods that were created while the manager was away get the label later, with the Event GroupedLate. They may have
  started alone. In a namespace with the label ` + "`tenon.sh/gangs: required`" + `, such pods are not created.
- The Event Grouped on the object lists its gangs, and ` + "`tenon gang -o wide`" + ` shows the rule in the column FROM.
  The Event NotGrouped says what prevents gangs: a value, or an owner that the manager cannot read.
- An owner above the object that decides may be of a kind without a rule, and unreadable. All other owners must be
  readable.

| To | Set |
|---|---|
| leave out an object | its label ` + "`tenon.sh/gang: \"off\"`" + `, or that of a namespace |
| group only where a namespace asks for it | ` + "`manager.workloads.grouping: OptIn`" + ` in the chart, and the ` +
		"label `tenon.sh/gangs: auto`" + ` of the namespace |
| group nothing | ` + "`manager.workloads.grouping: Off`" + ` |
| let the manager read fewer operators, or more | ` + "`manager.workloads.groups`" + ` |

The setting ` + "`Off`" + ` changes nothing that exists: PodGroups keep their minimum, pods keep their labels, and no
manager follows their objects. Pods that are created from then on are in no gang. Delete pending members of
gangs, and their operators create them again without one.

The scheduler itself groups [plain pods of Kueue](../guide/kueue.md#groups-of-plain-pods), with any grouping. Pods of
ReplicaSets and DaemonSets are not grouped in a cluster, though simulate groups them by rules of your own. Volcano Jobs
name a PodGroup of Volcano, which Tenon does not read.
All revisions of a LeaderWorkerSet's group share a gang.

## Rules of your own

A rule is an entry of ` + "`workloads.rules`" + ` in [the configuration of tenon-manager](manager-config.yaml), or in
the file of the flag ` + "`--workload-rules`" + ` of ` + "`tenon simulate`" + `.
The chart has ` + "`manager.workloads.rules`" + `, whose API groups the manager may then read.
It replaces the built-in rule of its kind and versions:

` + "```text" + `
workloads:
  rules:
  - group: example.com
    versions: [v1]
    kind: Sweep
    default: Grouped
    roles:
    - at: spec.trials[*]        # one role for each element
      nameAt: name
      count: {at: replicas, default: 1}
      min: {at: minReplicas}
      template: template
    suspended:
    - {at: spec.paused, equals: true}
    labels:                     # which pods are of the role
      example.com/sweep: "{owner}"
      example.com/trial: "{role}"
` + "```" + `

A path is ` + "`a.b`, `a[\"key\"]`, `a[*]` or `a[field=value]`" + `. Paths of a role
begin at the role, and after ` + "`$.`" + ` at the object.
[rules.json](../../internal/core/workload/rules.json) has the built-in rules, and
[rule.go](../../internal/core/workload/rule.go) describes every field.

## Kinds

| Kind | Versions | Default | Covers | Suspended by |
|---|---|---|---|---|
`)
	table := workload.Builtin().Rules()
	for _, r := range table {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.Name(), strings.Join(r.Versions, ", "), r.Default,
			orDash(strings.Join(r.Covers, ", ")), orDash(conditions(r.Suspended)))
	}
	for _, r := range table {
		if len(r.Roles) == 0 && len(r.Children) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n### %s %s\n\n", r.Name(), strings.Join(r.Versions, ", "))
		if len(r.Roles) > 0 {
			b.WriteString("| Role | Pods | Minimum | Later | Only if asked for |\n|---|---|---|---|---|\n")
		}
		for i := range r.Roles {
			role := &r.Roles[i]
			fmt.Fprintf(&b, "| `%s` at `%s` | %s | %s | %s | %s |\n",
				cmp.Or(role.Name, role.NameAt.String(), "the key, in lower case"), role.At, pods(role), minimum(role),
				orDash(conditions(role.Later)), orDash(conditions(role.OnRequest)))
		}
		var notes []string
		note := func(given bool, format string, args ...any) {
			if given {
				notes = append(notes, fmt.Sprintf(format, args...))
			}
		}
		note(r.Together, "All roles are one gang.")
		note(r.Replicas != nil, "Each of %s starts apart from the others.", amount(r.Replicas))
		note(r.Total != nil, "Minimum of all roles: %s. Where it is less than the sum of their minima, the other "+
			"roles than %s are one gang.",
			amount(r.Total), cmp.Or(strings.Join(r.InFull, " and "), "none"))
		if s := r.Sets; s != nil {
			note(true, "The roles in `%s` of `%s` are repeated %s times, of which %s start with the other roles "+
				"and each further one alone.",
				s.Roles, s.At, amount(s.Count), amount(s.Min))
		}
		note(len(r.Ordered) > 0, "The gangs do not wait for each other if %s.", conditions(r.Ordered))
		note(len(r.Restarting) > 0, "A gang that lost pods needs its minimum again if %s.", conditions(r.Restarting))
		note(len(r.Declared) > 0, "The object has gangs of Kubernetes, and none by this rule, if %s.",
			conditions(r.Declared))
		for _, c := range r.Children {
			note(true, "`%s` becomes %s.", c.At, cmp.Or(c.Kind, "an object of its own kind"))
		}
		note(len(r.Labels) > 0, "Labels of its pods: `%s`.", strings.Join(slices.Sorted(maps.Keys(r.Labels)), "`, `"))
		note(len(r.Claims) > 0, "The operator may name a PodGroup of its own in `%s`.", strings.Join(r.Claims, "`, `"))
		for i, n := range notes {
			if i == 0 {
				b.WriteString("\n")
			}
			fmt.Fprintf(&b, "- %s\n", n)
		}
	}
	return b.Bytes()
}

func amount(a *workload.Amount) string {
	if a == nil {
		return "1"
	}
	text := "`" + a.At.String() + "`"
	if a.Minus > 0 {
		text += fmt.Sprintf(" − %d", a.Minus)
	}
	if a.Default != nil {
		text += fmt.Sprintf(" (default %d)", *a.Default)
	}
	return text
}

func pods(r *workload.Role) string {
	text := amount(r.Count)
	if r.Size != nil {
		text += " × " + amount(r.Size)
	}
	if r.Least != nil {
		text += ", at least " + amount(r.Least)
	}
	if r.Max != nil {
		text += ", at most " + amount(r.Max)
	}
	if len(r.Absent) > 0 {
		text += "; none if " + conditions(r.Absent)
	}
	return text
}

func minimum(r *workload.Role) string {
	if r.Min == nil {
		return "all"
	}
	text := amount(r.Min)
	if r.Size != nil {
		text += " × " + amount(r.Size)
	}
	if len(r.MinIf) > 0 {
		text += " if " + conditions(r.MinIf) + ", else all"
	}
	return text
}

// conditions are in words, "" for none.
func conditions(all []workload.Condition) string {
	parts := make([]string, len(all))
	for i, c := range all {
		switch {
		case c.Role != "":
			parts[i] = "the role is " + c.Role
		case c.Present:
			parts[i] = fmt.Sprintf("`%s` is given", c.At)
		case c.Differs.String() != "":
			parts[i] = fmt.Sprintf("`%s` is not `%s`", c.At, c.Differs)
		case c.Not != "":
			parts[i] = fmt.Sprintf("`%s` is not %s", c.At, c.Not)
		default:
			parts[i] = fmt.Sprintf("`%s` is %v", c.At, c.Equals)
		}
		if c.Unless.String() != "" {
			parts[i] += fmt.Sprintf(" without `%s`", c.Unless)
		}
	}
	return strings.Join(parts, ", or ")
}
