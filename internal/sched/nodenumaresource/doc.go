// Package nodenumaresource is the scheduler plugin NodeNUMAResource: fine-grained CPU orchestration (seed 000). It is
// the placement of a profile (internal/sched/placement) with arguments and a score of its own.
package nodenumaresource
