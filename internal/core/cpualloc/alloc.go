package cpualloc

import (
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Allocate answers req from s, or says why not. It never gives a part. Equal input gives equal output; the reasons are
// those of Feasible. It costs O(CPUs) plus the choice of NUMA nodes. It allocates memory for that choice alone, on
// machines with more than 7 sockets and more NUMA nodes than all sets are tried of.
func Allocate(s State, req Request) (Result, why.Reason) {
	if req.Count <= 0 {
		return Result{Stage: 1}, why.Reason{}
	}
	if s.Caps != nil {
		s = s.Limited(req.Bind)
	}
	v := solver{
		m: s.Machine, state: s, left: s.Free, req: req, threads: s.Machine.ThreadsPerCore(),
		mask: req.mask() & s.Machine.NodesWithCPUs(),
	}
	counts := v.survey()
	if r := Feasible(counts[:], s.Machine, req); !r.OK() {
		return Result{}, r
	}
	choice := v.chooseNodes()
	v.fill(&choice)
	return Result{CPUs: s.Free.Minus(v.left), Stage: choice.stage, NUMANodes: choice.nodes.Len()}, why.Reason{}
}

// maxNodes bounds the NUMA nodes of a machine.
const maxNodes = topo.MaxNodes

// solver is the working state of one Allocate. It lives on the stack.
type solver struct {
	m       *topo.Machine
	state   State
	req     Request
	threads int
	mask    topo.NodeSet // nodes that may be used

	node [maxNodes]nodeTally
	core [topo.MaxCPUs]coreTally

	even      even
	heldNodes topo.NodeSet // nodes with a holder of NUMANodeLevel
	held      bool         // some core has a holder that the request avoids
	passes    int          // of fill over the free CPUs: 2 where some of them have no tick, else 1

	// The state of fill.
	left     cpuset.Set // free CPUs that are not taken
	usedL3   cpuset.Set // of topo.L3
	round    uint8
	skipHeld bool
}
