package kube_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/tenon-project/tenon/internal/kube"
)

// server is an API server that has some resources, by path. Its watches never send anything.
type server struct {
	items  map[string][][]byte
	hidden func() bool              // for a while, all resources are missing
	moved  func(path string) string // where the items of a path are
}

// client returns a client of a server that has these objects, and the server.
func client(tb testing.TB, objects ...*unstructured.Unstructured) (rest.Interface, *server) {
	tb.Helper()
	s := &server{
		items: map[string][][]byte{}, hidden: func() bool { return false },
		moved: func(path string) string { return path },
	}
	for _, o := range objects {
		text, err := json.Marshal(o)
		if err != nil {
			tb.Fatal(err)
		}
		plural := map[string]string{
			"NodeResourceTopology": "noderesourcetopologies", "Numatopology": "numatopologies",
			"ElasticQuota": "elasticquotas", "PodGroup": "podgroups", "Device": "devices",
			"CompositePodGroup": "compositepodgroups", "PodMigrationJob": "podmigrationjobs",
			"ClusterNetworkTopology": "clusternetworktopologies", "NodeMetric": "nodemetrics",
		}[o.GetKind()]
		path := "/apis/" + o.GetAPIVersion() + "/" + plural
		s.items[path] = append(s.items[path], text)
	}
	return s.client(tb), s
}

func (s *server) client(tb testing.TB) rest.Interface {
	tb.Helper()
	c, err := kube.NewClient(&rest.Config{Host: "http://server.invalid", Transport: s, QPS: -1})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := func(code int, text []byte) (*http.Response, error) {
		return &http.Response{
			StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(bytes.NewReader(text)), Request: r,
		}, nil
	}
	items, found := s.items[s.moved(r.URL.Path)]
	if !found || s.hidden() {
		return answer(http.StatusNotFound, []byte(
			`{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","code":404}`))
	}
	q := r.URL.Query()
	if q.Get("watch") != "" {
		timeout, _ := time.ParseDuration(q.Get("timeoutSeconds") + "s")
		select {
		case <-time.After(timeout):
			return answer(http.StatusOK, nil)
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	version := strings.TrimPrefix(r.URL.Path[:strings.LastIndex(r.URL.Path, "/")], "/apis/")
	text := fmt.Appendf(nil, `{"apiVersion":%q,"kind":"List","metadata":{"resourceVersion":"1"},"items":[`,
		version)
	text = append(text, bytes.Join(items, []byte(","))...)
	return answer(http.StatusOK, append(text, "]}"...))
}
