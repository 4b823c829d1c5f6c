package device

// never is the cost of an assignment that is not allowed. It is larger than the sum of all others.
const never = 1000

// costs are of rows for columns; never is the one of what is not allowed.
type costs [MaxDevices][MaxDevices]int16

// assignment is the Hungarian method: each of m rows gets one of n columns, with the least sum of costs; false where
// some row cannot have any.
func assignment(m, n int, cost *costs, to *[MaxDevices]int8) (total int64, ok bool) {
	if m > n {
		return 0, false
	}
	const most = 1 << 30
	// rows and columns are the potentials: no cost is less than the sum of its two. owner is the row of each column, 0
	// for none; a new row begins in column 0. way is the column before each one on the path that is being searched.
	var rows, columns, slack [MaxDevices + 1]int
	var owner, way [MaxDevices + 1]int
	for i := 1; i <= m; i++ {
		// Row i is added. The search ends at a column without a row; then all rows on the path move to the next column.
		owner[0] = i
		at := 0
		var seen [MaxDevices + 1]bool
		for j := range n + 1 {
			slack[j] = most
		}
		for owner[at] != 0 {
			seen[at] = true
			row, least, next := owner[at], most, 0
			for j := 1; j <= n; j++ {
				if seen[j] {
					continue
				}
				if d := int(cost[row-1][j-1]) - rows[row] - columns[j]; d < slack[j] {
					slack[j], way[j] = d, at
				}
				if slack[j] < least {
					least, next = slack[j], j
				}
			}
			for j := range n + 1 {
				if seen[j] {
					rows[owner[j]] += least
					columns[j] -= least
				} else {
					slack[j] -= least
				}
			}
			at = next
		}
		for at != 0 {
			owner[at] = owner[way[at]]
			at = way[at]
		}
	}
	for j := 1; j <= n; j++ {
		if i := owner[j]; i != 0 {
			if cost[i-1][j-1] >= never {
				return 0, false
			}
			to[i-1], total = int8(j-1), total+int64(cost[i-1][j-1])
		}
	}
	return total, true
}
