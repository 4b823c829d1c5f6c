package main

import "testing"

func TestABurstIsPlacedEvenlyByEstimates(t *testing.T) {
	t.Parallel()
	byName := map[string]float64{}
	for _, r := range rules {
		highest, _, without := burst(firstSeed, r)
		again, _, _ := burst(firstSeed, r)
		if highest != again || without != 0 {
			t.Errorf("%s: %v and %v percent, %d pods without a node", r.name, highest, again, without)
		}
		byName[r.name] = highest
	}
	if ours := byName["LoadAwareScheduling"]; ours > byName["stock"]-10 || ours > byName["reports, no estimates"]-5 {
		t.Errorf("the highest use is not lower: %v", byName)
	}
}
