// Package webhook serves the answers of package admission to the API server. Quotas is what the answers about elastic
// quotas depend on besides the object: what informers have shown, and what was admitted since.
package webhook
