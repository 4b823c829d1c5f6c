package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/tenon-project/tenon/api/annotation"
)

// support is the page of what Koordinator's and Volcano's keys do here.
func support() []byte {
	var b bytes.Buffer
	b.WriteString(`# Support for keys of Koordinator, Volcano and the NodeResourceTopology ecosystem

<!-- Written by hack/docgen from api/annotation/support.go. -->

*Done*: read, with Koordinator's or Volcano's meaning. *Planned*: has no effect in this version, a later one will read
it. *Not planned*: has no effect. A Pod or Node with a key that has no effect is admitted with one warning for each such
key; ` + "`tenon explain` and `tenon simulate`" + ` name them too. So is any other key in a domain of
Koordinator, Tenon, Volcano, the PodGroup or the Kubernetes descheduler; the warning then contains the nearest known
key. When a Deployment, Job or another workload is applied, the warnings and refusals of its pods are warnings about the
workload. A key that ends in * is a prefix.
`)
	for _, state := range []annotation.State{annotation.Done, annotation.Planned, annotation.NotPlanned} {
		fmt.Fprintf(&b, "\n## %s\n\n| Feature | Where | Keys |\n|---|---|---|\n",
			strings.ToUpper(string(state[:1]))+string(state[1:]))
		for _, s := range annotation.Supports() {
			if s.State == state {
				fmt.Fprintf(&b, "| %s | %s | `%s` |\n", s.Feature, s.Place, strings.Join(s.Keys, "`, `"))
			}
		}
	}
	return b.Bytes()
}
