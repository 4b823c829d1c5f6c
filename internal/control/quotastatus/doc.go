// Package quotastatus keeps what ElasticQuota objects say of their use equal to the quotas: status.used, and the
// annotations that start with what a quota may use now. It writes changes only, at most 20 a second, and first the
// quota that has waited longest: of 1,000 quotas that change all the time, each is written every 50 s with its newest
// values.
//
// Where the API has the status apart from the object, an object takes two writes, and both would take 100 s. Then
// status.used comes first, by which users and other programs know a quota, and is written every 56 s; annotations get
// one write in ten, 500 s a round, and all that status leaves.
//
// What of a quota cannot be followed is reported by an Event, once per cause.
package quotastatus
