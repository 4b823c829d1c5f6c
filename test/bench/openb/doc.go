// Command openb replays a published trace of a GPU cluster (cluster-trace-gpu-v2023 of alibaba/clusterdata) with a
// policy that chooses the nodes of pods, and prints which part of the GPUs is allocated when the pods that arrived ask
// for all of them:
//
//	go run -tags nomsgpack ./test/bench/openb -nodes FILE -pods FILE -seeds 10
//
// Rows are repeated at random until they ask for 1.3 times the GPUs, shuffled, and arrive one by one; none leaves. What
// does not fit is dropped. Seeds are 42, 43, …. Before that, three policies of the paper that published the trace (Weng
// et al., USENIX ATC 2023) are replayed with ten seeds; their medians must be within 0.3 percent of the published ones.
//
// With -models some pods of the trace name the GPU models that they can run on. The policies rollout and fgd are
// compared on each of these variants, and rollout must not allocate less.
//
// With -framework the pods of the first seed also go through the scheduler itself, without a cluster. What it allocates
// must be within 0.3 percent of the replay.
//
// With -room pods that do not fit wait. Pods arrive until those that run or wait ask for 90, 95 or 100 percent of all
// GPUs; 5 percent of those that run leave, at random; pods arrive until they ask for as much again. Then each waiting
// pod, in the order of arrival, gets a place if there is one, or else after the smallest set of at most 0, 1, 2 or 4
// moves that internal/core/defrag finds. All pods may move, at equal cost; a pod that moves keeps its size, and has its
// new place before it leaves the old one. A search that ended by a bound is counted: it proves nothing.
//
// With -waiting jobs arrive and leave in time, by the rules of internal/core/gang for who holds nodes and who may use
// them, on one of 8 nodes. Small jobs are pods of the trace with GPUs or without, that run as long as -times has it:
// shorter ones than 5 minutes are left out, longer ones than 2 hours cut. Large jobs are gangs of 16 and 64 GPUs, which
// ask for a quarter of the GPU time. Jobs arrive at random for 12 hours, until they ask for the given part of what all
// GPUs can do; those of 8 hours count, and one that has not started counts until the end. Rules differ in who holds
// nodes, and in how much too long jobs declare their run times. Forecasts of internal/core/forecast are compared with
// the starts. -results writes the tables:
//
//	go run -tags nomsgpack ./test/bench/openb -nodes FILE -pods FILE,… -times FILE -waiting 80,95,110 -results FILE
//
// With -waiting and -framework fewer nodes and jobs also go through the scheduler of tenon simulate --until, with its
// own forecasts, by the first rule and by EASY backfilling (minutes).
//
// With -burst no trace is read: 500 pods come within 50 seconds to 50 machines of 32 CPUs that already use 5 to 54
// percent of their CPUs, whatever is requested of them (10 to 59 percent). A pod requests 1 CPU and uses 0.2 to 1.8
// from a minute after its start on; machines report each minute, each at a second of its own. Pods that no machine
// takes wait. The scores are those of kube-scheduler by requests, with that of internal/core/load added.
package main
