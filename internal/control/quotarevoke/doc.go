// Package quotarevoke takes back what quotas use above their share, as internal/core/quota plans it.
//
//	snapshot ─► plan ─► mark ····· delayEvictTime ····· snapshot ─► plan ─► evict the first unit ─► snapshot …
//	                      └── the plan no longer names the pod ─► remove the mark
//
// A mark is the condition tenon.sh/QuotaRevocation of the pod. Every pass plans anew from one snapshot and evicts at
// most one unit, a pod or a whole gang, through the Eviction API: each eviction follows from what was true right before
// it.
package quotarevoke
