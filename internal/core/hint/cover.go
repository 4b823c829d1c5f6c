package hint

// cover returns the largest capacity of k walked nodes, for every k, of units that may stand on several nodes.
func cover(places []Place, walked Mask) []int64 { panic("not built") }
