// Package quotaprofile keeps the ElasticQuota at the top of an extra tree equal to the nodes that an
// ElasticQuotaProfile selects: what they have together, times a ratio, is what the tree divides.
package quotaprofile
