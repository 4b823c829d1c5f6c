package claim

import "slices"

// EndsWith reports whether a claim is deallocated once some pods are gone: if the claim is reserved for these pods
// alone, whether a template created it or not. A claim that is reserved for no pod waits for one.
func EndsWith[U ~string](reservedFor []U, gone func(uid U) bool) bool {
	return len(reservedFor) > 0 && !slices.ContainsFunc(reservedFor, func(uid U) bool { return !gone(uid) })
}
