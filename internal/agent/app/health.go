package app

import (
	gojson "encoding/json"
	"fmt"
	"net/http"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// patience is how long a loop may be stalled before only a restart can be expected to help.
const patience = 5 * time.Minute

// Alive returns an error when a loop of Run has not moved for so long that only a restart can be expected to help.
func (a *Agent) Alive() error {
	now, limit := a.o.Clock.Now(), max(patience, 3*a.o.Resync)
	if at := a.followed.Load(); at != nil && now.Sub(*at) > limit {
		return fmt.Errorf("the loop that follows the node has not moved for %v", now.Sub(*at).Round(time.Second))
	}
	if at := a.enforcer.LastPass(); !at.IsZero() && now.Sub(at) > limit && a.Writes() {
		return fmt.Errorf("the cgroup tree was last checked %v ago", now.Sub(at).Round(time.Second))
	}
	return nil
}

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

// Inspect returns what the kernel has for a pod of the node at this moment; false when the node has no such pod.
func (a *Agent) Inspect(namespace, name string) (view.Cgroups, bool) {
	for _, pod := range a.Pods() {
		if pod.Namespace == namespace && pod.Name == name && !convert.Ended(pod.Pod) {
			return a.enforcer.Describe(pod.Pod, a.Mode()), true
		}
	}
	return view.Cgroups{}, false
}

// InspectHandler answers what the kernel has for a pod, by the agent on whose node it is. agents may return other ones
// at each call.
func InspectHandler(agents func() []*Agent) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		namespace, name := r.PathValue("namespace"), r.PathValue("name")
		for _, a := range agents() {
			if answer, ok := a.Inspect(namespace, name); ok {
				writeJSON(w, http.StatusOK, answer)
				return
			}
		}
		writeJSON(w, http.StatusNotFound, map[string]string{"message": fmt.Sprintf("no pod %s/%s runs here", namespace,
			name)})
	})
}

func writeJSON(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = gojson.NewEncoder(w).Encode(answer) // who asked has gone
}
