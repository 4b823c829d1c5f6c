package kube

import corev1 "k8s.io/api/core/v1"

// Conceal records that a member remains nominated to a node although the API is about to show no nomination.
func (s *Gangs) Conceal(uid, node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods[uid] != nil {
		s.concealed[uid] = node
	}
}

// Exhibit undoes Conceal where the API shows the nomination after all.
func (s *Gangs) Exhibit(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.concealed, uid)
}

// Concealed returns the node of a concealed nomination; empty for none.
func (s *Gangs) Concealed(uid string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.concealed[uid]
}

// Reveal ends the concealed nominations of these members, and returns those that had one, with the node. From then on
// they are what the API shows: pods without a nomination.
func (s *Gangs) Reveal(which func(uid string) bool) (nodes map[*corev1.Pod]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, node := range s.concealed {
		if !which(uid) {
			continue
		}
		delete(s.concealed, uid)
		p := s.pods[uid].DeepCopy()
		p.Status.NominatedNodeName = ""
		s.pods[uid] = p
		if nodes == nil {
			nodes = map[*corev1.Pod]string{}
		}
		nodes[p] = node
	}
	return nodes
}

// ShowConcealed is a transform of an informer of pods. It adds concealed nominations, so that all parts of a scheduler
// see a nomination until it is revealed. The object must not be in a cache yet.
func (s *Gangs) ShowConcealed(object any) (any, error) {
	object, err := WithoutManagedFields(object)
	if p, ok := object.(*corev1.Pod); ok && p.Spec.NodeName == "" && p.Status.NominatedNodeName == "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		p.Status.NominatedNodeName = s.concealed[string(p.UID)]
	}
	return object, err
}
