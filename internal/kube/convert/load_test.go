package convert_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/load"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// TestPodsWithoutABandAreProductionUnlessTheyAreBestEffort: the class of Kubernetes counts where no other is set.
func TestPodsWithoutABandAreProductionUnlessTheyAreBestEffort(t *testing.T) {
	t.Parallel()
	kubeQoS := func(q corev1.PodQOSClass) podOption { return func(p *corev1.Pod) { p.Status.QOSClass = q } }
	for name, c := range map[string]struct {
		options []podOption
		want    bool
	}{
		"production, though BE": {[]podOption{priority(9500), class("BE")}, true},
		"batch, though LS":      {[]podOption{priority(5500), class("LS")}, false},
		"no band, BE":           {[]podOption{class("BE"), kubeQoS(corev1.PodQOSBurstable)}, false},
		"no band, LS":           {[]podOption{class("LS"), kubeQoS(corev1.PodQOSBestEffort)}, true},
		"BestEffort alone":      {[]podOption{kubeQoS(corev1.PodQOSBestEffort)}, false},
		"Burstable alone":       {[]podOption{kubeQoS(corev1.PodQOSBurstable)}, true},
	} {
		got, err := convert.LoadSettings{}.Pod(newPod(c.options...), time.Unix(1, 0))
		if err != nil || got.Prod != c.want {
			t.Errorf("%s: production %t, %v, want %t", name, got.Prod, err, c.want)
		}
	}
}

// TestTheAmountOfEachContainerIsBounded: their sum may be larger than the most that one counts with, which is 8 TiB.
func TestTheAmountOfEachContainerIsBounded(t *testing.T) {
	t.Parallel()
	both := func(memory string) podOption {
		return func(p *corev1.Pod) {
			object.Container("", "")(p)
			object.Both("cpu", "2", "memory", memory)(p)
		}
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want amount.Pair
	}{
		"below the bound": {newPod(both("6Ti"), both("6Ti")), amount.Pair{4000, 12 << 40}},
		"above it":        {newPod(both("6Ti"), both("9Ti")), amount.Pair{4000, 14 << 40}},
	} {
		got, err := convert.LoadSettings{Factors: load.Percents{100, 100}}.Pod(c.pod, time.Unix(1, 0))
		if err != nil || got.Estimate != c.want {
			t.Errorf("%s: %v, %v, want %v", name, got.Estimate, err, c.want)
		}
	}
}

// TestAPodThatAsksForNothingIsEstimatedUnlessItIsMid: Koordinator estimates nothing for class mid.
func TestAPodThatAsksForNothingIsEstimatedUnlessItIsMid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want amount.Pair
	}{
		"production": {newPod(priority(9500)), amount.Pair{250, 200 << 20}},
		"mid":        {newPod(priority(7500)), amount.Pair{}},
		"batch":      {newPod(priority(5500)), amount.Pair{250, 200 << 20}},
		"no class":   {newPod(), amount.Pair{250, 200 << 20}},
	} {
		got, err := convert.LoadSettings{Factors: load.Percents{100, 100}}.Pod(c.pod, time.Unix(1, 0))
		if err != nil || got.Estimate != c.want {
			t.Errorf("%s: %v, %v, want %v", name, got.Estimate, err, c.want)
		}
	}
}
