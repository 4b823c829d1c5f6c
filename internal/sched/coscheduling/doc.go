// Package coscheduling is the plugin Coscheduling: the members of gangs that start together get nodes together or not
// at all.
//
//	queue ─► Rounds ─ Schedule ─► makePlan(members) ─► domains ─► places
//	            ▲                      │                            │
//	            │                      └──► attempt(members, places) on the snapshot, and back
//	            │                               │
//	            │                            outcome ─ fits ─► a cycle for each member: Reserve, Permit
//	            │                               │ does not fit
//	            └── report ◄── nomination ◄── preemption(members), else keepNodes(members)
//
//	Rounds         takes the members out of the queue together, gives each of them its cycle, and has all other parts
//	               (rounds.go, alone.go)
//	planner        makes plans: it tries members, with attempts, in orders and domains (plan.go, packing.go)
//	members        are the pods of a group that are tried together, and what they ask for (members.go, packing.go)
//	outcome        is what a plan came to (plan.go); answers are those of groups of equal shape (answers.go)
//	attempt        places members on the snapshot and on copies of the accounts, and takes all of it back
//	domains        chooses domains of the network, and confines attempts to them; a place is one domain
//	Evictions      decides which pods make way, and evicts them; a preemption is an attempt with pods of lower
//	               priority out of the way (preempt.go, victims.go, evict.go, guard.go)
//	reservations   are nodes that are kept for gangs which others overtook
//	report         is what the members of a failed plan learn of it, with their nominations
//	deadlocks      are NonStrict gangs that hold what each other needs
//	Held           writes why pods wait for their gang
//
// # A round
//
// Input: the pod at the head of the queue. Its gang's group is asked for a plan (core/gang): all pending members, in
// order. They are pulled out of the queue, so that no other pod comes between. In the cycle of the first one all are
// tried on one snapshot, each reserved beside those before it, until the group cannot reach its minimum any more. What
// was reserved is undone. If enough fit, each member then has a cycle of its own, in which the planned node is proposed
// first; when the last one waits for its permit, gang.State.Conclude lets all be bound. If not, the round ends in the
// first cycle, and costs no other. It is right because nothing but the scheduling loop takes room from a snapshot: what
// fits in the plan fits in the cycles, unless an event came between, and then the members that wait are released. The
// cost is one filtering of the nodes per kind of member, and one hint per further member.
//
// If members ask for different amounts, core/gang names several orders, and searches for nodes if none of them fits
// (gang.Packing). If their claims have alternatives, all of that is tried once more with later alternatives first. The
// cycles have the order in which the members fit, but for the member whose cycle is under way: if that one was not the
// first, the plan is verified in the order of the cycles.
//
// # Domains
//
// core/domain yields the domains that may have enough room by sums over their nodes, best first. Each is tried with a
// whole plan, as only a plan knows of NUMA nodes, devices and quotas. The first that fits is taken. If none does, the
// domain in which most members were placed is reported. One plan tries gang.MostPlans choices at most; the next one
// goes on behind these. Required pod affinity between members adds the domains of its label, see gatherByAffinity.
//
// # Preemption
//
// Pods that terminate are out of the way first, as they release what they hold whatever is decided: a preemptor for
// which they are enough is nominated to their node, evicts no pod and waits. Else the same attempt is made with victims
// out of the way as well. A member that does not fit gets the node where the least is
// lost:
// kube-scheduler's dry run names victims there, and core/gang the pods that must go with them. All are taken off the
// snapshot, the accounts of nodes and the quotas at once. When all members are placed, each unit of victims is put back
// whose absence is not needed, the most important first, and all members are placed once more, to verify it. Members of
// equal class share what is known of a node until it changes, so the cost is one dry run per class and changed node.
// The victims are locally minimal: no single unit can be spared. That no smaller set exists is not claimed.
//
// # Kept nodes and deadlocks
//
// A group that was overtaken too often is planned without the pods behind it, on as few nodes as do; its members are
// nominated to these nodes, which the pods behind it then cannot use. NonStrict gangs that wait for each other are
// found by trying whether the first could start with what the last ones hold; gang.Resolve says who releases.
package coscheduling
