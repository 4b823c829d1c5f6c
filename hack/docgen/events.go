package main

import (
	"bytes"
	"fmt"

	"github.com/tenon-project/tenon/api/event"
)

// events is the page of all Events and of the Node's conditions.
func events() []byte {
	var b bytes.Buffer
	b.WriteString(`# Events and conditions

<!-- Written by hack/docgen from api/event. -->

Beside these, tenon-scheduler sends kube-scheduler's own Events; the message of FailedScheduling begins with a
[reason code](reasons.md). An Event marked *condition* comes with a condition of the Node, ` + "`tenon.sh/NAME`" + `,
which is True while the situation lasts. What kube-scheduler says of room to reserve is about the Reservation. [The agent](agent.md) describes how the agent works.
`)
	last := ""
	for _, e := range event.List() {
		if e.From != last {
			last = e.From
			fmt.Fprintf(&b, "\n## %s\n\n| Event | On | Means | What %[1]s does | What to do |\n|---|---|---|---|---|\n",
				e.From)
		}
		kind := "Warning"
		if e.Normal {
			kind = "Normal"
		}
		if e.Condition {
			kind += ", condition"
		}
		fmt.Fprintf(&b, "| `%s` (%s) | %s | %s | %s | %s |\n", e.Name, kind, e.On, cell(e.Means), orDash(e.Does),
			orDash(e.Do))
	}
	return b.Bytes()
}
