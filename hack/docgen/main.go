// Command docgen writes the reference pages that come from the code's own registries into a folder.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/core/why"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: docgen FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	for name, page := range map[string]func() ([]byte, error){
		"evictions.md": func() ([]byte, error) { return evictions(), nil },
		"reasons.md":   func() ([]byte, error) { return reasons(), nil },
		"workloads.md": func() ([]byte, error) { return workloads(), nil },
		"support.md":   func() ([]byte, error) { return support(), nil },
		"events.md":    func() ([]byte, error) { return events(), nil },
		"metrics.md":   func() ([]byte, error) { return metrics("internal") },
		"keys.md":      keys,
		"arguments.md": arguments,
	} {
		text, err := page()
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// evictions is the page of the codes that refuse an eviction.
func evictions() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `# Why a pod is not evicted

<!-- Written by hack/docgen from internal/core/evict. -->

Every refusal of the descheduler is one of these codes: in the status of a PodMigrationJob, its Events, and the label
`+"`code`"+` of the metrics. They are listed in the order in which they are reported. A *final* refusal ends the job;
after another one the job waits. A failed pod serves nothing: the codes with *Failed pods* "no" do not refuse it, and
its eviction does not count against the limits of its workload.

| Code | Final | Failed pods | Condition | What to do |
|---|---|---|---|---|
`)
	for _, c := range evict.Codes() {
		final := "no"
		if (evict.Refusal{Code: c}).Final() {
			final = "yes"
		}
		failed := "yes"
		if c.ProtectsService() {
			failed = "no"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", c, final, failed, c.Text(), c.Remedy())
	}
	return b.Bytes()
}

// condition is what the page says of the reason of a condition. Codes of no attempt are in no condition.
func condition(e why.Entry) string {
	if e.NewNode == why.NoCondition {
		return ""
	}
	return fmt.Sprintf(" Condition: `%s`.", e.Condition)
}

// autoscaled says what the cluster autoscaler does for a pod that is refused by a code, and which new node helps. The
// tests of internal/sim compare it with what a model of the autoscaler does.
func autoscaled(e why.Entry) (acts, helps string) {
	helps = map[why.NewNode]string{
		why.EmptyNode: "any node with room", why.OtherNode: "a node that meets the request", why.NoNode: "no",
	}[e.NewNode]
	switch {
	case e.NewNode == why.NoNode:
		return "ignores the pod", helps
	case e.Plugin == "Coscheduling" && e.Class == why.Gang:
		return "as for the member that failed", helps
	case e.Name == why.VictimsTerminating.String():
		return "ignores the pod: it is nominated", helps
	case e.Class == why.Victims:
		return "as for the other codes of the pod", helps
	case slices.Contains([]string{
		"NodeNUMAResource", "DeviceShare", "LoadAwareScheduling", "Reservation", "ElasticQuota", "Coscheduling",
	}, e.Plugin):
		return "adds nodes if the requests exceed what each node has free", helps
	}
	return "adds nodes", helps
}

// autoscaler is the table of what cluster autoscalers do.
func autoscaler(b *bytes.Buffer) {
	fmt.Fprintf(b, `
## What cluster autoscalers do

The cluster autoscaler acts on the reason `+"`Unschedulable`"+`, unless the plugins of Kubernetes accept some
node for the pod or the pod is nominated to a node. It does not run plugins of Tenon. Karpenter acts on the same
reason and compares requests, labels and taints. What else helps is the advice at each code. Codes that are in no
condition of a pod are left out.

| Code | Condition | A new node helps | The cluster autoscaler |
|---|---|---|---|
`)
	for _, e := range why.Registry() {
		if e.NewNode != why.NoCondition {
			acts, helps := autoscaled(e)
			fmt.Fprintf(b, "| [`%s`](#%s) | `%s` | %s | %s |\n", e.Name, strings.ToLower(e.Name), e.Condition, helps,
				acts)
		}
	}
}

// reasons is the page of all codes, class by class.
func reasons() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `# Reason codes

<!-- Written by hack/docgen from internal/core/why. -->

Every refusal of Tenon is one of these codes, on every surface: the pod's condition, its Event, `+"`tenon explain`"+`,
`+"`tenon simulate`"+`, the diagnostics API and the label `+"`code`"+` of the metrics. A code never changes its meaning.
*Resolvable* codes may go away by waiting or by preemption; the others need a change of the pod or of a node.

*Condition* is the reason of the pod's condition `+"`PodScheduled`"+`. Cluster autoscalers add nodes only for the reason
`+"`Unschedulable`"+`: [Run Tenon with a cluster autoscaler](../guide/autoscaling.md).
`)
	class := why.NoClass
	for _, e := range why.Registry() {
		if e.Class != class {
			class = e.Class
			fmt.Fprintf(&b, "\n## %s\n", class)
		}
		fmt.Fprintf(&b, "\n### %s\n\n> %s\n>\n> %s\n\n%s %s\n\n", e.Name, e.Text, e.Chinese, e.Cause, e.Remedy)
		resolvable := "no"
		if e.Resolvable {
			resolvable = "yes"
		}
		fmt.Fprintf(&b, "- Plugin: %s. Resolvable: %s.%s\n", e.Plugin, resolvable, condition(e))
		if e.Amount {
			fmt.Fprintf(&b, "- Carries `asked` and `free`.\n")
		}
		if e.Extra != "" {
			fmt.Fprintf(&b, "- `%s`: %s.\n", e.Extra, e.ExtraMeaning)
		}
	}
	autoscaler(&b)
	return b.Bytes()
}
