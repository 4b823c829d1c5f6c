package kube_test

import (
	"testing"

	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube"
)

// TestAMigrationThatCannotBeReadIsPaused, and hides no other.
func TestAMigrationThatCannotBeReadIsPaused(t *testing.T) {
	t.Parallel()
	const job = `{"apiVersion":"scheduling.koordinator.sh/v1alpha1","kind":"PodMigrationJob","metadata":{"name":"`
	c, _ := client(t, decoded(t, job+`odd"},"spec":{"ttl":"filled","podRef":{"name":"p"}}}`),
		decoded(t, job+`sound"},"spec":{"ttl":"5m","podRef":{"name":"p"}}}`),
		decoded(t, job+`paused"},"spec":{"paused":true}}`))
	i := kube.NewMigrationInformer(c)
	start(t, i)
	paused := map[string]bool{}
	for _, object := range i.GetStore().List() {
		j := object.(*v1alpha1.PodMigrationJob)
		if paused[j.Name] = j.Spec.Paused; (j.Unread != "") != (j.Name == "odd") {
			t.Errorf("%s cannot be read: %q", j.Name, j.Unread)
		}
	}
	if len(paused) != 3 || !paused["odd"] || paused["sound"] || !paused["paused"] {
		t.Errorf("paused are %v, want odd and paused", paused)
	}
}
