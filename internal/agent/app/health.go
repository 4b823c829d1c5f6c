package app

import (
	"fmt"
	"net/http"

	"k8s.io/component-base/metrics"
)

// Handler serves /healthz and /livez as alive says, /readyz as ready says, and the metrics of a registry.
func Handler(alive, ready func() error, registry metrics.KubeRegistry) *http.ServeMux {
	mux := http.NewServeMux()
	for path, check := range map[string]func() error{"/healthz": alive, "/livez": alive, "/readyz": ready} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			if err := check(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, "ok")
		})
	}
	mux.Handle("GET /metrics", metrics.HandlerFor(registry, metrics.HandlerOpts{}))
	return mux
}
