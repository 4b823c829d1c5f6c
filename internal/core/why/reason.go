package why

// Resource is what an amount is about, named as Kubernetes spells it. Any name is a resource: each row of a request or
// of an account names its own.
type Resource string

// Resources that decisions treat by name.
const (
	NoResource Resource = ""
	CPU        Resource = "cpu"
	Memory     Resource = "memory"
)

// Unit is the unit of Asked and Free, always the one the user asked in.
type Unit uint8

// Units.
const (
	NoUnit Unit = iota
	MilliCPU
	CPUs
	Cores
	Bytes
	Percent
	Count
)

// Scope says what Where.Index counts.
type Scope uint8

// Scopes.
const (
	Machine Scope = iota
	NUMA
	Socket
	CoreScope
)

// Where is the place that a reason is about: the kernel's id of a NUMA node or socket, or the whole machine.
type Where struct {
	Scope Scope
	Index int32
}

// Reason is one refusal. The zero value is "no reason": the request was granted. Comparable; making one allocates
// nothing. For codes about an amount Free < Asked, in Unit; both are 0 if what is free is not what is missing.
type Reason struct {
	Code     Code
	Resource Resource
	Unit     Unit
	Where    Where
	Asked    int64
	Free     int64 // the most that one place has free under the rule that refused
	Extra    int64 // one more number, its meaning fixed per code in the registry
}

// OK reports whether r is the zero value: the request was granted.
func (r Reason) OK() bool { return r.Code == None }

// Phase is the step that refused.
type Phase uint8

// Phases.
const (
	PreEnqueue Phase = iota
	PreFilter
	Filter
	Reserve
	Permit
	Preemption
	Admission
)

// String returns the phase's name as the scheduling framework writes it.
func (p Phase) String() string {
	return [...]string{"PreEnqueue", "PreFilter", "Filter", "Reserve", "Permit", "Preemption", "Admission"}[p]
}

// Finding is a Reason with what the adapter knows about it.
type Finding struct {
	Reason
	Plugin string
	Phase  Phase
	Object string // node, quota or gang; "" when the code is asked once per pod
	Detail string // an upstream plugin's own text
}
