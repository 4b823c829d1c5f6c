package diag

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/tenon-project/tenon/internal/sched/diag/whatif"
	"github.com/tenon-project/tenon/internal/view"
)

const (
	whatIfPath = "/apis/v1/whatif"
	// maxWhatIfBody bounds the question: it may name thousands of movable pods.
	maxWhatIfBody = 1 << 20
)

// whatIf answers where pods would go in a changed cluster. The caller must be allowed to read the pods and nodes that
// the question names.
func (s *server) whatIf(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxWhatIfBody))
	if err != nil {
		writeError(w, http.StatusRequestEntityTooLarge, "read the body: %v", err)
		return
	}
	var q view.WhatIf
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err = decoder.Decode(&q); err == nil && decoder.More() {
		err = errors.New("more than one JSON value")
	}
	if err != nil {
		writeError(w, http.StatusBadRequest, "read the question: %v", err)
		return
	}
	mayRead := s.reader(r)
	if refused := s.refuse(r, &q, mayRead); refused != "" {
		writeError(w, http.StatusForbidden, "%s", refused)
		return
	}
	s.audit(r, fmt.Sprintf("%s, pods %s", view.Count(len(q.Changes), "change"), strings.Join(q.Ask.Pods, " ")))
	answer, err := s.WhatIf.Answer(r.Context(), &q)
	var bad *whatif.BadQuestion
	switch {
	case errors.As(err, &bad):
		writeError(w, http.StatusBadRequest, "%v", err)
		return
	case errors.As(err, &whatif.Busy{}):
		w.Header().Set("Retry-After", "1")
		writeError(w, http.StatusTooManyRequests, "%v", err)
		return
	case err != nil:
		writeError(w, http.StatusInternalServerError, "%v", err)
		return
	}
	// A victim is found by the engine, so the question does not name it: the caller may not be allowed to read it.
	if f := answer.Forecast; f != nil {
		answer.Forecast = f.For(mayRead)
	}
	before := len(answer.Victims)
	answer.Victims = slices.DeleteFunc(answer.Victims, func(v view.Victim) bool {
		namespace, _ := namespaceOf(v.Pod)
		return !mayRead(namespace)
	})
	answer.VictimsHidden = before - len(answer.Victims)
	writeJSON(w, answer)
}

// refuse returns why the caller may not ask a question, "" if the caller may.
func (s *server) refuse(r *http.Request, q *view.WhatIf, mayRead func(namespace string) bool) string {
	if (q.Ask.Mode == view.MakeRoom || q.Ask.Mode == view.Defragment) && !mayRead("") {
		return "pods of all namespaces cannot be read: get on pods is missing"
	}
	pods := slices.Clone(q.Ask.Pods)
	for _, c := range q.Changes {
		nodes := []string{c.Cordon}
		if c.AddNode != nil {
			nodes = append(nodes, c.AddNode.Like)
		}
		if c.PatchNode != nil {
			nodes = append(nodes, c.PatchNode.Name)
		}
		for _, name := range nodes {
			if name != "" && !s.mayGet(r, authorizer.AttributesRecord{Name: name, Resource: "nodes"}) {
				return "node " + name + " cannot be read: get on nodes is missing"
			}
		}
		if c.PatchPod != nil {
			pods = append(pods, c.PatchPod.Name)
		}
		if c.RemovePod != "" {
			pods = append(pods, c.RemovePod)
		}
		if c.AddPod != nil {
			pods = append(pods, namespaceOfPod(c.AddPod)+"/new")
		}
		if c.ScaleGang != nil {
			var g struct {
				Gang string `json:"gang"`
			}
			_ = json.Unmarshal(c.ScaleGang, &g) // the engine refuses what it cannot read
			pods = append(pods, g.Gang)
		}
		if c.SetQuota != nil && !mayRead("") { // what others use shows in the answer
			return "pods of all namespaces cannot be read: get on pods is missing"
		}
	}
	for _, pod := range pods {
		namespace, _ := namespaceOf(pod)
		if !mayRead(namespace) {
			return "pods in namespace " + namespace + " cannot be read: get on pods is missing"
		}
	}
	return ""
}

// namespaceOfPod returns the namespace of a Pod as JSON, that which the engine gives it where it has none.
func namespaceOfPod(raw json.RawMessage) string {
	var pod struct {
		Metadata struct {
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &pod); err != nil || pod.Metadata.Namespace == "" {
		return "default"
	}
	return pod.Metadata.Namespace
}
