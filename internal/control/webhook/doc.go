// Package webhook serves the answers of package admission to the API server.
package webhook
