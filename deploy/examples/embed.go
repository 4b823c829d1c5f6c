package examples

import _ "embed"

//go:embed demo.yaml
var demo []byte

// Demo returns pods of every class, one that cannot fit, a tree of quotas with pods that ask for more than it has, a
// gang that starts, and one that lacks a member.
// All carry the label DemoLabel; those of quotas have the scheduling gate DemoGate, until all exist.
func Demo() []byte { return demo }

// DemoGate is the scheduling gate of pods whose requests must be known before any of them is placed.
const DemoGate = "tenon.sh/demo"

// DemoLabel is a selector for everything in Demo.
const DemoLabel = "app.kubernetes.io/part-of=tenon-demo"
