package makeroom

import (
	"encoding/json"
	"errors"
	"net/http"

	"k8s.io/klog/v2"

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
