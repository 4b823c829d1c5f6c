package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// bindings is the API server as the scheduler's binder sees it: it takes Bindings and nothing else.
type bindings struct {
	mu   sync.Mutex
	sent map[string]map[string]string // namespace/name to the annotations of its Binding
}

func newBindings() *bindings { return &bindings{sent: map[string]map[string]string{}} }

// take returns the annotations of a pod's Binding and forgets it.
func (b *bindings) take(namespace, name string) (annotations map[string]string, sent bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := namespace + "/" + name
	annotations, sent = b.sent[key]
	delete(b.sent, key)
	return annotations, sent
}

// RoundTrip answers a request.
func (b *bindings) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/binding") {
		return nil, fmt.Errorf("simulate has no API server for %s %s", r.Method, r.URL.Path)
	}
	defer func() { _ = r.Body.Close() }() // it is in memory
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, fmt.Errorf("read the binding: %w", err)
	}
	var binding corev1.Binding
	if err := json.Unmarshal(body, &binding); err != nil {
		return nil, fmt.Errorf("read the binding: %w", err)
	}
	b.mu.Lock()
	b.sent[binding.Namespace+"/"+binding.Name] = binding.Annotations
	b.mu.Unlock()
	answer, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess, Code: http.StatusCreated,
	})
	if err != nil {
		return nil, fmt.Errorf("answer the binding: %w", err)
	}
	return &http.Response{
		StatusCode: http.StatusCreated, Status: "201 Created", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": []string{"application/json"}}, Body: io.NopCloser(bytes.NewReader(answer)),
	}, nil
}
