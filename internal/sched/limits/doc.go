// Package limits decides, as the API server's admission does, which pods and claims the LimitRanges and ResourceQuotas
// of a namespace refuse, for objects that are not created: those of simulations and of questions.
//
//	Default  what LimitRanges give a pod ──► (webhooks) ──► Admit  LimitRanges, then ResourceQuotas with what is used
//
// The rules are those of the API server itself: its functions are called on copies of the objects.
package limits
