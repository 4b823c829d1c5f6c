package kube

import "github.com/tenon-project/tenon/internal/core/gang"

// Bonds returns what quotas know of gangs.
func (s *Gangs) Bonds() map[string]gang.Bond { return s.bonds }
