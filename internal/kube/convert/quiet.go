package convert

import (
	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/quiet"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Quiet returns what q says of a machine. Lists that cannot be read, and CPUs that the machine does not have, are left
// out: Facts reports them.
func Quiet(m *topo.Machine, q *annotation.IsolatedCPUs) quiet.Facts {
	list := func(text string) cpuset.Set {
		cpus, _, err := m.ParseList(text)
		if err != nil {
			return cpuset.Set{}
		}
		return cpus
	}
	return quiet.Facts{
		Isolated: list(q.Isolated), NoTick: list(q.NoHzFull), NoCallbacks: list(q.NoCallbacks),
		SparesManaged: q.SparesManaged, Balancer: q.Irqbalance, Slow: q.SlowGovernors, Fixed: list(q.FixedInterrupts),
	}
}
