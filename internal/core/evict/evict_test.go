package evict_test

import (
	"testing"
	"time"

	"github.com/tenon-project/tenon/internal/core/evict"
)

var now = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func mustPolicy(t *testing.T, s evict.Settings) *evict.Policy {
	t.Helper()
	p, err := evict.NewPolicy(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// web is a Deployment of so many replicas whose pods web-0, web-1… serve on nodes n0, n1….
func web(replicas int) *evict.State {
	s := evict.NewState()
	key := evict.Key("default", "Deployment", "web")
	s.SetWorkload(evict.Workload{
		Key: key, Kind: evict.Deployment, Replicas: replicas, StatusReplicas: replicas, Updated: replicas,
		Ready: replicas,
	})
	for i := range replicas {
		id := string(rune('0' + i))
		s.SetNode("n"+id, nil)
		s.SetPod(evict.Pod{
			UID: "web-" + id, Namespace: "default", Name: "web-" + id, Node: "n" + id, Workload: key,
			Created: now.Add(-time.Hour), Ready: true,
		})
	}
	return s
}

// TestAPodThatServesMayBeEvicted: one of two replicas, and not the second one while the first one moves.
func TestAPodThatServesMayBeEvicted(t *testing.T) {
	t.Parallel()
	s, p := web(2), mustPolicy(t, evict.Settings{})
	if got := s.Check(p, "web-0", now); len(got) > 0 {
		t.Errorf("got refusals %v, want none", got)
	}
	waiting := []evict.Job{
		{UID: "a", Name: "a", PodUID: "web-0", Namespace: "default", Workload: "Deployment default/web", Source: "n0"},
		{UID: "b", Name: "b", PodUID: "web-1", Namespace: "default", Workload: "Deployment default/web", Source: "n1"},
	}
	passed, refused := s.Arbitrate(p, waiting, now)
	if len(passed) != 1 || passed[0].UID != "a" || refused["b"].Code != evict.AlreadyEvicting {
		t.Errorf("passed %v, refused %v; want a passed, b refused with AlreadyEvicting", passed, refused)
	}
}
