package examples

import _ "embed"

//go:embed demo.yaml
var demo []byte

// Demo returns pods of every class, and one that cannot fit. All carry the label DemoLabel.
func Demo() []byte { return demo }

// DemoLabel is a selector for everything in Demo.
const DemoLabel = "app.kubernetes.io/part-of=tenon-demo"
