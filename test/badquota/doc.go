// Package badquota has changes of ElasticQuotas that break each of the rules, in one place for two tests: the webhook
// refuses them, and where they come past it, or are older than it, the scheduler survives them.
package badquota
