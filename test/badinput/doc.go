// Package badinput is the visible proof of one promise: bad input gets a clear text that names the field, the rule and
// what is allowed, and it changes nothing.
//
//	go test -v ./test/badinput
//
// lists every case by what is bad about it, over all doors by which input comes in: the webhooks, the scheduler's
// command line, configuration and the pods and nodes that it reads (with the webhooks bypassed), the agent, simulate
// and the command line. Each case hands the input in as a user or the API server would, and then looks at what could
// have changed. Cases that need a running cluster want TENON_BIN, as test/system does.
//
// # Reservations and moves
//
// TestBadInputGetsAClearTextAndChangesNothing of test/badinput hands each of these in. It checks that the text names
// field, rule and allowed values, and that no pod, file or room has changed:
//
//   - Reservation: owners that match everything, no owners, an empty owner, an owner without a name, a controller
//     without a kind, a selector that is not one, a negative ttl, over running pods of any owner, a taint without a key
//     or of an unknown effect, no container, an unknown QoS class, a template that changes on a node, an order that is
//     not a number, restricted resources that are not a list
//
//   - PodMigrationJob: no pod, namespace or name, another kind, an unknown mode, a negative ttl, a room with
//     EvictDirectly, without a name, for many or for every pod, a negative grace period, an eviction without effect, an
//     unknown propagation, another pod or mode later
//
//   - Configuration: a misspelt limit, a negative one, more than all replicas, a check that cannot be skipped, a rate
//     of nothing; 40 more are in api/config/descheduler
//
//   - Faults: a budget of zero, two budgets, the only replica, a rollout, a scale-down, no room elsewhere, a pod that
//     is gone or another one, a room that does not exist or has expired, a node that goes, a full quota
//
//   - The webhook is away: owners that match everything, and an empty owner, match no pod. A clock is ahead: an
//     eviction that is still to come counts
//
// The first of these commands lists these cases by name: 50. The second runs ttl with expires, which the CRD refuses.
// The third has 30 jobs (TestJobs), most of them with a fault: an API server that refuses, fails, or is gone between
// the last check and the eviction, a place that is lost, refusals of the Eviction API, no answer to it; a process that
// dies at each write; 12 reasons not to evict a pod (TestWhatIsObservedRefuses); caches that are not synced:
//
//	go test -tags nomsgpack -v ./test/badinput -run 'Bad.*/(reservation|job|descheduler|fault):'
//	go test -tags nomsgpack -v ./deploy -run 'TheCRDsRefuse.*/a_reservation_with_ttl_and_expires'
//	go test -tags nomsgpack -v ./internal/desched/migration ./internal/desched/watched
//
// # Load and colocation
//
// 42 named cases, each with the text that the user sees or with what remains as it was. go test -tags nomsgpack -v -run
// 'ConfigMapMayNotSay|CannotBeReadIsNotGuessed' ./api/config/sloconfig ./internal/agent/usage lists them.
//
//   - ConfigMap: 101 %, a negative percentage, a fraction of a percent, NaN in JSON and in YAML, no difference at all,
//     a report that never grows old, an interval of years, policies that do not exist, windows of no time; the text
//     names key, field and allowed values
//   - Measurements, on cgroup v1 and v2: a clock that goes back or jumps by a day, counters of a pod and of the node
//     that go back, are empty, not numbers or too long, a pod that vanishes between two reads, a group made anew,
//     missing memory files, more cache than memory, pods that use more than their node, CPUs and NUMA nodes that go
//
// Beside these, tables without names of their own: arguments of LoadAwareScheduling (api/config/v1alpha1), thresholds
// and estimates in annotations (api/annotation), what a profile may not say (internal/control/admission), and fields of
// NodeMetric and NodeSLO (deploy). That an agent cannot write the NodeMetric of another node is tried in test/rights.
package badinput
