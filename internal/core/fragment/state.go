package fragment

import (
	"cmp"
	"fmt"
	"math/bits"
)

// MaxGPUs is the number of GPUs of a node that count; those beyond do not.
const MaxGPUs = 64

// Whole is a whole GPU in milli.
const Whole = 1000

// Model is a GPU model, numbered by the caller from 0 to 63.
type Model uint8

// Models is a set of models; the zero value is every model.
type Models uint64

// ModelsOf returns the set of some models.
func ModelsOf(models ...Model) (set Models) {
	for _, m := range models {
		set |= 1 << m
	}
	return set
}

// allows reports whether a set has a model. The empty set stands for all.
func (m Models) allows(model Model) bool { return m == 0 || m>>model&1 == 1 }

// Supply is what the GPUs of a cluster have free, in milli by model; 0 or more, together at most 1<<43.
type Supply [64]int64

// Spec is what a pod asks of a node.
type Spec struct {
	MilliCPU int64
	GPUs     int64 // different ones
	Milli    int64 // of each GPU: the larger of its core and its memory; 0 without GPUs
	Models   Models
}

// check returns what is wrong with a spec.
func (s Spec) check() error {
	low, high := int64(0), int64(0)
	if s.GPUs > 0 {
		low, high = 1, Whole
	}
	switch {
	case s.MilliCPU < 0:
		return fmt.Errorf("MilliCPU is %d; must be 0 or more", s.MilliCPU)
	case s.GPUs < 0 || s.GPUs > MaxGPUs:
		return fmt.Errorf("GPUs is %d; must be from 0 to %d", s.GPUs, MaxGPUs)
	case s.Milli < low || s.Milli > high:
		return fmt.Errorf("with %d GPUs, Milli is %d; must be from %d to %d", s.GPUs, s.Milli, low, high)
	}
	return nil
}

// compare orders specs; equal ones compare as 0.
func (s Spec) compare(o Spec) int {
	return cmp.Or(cmp.Compare(s.GPUs, o.GPUs), cmp.Compare(s.Milli, o.Milli), cmp.Compare(s.MilliCPU, o.MilliCPU),
		cmp.Compare(s.Models, o.Models))
}

// State is what a node has free. The order of its GPUs does not change its value; it is the order in which equal GPUs
// are chosen.
type State struct {
	MilliCPU int64
	Free     []int64 // milli of each GPU; 0 where it is unhealthy, taken as 0 to Whole where it is outside of that
	Model    Model
}

// Shape is what a value depends on: a state without the order of its GPUs, and without those that have nothing free.
// Shapes are equal exactly when they have the same CPU, model and free amounts.
type Shape struct {
	milliCPU int64
	model    Model
	n        int
	free     [MaxGPUs]int16 // ascending; the first n count, the others are 0
}

// set makes h, which is zero, the shape of a state from which a pod took its share of the GPUs of a mask.
func (h *Shape) set(s State, pod Spec, taken uint64) {
	h.milliCPU, h.model, h.n = s.MilliCPU-pod.MilliCPU, s.Model, 0
	for i, free := range s.Free[:min(len(s.Free), MaxGPUs)] {
		free = min(free, Whole)
		if taken>>i&1 == 1 {
			free -= pod.Milli
		}
		if free <= 0 {
			continue
		}
		at := h.n
		for ; at > 0 && h.free[at-1] > int16(free); at-- {
			h.free[at] = h.free[at-1]
		}
		h.free[at] = int16(free)
		h.n++
	}
}

// sum is what is free of all GPUs.
func (h *Shape) sum() (sum int64) {
	for _, free := range h.free[:h.n] {
		sum += int64(free)
	}
	return sum
}

// hash returns a hash for tables of shapes.
func (h *Shape) hash() uint64 {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a, by words
	sum := (offset ^ uint64(h.milliCPU)) * prime
	sum = (sum ^ uint64(h.model)) * prime
	for _, free := range h.free[:h.n] {
		sum = (sum ^ uint64(free)) * prime
	}
	return sum ^ bits.RotateLeft64(sum, 32)
}
