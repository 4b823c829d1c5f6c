package app

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/load"
	"github.com/tenon-project/tenon/internal/desched/watched"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit"
)

// server is an API server with one NodeMetric and one pod that it does not contain.
type server struct{}

func (server) RoundTrip(r *http.Request) (*http.Response, error) {
	text := `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`
	status := http.StatusOK
	switch {
	case r.URL.Query().Get("sendInitialEvents") != "":
		status = http.StatusUnprocessableEntity
		text = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`
	case r.URL.Query().Get("watch") != "":
		<-r.Context().Done()
		return nil, r.Context().Err()
	case strings.HasSuffix(r.URL.Path, "/nodemetrics"):
		text = `{"kind":"NodeMetricList","apiVersion":"slo.koordinator.sh/v1alpha1","metadata":{"resourceVersion":"1"},
			"items":[{"metadata":{"name":"n"},"status":{"updateTime":"2026-11-01T00:00:00Z",
				"nodeMetric":{"nodeUsage":{"resources":{"cpu":"3","memory":"1Gi"}}}}}]}`
	case r.URL.Path == "/api/v1/pods":
		text = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[
			{"metadata":{"name":"a","namespace":"d","uid":"u"},"spec":{"nodeName":"n","containers":[{"name":"c",
				"resources":{"requests":{"cpu":"2","memory":"1Gi"}}}]}}]}`
	}
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewBufferString(text)), Request: r,
	}, nil
}

func TestTheUseOfNodesIsThatOfNodeMetricsWithEstimatesOfNewPods(t *testing.T) {
	t.Parallel()
	config := &rest.Config{Host: "http://server.invalid", Transport: server{}, QPS: -1}
	pods, err := kubernetes.NewForConfig(config)
	testkit.Check(t, err)
	reader, err := kube.NewClient(config)
	testkit.Check(t, err)
	p := &parts{reservations: kube.NewReservationInformer(reader)}
	if p.known, err = watched.New(config, pods); err != nil {
		t.Fatal(err)
	}
	use, err := p.readMetrics(reader)
	testkit.Check(t, err)
	if missing := strings.Join(p.Unsynced(), " "); !strings.Contains(missing, "NodeMetrics") {
		t.Errorf("the caches of %s are not complete, want NodeMetrics among them", missing)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go p.metrics.RunWithContext(ctx)
	go p.known.Pods.RunWithContext(ctx)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for strings.Contains(strings.Join(p.Unsynced(), " "), "NodeMetrics") {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("the caches did not become complete")
		}
	}
	// 85 % of the CPUs and 70 % of the memory that the pod requests.
	want := amount.Pair{3000 + 1700, 1<<30 + (7<<30+5)/10}
	if got := use.View("n").Use(load.Measure{}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}
