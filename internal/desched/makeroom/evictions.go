package makeroom

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/view"
)

// EvictionsPath is where ServeEvictions answers.
const EvictionsPath = "/apis/v1/evictions"

// Evictions returns how much of the limits is used, and which placed pods they keep where they are. Keep in mind that a
// pod that may be evicted now may not be a moment later: each eviction counts.
func (p *Planner) Evictions() *view.EvictionLimits {
	out := &view.EvictionLimits{Limits: []view.LimitUse{}, Kept: []view.KeptPod{}, Round: p.Round()}
	p.Read(func(s *evict.State) {
		for pod := range s.Pods() {
			switch kept := reasons(s.CheckMove(p.Policy, evict.Move{PodUID: pod.UID}, p.Now())); {
			case pod.Succeeded || pod.Failed || pod.Node == "":
			case len(kept) == 0:
				out.Movable++
			default:
				out.Kept = append(out.Kept,
					view.KeptPod{Pod: pod.Namespace + "/" + pod.Name, Node: pod.Node, Reasons: kept})
			}
		}
		for _, u := range s.Uses(p.Policy, p.Now()) {
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
