// Package quotarecord records in bound pods the quota that they are in. Schedulers of an earlier version, and those of
// other projects, bind pods without this record. Then an edit of the pod's label that no webhook sees would end the
// pod's use of its quota.
package quotarecord
