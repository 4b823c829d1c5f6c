package makeroom

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/desched/scheduler"
	"github.com/tenon-project/tenon/internal/view"
)

// Path is where a Planner is served.
const Path = "/apis/v1/makeroom"

const maxBody = 1 << 20

// ServeHTTP answers a view.RoomRequest with a view.RoomAnswer, and changes nothing. Who may ask is decided before.
func (p *Planner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed, "method "+r.Method+" is not allowed on "+Path+": use POST")
		return
	}
	var request view.RoomRequest
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&request); err != nil {
		refuse(w, http.StatusBadRequest, "read the request: "+err.Error())
		return
	}
	klog.FromContext(r.Context()).V(2).Info("Asked to make room", "pods", request.Pods, "gang", request.Gang)
	answer, err := p.Plan(r.Context(), &request)
	var bad *Bad
	var refused *scheduler.Refused
	switch {
	case errors.As(err, &bad) || errors.As(err, &refused):
		refuse(w, http.StatusBadRequest, err.Error())
	case err != nil:
		refuse(w, http.StatusBadGateway, err.Error())
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // the caller has gone
	}
}

func refuse(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"message": text}) // the caller has gone
}

// EvictionsPath is where ServeEvictions answers.
const EvictionsPath = "/apis/v1/evictions"

// Evictions returns how much of the limits is used, and which placed pods they keep where they are. Keep in mind that a
// pod that may be evicted now may not be a moment later: each eviction counts.
func (p *Planner) Evictions() *view.EvictionLimits {
	out := &view.EvictionLimits{Limits: []view.LimitUse{}, Kept: []view.KeptPod{}, Round: p.Rounds.Last()}
	p.Cluster.Read(func(s *evict.State) {
		for pod := range s.Pods() {
			switch kept := reasons(s.CheckMove(p.Policy, evict.Move{PodUID: pod.UID}, p.Clock.Now())); {
			case pod.Succeeded || pod.Failed || pod.Node == "":
			case len(kept) == 0:
				out.Movable++
			default:
				out.Kept = append(out.Kept,
					view.KeptPod{Pod: pod.Namespace + "/" + pod.Name, Node: pod.Node, Reasons: kept})
			}
		}
		for _, u := range s.Uses(p.Policy, p.Clock.Now()) {
			use := view.LimitUse{Code: string(u.Code), Subject: u.Subject, Have: u.Have, Limit: u.Limit}
			if u.Window > 0 {
				use.Window = u.Window.String()
			}
			out.Limits = append(out.Limits, use)
		}
	})
	slices.SortFunc(out.Kept, func(a, b view.KeptPod) int { return strings.Compare(a.Pod, b.Pod) })
	return out
}

// ServeEvictions answers a POST with a view.EvictionLimits, and changes nothing. It names pods of all namespaces, and
// Kubernetes lets every user get paths under /apis: so it is not a GET. Who may ask is decided before.
func (p *Planner) ServeEvictions(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed, "method "+r.Method+" is not allowed on "+EvictionsPath+": use POST")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(p.Evictions()) // the caller has gone
}
