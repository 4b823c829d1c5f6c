package app

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
)

// readOnly sends requests that read objects, and refuses all others before they leave the process.
type readOnly struct {
	http.RoundTripper
	// denied is called with the right that is missing where the API server refuses a request.
	denied func(error)
}

// requests says what a request asks for, as the API server would.
var requests = &request.RequestInfoFactory{
	APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
}

// ReadOnly returns a configuration whose clients cannot write. denied is called with each right that they lack.
func ReadOnly(config *rest.Config, denied func(error)) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &readOnly{next, denied} })
	return config
}

// RoundTrip sends a request that reads objects.
func (r *readOnly) RoundTrip(q *http.Request) (*http.Response, error) {
	info, err := requests.NewRequestInfo(q)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", q.Method, q.URL.Path, err)
	}
	reads := q.Method == http.MethodGet && q.Header.Get("Upgrade") == "" && info.Subresource == "" &&
		(!info.IsResourceRequest || slices.Contains([]string{"get", "list", "watch"}, info.Verb))
	if !reads {
		return nil, fmt.Errorf("%s %s: this client only reads", q.Method, q.URL.Path)
	}
	answer, err := r.RoundTripper.RoundTrip(q)
	if err == nil && answer.StatusCode == http.StatusForbidden {
		resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
		r.denied(apierrors.NewForbidden(resource, "", errors.New("the right to "+info.Verb+" them is missing")))
	}
	return answer, err
}
