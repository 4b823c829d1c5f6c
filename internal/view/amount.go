package view

import "strconv"

// CPUText writes an amount of CPU as Kubernetes does: "1500m", "4".
func CPUText(milli int64) string {
	if milli%1000 != 0 {
		return strconv.FormatInt(milli, 10) + "m"
	}
	return CountText(milli / 1000)
}

// CountText writes a number as Kubernetes does: "4", "2k".
func CountText(n int64) string { return scaled(n, 1000, "", "k", "M", "G", "T", "P", "E") }

// BytesText writes an amount of memory as Kubernetes does: "1Gi", "1536Mi".
func BytesText(n int64) string {
	if -1024 < n && n < 1024 {
		return scaled(n, 1000, "", "k")
	}
	return scaled(n, 1024, "", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
}

// scaled writes n in the largest unit of which it is a whole number; each unit is factor times the one before.
func scaled(n, factor int64, units ...string) string {
	for len(units) > 1 && n != 0 && n%factor == 0 {
		n, units = n/factor, units[1:]
	}
	return strconv.FormatInt(n, 10) + units[0]
}
