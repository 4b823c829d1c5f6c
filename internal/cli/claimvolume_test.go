package cli

import (
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
)

// TestThePodOfAStatefulSetHasItsClaims: the count of pods depends on them.
func TestThePodOfAStatefulSetHasItsClaims(t *testing.T) {
	t.Parallel()
	pod, err := readPod("-", strings.NewReader("{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db}, spec: {"+
		"template: {spec: {containers: [{name: c, image: i, volumeMounts: [{name: data, mountPath: /d}]}]}}, "+
		"volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: fast}}]}}"))
	testkit.Check(t, err)
	if v := pod.Spec.Volumes; len(v) != 1 || v[0].Name != "data" || v[0].Ephemeral == nil ||
		*v[0].Ephemeral.VolumeClaimTemplate.Spec.StorageClassName != "fast" {
		t.Errorf("got the volumes %+v, want the claim data of class fast", v)
	}
}
