package reserving

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit"
)

// namedProfile is all that a factory asks of a profile.
type namedProfile struct {
	fwk.Handle
	name    string
	factory informers.SharedInformerFactory
}

func (p *namedProfile) ProfileName() string                                    { return p.name }
func (p *namedProfile) SharedInformerFactory() informers.SharedInformerFactory { return p.factory }
func (p *namedProfile) SnapshotSharedLister() fwk.SharedLister                 { return nil }

// TestQuestionsDoNotConfigureReservations: a profile is built again for the first question, while the account is used.
func TestQuestionsDoNotConfigureReservations(t *testing.T) {
	t.Parallel()
	r := kube.NewReservations(nil, nil)
	build := Factory(r, nil)
	for _, step := range []struct {
		profile, args string
		want          bool
	}{{"a", "enablePreemption: true", true}, {"b", "", false}, {"a", "enablePreemption: true", false}} {
		h := &namedProfile{name: step.profile, factory: informers.NewSharedInformerFactory(fake.NewClientset(), 0)}
		_, err := build(t.Context(), &runtime.Unknown{Raw: []byte(step.args)}, h)
		testkit.Check(t, err)
		if r.Preempts != step.want {
			t.Errorf("after profile %s: Reservations preempt: %t, want %t", step.profile, r.Preempts, step.want)
		}
	}
}
