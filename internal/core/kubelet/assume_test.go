package kubelet_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/kubelet"
)

// TestKubeletsThatNoModelKnowsAreNotTakenForKnownOnes: a newer release, an option or a gate of which the model knows
// nothing used to be predicted as if it were not there.
func TestKubeletsThatNoModelKnowsAreNotTakenForKnownOnes(t *testing.T) {
	t.Parallel()
	gates := func(gates map[string]bool) kubelet.Settings {
		return kubelet.Settings{Version: "v1.36.3", Gates: gates}
	}
	tests := map[string]struct {
		settings kubelet.Settings
		want     []string
	}{
		"the oldest model": {kubelet.Settings{Version: "v1.33.0"}, nil},
		"the newest model": {kubelet.Settings{Version: "v1.37.12-gke.1"}, nil},
		"a newer minor": {
			kubelet.Settings{Version: "v1.38.0"}, []string{"kubelet 1.38 is newer than the newest model, 1.37"},
		},
		"an older minor": {
			kubelet.Settings{Version: "v1.32.9"},
			[]string{"kubelet 1.32 has no model, the oldest is 1.33: only CPUs are counted"},
		},
		"no version": {kubelet.Settings{}, []string{"the kubelet's version is unknown: only CPUs are counted"}},
		"an odd version": {
			kubelet.Settings{Version: "2.0"}, []string{`kubelet version "2.0" cannot be read: only CPUs are counted`},
		},
		"all known options": {kubelet.Settings{
			Version: "v1.36.3",
			CPUOptions: map[string]string{
				"full-pcpus-only": "true", "distribute-cpus-across-numa": "true", "align-by-socket": "true",
				"distribute-cpus-across-cores": "true", "strict-cpu-reservation": "true",
				"prefer-align-cpus-by-uncorecache": "true",
			},
			TopologyOptions: map[string]string{"prefer-closest-numa-nodes": "true", "max-allowable-numa-nodes": "12"},
		}, nil},
		"unknown options": {kubelet.Settings{
			Version: "v1.36.3", CPUOptions: map[string]string{"new": "true", "old": "false"},
			TopologyOptions: map[string]string{"nearest": "2"},
		}, []string{"CPU manager option new=true is not known", "Topology Manager option nearest=2 is not known"}},
		"gates that open options that the model knows": {gates(map[string]bool{
			"CPUManagerPolicyAlphaOptions": true, "CPUManagerPolicyBetaOptions": true, "MemoryQoS": true,
		}), nil},
		"gates as they are by default": {gates(map[string]bool{
			"PodLevelResourceManagers": false, "PodLevelResources": true, "AllAlpha": false,
			"InPlacePodVerticalScalingExclusiveCPUs": false,
		}), nil},
		"gates that change the managers": {gates(map[string]bool{
			"PodLevelResourceManagers": true, "InPlacePodVerticalScalingExclusiveCPUs": true,
			"InPlacePodVerticalScalingExclusiveMemory": true, "AllAlpha": true, "AllBeta": true,
			"PodLevelResources": false,
		}), []string{
			"feature gate AllAlpha=true is not in the model", "feature gate AllBeta=true is not in the model",
			"feature gate InPlacePodVerticalScalingExclusiveCPUs=true is not in the model",
			"feature gate InPlacePodVerticalScalingExclusiveMemory=true is not in the model",
			"feature gate PodLevelResourceManagers=true is not in the model",
			"feature gate PodLevelResources=false is not in the model",
		}},
		"pod-level resources before the managers looked at them": {
			kubelet.Settings{Version: "v1.33.1", Gates: map[string]bool{"PodLevelResources": false}}, nil,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, tt.settings.Assumptions()); diff != "" {
				t.Errorf("assumptions of %+v (-want +got):\n%s", tt.settings, diff)
			}
		})
	}
}
