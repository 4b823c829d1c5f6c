package colocation

// marginPercent is added to the peak of what prod pods used.
const marginPercent = 10

// Predict returns what prod pods requested and are predicted not to use: their requests less a peak of what they used
// together and a margin.
func Predict(requests, peak Amounts) (rest Amounts) {
	for r := range rest {
		rest[r] = max(requests[r]-peak[r]-share(peak[r], marginPercent), 0)
	}
	return rest
}
