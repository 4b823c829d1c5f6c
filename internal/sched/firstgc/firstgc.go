package firstgc

import (
	"runtime"
	"runtime/debug"
)

const (
	// firstHeap is the size of the heap at the first collection, smallestHeap what the runtime makes of it at
	// GOGC=100. The latter grows in proportion to GOGC.
	firstHeap    = 24 << 20
	smallestHeap = 4 << 20
	delayed      = 100 * firstHeap / smallestHeap
)

// An init function, since a call from main would come after the first three collections.
func init() {
	before := debug.SetGCPercent(delayed)
	if before < 100 || before >= delayed { // GOGC asks for less memory, or for fewer collections; off is negative
		debug.SetGCPercent(before)
		return
	}
	// The first collection finds the block unreachable.
	runtime.AddCleanup(new([64]byte), func(percent int) { debug.SetGCPercent(percent) }, before)
}
