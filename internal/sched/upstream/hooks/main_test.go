package hooks

import (
	"os"
	"testing"

	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

func TestMain(m *testing.M) {
	metrics.Register() // upstream's; queues and frameworks cannot do without
	os.Exit(m.Run())
}
