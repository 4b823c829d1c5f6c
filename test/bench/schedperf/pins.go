//go:build staging_pins

package schedperf

import (
	_ "k8s.io/code-generator/cmd/client-gen/generators/scheme"
	_ "k8s.io/cri-streaming"
	_ "k8s.io/sample-apiserver/pkg/admission/plugin/banflunder" // keeps `go list -m all` working, see docs/adr/0002
)
