package examples

import _ "embed"

//go:embed demo.yaml
var demo []byte

// Demo returns pods of every class, one that cannot fit, a tree of quotas with pods that ask for more than it has, a
// gang that starts, one that lacks a member, pods with GPUs, one too large, and batch pods beside a service
// with a wave of load. All carry the label DemoLabel; those whose order counts have the scheduling gate DemoGate.
func Demo() []byte { return demo }

// DemoGate is the scheduling gate of pods that are placed after all others, and whose requests must be known before any
// of them is.
const DemoGate = "tenon.sh/demo"

// DemoLabel is a selector for everything in Demo.
const DemoLabel = "app.kubernetes.io/part-of=tenon-demo"
