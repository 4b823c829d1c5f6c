// Package web contains the pages of the console as `make generate` bundles them from src.
package web
