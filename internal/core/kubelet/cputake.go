package kubelet

import (
	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// take chooses n CPUs of from as the policy's options say. It may return fewer, or ones outside of from, where the
// kubelet does.
func (p *cpuPolicy) take(from cpuset.Set, n int) (cpuset.Set, cpuFault) {
	if p.settings.DistributeAcrossNUMA {
		group := 1
		if p.settings.FullPCPUsOnly {
			group = p.perCore
		}
		return p.distribute(from, n, group)
	}
	return p.pack(from, n, p.settings.AlignL3)
}
