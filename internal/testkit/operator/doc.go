// Package operator has manifests in the forms that operators ship, with what becomes of their pods on one node.
package operator
