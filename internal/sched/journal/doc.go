// Package journal records what a scheduler read and decided, so that each decision can be made again.
//
//	informers ──► Watch ──► accounts, cache, queue        one lock orders all of it: an event is applied before or
//	                │                                     after a scheduling cycle, never during one
//	queue ──► Next ─┼─► Schedule ──► Reserved             a cycle is one decision
//	                ▼
//	       bounded channel ──► Writer ──► ring of files   a full channel drops records, and never waits
//
// A file begins with a snapshot: the configuration and all objects. An event is an object that was put or deleted, or a
// pod whose reservation was given back. A decision is a pod with the pods that were taken out of the queue beside it,
// its node or its refusal, and what was reserved there. What would otherwise be chance is derived from a number of the
// decision, its seed: it decides between nodes with equal scores. The plugins look at the time of the decision alone.
//
// After a record was dropped, nothing more is written to the file: the next one begins with a snapshot. So a file has
// no gaps, and each line carries a checksum of all lines up to it, by which Read finds one that was cut or changed.
package journal
