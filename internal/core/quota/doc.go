// Package quota shares a cluster's resources among teams: a tree of quotas, each with a guaranteed minimum, a ceiling
// and a weight, whose unused minimum is lent to siblings that ask for more and is taken back when its owner asks again.
//
//	            total (allocatable of the counted nodes)
//	               │  runtime: what a quota may use now, divided downwards
//	               ▼
//	   ┌──────── root ────────┐
//	  eng                    ops
//	 ┌─┴─────┐                │
//	search  ads             batch
//	               ▲
//	               │  request: what the pods ask for, summed upwards, limited by max at each step
//
// Everything is decided in int64 amounts per dimension (CPU in milli, everything else in its own unit); products are
// computed in 128 bits. The sources are the text of Koordinator's release 0.7 and the worked figures in its quota
// design.
package quota
