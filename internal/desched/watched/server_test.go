package watched_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/desched/watched"
	"github.com/tenon-project/tenon/internal/testkit"
)

// server is an API server that has some objects, by the path of their list. Other lists are missing. Its watches never
// send anything.
type server struct {
	objects map[string][]map[string]any

	mu     sync.Mutex // guards hidden
	hidden string     // a list that is missing for a while
}

func (s *server) hide(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hidden = path
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := func(code int, body any) (*http.Response, error) {
		text, err := json.Marshal(body)
		return &http.Response{
			StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(bytes.NewReader(text)), Request: r,
		}, err
	}
	s.mu.Lock()
	hidden := s.hidden == r.URL.Path
	s.mu.Unlock()
	items, found := s.objects[r.URL.Path]
	switch {
	case hidden, !found:
		return answer(http.StatusNotFound, metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
			Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound,
		})
	case r.URL.Query().Get("watch") != "":
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return answer(http.StatusOK, map[string]any{"metadata": map[string]any{"resourceVersion": "1"}, "items": items})
}

// fleet is a kind with the scale subresource, crew one without.
func fleet(replicas int) map[string]any {
	return map[string]any{
		"apiVersion": "example.com/v1", "kind": "Fleet",
		"metadata": map[string]any{"name": "f", "namespace": "default", "uid": "u"},
		"spec":     map[string]any{"replicas": replicas, "template": map[string]any{}},
		"status":   map[string]any{"replicas": replicas},
	}
}

// start runs a Cluster whose API server has four pods of a Fleet and four of a Crew.
func start(t *testing.T, s *server) *watched.Cluster {
	t.Helper()
	client := fake.NewClientset()
	client.Resources = []*metav1.APIResourceList{{
		GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{
			{Name: "fleets", Kind: "Fleet"}, {Name: "fleets/scale", Kind: "Scale"}, {Name: "crews", Kind: "Crew"},
		},
	}}
	for i := range 4 {
		for _, kind := range []string{"Fleet", "Crew"} {
			name := strings.ToLower(kind[:1])
			p := ownedPod(fmt.Sprint(name, i), "example.com/v1", kind, name)
			if _, err := client.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	c, err := watched.New(&rest.Config{Host: "http://server.invalid", Transport: s, QPS: -1}, client)
	testkit.Check(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestAKindThatIsNotInTheTableIsLookedUp: with the scale subresource its objects are read, without it the owner is
// unknown. Until the kind and the owner are known, its pods are refused.
func TestAKindThatIsNotInTheTableIsLookedUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{objects: map[string][]map[string]any{"/apis/example.com/v1/fleets": {fleet(4)}}}
		s.hide("/apis/example.com/v1/fleets")
		c := start(t, s)
		<-time.After(time.Minute)
		synctest.Wait()
		if got := c.Unsynced(); len(got) > 0 {
			t.Fatalf("unsynced: %v", got)
		}
		for name, want := range map[string]string{"f0": "LookupFailed", "c0": "LookupFailed"} {
			if got := codes(t, c, name, evict.Policy{}); got != want {
				t.Errorf("%s before its kind is looked up: got %q, want %q", name, got, want)
			}
		}
		<-time.After(time.Minute)
		if got := codes(t, c, "f0", evict.Policy{}); got != "LookupFailed" {
			t.Errorf("while the server has no Fleets: got %q, want LookupFailed", got)
		}
		if got := codes(t, c, "c0", evict.Policy{}); got != "UnknownOwner" {
			t.Errorf("without scale subresource: got %q, want UnknownOwner", got)
		}
		s.hide("")
		<-time.After(5 * time.Minute)
		if got := codes(t, c, "f0", evict.Policy{}); got != "" {
			t.Errorf("with scale subresource: got %q, want no refusal", got)
		}
	})
}
