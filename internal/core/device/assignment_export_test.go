package device

// Assignment is the Hungarian method on a matrix of at most 64 rows and columns.
func Assignment(cost [][]int16) (total int64, ok bool) {
	var table costs
	var to [MaxDevices]int8
	for i, row := range cost {
		copy(table[i][:], row)
	}
	return assignment(len(cost), len(cost[0]), &table, &to)
}
