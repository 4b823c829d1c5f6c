package watched_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/desched/watched"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

var now = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// ownedPod returns a pod that serves, with a controller.
func ownedPod(name, apiVersion, kind, owner string) *corev1.Pod {
	p := object.Pod(name, object.UID(name), object.On("n0"), object.Phase(corev1.PodRunning),
		object.Created(now.Add(-time.Hour)))
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	yes := true
	if kind != "" {
		p.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: apiVersion, Kind: kind, Name: owner, UID: "u", Controller: &yes},
		}
	}
	return p
}

// codes are what refuses the eviction of a pod.
func codes(t *testing.T, c *watched.Cluster, uid string, policy evict.Policy) (text string) {
	t.Helper()
	c.Read(func(s *evict.State) {
		for _, r := range s.Check(&policy, uid, now) {
			text += " " + string(r.Code)
		}
	})
	return strings.TrimSpace(text)
}

// recorded is an owner in testdata/owners.yaml.
type recorded struct {
	Name, Want string
	Pod        struct{ ReplicaSet string }
	Object     map[string]any
}

func readRecorded(t *testing.T) (all []recorded) {
	t.Helper()
	text, err := os.ReadFile("testdata/owners.yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(text, &all)
	}
	testkit.Check(t, err)
	return all
}

func replicaSet(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "ReplicaSet",
		"metadata": map[string]any{
			"name": name, "namespace": "default", "uid": "u", "ownerReferences": []any{
				map[string]any{
					"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u", "controller": true,
				},
			},
		},
	}}
}

// TestOwnersAreReadAsTheyAreRecorded: whichever comes first, the owner or its four pods.
func TestOwnersAreReadAsTheyAreRecorded(t *testing.T) {
	t.Parallel()
	for _, r := range readRecorded(t) {
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			u := &unstructured.Unstructured{Object: r.Object}
			events := []func(*watched.Cluster){
				func(c *watched.Cluster) {
					for i := range 4 {
						p := ownedPod(fmt.Sprintf("web-%d", i), u.GetAPIVersion(), u.GetKind(), "web")
						if r.Pod.ReplicaSet != "" {
							p = ownedPod(fmt.Sprintf("web-%d", i), "apps/v1", "ReplicaSet", r.Pod.ReplicaSet)
						}
						c.PutPod(p)
					}
				},
				func(c *watched.Cluster) { c.PutOwner(u) },
				func(c *watched.Cluster) {
					if r.Pod.ReplicaSet != "" {
						c.PutOwner(replicaSet(r.Pod.ReplicaSet))
					}
				},
			}
			for range 2 {
				c := watched.Empty()
				for _, event := range events {
					event(c)
				}
				c.Read(func(*evict.State) {}) // between events
				if got := codes(t, c, "web-0", evict.Policy{}); got != r.Want {
					t.Errorf("got %q, want %q", got, r.Want)
				}
				c.RemoveOwner(u)
				if got := codes(t, c, "web-0", evict.Policy{}); got != "LookupFailed" {
					t.Errorf("without the owner: got %q, want LookupFailed", got)
				}
				slices.Reverse(events)
			}
		})
	}
}
