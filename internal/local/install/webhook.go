package install

import (
	"encoding/base64"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// PointWebhooks makes webhook configurations that name a Service lead to a server on this machine instead: a local
// cluster has no service network. Only clientConfig changes; other objects are left alone.
func PointWebhooks(objects []*unstructured.Unstructured, server string, authority []byte) error {
	kinds := []string{"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"}
	for _, o := range objects {
		if !slices.Contains(kinds, o.GetKind()) {
			continue
		}
		webhooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
		for _, w := range webhooks {
			if err == nil {
				err = point(w, server, authority)
			}
		}
		if err == nil {
			err = unstructured.SetNestedSlice(o.Object, webhooks, "webhooks")
		}
		if err != nil {
			return fmt.Errorf("point %s %s to %s: %w", o.GetKind(), o.GetName(), server, err)
		}
	}
	return nil
}

func point(webhook any, server string, authority []byte) error {
	fields, ok := webhook.(map[string]any)
	if !ok {
		return fmt.Errorf("webhooks[]: want an object, got %T", webhook)
	}
	path, found, err := unstructured.NestedString(fields, "clientConfig", "service", "path")
	if err == nil && !found {
		err = fmt.Errorf("webhook %v names no service path", fields["name"])
	}
	fields["clientConfig"] = map[string]any{
		"url": server + path, "caBundle": base64.StdEncoding.EncodeToString(authority),
	}
	return err
}
